//! `drtm-bench kv`: measures the memory store.
//!
//! The compared maps are defined once: [`MapName`] names them. A [`Subject`] is a filled map, and
//! runs slices of [`Work`] with some threads. `kv speed` and the criterion benches differ only in
//! how they count.
//!
//! # Example
//!
//! ```
//! use drtm_paper::kv::{Draw, Fill, MapName, Op, Style, Work};
//!
//! let work = Work { op: Op::Get, style: Style::Overlapping, rows: 0, keys: vec![Draw::Uniform.keys(5_000, 2_000, 1)] };
//! for map in [MapName::DrtmHash, MapName::DrtmTree] {
//!     let time = u64::subject(map, 5_000)?.run(&work)?;
//!     println!("{}: {:.0} ns", map.name(), time.as_nanos() as f64 / 2_000.0);
//! }
//! # Ok::<(), drtm_paper::Error>(())
//! ```

mod cached;
mod cluster;
mod counting;
mod cuckoo;
mod footprint;
mod hopscotch;
mod keys;
pub(crate) mod lookups;
mod maps;
mod names;
mod scheme;
mod speed;
mod subject;

pub use keys::{Draw, Key};
pub use names::{MapName, Op, Style};
pub use subject::{Fill, Subject, Work};

use clap::Subcommand;
use drtm_report::Report;

use crate::Error;

/// Examples, for the help of what has these commands.
pub const AFTER_HELP: &str = "\
Examples:
  drtm-bench kv lookups                                      READs per lookup, beside DrTM's Table VI
  drtm-bench kv lookups --scheme cluster --records 1000000
  drtm-bench kv lookups --scheme cluster+cache               the same, remembering buckets in caches of three sizes
  drtm-bench kv speed                                        gets and updates beside other maps
  drtm-bench kv speed --engine drtm-tree,congee --op scan --threads 1,2
  drtm-bench kv footprint --engine drtm-hash                 memory per record";

/// The commands under `kv`.
#[derive(Debug, Subcommand)]
#[expect(missing_docs, reason = "the arguments of each have its help")]
pub enum Command {
    Lookups(lookups::Args),
    Speed(speed::Args),
    Footprint(footprint::Args),
}

impl Command {
    /// Makes the study, and reports it.
    ///
    /// # Errors
    ///
    /// Returns an error if the options do not fit, or the study fails.
    pub fn execute(&self, seed: u64, report: &Report) -> Result<(), Error> {
        match self {
            Self::Lookups(args) => args.execute(seed, report),
            Self::Speed(args) => args.execute(seed, report),
            Self::Footprint(args) => args.execute(report),
        }
    }
}
