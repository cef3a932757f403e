//! The initial population: customers, and what they have.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use zerocopy::little_endian::{I64, U64};

use super::{Account, AccountName, Checking, CustomerKey, Savings, account_name};
use crate::scatter::of_row;

/// What an account has at least, and at most, at the beginning: 10,000 to 50,000 in whole money, as
/// in H-Store.
const LEAST: i64 = 1_000_000;
const MOST: i64 = 5_000_000;

/// Customers whose money in all can be counted, whatever happens to it.
const MOST_CUSTOMERS: u64 = 1 << 32;

/// A bank: a function of the number of its customers and of a seed.
///
/// # Example
///
/// ```
/// use drtm_bench::smallbank::{Bank, account_name};
///
/// let bank = Bank::new(1_000, 42)?;
/// let money: i64 = bank.balances(0..1_000).map(|(_, savings, checking)| savings.balance.get() + checking.balance.get()).sum();
/// assert_eq!(bank.opening(), i128::from(money));
/// assert_eq!(bank.accounts(7..9).next().map(|(name, account)| (name, account.customer.get())), Some((account_name(7), 7)));
/// # Ok::<(), drtm_bench::smallbank::BankError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bank {
    customers: u64,
    seed: u64,
}

/// A bank that cannot be, or of which nothing can be drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BankError {
    /// Too few or too many customers.
    #[error("{0} customers: ask for 2 (a payment is to somebody else) to 4294967296")]
    Customers(u64),
    /// A set of hot customers, or of the others, that has fewer than two.
    #[error(
        "{hot} hot customers of {customers}: let at least two be hot and two not, by more customers or another share, or none"
    )]
    HotSet {
        /// Customers that would be hot.
        hot: u64,
        /// Customers of the bank.
        customers: u64,
    },
}

impl Bank {
    /// A bank of so many customers.
    ///
    /// # Errors
    ///
    /// When there are fewer than two, or more than can be.
    pub fn new(customers: u64, seed: u64) -> Result<Self, BankError> {
        match customers {
            2..=MOST_CUSTOMERS => Ok(Self { customers, seed }),
            _ => Err(BankError::Customers(customers)),
        }
    }

    /// Customers, numbered from zero.
    pub fn customers(&self) -> u64 {
        self.customers
    }

    /// The names of these customers.
    pub fn accounts(&self, customers: Range<CustomerKey>) -> impl Iterator<Item = (AccountName, Account)> + use<> {
        customers.map(|customer| (account_name(customer), Account { customer: U64::new(customer) }))
    }

    /// What these customers have at the beginning. Threads can share the work: a row is the same
    /// whoever asks for it.
    pub fn balances(
        &self,
        customers: Range<CustomerKey>,
    ) -> impl Iterator<Item = (CustomerKey, Savings, Checking)> + use<> {
        let seed = self.seed;
        customers.map(move |customer| {
            let random = &mut of_row(seed, customer);
            let mut balance = || I64::new(random.within(LEAST, MOST));
            (customer, Savings { balance: balance() }, Checking { balance: balance() })
        })
    }

    /// What all customers have together at the beginning.
    pub fn opening(&self) -> i128 {
        let of_one = |(_, savings, checking): (_, Savings, Checking)| savings.balance.get() + checking.balance.get();
        self.balances(0..self.customers).map(|row| i128::from(of_one(row))).sum()
    }
}
