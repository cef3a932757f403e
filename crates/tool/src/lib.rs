//! The operator's tool: the program `drtm`, which reads what databases have left on disks, and
//! looks at clusters that run.
//!
//! - [`cluster`]: shows what a cluster's node sees of all.
//! - [`log`]: inspects, verifies and salvages a database's log directory. `drtm-bench` has these
//!   commands, too.

#![forbid(unsafe_code)]

pub mod cluster;
mod error;
pub mod log;

pub use error::Error;
