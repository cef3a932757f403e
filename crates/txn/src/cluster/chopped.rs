//! Transactions that run in pieces in a cluster: each piece is a distributed transaction of its
//! own, and all of it is serializable, as an analysis has shown.
//!
//! It is as on [one node](crate::chopped): transactions are described
//! ([`chopping`](drtm_chopping)), each piece gets its code, and the program is analysed when it is
//! registered. What differs:
//!
//! - *Code* is asynchronous, and has a [`PieceTx`] of a [`ClusterTx`](super::ClusterTx). A
//!   transaction runs on a [`Worker`](super::Worker) or on a [`Cluster`](super::Cluster).
//! - *Progress.* A program has a table of the cluster ([`Progress`]). The transaction of each piece
//!   also writes there what is left to do, and that of the last one removes it. It compares what is
//!   written there first, so that each piece is done once, even if several nodes run the same
//!   transaction.
//! - *Ends.* A transaction whose future was dropped, or whose node has died, goes on after the last
//!   piece that was done: [`Registered::resume`] finishes it. With [`Registered::serve`], nodes do
//!   so by themselves.
//! - *Not there* are deferred additions, reads by two rounds, and transactions that run alone. A
//!   transaction that only reads runs in pieces, as the analysis has merged them.
//!
//! All nodes add the table of a program, and register the program alike. `docs/decisions/0109` says
//! why it is so.
//!
//! # Example
//!
//! ```
//! use drtm::{
//!     Error, Pod, TableDef,
//!     chopped::Abort,
//!     chopping::{Piece, Table, Transaction},
//!     cluster::{Cluster, Partition, chopped::Procedures},
//! };
//! use serde::{Deserialize, Serialize};
//!
//! const ITEM: Table = Table::new("item", &["price"]).stationary();
//! const STOCK: Table = Table::new("stock", &["amount"]);
//! const SALES: Table = Table::new("sales", &["sum"]);
//! const SELL: Transaction = Transaction::new("sell", &[
//!     Piece::new("stock", &[STOCK.update("amount")]).after(&[]),
//!     Piece::new("price", &[ITEM.read("price")]).after(&[]).may_abort(),
//!     Piece::new("sum", &[SALES.add("sum")]).after(&["price"]),
//! ]);
//!
//! #[derive(Clone, Serialize, Deserialize)]
//! struct Sale {
//!     item: u64,
//!     price: u64,
//! }
//!
//! const ITEMS: TableDef<u64, Pod<u64>> = TableDef::hash("item");
//! const STOCKS: TableDef<u64, Pod<u64>> = TableDef::hash("stock");
//! const SUMS: TableDef<u64, Pod<u64>> = TableDef::hash("sales");
//!
//! let mut builder = Cluster::builder().nodes(2);
//! let by_number = Partition::by("number", |number| *number);
//! let items = builder.table(ITEMS, by_number);
//! let (stocks, sums) = (builder.table(STOCKS, by_number), builder.table(SUMS, by_number));
//! let shop = builder.progress("shop");
//! let nodes = builder.start()?;
//! let filled = nodes[0].transact(async move |tx| {
//!     use drtm::Transaction as _;
//!     tx.put(items, 7, &250).await?;
//!     tx.put(stocks, 7, &10).await?;
//!     tx.put(sums, 0, &0).await
//! });
//! filled.wait()?;
//!
//! // Each node registers the program; here one is enough.
//! let mut shop = Procedures::new(&nodes[1].node(), shop);
//! let sum = shop.sum(SALES.add("sum"), sums)?;
//! let sell = shop
//!     .procedure::<Sale>(SELL)
//!     .piece("stock", async move |tx, sale| tx.update(stocks, sale.item, |left| *left -= 1).await.map(drop))
//!     .may_abort("price", async move |tx, sale| {
//!         sale.price = tx.get(items, sale.item).await?.ok_or_else(|| Abort::because("no such item"))?;
//!         Ok(())
//!     })
//!     .piece("sum", async move |tx, sale| tx.add(sum, 0, sale.price).await);
//! let sell = shop.add(sell);
//! let shop = shop.register()?;
//! // What a transaction leaves that does not end is finished by this node.
//! shop.serve(&nodes[1]);
//!
//! assert_eq!(sell.run(&nodes[1], Sale { item: 7, price: 0 }).wait()?.price, 250);
//! let refused = sell.run(&nodes[1], Sale { item: 8, price: 0 }).wait();
//! assert!(matches!(refused, Err(Error::Aborted { reason }) if reason == "no such item"));
//! let seen = nodes[0].transact(async move |tx| {
//!     use drtm::Transaction as _;
//!     Ok((tx.get(stocks, 7).await?, tx.get(sums, 0).await?))
//! });
//! assert_eq!(seen.wait()?, (Some(9), Some(250)));
//! # Ok::<(), Error>(())
//! ```

mod access;
mod call;
mod id;
mod left;
mod many;
mod procedure;
mod program;
mod progress;
mod registered;
mod room;
mod run;

pub use access::{Named, PieceTx};
pub use call::Call;
pub(super) use left::{Ids, Left};
pub use procedure::{Code, Procedure};
pub use program::Procedures;
pub use progress::Progress;
pub use registered::Registered;
