//! `drtm-bench ycsb`: runs YCSB.

use std::time::Duration;

use clap::{
    Args as ClapArgs,
    builder::{PossibleValuesParser, TypedValueParser},
    value_parser,
};
use drtm_drive::{
    Error, Options, Until, Workload, cluster::ClusterWorkload, measure, measure_cluster, miscounted, pieces,
    rows_of_piece, spread,
};
use drtm_report::{Report, name_of};
use drtm_txn::{Config, Db, Hash, Ordered};
use serde_json::Value;

use super::{
    Choice, EXPONENT, FIELD, MOST, SHORT, Shape, Transactions, check,
    cluster::Distributed,
    layout::{Layout, RECORD, Records},
    load::{Dist, Kind, Load, MixName},
    population,
    worker::Worker,
};

/// Run YCSB, and check that no write is lost or torn
///
/// Runs the core package's workloads A to F, each operation a transaction; or X: transactions of
/// several operations on different records, as papers on transaction processing use them. The
/// database prefetches their records. Records have fields of 100 bytes, and a write changes one. At
/// the end, no field may be torn, and the fields' write counts must match the committed writes.
/// Records are in a hash table, except for E in an ordered one.
///
/// On several nodes, records are partitioned by their numbers, and clients access all nodes alike.
/// A client does not know the records that others insert: in D and E it reads its own and the
/// initial ones. On shm and tcp, each node is a process. On sim, everything is simulated in virtual
/// time, and nothing is measured.
///
/// JSON: {workload, threads, mix, records, dist, value_bytes, table, ops (X), reads (X), engine,
/// simulated, nodes, fabric, protocol, durability, seconds, committed, throughput, aborts: {cause:
/// n}, latency_us: {operation: {p50, p90, p99, p999}}, consistency: "ok"|[TEXT, ...],
/// max_rss_mib}; with a log also {log_bytes_per_transaction, log_bytes_per_s, log_syncs_per_s,
/// recovery_s, recovery_rows, recovery_log_bytes}; on several nodes also {coroutines, cpu_us,
/// per_transaction: {round_trips, messages, one_sided, bytes, wait_us, round_us}, per_phase:
/// {phase: the same}}, of committed transactions and what their aborted runs sent
#[derive(Clone, Debug, ClapArgs)]
#[command(verbatim_doc_comment, after_help = AFTER_HELP)]
pub struct Args {
    /// The workload
    #[arg(long, value_enum, default_value_t = MixName::A)]
    mix: MixName,

    /// Initial records
    #[arg(long, value_parser = value_parser!(u64).range(1..1 << 40), default_value_t = 1_000_000, value_name = "N")]
    records: u64,

    /// Distribution of records [default: the workload's; zipf for X]
    #[arg(long, value_enum)]
    dist: Option<Dist>,

    /// Operations of a transaction, in X
    #[arg(long, value_parser = value_parser!(u8).range(1..=i64::from(MOST)), default_value_t = SHORT, value_name = "K")]
    ops: u8,

    /// Percentage of operations that only read, in X; the others read and write
    #[arg(long, value_parser = value_parser!(u8).range(..=100), default_value_t = Shape::STANDARD.reads, value_name = "PCT")]
    reads: u8,

    /// Bytes of a record: 100 (not in E) or 1000 [default: 1000 as in the core package, 100 for X]
    #[arg(long, value_parser = value_bytes(), value_name = "N")]
    value_bytes: Option<usize>,

    #[command(flatten)]
    options: Options,
}

const AFTER_HELP: &str = "\
Examples:
  drtm-bench ycsb --mix a --threads 2                          half reads, half updates
  drtm-bench ycsb --mix x --ops 16 --reads 50 --dist zipf      contention between long transactions
  drtm-bench ycsb --mix x --ops 1 --dist uniform --threads 1   single operations
  drtm-bench ycsb --mix e --nodes 3 --fabric shm               scans of several nodes, each a process";

/// Parses the sizes that exist.
fn value_bytes() -> impl TypedValueParser<Value = usize> {
    PossibleValuesParser::new(["100", "1000"]).map(|bytes| if bytes == "100" { FIELD } else { 10 * FIELD })
}

impl Args {
    /// Loads, runs and checks it, and reports the outcome.
    ///
    /// # Errors
    ///
    /// Returns an error if the options do not fit, the run fails, or a condition does not hold.
    pub fn execute(&self, seed: u64, report: &Report) -> Result<(), Error> {
        let refused = |option, with, instead| Err(Error::Options { option, with, instead });
        if (self.mix, self.dist) == (MixName::X, Some(Dist::Latest)) {
            return refused("--dist latest", "--mix x", "nothing is inserted, so ask for uniform or zipf");
        }
        let bytes = self.value_bytes.unwrap_or(if self.mix == MixName::X { FIELD } else { 10 * FIELD });
        // Every variant is compiled for every engine and fabric, so only useful ones are here.
        match (self.mix, bytes) {
            (MixName::E, FIELD) => refused("--value-bytes 100", "--mix e", "scans are of the core package's 1000"),
            (MixName::E, _) => self.run::<Ordered, 10>(seed, report),
            (_, FIELD) => self.run::<Hash, 1>(seed, report),
            (..) => self.run::<Hash, 10>(seed, report),
        }
    }

    fn run<O: Layout, const FIELDS: usize>(&self, seed: u64, report: &Report) -> Result<(), Error>
    where
        Distributed<O, FIELDS>: ClusterWorkload,
    {
        let records = self.records;
        let load = self.load(FIELDS as u8);
        let size = self.size::<O>(FIELDS, load.dist);
        let outcome = if self.options.is_cluster() {
            measure_cluster(&Distributed::<O, FIELDS>::new(records, load, size, seed)?, &self.options, seed)
        } else {
            let threads = self.options.threads();
            let kind = load.shared(records, self.room(threads as u64), threads)?;
            let order = std::marker::PhantomData;
            measure(&Ycsb::<O, FIELDS> { kind, records, size, seed, order }, &self.options)
        };
        outcome?.print(report)
    }

    fn load(&self, fields: u8) -> Load {
        let dist = self.dist.unwrap_or(match self.mix.core().map(|core| core.choice) {
            Some(Choice::Uniform) => Dist::Uniform,
            Some(Choice::Latest) => Dist::Latest,
            Some(Choice::Zipfian) | None => Dist::Zipf,
        });
        let exponent = if dist == Dist::Uniform { 0.0 } else { EXPONENT };
        // A row of one field cannot show more than one field.
        Load { mix: self.mix, dist, fields, shape: Shape { accesses: self.ops, reads: self.reads, exponent } }
    }

    fn size<O: Layout>(&self, fields: usize, dist: Dist) -> Vec<(&'static str, Value)> {
        let mut size = vec![
            ("mix", name_of(&self.mix).into()),
            ("records", self.records.into()),
            ("dist", name_of(&dist).into()),
            ("value_bytes", (fields * FIELD).into()),
            ("table", if O::ORDERED { "ordered" } else { "hash" }.into()),
        ];
        if self.mix == MixName::X {
            size.extend([("ops", self.ops.into()), ("reads", self.reads.into())]);
        }
        size
    }

    /// Estimates how many records a run will insert: of a million operations per second, and at
    /// most the number of records.
    fn room(&self, threads: u64) -> u64 {
        let operations = match self.options.until() {
            Until::Transactions(count) => count,
            Until::Time(time) => time.max(Duration::from_secs(1)).as_secs() * 1_000_000,
        };
        (operations.saturating_mul(threads) / 20).min(self.records)
    }
}

/// Records with their load.
#[derive(Debug)]
pub struct Ycsb<O, const FIELDS: usize> {
    kind: Kind,
    records: u64,
    size: Vec<(&'static str, Value)>,
    seed: u64,
    order: std::marker::PhantomData<fn() -> O>,
}

/// Transactions of several operations on records of a hundred bytes.
pub type SmallTransactions = Ycsb<Hash, 1>;

impl SmallTransactions {
    /// Creates transactions of four operations, as papers use them.
    pub fn standard(records: u64, seed: u64) -> Result<Self, Error> {
        let kind = Kind::Transactions(Shape::STANDARD);
        let transactions = Self { kind, records, size: Vec::new(), seed, order: std::marker::PhantomData };
        // Detects too few records before they are loaded.
        Transactions::new(records, Shape::STANDARD, seed)?;
        Ok(transactions)
    }

    #[cfg(feature = "stores")]
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Returns the transactions of a thread.
    #[cfg(feature = "stores")]
    pub fn transactions(&self, thread: usize) -> Result<Transactions, Error> {
        Ok(Transactions::new(self.records, Shape::STANDARD, spread(self.seed, thread))?)
    }
}

impl<O: Layout, const FIELDS: usize> Workload for Ycsb<O, FIELDS> {
    const NAME: &'static str = "ycsb";
    type Tables = Records<O, FIELDS>;
    type Client<'w, S: Config> = Worker<'w, S, O, FIELDS>;

    fn size(&self) -> Vec<(&'static str, Value)> {
        self.size.clone()
    }

    fn open<S: Config>(&self, db: &Db<S>) -> Result<Records<O, FIELDS>, Error> {
        Ok(db.table(O::def(RECORD, self.records))?)
    }

    fn pieces(&self) -> u64 {
        pieces(self.records)
    }

    fn load<S: Config>(&self, db: &Db<S>, records: Records<O, FIELDS>, piece: u64) -> Result<(), Error> {
        population(rows_of_piece(piece, self.records))
            .try_for_each(|(key, row)| Ok(db.transact(|tx| tx.insert(records, key, &row))?))
    }

    fn clients<'w, S: Config>(
        &'w self,
        db: &'w Db<S>,
        records: Records<O, FIELDS>,
        threads: usize,
    ) -> Result<Vec<Worker<'w, S, O, FIELDS>>, Error> {
        let worker = |thread| {
            let task = self.kind.task(self.records, thread, spread(self.seed, thread))?;
            Ok(Worker::new(db, records, task))
        };
        (0..threads).map(worker).collect()
    }

    fn check<S: Config>(
        &self,
        db: &Db<S>,
        records: Records<O, FIELDS>,
        clients: &[&Worker<'_, S, O, FIELDS>],
    ) -> Result<Vec<String>, Error> {
        let written = clients.iter().map(|client| client.written()).sum();
        let numbers: Vec<u64> = clients.iter().flat_map(|client| client.inserted()).collect();
        let count = self.records + numbers.len() as u64;
        let rows = (0..self.records).chain(numbers).filter_map(|number| {
            let key = super::key(number);
            drtm_drive::row_with_key(key, db.transact(|tx| tx.get(records, &key)))
        });
        let mut violations: Vec<String> = check(rows, count, written)?.iter().map(ToString::to_string).collect();
        violations.extend(miscounted(db, &[(RECORD, count)])?);
        Ok(violations)
    }
}
