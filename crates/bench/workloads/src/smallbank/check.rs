//! Checks that no money is lost, when no transaction is in progress.

use std::{fmt, ops::AddAssign};

use serde::{Deserialize, Serialize};

use super::{Bank, Checking, CustomerKey, Savings};

/// The money that one worker's committed transactions put into the bank and took out, in cents.
///
/// # Example
///
/// ```
/// use drtm_workloads::smallbank::{Ledger, rules};
///
/// let mut ledger = Ledger::default();
/// ledger.put(130);
/// ledger.take(rules::write_check(0, 0, 500)?.taken);
/// let mut all = Ledger::default();
/// all.add(&ledger);
/// assert_eq!(all.balance(), 130 - 600);
/// # Ok::<(), rules::Refusal>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// The sum of deposits.
    pub put: i128,
    /// The sum of withdrawals.
    pub taken: i128,
}

impl Ledger {
    /// Records a committed deposit; a negative one is a withdrawal.
    #[inline]
    pub fn put(&mut self, amount: i64) {
        if amount < 0 { self.taken -= i128::from(amount) } else { self.put += i128::from(amount) }
    }

    /// Records a committed withdrawal, with its penalty.
    #[inline]
    pub fn take(&mut self, amount: i64) {
        self.taken += i128::from(amount);
    }

    /// Adds another worker's ledger.
    pub fn add(&mut self, other: &Self) {
        self.put += other.put;
        self.taken += other.taken;
    }

    /// Returns the deposits less the withdrawals.
    pub fn balance(&self) -> i128 {
        self.put - self.taken
    }
}

impl AddAssign for Ledger {
    fn add_assign(&mut self, other: Self) {
        self.add(&other);
    }
}

/// The rows, in any order, all as of one time.
#[allow(missing_docs, reason = "one for each table that has money")]
pub trait View {
    /// The error of reading a row.
    type Error;

    fn savings(&self) -> impl Iterator<Item = Result<(CustomerKey, Savings), Self::Error>>;
    fn checkings(&self) -> impl Iterator<Item = Result<(CustomerKey, Checking), Self::Error>>;
}

/// A condition of a consistent bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Condition {
    /// The money of all customers is the initial money plus deposits, less withdrawals.
    MoneyIsConserved,
    /// Each customer has one savings account. The violation's left side is the number of the
    /// customer's rows, or of rows of nonexistent customers.
    SavingsAreThere,
    /// Each customer has one checking account. The left side is as for savings.
    CheckingIsThere,
    /// No savings account is overdrawn.
    SavingsAreNotNegative,
}

/// A condition that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The condition.
    pub condition: Condition,
    /// The customer; `None` for the money of all.
    pub customer: Option<CustomerKey>,
    /// The actual value: cents, or a count.
    pub left: i128,
    /// The expected value, or the least allowed.
    pub right: i128,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { condition, customer, left, right } = self;
        write!(f, "{condition:?} does not hold")?;
        if let Some(customer) = customer {
            write!(f, " of customer {customer}")?;
        }
        write!(f, ": {left} where {right} is expected")
    }
}

/// Checks all conditions, and returns the violations.
///
/// # Errors
///
/// Returns an error if a row cannot be read.
///
/// # Example
///
/// ```
/// use std::convert::Infallible;
///
/// use drtm_workloads::smallbank::{Bank, Checking, Condition, Ledger, Savings, View, check};
///
/// struct Fresh(Bank);
///
/// impl View for Fresh {
///     type Error = Infallible;
///
///     fn savings(&self) -> impl Iterator<Item = Result<(u64, Savings), Infallible>> {
///         self.0.balances(0..self.0.customers()).map(|(customer, savings, _)| Ok((customer, savings)))
///     }
///     fn checkings(&self) -> impl Iterator<Item = Result<(u64, Checking), Infallible>> {
///         self.0.balances(0..self.0.customers()).map(|(customer, _, checking)| Ok((customer, checking)))
///     }
/// }
///
/// let bank = Bank::new(100, 42)?;
/// let mut ledger = Ledger::default();
/// assert_eq!(check(&Fresh(bank), &bank, &ledger)?, []);
/// ledger.put(1);
/// assert_eq!(check(&Fresh(bank), &bank, &ledger)?[0].condition, Condition::MoneyIsConserved);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn check<V: View>(view: &V, bank: &Bank, ledger: &Ledger) -> Result<Vec<Violation>, V::Error> {
    let mut violations = Vec::new();
    let mut money = 0;
    let mut rows = Rows::of(bank);
    for row in view.savings() {
        let (customer, row) = row?;
        rows.count(customer);
        let left = i128::from(row.balance.get());
        money += left;
        if left < 0 {
            let condition = Condition::SavingsAreNotNegative;
            violations.push(Violation { condition, customer: Some(customer), left, right: 0 });
        }
    }
    rows.check(Condition::SavingsAreThere, &mut violations);
    let mut rows = Rows::of(bank);
    for row in view.checkings() {
        let (customer, row) = row?;
        rows.count(customer);
        money += i128::from(row.balance.get());
    }
    rows.check(Condition::CheckingIsThere, &mut violations);
    let right = bank.opening() + ledger.balance();
    if money != right {
        violations.push(Violation { condition: Condition::MoneyIsConserved, customer: None, left: money, right });
    }
    violations.sort_by_key(|violation| (violation.condition, violation.customer));
    Ok(violations)
}

/// The number of rows of a table for each customer.
struct Rows {
    counts: Vec<u8>,
    /// Nonexistent customers that have rows.
    strangers: Vec<CustomerKey>,
}

impl Rows {
    fn of(bank: &Bank) -> Self {
        Self { counts: vec![0; bank.customers() as usize], strangers: Vec::new() }
    }

    fn count(&mut self, customer: CustomerKey) {
        match self.counts.get_mut(customer as usize) {
            Some(count) => *count = count.saturating_add(1),
            None => self.strangers.push(customer),
        }
    }

    fn check(self, condition: Condition, violations: &mut Vec<Violation>) {
        let own = (0..).zip(self.counts).filter(|(_, count)| *count != 1).map(|(who, count)| (who, count, 1));
        let others = self.strangers.into_iter().map(|who| (who, 1, 0));
        violations.extend(own.chain(others).map(|(customer, left, right)| Violation {
            condition,
            customer: Some(customer),
            left: left.into(),
            right,
        }));
    }
}
