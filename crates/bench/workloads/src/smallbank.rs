//! SmallBank: tables, initial population, inputs, rules, transactions for any store, and the check
//! that no money is lost. `drtm-bench smallbank` runs it on this database.
//!
//! Each customer of a bank has a savings and a checking account. The workload is that of Alomari,
//! Cahill, Fekete and Röhm (2008), with the sixth transaction and the amounts of H-Store. Money is
//! in cents.
//!
//! - [`Account`], [`Savings`], [`Checking`]: rows as plain data; [`account_name`]: the key of the
//!   first.
//! - [`Bank`]: the number of customers, and their initial balances.
//! - [`Inputs`]: the inputs of transactions, drawn by a [`Mix`](drtm_drive::mix::Mix) and a
//!   [`HotSet`].
//! - [`rules`]: computes the new balances of each transaction.
//! - [`check`]: checks over a [`View`] of the rows that no money is lost, given the [`Ledger`] of
//!   committed transactions.
//!
//! # Example
//!
//! ```
//! use drtm_workloads::smallbank::{Bank, HotSet, Inputs, STANDARD_MIX, Transaction};
//!
//! let bank = Bank::new(10_000, 42)?;
//! let mut inputs = Inputs::new(bank, STANDARD_MIX, HotSet::DRTM_H, 1)?;
//! let transaction = inputs.draw();
//! if let Transaction::SendPayment { from, to, .. } = transaction {
//!     assert_ne!(from, to);
//! }
//! # Ok::<(), drtm_workloads::smallbank::BankError>(())
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
pub use bank_client::{Accounts, BankClient, Refused, Served, serve};
pub use command::{Args, Hot, SmallBank};

pub use check::{Condition, Ledger, View, Violation, check};
pub use inputs::{Amounts, HotSet, Inputs, Kind, STANDARD_MIX, Transaction};
pub use population::{Bank, BankError};
pub use schema::{Account, AccountName, Checking, CustomerKey, Savings, account_name};
