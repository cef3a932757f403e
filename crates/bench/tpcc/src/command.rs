//! `drtm-bench tpcc`: runs TPC-C.

use std::{
    ffi::OsString,
    marker::PhantomData,
    num::NonZeroU64,
    process::ExitCode,
    time::{SystemTime, UNIX_EPOCH},
};

use clap::{Args as ClapArgs, Parser, ValueEnum, value_parser};
use drtm_drive::{
    Error, Options, Outcome, Workload,
    cluster::{self, ClusterWorkload, run_as_member},
    measure, measure_cluster,
};
use drtm_report::{Common, Report, name_of};
use drtm_txn::{Config, Db, Hash};
use serde_json::Value;

use super::{
    Chances, Loader, MixName, Scale, Stock,
    audit::Audit,
    cluster::Distributed,
    reading::Reading,
    tables::{Layout, Loading, Tables},
    terminals::{Duty, Terminals},
};

/// Run TPC-C, and check its consistency
///
/// Runs all five transactions with the inputs of the specification (revision 5.11), over its
/// population. Terminals have no think time and no keying time, so this is no result of the
/// benchmark, and may not be called one. DELIVERY is one transaction for all districts of a
/// warehouse. One in a hundred NEW-ORDERs is rolled back, which counts as an abort by the user. At
/// the end, the twelve conditions of clause 3.3.2 and the indexes are checked.
///
/// On several nodes, warehouses are divided among nodes, and each node has a copy of the items. All
/// conditions, and the stocks, are checked over the whole cluster. On shm and tcp, each node is a
/// process. On sim, everything is simulated in virtual time, and nothing is measured.
///
/// JSON: {workload, threads, warehouses, customers, items, scaled_down, mix, reads, prefetch,
/// remote_items, remote_payments, read_reruns, engine, simulated, nodes, fabric, protocol,
/// durability, seconds, committed, throughput, aborts: {cause: n}, latency_us: {transaction: {p50,
/// p90, p99, p999}}, consistency: "ok"|[TEXT, ...], max_rss_mib}; with a log also
/// {log_bytes_per_transaction, log_bytes_per_s, log_syncs_per_s, recovery_s, recovery_rows,
/// recovery_log_bytes}; on several nodes without reads, prefetch and read_reruns, and also
/// {coroutines, cpu_us, per_transaction: {round_trips, messages, one_sided, bytes, wait_us,
/// round_us}, per_phase: {phase: the same}}, of committed transactions and what their aborted runs
/// sent; wait_us is what one waits for other nodes, round_us what a round of requests takes; with
/// `--prefetch both`, one object for each form
#[derive(Debug, ClapArgs)]
#[command(verbatim_doc_comment, after_help = AFTER_HELP)]
pub struct Args {
    /// Warehouses [default: one per thread, or one per node]
    #[arg(long, value_parser = value_parser!(u16).range(1..), value_name = "N")]
    warehouses: Option<u16>,

    /// The mix of transactions
    #[arg(long, value_enum, default_value_t = MixName::Standard)]
    mix: MixName,

    /// How ORDER-STATUS and STOCK-LEVEL run, which are read-only. `read_reruns` counts their
    /// retries
    #[arg(long, value_enum, default_value_t)]
    reads: Reading,

    /// Whether transactions prefetch rows that they access later. Without, they are in their plain
    /// form. On one node only
    #[arg(long, value_enum, default_value_t, value_name = "FORM")]
    prefetch: Prefetch,

    /// Percentage of order lines that another warehouse supplies
    #[arg(long, value_parser = value_parser!(u8).range(..=100), default_value_t = Chances::STANDARD.remote_item, value_name = "PCT")]
    remote_items: u8,

    /// Percentage of payments by customers of another warehouse
    #[arg(long, value_parser = value_parser!(u8).range(..=100), default_value_t = Chances::STANDARD.remote_payment, value_name = "PCT")]
    remote_payments: u8,

    /// Customers of a district; fewer than the specification's 3000 are for tests
    #[arg(long, value_parser = value_parser!(u32).range(1..=i64::from(super::CUSTOMERS)), default_value_t = super::CUSTOMERS, value_name = "N")]
    customers: u32,

    /// Items; fewer than the specification's 100000 are for tests
    #[arg(long, value_parser = value_parser!(u32).range(1..=i64::from(super::ITEMS)), default_value_t = super::ITEMS, value_name = "N")]
    items: u32,

    #[command(flatten)]
    options: Options,
}

/// The form of the transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Prefetch {
    /// With prefetching
    #[default]
    Yes,
    /// Without: the plain form
    No,
    /// First without, then with it: the ratio says what it adds
    Both,
}

/// Where other commands are.
const ELSEWHERE: &str = "\
`cargo run --release -p drtm-bench -- tpcc` is the same command. That program has other workloads and studies, too.";

const AFTER_HELP: &str = "\
Examples:
  drtm-bench tpcc                                    one warehouse and one thread for each processor
  drtm-bench tpcc --warehouses 1 --threads 2 --json  contention, for a script
  drtm-bench tpcc --prefetch both                    what prefetching adds
  drtm-bench tpcc --nodes 2 --fabric shm --remote-payments 50
                                                     a process for each node, half of the payers from the other one
  drtm-bench tpcc --nodes 2 --fabric tcp --mix new-order --remote-items 100
                                                     connected by TCP, all lines from the other one
  drtm-bench tpcc --durability sync --path DIR       commits that survive a power cut; checked again when reopened
  drtm-bench tpcc --mix stock-level-half --reads validated
                                                     long reads, refused when others write what they have read";

impl Args {
    /// Loads, runs and checks it, and reports the outcome.
    ///
    /// # Errors
    ///
    /// Returns an error if the options do not fit, the run fails, or a condition does not hold.
    pub fn execute(&self, seed: u64, report: &Report) -> Result<(), Error> {
        let warehouses = match self.warehouses {
            Some(warehouses) => warehouses,
            None if self.options.is_cluster() => self.options.nodes,
            None => self.options.threads().try_into().unwrap_or(u16::MAX),
        };
        let scale = Scale::new(warehouses)?.with_customers(self.customers)?.with_items(self.items)?;
        let (remote_item, remote_payment) = (self.remote_items, self.remote_payments);
        let chances = Chances { remote_item, remote_payment, ..Chances::STANDARD };
        if self.options.is_cluster() {
            return self.on_a_cluster(scale, chances, seed)?.print(report);
        }
        let tpcc = Tpcc::<Hash>::new(scale, self.mix, chances, seed).reading(self.reads);
        let run = |prefetches| {
            let outcome = measure(&tpcc.clone().prefetching(prefetches), &self.options)?;
            outcome.print(report)?;
            Ok::<_, Error>(outcome.throughput())
        };
        match self.prefetch {
            Prefetch::Yes => run(true).map(drop),
            Prefetch::No => run(false).map(drop),
            Prefetch::Both => {
                let (plain, prefetching) = (run(false)?, run(true)?);
                Ok(report.text(&format!(
                    "prefetching: {:.2} times the plain form's transactions/s\n",
                    prefetching / plain
                ))?)
            }
        }
    }

    fn on_a_cluster(&self, scale: Scale, chances: Chances, seed: u64) -> Result<Outcome, Error> {
        let refused = |option, with, instead| Err(Error::Options { option, with, instead });
        if self.reads == Reading::Snapshot {
            return refused("--reads snapshot", "several nodes", "they validate what is read: leave it out");
        }
        if self.prefetch != Prefetch::Yes {
            return refused("--prefetch", "several nodes", "their transactions fetch rows together: leave it out");
        }
        if scale.warehouses() < self.options.nodes {
            return refused("--warehouses", "more nodes", "each node has one warehouse at least");
        }
        measure_cluster(&Distributed::<Stock>::new(scale, self.mix, chances, seed, date()), &self.options, seed)
    }
}

// The command line of a program that has this command alone. A doc comment would replace the help
// of the command.
#[derive(Debug, Parser)]
#[command(name = "tpcc", verbatim_doc_comment, after_help = format!("{AFTER_HELP}\n\n{ELSEWHERE}"))]
struct Cli {
    #[command(flatten)]
    common: Common,

    // Last: the help is of what is flattened last.
    #[command(flatten)]
    args: Args,
}

/// Parses `arguments`, the program's name first, runs TPC-C, and returns the process's exit status.
/// This is all that a program does that runs TPC-C alone, also in processes that it starts as nodes
/// of a cluster.
///
/// # Example
///
/// ```
/// use std::process::ExitCode;
///
/// let small = ["tpcc", "--customers", "30", "--items", "100", "--threads", "1", "--secs", "0.1"];
/// assert_eq!(drtm_tpcc::run(small), ExitCode::SUCCESS);
/// assert_eq!(drtm_tpcc::run(["tpcc", "--warehouses", "0"]), ExitCode::from(2));
/// ```
pub fn run(arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> ExitCode {
    let command = |Cli { args, common }: Cli| args.execute(common.seed, &Report::new(common.json));
    run_as_member(run_member).unwrap_or_else(|| drtm_report::run("tpcc", arguments, command))
}

/// Runs a node of a cluster in this process, and returns the process's exit status; `None` if the
/// workload of this name is another one.
pub fn run_member(workload: &str) -> Option<ExitCode> {
    (workload == Distributed::<Stock>::MEMBER).then(cluster::run_member::<Distributed<Stock>>)
}

/// Returns the current time in microseconds since 1970.
fn date() -> NonZeroU64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_micros() as u64);
    NonZeroU64::new(now).unwrap_or(NonZeroU64::MIN)
}

/// The workload, with its size.
#[derive(Clone, Debug)]
pub struct Tpcc<O = Hash> {
    loader: Loader,
    mix: MixName,
    reading: Reading,
    prefetches: bool,
    chances: Chances,
    seed: u64,
    layout: PhantomData<fn() -> O>,
}

impl<O: Layout> Tpcc<O> {
    /// Creates the workload, with the database's choice of reads.
    pub fn new(scale: Scale, mix: MixName, chances: Chances, seed: u64) -> Self {
        let loader = Loader::new(scale, seed, date());
        Self { loader, mix, reading: Reading::Auto, prefetches: true, chances, seed, layout: PhantomData }
    }

    /// Replaces how read-only transactions run.
    pub fn reading(self, reading: Reading) -> Self {
        Self { reading, ..self }
    }

    #[cfg(any(test, feature = "chopping"))]
    pub(super) fn scale(&self) -> Scale {
        self.loader.scale()
    }

    /// Returns the work of its terminals.
    pub(super) fn duty(&self) -> Duty {
        let Self { loader, mix, reading, chances, seed, .. } = self;
        let (scale, constants) = (loader.scale(), loader.constants());
        Duty { scale, constants, chances: *chances, mix: mix.mix(), reading: *reading, seed: *seed }
    }

    /// Sets whether transactions prefetch rows.
    fn prefetching(self, prefetches: bool) -> Self {
        Self { prefetches, ..self }
    }
}

/// The counter of retries of read-only transactions.
pub const READ_RERUNS: &str = "read_reruns";

impl<O: Layout> Workload for Tpcc<O> {
    const NAME: &'static str = "tpcc";
    type Tables = Tables<O>;
    type Client<'w, S: Config> = Terminals<'w, S, O>;

    fn size(&self) -> Vec<(&'static str, Value)> {
        let scale = self.loader.scale();
        vec![
            ("warehouses", scale.warehouses().into()),
            ("customers", scale.customers().into()),
            ("items", scale.items().into()),
            ("scaled_down", scale.is_scaled_down().into()),
            ("mix", name_of(&self.mix).into()),
            ("reads", name_of(&self.reading).into()),
            ("prefetch", self.prefetches.into()),
            ("remote_items", self.chances.remote_item.into()),
            ("remote_payments", self.chances.remote_payment.into()),
        ]
    }

    fn open<S: Config>(&self, db: &Db<S>) -> Result<Tables<O>, Error> {
        Ok(Tables::open(db, &self.loader.scale())?.prefetching(self.prefetches))
    }

    /// Counts the items as one piece, and each warehouse as one.
    fn pieces(&self) -> u64 {
        1 + u64::from(self.loader.scale().warehouses())
    }

    fn load<S: Config>(&self, db: &Db<S>, tables: Tables<O>, piece: u64) -> Result<(), Error> {
        let sink = &mut Loading { db, tables };
        match piece {
            0 => self.loader.items(sink),
            // At most the number of warehouses.
            warehouse => self.loader.warehouse(warehouse as u16, sink),
        }
    }

    fn clients<'w, S: Config>(
        &'w self,
        db: &'w Db<S>,
        tables: Tables<O>,
        threads: usize,
    ) -> Result<Vec<Terminals<'w, S, O>>, Error> {
        Ok(Terminals::of_all(db, tables, &self.duty(), threads)?)
    }

    fn counted<S: Config>(clients: &[Terminals<'_, S, O>]) -> Vec<(String, u64)> {
        vec![(READ_RERUNS.to_owned(), clients.iter().map(|client| client.reruns).sum())]
    }

    fn check<S: Config>(
        &self,
        db: &Db<S>,
        tables: Tables<O>,
        clients: &[&Terminals<'_, S, O>],
    ) -> Result<Vec<String>, Error> {
        let payments = clients.iter().map(|client| client.payments());
        Audit::new(db, tables, self.loader.scale(), payments).violations()
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn help_of_the_program_alone_has_the_command_s_and_says_where_others_are() {
        let help = Cli::command().render_long_help().to_string();
        for part in ["JSON: {workload", "--remote-items", "--seed", "drtm-bench tpcc --prefetch both", "studies"] {
            assert!(help.contains(part), "no {part} in {help}");
        }
    }
}
