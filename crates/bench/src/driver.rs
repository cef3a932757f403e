//! Running workloads: worker threads, each with a closure that does one transaction after another.
//!
//! A closure gets its input from what it owns, retries as it likes, and says what became of the transaction. The driver counts that by the
//! kind of transaction, and takes times. Workers share nothing that is written but how far the run is, which each reads once per transaction
//! and which changes twice; what they have counted is put together when all are over.
//!
//! - [`run`]: a run of one subject, as its [`Setup`] says.
//! - [`Done`], [`Outcome`]: what a closure says; [`Kinds`]: the kinds that it speaks of.
//! - [`Tally`]: what is counted.
//! - [`interleave`]: several subjects in turns, and the [`Rates`] of each: what can be compared.
//!
//! # Example
//!
//! ```
//! use std::{num::NonZeroUsize, time::Duration};
//!
//! use drtm_bench::{driver::{Done, Setup, run}, smallbank::{Bank, BankError, HotSet, Inputs, STANDARD_MIX}};
//!
//! let setup = Setup {
//!     threads: NonZeroUsize::MIN,
//!     warm_up: Duration::from_millis(1),
//!     length: Duration::from_millis(10),
//!     ..Setup::STANDARD
//! };
//! let bank = Bank::new(1_000, 42)?;
//! let run = run(&setup, |worker| {
//!     let mut inputs = Inputs::new(bank, STANDARD_MIX, HotSet::None, worker as u64)?;
//!     // Here a transaction would be done.
//!     Ok::<_, BankError>(move || Ok(Done::committed(inputs.draw().kind())))
//! })?;
//! assert!(run.per_second() > 0.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod kinds;
mod rates;
mod run;
mod tally;
#[cfg(test)]
mod tests;

pub use kinds::Kinds;
pub use rates::{Rates, interleave};
pub use run::{DriverError, Run, Setup, run};
pub use tally::{Counts, Done, Outcome, Tally};
