//! Clusters whose nodes end and come back while their clients move money.
//!
//! - [`bank`]: accounts at all owners, and for each client a row that counts its transfers. `start`
//!   starts a node of such a cluster on any fabric.
//! - [`simulated`]: a whole cluster in virtual time, whose nodes crash, stand still, are cut off
//!   and start again.
//! - `verdict`: what is wrong with one.

pub mod bank;
pub mod simulated;
pub(crate) mod verdict;

pub use verdict::{Wrong, percentiles};
