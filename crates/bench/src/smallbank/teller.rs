//! The six transactions, and who runs them.
//!
//! Each row is looked up once: it is changed where it is found, and a rule that refuses leaves it as it is. So nothing has to be undone but a
//! payment to somebody whose balance would be too great, and there is not as much money.

use std::hint::black_box;

use drtm_txn::{Db, Error as DbError, Pod, Setting, Table, Tx};
use zerocopy::little_endian::I64;

use super::{
    Checking, CustomerKey, Inputs, Ledger, Savings, Transaction,
    rules::{self, Refusal},
};
use crate::{
    Error,
    drive::{Client, Done, there},
};

pub(super) const SAVINGS: &str = "savings";
pub(super) const CHECKING: &str = "checking";

#[derive(Clone, Copy, Debug)]
pub(crate) struct Tables {
    pub(super) savings: Table<CustomerKey, Pod<Savings>>,
    pub(super) checking: Table<CustomerKey, Pod<Checking>>,
}

/// A thread that serves customers.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Teller<'db, S: Setting> {
    db: &'db Db<S>,
    tables: Tables,
    inputs: Inputs,
    ledger: Ledger,
}

/// Why a transaction was not committed.
#[derive(Debug)]
enum Refused {
    /// What it asks for is not allowed.
    Rule,
    Failed(DbError),
}

impl From<DbError> for Refused {
    fn from(error: DbError) -> Self {
        Self::Failed(error)
    }
}

impl From<Refusal> for Refused {
    fn from(_: Refusal) -> Self {
        Self::Rule
    }
}

impl<'db, S: Setting> Teller<'db, S> {
    pub(super) fn new(db: &'db Db<S>, tables: Tables, inputs: Inputs) -> Self {
        Self { db, tables, inputs, ledger: Ledger::default() }
    }

    /// What its customers have put and taken.
    pub(super) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Who wants a second row asks for its memory while the first is looked at.
    fn serve(&mut self, transaction: &Transaction) -> Result<(), Refused> {
        let Self { db, tables, ledger, .. } = self;
        match *transaction {
            Transaction::Balance { customer } => {
                let balance = db.try_transact(|tx| {
                    tx.prefetch(tables.savings, [customer].iter())?;
                    tx.prefetch(tables.checking, [customer].iter())?;
                    let savings = tables.savings_of(tx, customer)?;
                    let checking = tx.view(tables.checking, &customer, |row| row.balance.get())?;
                    Ok::<_, Refused>(rules::balance(savings, there(checking, CHECKING)?))
                })?;
                black_box(balance);
            }
            Transaction::DepositChecking { customer, amount } => {
                db.try_transact(|tx| {
                    tables.change_checking(tx, customer, |balance| rules::deposit_checking(balance, amount))
                })?;
                ledger.put(amount);
            }
            Transaction::TransactSavings { customer, amount } => {
                db.try_transact(|tx| {
                    tables.change_savings(tx, customer, |balance| rules::transact_savings(balance, amount))
                })?;
                ledger.put(amount);
            }
            Transaction::Amalgamate { from, to } => db.try_transact(|tx| {
                tx.prefetch(tables.savings, [from].iter())?;
                tx.prefetch(tables.checking, [from, to].iter())?;
                let savings = tables.change_savings(tx, from, |_| Ok(0))?;
                let checking = tables.change_checking(tx, from, |_| Ok(0))?;
                tables.change_checking(tx, to, |balance| rules::amalgamate(savings, checking, balance))?;
                Ok::<_, Refused>(())
            })?,
            Transaction::WriteCheck { customer, amount } => {
                let taken = db.try_transact(|tx| {
                    tx.prefetch(tables.savings, [customer].iter())?;
                    tx.prefetch(tables.checking, [customer].iter())?;
                    let savings = tables.savings_of(tx, customer)?;
                    let mut taken = 0;
                    tables.change_checking(tx, customer, |balance| {
                        let check = rules::write_check(savings, balance, amount)?;
                        taken = check.taken;
                        Ok(check.checking)
                    })?;
                    Ok::<_, Refused>(taken)
                })?;
                ledger.take(taken);
            }
            Transaction::SendPayment { from, to, amount } => db.try_transact(|tx| {
                tx.prefetch(tables.checking, [from, to].iter())?;
                tables.change_checking(tx, from, |balance| Ok(rules::send_payment(balance, 0, amount)?.0))?;
                tables.change_checking(tx, to, |balance| rules::deposit_checking(balance, amount))?;
                Ok::<_, Refused>(())
            })?,
        }
        Ok(())
    }
}

impl Tables {
    fn savings_of<S: Setting>(&self, tx: &mut Tx<'_, S>, customer: CustomerKey) -> Result<i64, DbError> {
        there(tx.view(self.savings, &customer, |row| row.balance.get())?, SAVINGS)
    }

    fn change_savings<S: Setting>(
        &self,
        tx: &mut Tx<'_, S>,
        customer: CustomerKey,
        rule: impl FnOnce(i64) -> Result<i64, Refusal>,
    ) -> Result<i64, Refused> {
        let changed = tx.update(self.savings, &customer, |row| change(&mut row.balance, rule))?;
        Ok(there(changed, SAVINGS)??)
    }

    fn change_checking<S: Setting>(
        &self,
        tx: &mut Tx<'_, S>,
        customer: CustomerKey,
        rule: impl FnOnce(i64) -> Result<i64, Refusal>,
    ) -> Result<i64, Refused> {
        let changed = tx.update(self.checking, &customer, |row| change(&mut row.balance, rule))?;
        Ok(there(changed, CHECKING)??)
    }
}

/// Changes a balance by a rule, and gives what it was before.
fn change(balance: &mut I64, rule: impl FnOnce(i64) -> Result<i64, Refusal>) -> Result<i64, Refusal> {
    let before = balance.get();
    balance.set(rule(before)?);
    Ok(before)
}

/// As [`Kind`](super::Kind) numbers them.
pub(crate) const KINDS: &[&str] =
    &["balance", "deposit-checking", "transact-savings", "amalgamate", "write-check", "send-payment"];

impl<S: Setting> Client for Teller<'_, S> {
    fn kinds() -> &'static [&'static str] {
        KINDS
    }

    fn run_next(&mut self, _date: u64) -> Result<Done, Error> {
        let transaction = self.inputs.draw();
        let is_committed = match self.serve(&transaction) {
            Ok(()) => true,
            Err(Refused::Rule) => false,
            Err(Refused::Failed(error)) => return Err(error.into()),
        };
        Ok(Done { kind: transaction.kind() as usize, is_committed })
    }
}
