//! The six transactions, for any store, and for this database on one node or several.
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
pub trait Served: Send {
    /// The error of an operation.
    type Error: Into<Error>;

    /// Runs a transaction until it commits or a rule refuses it. Returns the money that it put into
    /// the bank, which is negative if it took some.
    fn serve(&self, transaction: &Transaction) -> Result<i64, Refused<Self::Error>>;
}

/// The accounts, in a transaction.
#[cfg_attr(not(feature = "stores"), expect(unreachable_pub, reason = "other stores implement it"))]
pub trait Accounts {
    /// The error of an operation.
    type Error;

    /// Prefetches the accounts that the transaction is about to look up.
    fn prefetch(&mut self, savings: &[CustomerKey], checking: &[CustomerKey]) -> Result<(), Self::Error>;

    /// Returns the balance of a customer's savings account.
    fn savings(&mut self, customer: CustomerKey) -> Result<i64, Self::Error>;

    /// Returns the balance of a customer's checking account.
    fn checking(&mut self, customer: CustomerKey) -> Result<i64, Self::Error>;

    /// Changes a savings account's balance by `rule`, and returns the old balance.
    fn change_savings(
        &mut self,
        customer: CustomerKey,
        rule: impl FnOnce(i64) -> Result<i64, Refusal>,
    ) -> Result<i64, Refused<Self::Error>>;

    /// Changes a checking account's balance by `rule`, and returns the old balance.
    fn change_checking(
        &mut self,
        customer: CustomerKey,
        rule: impl FnOnce(i64) -> Result<i64, Refusal>,
    ) -> Result<i64, Refused<Self::Error>>;
}

/// The body of each transaction. Returns the money that it puts into the bank.
#[cfg_attr(not(feature = "stores"), expect(unreachable_pub, reason = "other stores call it"))]
#[inline(always)]
pub fn serve<A: Accounts>(accounts: &mut A, transaction: &Transaction) -> Result<i64, Refused<A::Error>> {
    match *transaction {
        Transaction::Balance { customer } => {
            accounts.prefetch(&[customer], &[customer])?;
            let savings = accounts.savings(customer)?;
            black_box(rules::balance(savings, accounts.checking(customer)?));
            Ok(0)
        }
        Transaction::DepositChecking { customer, amount } => {
            accounts.change_checking(customer, |balance| rules::deposit_checking(balance, amount))?;
            Ok(amount)
        }
        Transaction::TransactSavings { customer, amount } => {
            accounts.change_savings(customer, |balance| rules::transact_savings(balance, amount))?;
            Ok(amount)
        }
        Transaction::Amalgamate { from, to } => {
            accounts.prefetch(&[from], &[from, to])?;
            let savings = accounts.change_savings(from, |_| Ok(0))?;
            let checking = accounts.change_checking(from, |_| Ok(0))?;
            accounts.change_checking(to, |balance| rules::amalgamate(savings, checking, balance))?;
            Ok(0)
        }
        Transaction::WriteCheck { customer, amount } => {
            accounts.prefetch(&[customer], &[customer])?;
            let savings = accounts.savings(customer)?;
            let mut taken = 0;
            accounts.change_checking(customer, |balance| {
                let check = rules::write_check(savings, balance, amount)?;
                taken = check.taken;
                Ok(check.checking)
            })?;
            Ok(-taken)
        }
        Transaction::SendPayment { from, to, amount } => {
            accounts.prefetch(&[], &[from, to])?;
            accounts.change_checking(from, |balance| Ok(rules::send_payment(balance, 0, amount)?.0))?;
            accounts.change_checking(to, |balance| rules::deposit_checking(balance, amount))?;
            Ok(0)
        }
    }
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

impl<A: Served> BankClient<A> {
    /// Creates a client of these accounts that runs what `inputs` draw.
    pub fn new(accounts: A, inputs: Inputs) -> Self {
        Self { accounts, inputs, ledger: Ledger::default() }
    }

    /// Returns the ledger of its committed transactions.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }
}

impl<A: Served> Client for BankClient<A> {
    fn kinds() -> &'static [&'static str] {
        KINDS
    }

    fn run_next(&mut self, _date: u64) -> Result<Done, Error> {
        let transaction = self.inputs.draw();
        let is_committed = match self.accounts.serve(&transaction) {
            Ok(put) => {
                self.ledger.put(put);
                true
            }
            Err(Refused::Rule) => false,
            Err(Refused::Failed(error)) => return Err(error.into()),
        };
        Ok(Done { kind: transaction.kind() as usize, is_committed })
    }
}
