//! SmallBank on this database.

use drtm_drive::expect_row;
use drtm_txn::{Config, Db, Error, Pod, Table, Tx};
use zerocopy::little_endian::I64;

use super::{
    Checking, CustomerKey, Savings,
    bank_client::{Accounts, Refused},
    rules::Refusal,
};

pub(super) const SAVINGS: &str = "savings";
pub(super) const CHECKING: &str = "checking";

#[derive(Clone, Copy, Debug)]
pub struct Tables {
    pub(super) savings: Table<CustomerKey, Pod<Savings>>,
    pub(super) checking: Table<CustomerKey, Pod<Checking>>,
}

/// A database with the tables of accounts.
#[derive(Debug)]
pub struct Ours<'db, S: Config> {
    pub(super) db: &'db Db<S>,
    pub(super) tables: Tables,
}

impl<S: Config> Accounts for Ours<'_, S> {
    type Tx<'t> = Tx<'t, S>;
    type Error = Error;

    /// Ignores what it is told: the database itself detects whether a transaction writes.
    #[inline(always)]
    fn transact<T>(
        &self,
        _writes: bool,
        body: impl FnMut(&mut Tx<'_, S>) -> Result<T, Refused<Error>>,
    ) -> Result<T, Refused<Error>> {
        self.db.try_transact(body)
    }

    #[inline(always)]
    fn prefetch(&self, tx: &mut Tx<'_, S>, savings: &[CustomerKey], checking: &[CustomerKey]) -> Result<(), Error> {
        if !savings.is_empty() {
            tx.prefetch(self.tables.savings, savings.iter())?;
        }
        tx.prefetch(self.tables.checking, checking.iter())
    }

    #[inline(always)]
    fn savings(&self, tx: &mut Tx<'_, S>, customer: CustomerKey) -> Result<i64, Error> {
        expect_row(tx.view(self.tables.savings, customer, |row| row.balance.get())?, SAVINGS)
    }

    #[inline(always)]
    fn checking(&self, tx: &mut Tx<'_, S>, customer: CustomerKey) -> Result<i64, Error> {
        expect_row(tx.view(self.tables.checking, customer, |row| row.balance.get())?, CHECKING)
    }

    #[inline(always)]
    fn change_savings(
        &self,
        tx: &mut Tx<'_, S>,
        customer: CustomerKey,
        rule: impl FnOnce(i64) -> Result<i64, Refusal>,
    ) -> Result<i64, Refused<Error>> {
        let changed = tx.update(self.tables.savings, customer, |row| change(&mut row.balance, rule))?;
        Refused::unless(expect_row(changed, SAVINGS)?)
    }

    #[inline(always)]
    fn change_checking(
        &self,
        tx: &mut Tx<'_, S>,
        customer: CustomerKey,
        rule: impl FnOnce(i64) -> Result<i64, Refusal>,
    ) -> Result<i64, Refused<Error>> {
        let changed = tx.update(self.tables.checking, customer, |row| change(&mut row.balance, rule))?;
        Refused::unless(expect_row(changed, CHECKING)?)
    }
}

/// Changes a balance by a rule, and returns the old balance.
fn change(balance: &mut I64, rule: impl FnOnce(i64) -> Result<i64, Refusal>) -> Result<i64, Refusal> {
    let before = balance.get();
    balance.set(rule(before)?);
    Ok(before)
}
