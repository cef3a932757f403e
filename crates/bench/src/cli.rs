//! The top of the command line: parse, run, exit status.

use std::{
    ffi::{OsStr, OsString},
    io::{self, Write},
    process::ExitCode,
};

use clap::{Parser, Subcommand};

use crate::{
    Error, compare,
    drive::cluster::{ClusterWorkload, MEMBER, run_member},
    elle, fabric, htm, kv, log, paper,
    report::Report,
    smallbank, soak, tatp, tpcc, tpce, ycsb,
};

/// Measure drtm, and regenerate the figures of the papers it is based on
#[derive(Debug, Parser)]
#[command(name = "drtm-bench", version, propagate_version = true, after_help = AFTER_HELP)]
struct Cli {
    /// Print exactly one JSON value on stdout; tables and progress go to stderr
    #[arg(long, global = true, display_order = LAST)]
    json: bool,

    /// Seed of all randomness: the same seed gives the same result
    #[arg(long, global = true, value_name = "N", default_value_t = 0, display_order = LAST)]
    seed: u64,

    #[command(subcommand)]
    command: Command,
}

/// The display order of global options: after a command's own.
const LAST: usize = 900;

const AFTER_HELP: &str = "\
Examples:
  drtm-bench htm probe                              what transactional memory this machine has
  drtm-bench htm limits --kind write                how much a region can write
  drtm-bench tpcc                                   TPC-C, with its consistency checked
  drtm-bench ycsb --mix a --threads 2               the same of YCSB; smallbank and tatp likewise
  drtm-bench smallbank --nodes 3 --fabric shm       on several nodes; tcp, or sim for a simulated cluster
  drtm-bench compare smallbank                      this database beside others, in turns
  drtm-bench log verify DIR                         whether all of a database's log can be read
  drtm-bench soak crash --secs 60                   power cuts on a simulated disk, and what is left
  drtm-bench history --out list-append.edn          whether transactions are strictly serializable
  drtm-bench fabric latency --raw                   verbs beside raw memory; simulated clusters likewise
  drtm-bench paper dbx-fig1 --svg figures           all panels of a figure, as tables and as charts
  drtm-bench paper --all --json                     every figure, for a script

Exit status: 0 done and every check held, 1 a check failed, 2 wrong usage.";

/// The families of commands.
#[derive(Debug, Subcommand)]
enum Command {
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
    Smallbank(smallbank::Args),
    /// Crash or kill databases, or fail their disk, and check what is left
    #[command(after_help = soak::AFTER_HELP)]
    Soak {
        #[command(subcommand)]
        command: soak::Command,
    },
    Tatp(tatp::Args),
    Tpcc(tpcc::Args),
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
pub fn run<I, T>(arguments: I) -> ExitCode
where
    I: IntoIterator<Item = T>,
    T: Into<OsString> + Clone,
{
    if let Some(workload) = std::env::var_os(MEMBER) {
        return be_a_member_of(&workload);
    }
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(not_a_command) => {
            // A request for help is reported as an error too.
            let _ = not_a_command.print();
            return ExitCode::from(u8::try_from(not_a_command.exit_code()).unwrap_or(2));
        }
    };
    match cli.execute() {
        Ok(()) => ExitCode::SUCCESS,
        // The reader closed the pipe: it has read enough.
        Err(Error::Report(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "drtm-bench: {error}");
            ExitCode::from(error.exit_status())
        }
    }
}

/// Runs one node of a cluster, in a process that another process started for it.
fn be_a_member_of(workload: &OsStr) -> ExitCode {
    match workload.to_str() {
        Some(<smallbank::SmallBank as ClusterWorkload>::MEMBER) => run_member::<smallbank::SmallBank>(),
        Some(<tatp::Tatp as ClusterWorkload>::MEMBER) => run_member::<tatp::Tatp>(),
        Some(<tpcc::Distributed as ClusterWorkload>::MEMBER) => run_member::<tpcc::Distributed>(),
        Some(<tpce::CustomerPosition as ClusterWorkload>::MEMBER) => run_member::<tpce::CustomerPosition>(),
        Some(<ycsb::SmallRecords as ClusterWorkload>::MEMBER) => run_member::<ycsb::SmallRecords>(),
        Some(<ycsb::Records as ClusterWorkload>::MEMBER) => run_member::<ycsb::Records>(),
        Some(<ycsb::OrderedRecords as ClusterWorkload>::MEMBER) => run_member::<ycsb::OrderedRecords>(),
        Some(<elle::Histories as ClusterWorkload>::MEMBER) => run_member::<elle::Histories>(),
        _ => {
            let _ = writeln!(io::stderr(), "drtm-bench: {MEMBER} is for its own processes: unset it");
            ExitCode::from(2)
        }
    }
}

impl Cli {
    fn execute(&self) -> Result<(), Error> {
        let report = Report::new(self.json);
        match &self.command {
            Command::Compare(args) => args.execute(self.seed, &report),
            Command::Fabric { command } => command.execute(self.seed, &report),
            Command::History(args) => args.execute(self.seed, &report),
            Command::Htm { command } => command.execute(self.seed, &report),
            Command::Kv { command } => command.execute(self.seed, &report),
            Command::Log { command } => command.execute(&report),
            Command::Paper(args) => args.execute(self.seed, &report),
            Command::Smallbank(args) => args.execute(self.seed, &report),
            Command::Soak { command } => command.execute(self.seed, &report),
            Command::Tatp(args) => args.execute(self.seed, &report),
            Command::Tpcc(args) => args.execute(self.seed, &report),
            Command::TpceCp(args) => args.execute(self.seed, &report),
            Command::Ycsb(args) => args.execute(self.seed, &report),
        }
    }
}
