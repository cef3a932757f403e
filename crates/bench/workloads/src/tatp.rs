//! TATP: tables, initial population, inputs, consistency checks, and its transactions on our
//! database: `drtm-bench tatp`.
//!
//! The workload is the home location register of a mobile network, as the Telecommunication
//! Application Transaction Processing benchmark describes it. It has four tables and seven short
//! transactions. Some of them find no row, and then count as failed.
//!
//! - [`Subscriber`], [`AccessInfo`], [`SpecialFacility`], [`CallForwarding`]: rows as plain data,
//!   with keys that fit words. An index finds a subscriber by its number, [`subscriber_number`], of
//!   fifteen digits.
//! - [`Register`]: the subscribers, and their [`Profile`]s: all rows of a subscriber.
//! - [`Inputs`]: the inputs of transactions, drawn by a [`Mix`](drtm_drive::mix::Mix).
//! - [`check`]: the consistency conditions, over a [`View`] of the rows.
//! - [`Population`]: rows in ordinary maps.
//!
//! # Example
//!
//! ```
//! use drtm_workloads::tatp::{Choice, Inputs, Register, STANDARD_MIX, Transaction};
//!
//! let register = Register::new(100_000, 42)?;
//! let mut inputs = Inputs::new(register, STANDARD_MIX, Choice::NonUniform, 1);
//! if let Transaction::GetAccessData { key: (subscriber, kind) } = inputs.draw() {
//!     assert!((1..=100_000).contains(&subscriber) && (1..=4).contains(&kind));
//! }
//! # Ok::<(), drtm_workloads::tatp::RegisterError>(())
//! ```

mod body;
mod cluster;
mod command;
mod consistency;
mod inputs;
mod network;
mod population;
mod rows;
mod schema;
#[cfg(test)]
mod tests;

pub use command::{Args, Tatp};

pub use consistency::{Condition, Place, View, Violation, check};
pub use inputs::{Choice, Inputs, Kind, STANDARD_MIX, Transaction};
pub use population::{Profile, Register, RegisterError};
pub use rows::Population;
pub use schema::{
    AccessInfo, AccessInfoKey, CallForwarding, CallForwardingKey, SpecialFacility, SpecialFacilityKey, Subscriber,
    SubscriberKey, SubscriberNumber, subscriber_number,
};
