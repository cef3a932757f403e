//! The top of the command line: parse, run, exit status.

use std::{ffi::OsString, process::ExitCode};

use clap::{Parser, Subcommand};
use drtm_drive::cluster::run_as_member;
use drtm_fabrics as fabric;
use drtm_paper::{htm, kv, paper};
use drtm_report::{Common, Report};
use drtm_soak::{elle, soak};
use drtm_tool::log;
use drtm_workloads::{smallbank, tatp, tpce, ycsb};

use crate::{Error, chop, compare};

/// Measure drtm, and regenerate the figures of the papers it is based on
#[derive(Debug, Parser)]
#[command(name = "drtm-bench", version, propagate_version = true, after_help = AFTER_HELP)]
struct Cli {
    #[command(flatten)]
    common: Common,

    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Examples:
  drtm-bench htm probe                              what transactional memory this machine has
  drtm-bench htm limits --kind write                how much a region can write
  drtm-bench tpcc                                   TPC-C, with its consistency checked
  drtm-bench ycsb --mix a --threads 2               the same of YCSB; smallbank and tatp likewise
  drtm-bench smallbank --nodes 3 --fabric shm       on several nodes; tcp, or sim for a simulated cluster
  drtm-bench compare smallbank                      this database beside others, in turns
  drtm-bench chop --svg tpcc.svg                    which transactions can run in pieces, and why
  drtm-bench log verify DIR                         whether all of a database's log can be read
  drtm-bench soak crash --secs 60                   power cuts on a simulated disk, and what is left
  drtm-bench soak failover --fabric tcp             processes of a cluster that are killed, and how long it waits
  drtm-bench history --out list-append.edn          whether transactions are strictly serializable
  drtm-bench fabric latency --raw                   verbs beside raw memory; simulated clusters likewise
  drtm-bench paper dbx-fig1 --svg figures           all panels of a figure, as tables and as charts
  drtm-bench paper --all --json                     every figure, for a script
  drtm-bench report --quick --out report.html       every figure beside the published one, on a page

`log` is the command of the program `drtm`, for operators; `cargo run --release --example tpcc` builds `tpcc` alone.

Exit status: 0 done and every check held, 1 a check failed, 2 wrong usage.";

/// The families of commands.
#[derive(Debug, Subcommand)]
enum Command {
    Chop(chop::Args),
    Compare(compare::Args),
    /// Study fabrics: the cost of verbs, and simulated clusters
    #[command(after_help = fabric::AFTER_HELP)]
    Fabric {
        #[command(subcommand)]
        command: fabric::Command,
    },
    History(elle::Args),
    /// Study transactional memory: what the machine offers, and which transactions fit
    #[command(after_help = htm::AFTER_HELP)]
    Htm {
        #[command(subcommand)]
        command: htm::Command,
    },
    /// Study the memory store
    #[command(after_help = kv::AFTER_HELP)]
    Kv {
        #[command(subcommand)]
        command: kv::Command,
    },
    /// Read a database's log directory
    #[command(after_help = log::AFTER_HELP)]
    Log {
        #[command(subcommand)]
        command: log::Command,
    },
    Paper(paper::Args),
    Report(paper::report::Args),
    Smallbank(smallbank::Args),
    /// Crash or kill databases and nodes of clusters, or fail disks, and check what is left
    #[command(after_help = soak::AFTER_HELP)]
    Soak {
        #[command(subcommand)]
        command: soak::Command,
    },
    Tatp(tatp::Args),
    Tpcc(drtm_tpcc::Args),
    TpceCp(tpce::Args),
    Ycsb(ycsb::Args),
}

/// Parses `arguments`, the program's name first, runs the command, and returns the process's exit
/// status.
///
/// # Example
///
/// ```
/// use std::process::ExitCode;
///
/// assert_eq!(drtm_bench::run(["drtm-bench", "htm", "probe"]), ExitCode::SUCCESS);
/// assert_eq!(drtm_bench::run(["drtm-bench", "htm", "limits", "--threads", "0"]), ExitCode::from(2));
/// ```
pub fn run(arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> ExitCode {
    let member = |workload: &str| {
        drtm_tpcc::run_member(workload)
            .or_else(|| drtm_workloads::run_member(workload))
            .or_else(|| elle::run_member(workload))
    };
    run_as_member(member).unwrap_or_else(|| drtm_report::run("drtm-bench", arguments, |cli: Cli| cli.execute()))
}

impl Cli {
    fn execute(&self) -> Result<(), Error> {
        let Common { json, seed } = self.common;
        let report = &Report::new(json);
        match &self.command {
            Command::Chop(args) => args.execute(report)?,
            Command::Compare(args) => args.execute(seed, report)?,
            Command::Fabric { command } => command.execute(seed, report)?,
            Command::History(args) => args.execute(seed, report)?,
            Command::Htm { command } => command.execute(seed, report)?,
            Command::Kv { command } => command.execute(seed, report)?,
            Command::Log { command } => command.execute(report)?,
            Command::Paper(args) => args.execute(seed, report)?,
            Command::Report(args) => args.execute(seed, report)?,
            Command::Smallbank(args) => args.execute(seed, report)?,
            Command::Soak { command } => command.execute(seed, report)?,
            Command::Tatp(args) => args.execute(seed, report)?,
            Command::Tpcc(args) => args.execute(seed, report)?,
            Command::TpceCp(args) => args.execute(seed, report)?,
            Command::Ycsb(args) => args.execute(seed, report)?,
        }
        Ok(())
    }
}
