//! TPC-E's customer-position, as DrTM+H measures it: it values all accounts of a customer at the
//! prices of the last trades, which are on all nodes. It is read-only. `drtm-bench tpce-cp` runs it
//! on one node or several.
//!
//! This is no result of the benchmark, and may not be called one. It is one frame of one of twelve
//! transactions, over four of 33 tables.
//!
//! - [`Customer`], [`Account`], [`Holding`], [`LastTrade`]: rows as plain data, with keys that fit
//!   words.
//! - [`Brokerage`]: the numbers of rows, and their initial values.
//! - `cluster`: the transaction, and one that changes prices concurrently.
//!
//! # Example
//!
//! ```
//! use drtm_workloads::tpce::Brokerage;
//!
//! let brokerage = Brokerage::new(1_000, 42)?;
//! let portfolio = brokerage.portfolio(7);
//! assert!((1..=10).contains(&portfolio.accounts().count()));
//! assert!(portfolio.holdings().all(|(_, row)| row.security.get() < brokerage.securities()));
//! # Ok::<(), drtm_workloads::tpce::BrokerageError>(())
//! ```

mod brokerage;
mod cluster;
mod command;
mod schema;

pub use command::{Args, CustomerPosition};

pub use brokerage::{Brokerage, BrokerageError, Portfolio};
pub use schema::{Account, AccountKey, Customer, CustomerKey, Holding, HoldingKey, LastTrade, SecurityKey};
