//! SmallBank's accounts in tables of this database.

use drtm_drive::expect_row;
use drtm_txn::{Config, Db, Error, Pod, Table, Tx};
use zerocopy::little_endian::I64;

use super::{
    Checking, CustomerKey, Savings, Transaction,
    bank_client::{Accounts, Refused, Served, serve},
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

impl<S: Config> Served for Ours<'_, S> {
    type Error = Error;

    #[inline(always)]
    fn serve(&self, transaction: &Transaction) -> Result<i64, Refused<Error>> {
        let tables = self.tables;
        self.db.try_transact(|tx| serve(&mut InTables { tx, tables }, transaction))
    }
}

/// The accounts, in a transaction.
struct InTables<'t, 'db, S: Config> {
    tx: &'t mut Tx<'db, S>,
    tables: Tables,
}

impl<S: Config> Accounts for InTables<'_, '_, S> {
    type Error = Error;

    #[inline(always)]
    fn prefetch(&mut self, savings: &[CustomerKey], checking: &[CustomerKey]) -> Result<(), Error> {
        if !savings.is_empty() {
            self.tx.prefetch(self.tables.savings, savings.iter())?;
        }
        self.tx.prefetch(self.tables.checking, checking.iter())
    }

    #[inline(always)]
    fn savings(&mut self, customer: CustomerKey) -> Result<i64, Error> {
        expect_row(self.tx.view(self.tables.savings, customer, |row| row.balance.get())?, SAVINGS)
    }

    #[inline(always)]
    fn checking(&mut self, customer: CustomerKey) -> Result<i64, Error> {
        expect_row(self.tx.view(self.tables.checking, customer, |row| row.balance.get())?, CHECKING)
    }

    #[inline(always)]
    fn change_savings(
        &mut self,
        customer: CustomerKey,
        rule: impl FnOnce(i64) -> Result<i64, Refusal>,
    ) -> Result<i64, Refused<Error>> {
        let changed = self.tx.update(self.tables.savings, customer, |row| change(&mut row.balance, rule))?;
        Refused::unless(expect_row(changed, SAVINGS)?)
    }

    #[inline(always)]
    fn change_checking(
        &mut self,
        customer: CustomerKey,
        rule: impl FnOnce(i64) -> Result<i64, Refusal>,
    ) -> Result<i64, Refused<Error>> {
        let changed = self.tx.update(self.tables.checking, customer, |row| change(&mut row.balance, rule))?;
        Refused::unless(expect_row(changed, CHECKING)?)
    }
}

/// Changes a balance by a rule, and returns the old balance.
fn change(balance: &mut I64, rule: impl FnOnce(i64) -> Result<i64, Refusal>) -> Result<i64, Refusal> {
    let before = balance.get();
    balance.set(rule(before)?);
    Ok(before)
}
