//! YCSB: rows, initial population, inputs, the check that no write is lost or torn, and the
//! workload on our database: `drtm-bench ycsb`.
//!
//! - [`Row`]: fields of a hundred bytes. Each shows whether it is torn, and how often it was
//!   written; [`key`]: a record's key.
//! - [`Workload`]: A to F of the core package, as data; [`Plan`] and [`Inputs`]: the operations of
//!   workers, one [`Operation`] at a time.
//! - [`Transactions`]: transactions of several operations, as papers on transaction processing use
//!   them.
//! - [`check`]: compares the rows' write counts with the committed writes.
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//!
//! use drtm_workloads::ycsb::{Inputs, Operation, Plan, Workload};
//!
//! let plan = Arc::new(Plan::new(Workload::A, 1_000_000, 0, 2)?);
//! let mut inputs = Inputs::new(&plan, 0, 42)?;
//! match inputs.draw() {
//!     Operation::Read { number } | Operation::Update { number, .. } => assert!(number < 1_000_000),
//!     other => unreachable!("{other:?} in a workload of reads and updates"),
//! }
//! # Ok::<(), drtm_workloads::ycsb::PlanError>(())
//! ```

mod bodies;
mod check;
mod cluster;
mod command;
mod hotspot;
mod inputs;
mod layout;
mod load;
mod plan;
mod row;
#[cfg(test)]
mod tests;
mod transactions;
mod walk;
mod worker;

pub use cluster::{OrderedRecords, Records, SmallOrderedRecords, SmallRecords};
pub use command::{Args, SmallTransactions};
pub use hotspot::Hotspot;

pub use check::{Violation, check};
pub use inputs::{Inputs, Operation};
pub use plan::{Choice, EXPONENT, Kind, Plan, PlanError, Workload};
pub use row::{FIELD, Field, Row, SmallRow, StandardRow, key, number, population};
pub use transactions::{Access, LONG, MOST, SHORT, Shape, ShapeError, Transaction, Transactions};
pub use walk::Walk;
