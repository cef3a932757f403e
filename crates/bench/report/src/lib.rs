//! What the commands of drtm print with, and how they end: tables, JSON, charts, sizes as people
//! read them, errors, exit statuses.
//!
//! This is an interface for drtm's own packages. It follows their needs, and promises nothing to
//! others.
//!
//! - [`run`] parses a command line and runs it; a [`Failure`] has an exit status.
//! - [`Report`]: where text and JSON go. [`table`] and [`prose`] format text.
//! - [`chart`]: our values beside published ones, in SVG. [`Escaped`] is text within it.
//! - [`units`]: sizes, times and rates.

#![forbid(unsafe_code)]

pub mod chart;
mod command;
mod error;
mod markup;
mod names;
mod report;
mod table;
pub mod units;

pub use command::{Common, Failure, run};
pub use error::{Error, refuse_occupied};
pub use markup::Escaped;
pub use names::name_of;
pub use report::Report;
pub use table::{prose, table};
