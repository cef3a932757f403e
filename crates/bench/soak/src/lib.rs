//! Long runs that look for errors of drtm.
//!
//! This is an interface for `drtm-bench`. It follows its needs, and promises nothing to others.
//!
//! - [`elle`]: client histories in Elle's form, judged by `drtm-history`: `drtm-bench history`.
//! - [`soak`]: crashes, kills and disk failures, and checks of what survives them: `drtm-bench
//!   soak`.

#![forbid(unsafe_code)]

pub mod elle;
mod error;
pub mod soak;

pub use error::Error;
