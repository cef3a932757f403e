//! The program `drtm`: the command line, and its exit status.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use drtm_report::Report;
use drtm_tool::{Error, cluster, log};

/// Look after the databases and clusters of drtm
#[derive(Debug, Parser)]
#[command(name = "drtm", version, propagate_version = true, after_help = AFTER_HELP)]
struct Cli {
    /// Print exactly one JSON value on stdout; tables and progress go to stderr
    #[arg(long, global = true)]
    json: bool,

    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Examples:
  drtm log verify DIR                  whether all of a database's log can be read
  drtm log salvage DIR --into NEW      what can be read, as a log that can be opened
  drtm cluster status --key FILE --at ADDRESS
                                       the members of a cluster, and what each shard has

Workloads, soaks and studies are commands of `drtm-bench`.

Exit status: 0 done, 1 the log is damaged or the cluster cannot be asked, 2 wrong usage.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Look at a cluster that runs
    #[command(after_help = cluster::AFTER_HELP)]
    Cluster {
        #[command(subcommand)]
        command: cluster::Command,
    },

    /// Read a database's log directory
    #[command(after_help = log::AFTER_HELP)]
    Log {
        #[command(subcommand)]
        command: log::Command,
    },
}

fn main() -> ExitCode {
    drtm_report::run("drtm", std::env::args_os(), |cli: Cli| -> Result<(), Error> {
        let report = Report::new(cli.json);
        match cli.command {
            Command::Cluster { command } => command.execute(&report),
            Command::Log { command } => command.execute(&report),
        }
    })
}
