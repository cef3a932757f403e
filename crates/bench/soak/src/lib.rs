//! Long runs that look for errors of drtm.
//!
//! This is an interface for `drtm-bench`. It follows its needs, and promises nothing to others.
//!
//! - [`failover`]: nodes of clusters that are killed, stopped and cut off: `drtm-bench soak
//!   failover`.
//! - [`lasting`]: clusters whose nodes end and come back.
//! - [`elle`]: client histories in Elle's form, judged by `drtm-history`: `drtm-bench history`.
//! - [`soak`]: crashes, kills and disk failures, and checks of what survives them: `drtm-bench
//!   soak`.

#![forbid(unsafe_code)]

pub mod elle;
mod error;
pub mod failover;
pub mod lasting;
pub mod soak;

pub use error::Error;
