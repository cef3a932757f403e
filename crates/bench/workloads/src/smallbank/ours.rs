//! SmallBank's accounts in tables of this database, of one node or of several.

use drtm_drive::{Reads, expect_row};
use drtm_txn::{Config, Db, Error, OneNode, Pod, Table, Transaction as Tx, ready};
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
        self.db.try_transact(|tx| {
            ready(serve(&mut InTables { tx: &mut OneNode(tx), tables, reads: Reads::Here }, transaction))
        })
    }
}

/// The accounts, in a transaction.
pub(super) struct InTables<'t, T> {
    pub(super) tx: &'t mut T,
    pub(super) tables: Tables,
    pub(super) reads: Reads,
}

impl<T: Tx> Accounts for InTables<'_, T> {
    type Error = Error;

    #[inline(always)]
    async fn prefetch(&mut self, savings: &[CustomerKey], checking: &[CustomerKey]) -> Result<(), Error> {
        if !savings.is_empty() {
            self.reads.prefetch(self.tx, self.tables.savings, savings).await?;
        }
        self.reads.prefetch(self.tx, self.tables.checking, checking).await
    }

    #[inline(always)]
    async fn savings(&mut self, customer: CustomerKey) -> Result<i64, Error> {
        expect_row(self.tx.view(self.tables.savings, customer, |row| row.balance.get()).await?, SAVINGS)
    }

    #[inline(always)]
    async fn checking(&mut self, customer: CustomerKey) -> Result<i64, Error> {
        expect_row(self.tx.view(self.tables.checking, customer, |row| row.balance.get()).await?, CHECKING)
    }

    #[inline(always)]
    async fn change_savings(
        &mut self,
        customer: CustomerKey,
        rule: impl FnOnce(i64) -> Result<i64, Refusal>,
    ) -> Result<i64, Refused<Error>> {
        let changed = self.tx.update(self.tables.savings, customer, |row| change(&mut row.balance, rule)).await?;
        Refused::unless(expect_row(changed, SAVINGS)?)
    }

    #[inline(always)]
    async fn change_checking(
        &mut self,
        customer: CustomerKey,
        rule: impl FnOnce(i64) -> Result<i64, Refusal>,
    ) -> Result<i64, Refused<Error>> {
        let changed = self.tx.update(self.tables.checking, customer, |row| change(&mut row.balance, rule)).await?;
        Refused::unless(expect_row(changed, CHECKING)?)
    }
}

/// Changes a balance by a rule, and returns the old balance.
fn change(balance: &mut I64, rule: impl FnOnce(i64) -> Result<i64, Refusal>) -> Result<i64, Refusal> {
    let before = balance.get();
    balance.set(rule(before)?);
    Ok(before)
}
