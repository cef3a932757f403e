//! The operator's tool: the program `drtm`, which reads what databases have left on disks.
//!
//! `drtm-bench` has the same commands.
//!
//! - [`log`]: inspects, verifies and salvages a database's log directory.

#![forbid(unsafe_code)]

mod error;
pub mod log;

pub use error::Error;
