//! Access modes of transactions, as types: a read-only transaction has no methods that write.

use std::fmt::Debug;

use super::{Snapshot, Tx};
use crate::Config;

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Update {}
    impl Sealed for super::ReadOnly {}
}

/// The access mode of a transaction. Code that reads in either mode is generic over it. A read-only
/// transaction calls such code by [`exclusive`](Snapshot::exclusive).
///
/// # Example
///
/// ```
/// use drtm::{Db, Error, Mode, Pod, Config, Table, TableDef, Tx};
///
/// const ACCOUNTS: TableDef<u64, Pod<i64>> = TableDef::hash("accounts");
///
/// fn wealth<S: Config, M: Mode>(tx: &mut Tx<'_, S, M>, accounts: Table<u64, Pod<i64>>) -> Result<i64, Error> {
///     Ok(tx.get_many(accounts, &[1, 2])?.into_iter().flatten().sum())
/// }
///
/// let db = Db::new()?;
/// let accounts = db.table(ACCOUNTS)?;
/// db.transact(|tx| {
///     tx.put(accounts, &1, &30)?;
///     assert_eq!(wealth(tx, accounts)?, 30);
///     Ok(())
/// })?;
/// assert_eq!(db.read(|tx| tx.exclusive(|tx| wealth(tx, accounts)))?, 30);
/// # Ok::<(), Error>(())
/// ```
pub trait Mode: sealed::Sealed + Copy + Debug + Send + Sync + 'static {
    #[doc(hidden)]
    const WRITES: bool;

    /// What the closure of such a transaction gets.
    #[doc(hidden)]
    type Handle<'db, S: Config>: Handle<'db, S, Self>;
}

/// A transaction as a closure gets it.
pub trait Handle<'db, S: Config, M: Mode> {
    #[doc(hidden)]
    fn of(tx: Tx<'db, S, M>) -> Self;

    /// Returns the transaction with all that it has read, to be ended.
    #[doc(hidden)]
    fn whole(&mut self) -> &mut Tx<'db, S, M>;
}

impl<'db, S: Config> Handle<'db, S, Update> for Tx<'db, S> {
    #[inline(always)]
    fn of(tx: Self) -> Self {
        tx
    }

    #[inline(always)]
    fn whole(&mut self) -> &mut Self {
        self
    }
}

impl<'db, S: Config> Handle<'db, S, ReadOnly> for Snapshot<'db, S> {
    #[inline(always)]
    fn of(tx: Tx<'db, S, ReadOnly>) -> Self {
        Self::new(tx)
    }

    #[inline(always)]
    fn whole(&mut self) -> &mut Tx<'db, S, ReadOnly> {
        self.whole()
    }
}

/// The mode of transactions that read and write.
///
/// # Example
///
/// See [`Mode`].
#[derive(Clone, Copy, Debug)]
pub struct Update;

/// The mode of read-only transactions.
///
/// # Example
///
/// See [`Mode`].
#[derive(Clone, Copy, Debug)]
pub struct ReadOnly;

impl Mode for Update {
    const WRITES: bool = true;
    type Handle<'db, S: Config> = Tx<'db, S>;
}

impl Mode for ReadOnly {
    const WRITES: bool = false;
    type Handle<'db, S: Config> = Snapshot<'db, S>;
}
