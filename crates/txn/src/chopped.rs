//! Transactions that run in pieces: each piece is a transaction of its own, and all of it is
//! serializable, as an analysis has shown.
//!
//! A program describes its transactions ([`chopping`](drtm_chopping)) and gives each piece its code
//! ([`Procedures`]). When it is registered, the descriptions are analysed: pieces that must run
//! together are merged, or a chopping that was insisted on is refused, with the cycle that makes it
//! wrong. What a piece accesses beyond its description is refused, too.
//!
//! - *Pieces* run in order ([`Call::run`]), each exactly once. One that conflicts is run again
//!   alone. They hand over one value, the transaction's state.
//! - *Aborts.* Only the code of a piece that may abort can return an [`Abort`]. The analysis puts
//!   it before or into the first piece that has an effect. That piece's commit decides.
//! - *Crashes.* In a database with a log, the commit of each piece also writes what is left to do:
//!   the place of the next piece, and the state. The last one removes it. When the database is
//!   opened, it serves nothing until the program is registered, which finishes what was left.
//! - *Reads* as a whole are of a moment at which no transaction is under way that they conflict
//!   with ([`Reader`]).
//! - *Deferred additions* ([`PieceTx::add`]) are published together, every 20 ms, at a moment when
//!   neither a publisher nor a subscriber is under way.
//!
//! `docs/decisions/0095` and `0096` say why it is so, and `docs/chopping.md` is a guide. Clusters
//! have the same in `cluster::chopped`.
//!
//! # Example
//!
//! ```
//! use drtm::{
//!     Db, Error, Pod, TableDef,
//!     chopped::{Abort, Procedures},
//!     chopping::{Piece, Table, Transaction},
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
//! let db = Db::new()?;
//! let (items, stocks, sums) = (db.table(ITEMS)?, db.table(STOCKS)?, db.table(SUMS)?);
//! db.transact(|tx| {
//!     tx.put(items, 7, &250)?;
//!     tx.put(stocks, 7, &10)?;
//!     tx.put(sums, 0, &0)
//! })?;
//!
//! let mut shop = Procedures::new(&db, "shop");
//! let sum = shop.sum(SALES.add("sum"), sums)?;
//! let sell = shop
//!     .procedure::<Sale>(SELL)
//!     .piece("stock", move |tx, sale| tx.update(stocks, sale.item, |left| *left -= 1).map(drop))
//!     .may_abort("price", move |tx, sale| {
//!         sale.price = tx.get(items, sale.item)?.ok_or_else(|| Abort::because("no such item"))?;
//!         Ok(())
//!     })
//!     .piece("sum", move |tx, sale| tx.add(sum, 0, sale.price));
//! let sell = shop.add(sell);
//! shop.register()?;
//!
//! assert_eq!(sell.run(Sale { item: 7, price: 0 })?.price, 250);
//! let refused = sell.run(Sale { item: 8, price: 0 });
//! assert!(matches!(refused, Err(Error::Aborted { reason }) if reason == "no such item"));
//! assert_eq!(db.read(|tx| Ok((tx.get(stocks, 7)?, tx.get(sums, 0)?)))?, (Some(9), Some(250)));
//! # Ok::<(), Error>(())
//! ```

mod access;
pub(crate) mod additions;
#[cfg(feature = "cluster")]
mod both;
mod call;
pub(crate) mod draft;
mod many;
mod moment;
pub(crate) mod permits;
pub(crate) mod plan;
pub(crate) mod procedure;
mod program;
mod reader;
mod registered;
mod registration;
pub(crate) mod remainder;
mod room;
mod source;
pub(crate) mod stop;

pub use access::PieceTx;
pub use additions::{Addable, Sum};
pub use call::Call;
#[doc(hidden)]
pub use call::{Around, Bare};
pub use procedure::{Code, MayAbort, Nothing, Pieces, Procedure, Then};
pub use program::Procedures;
pub use reader::Reader;
pub use registered::Registered;
pub use source::Source;
pub use stop::{Abort, Stop};
