//! The initial population: customers and their balances.

use std::ops::Range;

use drtm_drive::scatter::of_row;
use serde::{Deserialize, Serialize};
use zerocopy::little_endian::{I64, U64};

use super::{Account, AccountName, Checking, CustomerKey, Savings, account_name};

/// The range of an initial balance: 10,000 to 50,000 in whole money, as in H-Store.
const LEAST: i64 = 1_000_000;
const MOST: i64 = 5_000_000;

/// The most customers whose total money cannot overflow.
const MOST_CUSTOMERS: u64 = 1 << 32;

/// A bank, determined by the number of its customers and a seed.
///
/// # Example
///
/// ```
/// use drtm_workloads::smallbank::{Bank, account_name};
///
/// let bank = Bank::new(1_000, 42)?;
/// let money: i64 = bank.balances(0..1_000).map(|(_, savings, checking)| savings.balance.get() + checking.balance.get()).sum();
/// assert_eq!(bank.opening(), i128::from(money));
/// assert_eq!(bank.accounts(7..9).next().map(|(name, account)| (name, account.customer.get())), Some((account_name(7), 7)));
/// # Ok::<(), drtm_workloads::smallbank::BankError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bank {
    customers: u64,
    seed: u64,
}

/// An invalid bank, or an invalid set of hot customers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BankError {
    /// Too few or too many customers.
    #[error("{0} customers: ask for 2 (a payment is to another customer) to 4294967296")]
    Customers(u64),
    /// The set of hot customers, or of the others, has fewer than two.
    #[error(
        "{hot} hot customers of {customers}: let at least two be hot and two not, by more customers or another share, or none"
    )]
    HotSet {
        /// The number of hot customers.
        hot: u64,
        /// The number of customers.
        customers: u64,
    },
}

impl From<BankError> for drtm_drive::Error {
    fn from(error: BankError) -> Self {
        Self::size(error)
    }
}

impl Bank {
    /// Creates a bank.
    ///
    /// # Errors
    ///
    /// Returns an error if there are fewer than two customers, or too many.
    pub fn new(customers: u64, seed: u64) -> Result<Self, BankError> {
        match customers {
            2..=MOST_CUSTOMERS => Ok(Self { customers, seed }),
            _ => Err(BankError::Customers(customers)),
        }
    }

    /// Returns the number of customers. They are numbered from zero.
    pub fn customers(&self) -> u64 {
        self.customers
    }

    /// Returns the names of these customers.
    pub fn accounts(&self, customers: Range<CustomerKey>) -> impl Iterator<Item = (AccountName, Account)> + use<> {
        customers.map(|customer| (account_name(customer), Account { customer: U64::new(customer) }))
    }

    /// Returns the initial balances of these customers. A row is the same whichever thread makes
    /// it, so threads can share the work.
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

    /// Returns the initial money of all customers.
    pub fn opening(&self) -> i128 {
        let of_one = |(_, savings, checking): (_, Savings, Checking)| savings.balance.get() + checking.balance.get();
        self.balances(0..self.customers).map(|row| i128::from(of_one(row))).sum()
    }
}
