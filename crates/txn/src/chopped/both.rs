//! Code of pieces that is written once, for one node and for clusters.

use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
};

use super::{access::PieceTx, stop::Stop};
use crate::{Config, Error, OneNode, cluster::chopped};

impl<'db, S: Config> PieceTx<'_, 'db, S> {
    /// Returns the output of a piece's code that is written for clusters, too.
    ///
    /// # Errors
    ///
    /// The code's; [`Error::NotReady`] if it waits for something else.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{
    ///     Db, Error, Pod, Table, TableDef, chopped,
    ///     chopped::Stop,
    ///     chopping::{self, Piece, Transaction},
    ///     cluster::{Cluster, Partition, chopped::{Named, PieceTx, Procedures}},
    /// };
    ///
    /// const STOCK: chopping::Table = chopping::Table::new("stock", &[]);
    /// const ADD: Transaction = Transaction::new("add", &[
    ///     Piece::new("add", &[STOCK.update("*"), STOCK.insert()]),
    /// ]);
    /// const STOCKS: TableDef<u64, Pod<u64>> = TableDef::hash("stock");
    ///
    /// async fn add<T: Named>(
    ///     tx: &mut PieceTx<'_, T>,
    ///     stocks: Table<u64, Pod<u64>>,
    ///     item: u64,
    /// ) -> Result<u64, Stop> {
    ///     let amount = tx.get(stocks, item).await?.unwrap_or(0) + 1;
    ///     tx.put(stocks, item, amount).await?;
    ///     Ok(amount)
    /// }
    ///
    /// let db = Db::new()?;
    /// let stocks = db.table(STOCKS)?;
    /// let mut shop = chopped::Procedures::new(&db, "shop");
    /// let here = shop.procedure::<u64>(ADD).piece("add", move |tx, item| {
    ///     *item = tx.ready(async |tx| add(tx, stocks, *item).await)?;
    ///     Ok(())
    /// });
    /// let here = shop.add(here);
    /// shop.register()?;
    /// assert_eq!((here.run(7)?, here.run(7)?), (1, 2));
    ///
    /// let mut builder = Cluster::builder();
    /// let (stocks, shop) = (builder.table(STOCKS, Partition::hash()), builder.progress("shop"));
    /// let nodes = builder.start()?;
    /// let mut shop = Procedures::new(&nodes[0].node(), shop);
    /// let there = shop.procedure::<u64>(ADD).piece("add", async move |tx, item| {
    ///     *item = add(tx, stocks, *item).await?;
    ///     Ok(())
    /// });
    /// let there = shop.add(there);
    /// shop.register()?;
    /// assert_eq!(there.run(&nodes[0], 7).wait()?, 1);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn ready<X, E: From<Stop>>(
        &mut self,
        code: impl AsyncFnOnce(&mut chopped::PieceTx<'_, OneNode<'_, 'db, S>>) -> Result<X, E>,
    ) -> Result<X, E> {
        let mut tx = OneNode(self.tx);
        let mut both = chopped::PieceTx::new(&mut tx, self.permits, Some(self.additions));
        let output = pin!(code(&mut both)).poll(&mut Context::from_waker(Waker::noop()));
        match output {
            Poll::Ready(output) => output,
            Poll::Pending => Err(Stop(Error::NotReady).into()),
        }
    }
}
