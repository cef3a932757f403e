//! The six transactions, for any store.
//!
//! Each account is looked up once, and changed in place; a rule that refuses leaves it unchanged.
//! So nothing has to be undone, except a payment that would overflow a balance, which no bank has
//! the money for.

use std::hint::black_box;

use drtm_drive::{Client, Done, Error};

use super::{
    CustomerKey, Inputs, Ledger, Transaction,
    rules::{self, Refusal},
};

/// The transactions' names, indexed by [`Kind`](super::Kind).
pub(super) const KINDS: &[&str] =
    &["balance", "deposit-checking", "transact-savings", "amalgamate", "write-check", "send-payment"];

/// A store with the accounts of all customers. Its transactions are serializable.
pub trait Accounts: Send {
    /// A transaction in progress.
    type Tx<'t>: ?Sized;

    /// The error of an operation.
    type Error: Into<Error>;

    /// Runs `body` in a transaction until it commits or `body` fails. Without `writes`, `body` is
    /// read-only.
    fn transact<T>(
        &self,
        writes: bool,
        body: impl FnMut(&mut Self::Tx<'_>) -> Result<T, Refused<Self::Error>>,
    ) -> Result<T, Refused<Self::Error>>;

    /// Prefetches the accounts that a transaction is about to look up.
    fn prefetch(
        &self,
        tx: &mut Self::Tx<'_>,
        savings: &[CustomerKey],
        checking: &[CustomerKey],
    ) -> Result<(), Self::Error>;

    /// Returns the balance of a customer's savings account.
    fn savings(&self, tx: &mut Self::Tx<'_>, customer: CustomerKey) -> Result<i64, Self::Error>;

    /// Returns the balance of a customer's checking account.
    fn checking(&self, tx: &mut Self::Tx<'_>, customer: CustomerKey) -> Result<i64, Self::Error>;

    /// Changes a savings account's balance by `rule`, and returns the old balance.
    fn change_savings(
        &self,
        tx: &mut Self::Tx<'_>,
        customer: CustomerKey,
        rule: impl FnOnce(i64) -> Result<i64, Refusal>,
    ) -> Result<i64, Refused<Self::Error>>;

    /// Changes a checking account's balance by `rule`, and returns the old balance.
    fn change_checking(
        &self,
        tx: &mut Self::Tx<'_>,
        customer: CustomerKey,
        rule: impl FnOnce(i64) -> Result<i64, Refusal>,
    ) -> Result<i64, Refused<Self::Error>>;
}

/// Why a transaction did not commit.
#[derive(Debug)]
pub enum Refused<E> {
    /// A rule forbids it.
    Rule,
    /// The store failed.
    Failed(E),
}

impl<E> From<E> for Refused<E> {
    #[inline]
    fn from(error: E) -> Self {
        Self::Failed(error)
    }
}

impl<E> Refused<E> {
    /// Converts the result of a rule.
    #[inline(always)]
    pub fn unless<T>(allowed: Result<T, Refusal>) -> Result<T, Self> {
        allowed.map_err(|_| Self::Rule)
    }
}

/// A thread that runs transactions.
#[derive(Debug)]
#[repr(align(128))]
pub struct BankClient<A> {
    accounts: A,
    inputs: Inputs,
    ledger: Ledger,
}

impl<A: Accounts> BankClient<A> {
    /// Creates a client of these accounts that runs what `inputs` draw.
    pub fn new(accounts: A, inputs: Inputs) -> Self {
        Self { accounts, inputs, ledger: Ledger::default() }
    }

    /// Returns the ledger of its committed transactions.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    fn serve(&mut self, transaction: &Transaction) -> Result<(), Refused<A::Error>> {
        let Self { accounts, ledger, .. } = self;
        match *transaction {
            Transaction::Balance { customer } => {
                let balance = accounts.transact(false, |tx| {
                    accounts.prefetch(tx, &[customer], &[customer])?;
                    let savings = accounts.savings(tx, customer)?;
                    Ok(rules::balance(savings, accounts.checking(tx, customer)?))
                })?;
                black_box(balance);
            }
            Transaction::DepositChecking { customer, amount } => {
                accounts.transact(true, |tx| {
                    accounts.change_checking(tx, customer, |balance| rules::deposit_checking(balance, amount))
                })?;
                ledger.put(amount);
            }
            Transaction::TransactSavings { customer, amount } => {
                accounts.transact(true, |tx| {
                    accounts.change_savings(tx, customer, |balance| rules::transact_savings(balance, amount))
                })?;
                ledger.put(amount);
            }
            Transaction::Amalgamate { from, to } => accounts.transact(true, |tx| {
                accounts.prefetch(tx, &[from], &[from, to])?;
                let savings = accounts.change_savings(tx, from, |_| Ok(0))?;
                let checking = accounts.change_checking(tx, from, |_| Ok(0))?;
                accounts.change_checking(tx, to, |balance| rules::amalgamate(savings, checking, balance))?;
                Ok(())
            })?,
            Transaction::WriteCheck { customer, amount } => {
                let taken = accounts.transact(true, |tx| {
                    accounts.prefetch(tx, &[customer], &[customer])?;
                    let savings = accounts.savings(tx, customer)?;
                    let mut taken = 0;
                    accounts.change_checking(tx, customer, |balance| {
                        let check = rules::write_check(savings, balance, amount)?;
                        taken = check.taken;
                        Ok(check.checking)
                    })?;
                    Ok(taken)
                })?;
                ledger.take(taken);
            }
            Transaction::SendPayment { from, to, amount } => accounts.transact(true, |tx| {
                accounts.prefetch(tx, &[], &[from, to])?;
                accounts.change_checking(tx, from, |balance| Ok(rules::send_payment(balance, 0, amount)?.0))?;
                accounts.change_checking(tx, to, |balance| rules::deposit_checking(balance, amount))?;
                Ok(())
            })?,
        }
        Ok(())
    }
}

impl<A: Accounts> Client for BankClient<A> {
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
