//! Access modes of transactions, as types: a read-only transaction has no methods that write.

use std::fmt::Debug;

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Update {}
    impl Sealed for super::ReadOnly {}
}

/// The access mode of a transaction. Code that reads in either mode is generic over it.
///
/// # Example
///
/// ```
/// use drtm::{Db, Error, Mode, Pod, Config, Table, TableDef, Tx};
///
/// const ACCOUNTS: TableDef<u64, Pod<i64>> = TableDef::hash("accounts");
///
/// fn wealth<S: Config, M: Mode>(tx: &Tx<'_, S, M>, accounts: Table<u64, Pod<i64>>) -> Result<i64, Error> {
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
/// assert_eq!(db.read(|tx| wealth(tx, accounts))?, 30);
/// # Ok::<(), Error>(())
/// ```
pub trait Mode: sealed::Sealed + Copy + Debug + Send + Sync + 'static {
    #[doc(hidden)]
    const WRITES: bool;
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
}

impl Mode for ReadOnly {
    const WRITES: bool = false;
}
