//! Figures of the papers, regenerated: `drtm-bench paper`.
//!
//! A `Study` is an experiment. A `Panel` is one diagram or column
//! of its results, with the values in the paper's text. Published values are shown beside ours, and
//! nothing is computed from them. A series that is not available here, because it needs other
//! hardware or is another system, is listed with the reason and no value.

mod auto;
mod chopped;
mod dbx_durable;
mod dbx_factors;
mod dbx_fig1;
mod dbx_fig14;
mod dbx_store;
mod dbx_tpcc;
mod drtm;
mod drtm_fig15;
mod drtm_fig16;
mod drtm_fig2;
mod drtm_fig7;
mod drtm_s82;
mod drtm_tab1;
mod drtm_tab6;
mod drtmh;
mod effort;
mod entries;
mod hades;
mod hades_apps;
mod hades_counts;
mod hades_protocols;
mod hades_runs;
mod hades_scale;
mod panel;
mod recovery;
mod regions;
pub mod report;
mod seeds;
mod silo;
mod simulated;
mod view;

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::{
    Args as ClapArgs,
    builder::{PossibleValuesParser, TypedValueParser},
};
use drtm_report::Report;

use self::{
    effort::{Effort, EffortArgs},
    panel::{Panel, Study},
};
use crate::{Error, htm::EngineName};

/// Regenerate figures of the papers, beside the values that their texts give
///
/// A figure's name stands for all its panels: dbx-fig1 is dbx-fig1a to dbx-fig1d.
///
/// Studies of regions alone, and of whole transactions in one region, are simulated unless --engine
/// rtm is given. Those of clusters are simulated, in virtual time. All others are measured:
/// databases are loaded, run and checked in turns, --rounds times, and medians are reported.
/// Compare within one run; a published value is another machine's. A series that is not available
/// here is listed with the reason.
///
/// JSON: [{figure, series, x, y, published, kind, least, most, x_unit, y_unit, why}], where
/// published is the paper's value at that x or null, kind is "exact", "simulated", "measured" or
/// "unavailable" (then y is null, and why says why), and x is null where a panel has no such axis.
/// least and most are there where y is a median by several seeds.
#[derive(Debug, ClapArgs)]
#[command(verbatim_doc_comment, after_help = AFTER_HELP)]
pub struct Args {
    /// The figure, or one of its panels
    #[arg(value_parser = Selection::parser(), required_unless_present = "all", hide_possible_values = true)]
    figure: Option<Selection>,

    /// Every figure
    #[arg(long, conflicts_with = "figure")]
    all: bool,

    /// What runs the regions, in studies of these
    #[arg(long, value_enum, default_value_t, value_name = "ENGINE")]
    engine: EngineName,

    #[command(flatten)]
    effort: EffortArgs,

    /// Draw charts, too: into this file if its name ends in .svg, else into this directory
    #[arg(long, value_name = "DIR-or-FILE")]
    svg: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
Panels:
  dbx-fig1a    abort rate against working set, 4 threads
  dbx-fig1b    the same on 8 hardware threads of 4 cores
  dbx-fig1c    how much can be read together with how much written, in both orders
  dbx-fig1d    abort rate against duration
  dbx-fig5     TPC-C, on every engine, by threads
  dbx-fig6     single operations on trees, by threads
  dbx-fig7     single operations on hash tables
  dbx-fig8     TPC-C with more threads than processors
  dbx-fig9a    TPC-C's commits in regions: abort rate
  dbx-fig9b    the same: how many regions give up
  dbx-fig10a   TPC-C's whole transactions in one region: throughput
  dbx-fig10b   the same: how many end under the lock
  dbx-fig11a   single operations as transactions
  dbx-fig11b   the same: relative to the tree alone
  dbx-fig12    NEW-ORDER only, by kinds of tables
  dbx-fig13    the standard mix, by kinds of tables
  dbx-fig14a   half NEW-ORDER, half STOCK-LEVEL, with and without snapshots: throughput
  dbx-fig14b   the same: abort rate of all transactions
  dbx-fig14c   the same: abort rate of STOCK-LEVEL, which must be zero in snapshots
  dbx-fig14d   the same: throughput relative to validated reads
  dbx-fig15a   what adds to throughput, step by step
  dbx-fig15b   the same: relative to the first step
  dbx-fig16a   TPC-C with a log, by threads
  dbx-fig16b   the same: commits that do not wait over others
  dbx-fig17a   TPC-C with a log: how long until a transaction is durable
  dbx-fig17b   the same: the least and the most
  drtm-tab1a   whole transactions of SmallBank and TPC-C in one region: bytes read
  drtm-tab1b   the same: bytes written
  drtm-tab1c   the same: how many end under the lock
  drtm-tab1d   the same: how many of these for capacity
  drtm-fig2a   abort rate against working set, in sequence
  drtm-fig2b   the same at random
  drtm-fig7a   pieces of TPC-C's transactions, by the classical analysis
  drtm-fig7b   the same with independent pieces reordered
  drtm-fig7c   the same with all optimisations
  drtm-tab6a   one-sided READs that find a key, in this table and in two others: uniform keys
  drtm-tab6b   the same: Zipf keys
  drtm-s82a    TPC-C in pieces: how many runs of pieces end under the lock
  drtm-s82b    the same of each transaction's largest piece
  drtm-s82c    how many transactions do not fit, in pieces and whole
  drtm-s82d    the same: pieces over whole transactions
  drtm-fig15a  TPC-C on one node, in pieces and whole, by threads
  drtm-fig15b  the same: DrTM over others
  drtm-fig15c  SmallBank on one node
  drtm-fig15d  the same: DrTM over others
  drtm-fig16a  TPC-C on 1 to 6 nodes beside Calvin, on a simulated cluster
  drtm-s86     scale-out of TPC-C by locks and leases, on a simulated cluster
  drtm-fig18b  NEW-ORDER by the share of remote items, on a simulated cluster
  drtm-fig19   read leases, on records of which few are hot, on a simulated cluster
  drtm-recovery       throughput through the crash of an owner, on a simulated cluster
  drtm-recovery-times the same: how long until its shards are served again
  drtmh-fig7a  the execution phase by messages and by verbs, on a simulated cluster: TPC-C
  drtmh-fig7b  the same: SmallBank
  drtmh-fig10a the logging phase, by messages and by verbs: TPC-C
  drtmh-fig10b the same: SmallBank
  drtmh-fig11  read-only transactions by messages and by verbs: TPC-E's customer-position
  drtmh-fig14a whole designs on a simulated cluster: TPC-C
  drtmh-fig14b the same: SmallBank
  drtmh-fig17a whole designs with an older NIC: TPC-C
  drtmh-fig17b the same: SmallBank
  hades-tab4a  false positives of the simulated filters of HADES: 1024 bits
  hades-tab4b  the same: 512 bits by a hash, 4096 by the cache's index
  hades-fig3   overheads of transactions by software, on a simulated machine
  hades-fig9   throughput of HADES and HADES-H over software, on a simulated machine
  hades-fig10  the same: mean latency
  hades-fig11  the same: 95th percentile of latencies
  hades-fig12a the same: throughput by the network's round trip
  hades-fig12b the same: by the share of local requests
  hades-fig13  throughput on 10 nodes of 5 cores
  hades-fig14  throughput of two workloads at a time, on 5 nodes of 10 cores
  hades-fig15  throughput of four workloads at a time, on 8 nodes of 25 cores
  hades-evictions squashes by evictions of written lines, all requests local
  hades-false  false positives among detections of conflicts
  hades-vary   throughput over software with constants varied by a quarter
  hades-storage what the hardware of HADES stores in a node
  hades-tags   bits of a tag of its directory
  hades-speed  how fast its simulated machine runs here
  auto-cx3a    forms chosen at run time beside fixed ones, on a simulated cluster with an older NIC: TPC-C
  auto-cx3b    the same: SmallBank
  auto-cx3c    the same: TPC-E's customer-position
  auto-cx3d    the same, and then only changes of prices
  auto-cx4a    forms chosen at run time beside fixed ones, on a simulated cluster: TPC-C
  auto-cx4b    the same: SmallBank
  auto-cx4c    the same: TPC-E's customer-position
  auto-cx4d    the same, and then only changes of prices
  chopped-w1a  TPC-C in one warehouse, whole and in pieces, by threads that conflict
  chopped-w1b  the same: pieces over whole transactions
  chopped-w1c  the same: conflicts

Examples:
  drtm-bench paper dbx-fig1a                    a table, with the published values
  drtm-bench paper drtm-fig2 --svg figures      both panels, and figures/drtm-fig2a.svg, figures/drtm-fig2b.svg
  drtm-bench paper dbx-fig14 --threads 1,2,4    with 1, 2 and 4 threads
  drtm-bench paper --all --json                 everything, for a script; a quarter of an hour
  drtm-bench paper --all --quick                a quick check that everything works";

/// Returns all studies, in the order of the papers.
fn studies() -> impl Iterator<Item = &'static Study> {
    let dbx = [
        dbx_fig1::STUDIES,
        dbx_tpcc::STUDIES,
        dbx_store::STUDIES,
        dbx_factors::STUDIES,
        dbx_fig14::STUDIES,
        dbx_durable::STUDIES,
    ];
    dbx.into_iter()
        .chain([
            drtm_tab1::STUDIES,
            drtm_fig2::STUDIES,
            drtm_fig7::STUDIES,
            drtm_tab6::STUDIES,
            drtm_s82::STUDIES,
            drtm_fig15::STUDIES,
            drtm_fig16::STUDIES,
            drtm::STUDIES,
            recovery::STUDIES,
            drtmh::STUDIES,
            hades::STUDIES,
            hades_protocols::STUDIES,
            hades_scale::STUDIES,
            hades_counts::STUDIES,
            auto::STUDIES,
            chopped::STUDIES,
        ])
        .flatten()
}

/// The panels that one name stands for.
#[derive(Clone, Debug)]
struct Selection(String);

impl Selection {
    fn parser() -> impl TypedValueParser<Value = Self> {
        let panels = studies().flat_map(|study| study.panels);
        let mut names: Vec<&str> = panels.flat_map(|panel| [panel.figure(), panel.name]).collect();
        names.sort_unstable();
        names.dedup();
        PossibleValuesParser::new(names).map(Self)
    }

    fn includes(&self, panel: &Panel) -> bool {
        [panel.name, panel.figure()].contains(&self.0.as_str())
    }
}

impl Args {
    /// Makes the study, and reports it.
    ///
    /// # Errors
    ///
    /// Returns an error if the options do not fit, or the study fails.
    pub fn execute(&self, seed: u64, report: &Report) -> Result<(), Error> {
        let wanted = |panel: &&Panel| self.figure.as_ref().is_none_or(|selection| selection.includes(panel));
        let into_file = self.svg.as_deref().is_some_and(is_svg);
        if into_file && studies().flat_map(|study| study.panels).filter(wanted).count() > 1 {
            return Err(drtm_drive::Error::Options {
                option: "--svg with the name of one file",
                with: "several panels",
                instead: "name a directory",
            }
            .into());
        }
        let effort = Effort::new(&self.effort, self.engine, seed);
        let (mut rows, mut failure) = (Vec::new(), None);
        for study in studies().filter(|study| study.panels.iter().any(|panel| wanted(&panel))) {
            let measured = (study.measure)(&effort)?;
            for (panel, curves) in study.panels.iter().zip(&measured.curves).filter(|(panel, _)| wanted(panel)) {
                let panel_rows = panel.rows(curves);
                report.text(&panel.text(&panel_rows, &measured))?;
                if let (Some(path), Some(chart)) = (&self.svg, panel.chart(&panel_rows, &measured.source)) {
                    let path = if into_file { path.clone() } else { file_in(path, panel.name)? };
                    chart.write(&path)?;
                }
                rows.extend(panel_rows);
            }
            failure = failure.or(measured.failure);
        }
        report.result(&rows)?;
        failure.map_or(Ok(()), Err)
    }
}

fn is_svg(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("svg"))
}

fn file_in(directory: &Path, name: &str) -> Result<PathBuf, Error> {
    fs::create_dir_all(directory).map_err(drtm_report::Error::file(directory))?;
    Ok(directory.join(name).with_extension("svg"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_s_name_stands_for_its_panels() {
        let names: Vec<_> =
            studies().flat_map(|study| study.panels).map(|panel| (panel.figure(), panel.name)).collect();
        assert_eq!((names[0], names.last()), (("dbx-fig1", "dbx-fig1a"), Some(&("chopped-w1", "chopped-w1c"))));
        let whole = Selection("dbx-fig1".to_owned());
        let panels = studies().flat_map(|study| study.panels).filter(|panel| whole.includes(panel));
        assert_eq!(panels.count(), 4, "and none of dbx-fig14");
    }

    #[test]
    fn help_lists_every_panel_once() {
        for panel in studies().flat_map(|study| study.panels) {
            let listed = AFTER_HELP.lines().filter(|line| line.split_whitespace().next() == Some(panel.name));
            assert_eq!(listed.count(), 1, "{}", panel.name);
        }
    }
}
