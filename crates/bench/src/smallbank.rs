//! SmallBank: tables, initial population, inputs, the rules of its transactions, the transactions
//! themselves, for any store, and the check that no money is lost. `drtm-bench smallbank` runs all
//! of it on this database.
//!
//! A bank's customers have a savings and a checking account each. The workload is that of Alomari,
//! Cahill, Fekete and Röhm (2008), with the sixth transaction and the amounts that H-Store gave it.
//! Money is in cents, always.
//!
//! - [`Account`], [`Savings`], [`Checking`]: rows as plain data; [`account_name`]: the key of the
//!   first.
//! - [`Bank`]: how many customers there are, and what they have at the beginning.
//! - [`Inputs`]: what customers ask for, in which [`Mix`](crate::mix::Mix) and by which [`HotSet`].
//! - [`rules`]: what each transaction makes of balances.
//! - [`check`]: that all money is where it should be, given the [`Ledger`] of what was committed,
//!   over a [`View`] of the rows.
//!
//! # Example
//!
//! ```
//! use drtm_bench::smallbank::{Bank, HotSet, Inputs, STANDARD_MIX, Transaction};
//!
//! let bank = Bank::new(10_000, 42)?;
//! let mut inputs = Inputs::new(bank, STANDARD_MIX, HotSet::DRTM_H, 1)?;
//! let transaction = inputs.draw();
//! if let Transaction::SendPayment { from, to, .. } = transaction {
//!     assert_ne!(from, to);
//! }
//! # Ok::<(), drtm_bench::smallbank::BankError>(())
//! ```

mod bank_client;
mod check;
mod cluster;
mod command;
mod inputs;
mod ours;
mod outline;
mod population;
pub mod rules;
mod schema;
#[cfg(test)]
mod tests;

#[cfg(feature = "stores")]
pub(crate) use bank_client::{Accounts, BankClient, Refused};
pub(crate) use command::{Args, Hot, SmallBank};

pub use check::{Condition, Ledger, View, Violation, check};
pub use inputs::{Amounts, HotSet, Inputs, Kind, STANDARD_MIX, Transaction};
pub use population::{Bank, BankError};
pub use schema::{Account, AccountName, Checking, CustomerKey, Savings, account_name};
