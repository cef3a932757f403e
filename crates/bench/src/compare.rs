//! `drtm-bench compare`: workloads on this database beside other transactional stores, in one sitting.
//!
//! - `desk`: stores that are filled once and then take turns.
//! - `ours`: this database, by any engine, as the workloads' own commands run it.
//! - `peer`, `surrealmx`, `redb`: other stores behind one interface; `smallbank`, `ycsb`: the workloads on it. Only with the feature `stores`.

mod desk;
mod ours;
#[cfg(feature = "stores")]
mod peer;
#[cfg(feature = "stores")]
mod redb;
#[cfg(feature = "stores")]
mod smallbank;
#[cfg(feature = "stores")]
mod surrealmx;
#[cfg(feature = "stores")]
mod ycsb;

use std::{thread, time::Duration};

use clap::{Args as ClapArgs, ValueEnum, value_parser};
use serde::Serialize;

use self::desk::{Desk, Order, Seat};
use crate::{
    Error,
    drive::{EngineName, Until, but_limit},
    names::name_of,
    rates::{Rates, interleave},
    report::{Report, prose, table},
    smallbank::{Hot, SmallBank},
    units,
    ycsb::SmallTransactions,
};

/// Measure workloads on this database beside other transactional stores
///
/// All stores are filled first; then, in each round, each of them runs the workload for a while, so that
/// whatever else the machine does hits all alike. A first round is not counted. What a store does in the
/// background, it does while others run too. When all is over, each store's rows are checked, as the
/// workload's own command does. Compare within one run.
///
/// SmallBank: as its own command runs it. YCSB: transactions of four operations on different records of 100 bytes,
/// 80 % reads and 20 % reads with a write, by Zipf's distribution. This database is told ahead which records
/// those are, and in SmallBank which row comes second; the others have no way to be told. Transactions that
/// conflict are run again, and are counted once; those that the rules refuse are not. Those that only read
/// are begun as such where a store makes a difference.
///
/// Other stores are in the binary only if it was built with `--features stores`.
///
/// JSON: [{workload, hot (of SmallBank), store, threads, records, rounds, transactions_per_s: {min, median, max},
/// consistency: "ok"|[violations]}]
#[derive(Debug, ClapArgs)]
#[command(verbatim_doc_comment, after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// What to run
    #[arg(value_enum)]
    workload: WorkloadName,

    /// The stores; ratios are to the first of them [default: all that there are]
    #[arg(long, value_parser = but_limit::<StoreName>(), value_delimiter = ',', value_name = "STORE,...")]
    store: Vec<StoreName>,

    /// Threads that run transactions, in each store
    #[arg(long, value_parser = value_parser!(u16).range(1..=1024), default_value_t = 1, value_name = "N")]
    threads: u16,

    /// Records at the beginning, or customers [default: 1000000; 100000 customers]
    #[arg(long, value_parser = value_parser!(u64).range(8..1 << 32), value_name = "N")]
    records: Option<u64>,

    /// Which customers of SmallBank are asked for more often
    #[arg(long, value_enum, default_value_t)]
    hot: Hot,

    /// Rounds
    #[arg(long, value_parser = value_parser!(u16).range(1..=10_000), default_value_t = 7, value_name = "N")]
    rounds: u16,

    /// Milliseconds that a store runs in a round
    #[arg(long, value_parser = value_parser!(u64).range(1..=600_000), default_value_t = 500, value_name = "MS")]
    slice: u64,

    /// Memory that this database may use, in GiB
    #[arg(long, value_parser = value_parser!(u16).range(1..=4096), default_value_t = 64, value_name = "GIB")]
    memory: u16,
}

const AFTER_HELP: &str = "\
Examples:
  drtm-bench compare smallbank                                  all stores of this build
  drtm-bench compare ycsb --store drtm,surrealmx --threads 2    with --features stores";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum WorkloadName {
    /// The six transactions of SmallBank
    Smallbank,
    /// Transactions of several operations of YCSB
    Ycsb,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum StoreName {
    /// This database, with what the machine has
    Drtm,
    /// Multi-version, with serializable transactions; in memory
    #[value(name = "surrealmx")]
    #[serde(rename = "surrealmx")]
    SurrealMx,
    /// A copy-on-write B-tree for one writer at a time, made for disks; here in memory, and without waiting for any
    Redb,
}

impl StoreName {
    const IN_THIS_BUILD: &[Self] =
        if cfg!(feature = "stores") { &[Self::Drtm, Self::SurrealMx, Self::Redb] } else { &[Self::Drtm] };

    /// Returns why it cannot be measured, if so.
    fn refusal(self) -> Option<&'static str> {
        (!Self::IN_THIS_BUILD.contains(&self)).then_some("is not in this build: build with --features stores")
    }
}

#[derive(Debug, Serialize)]
struct Row {
    workload: WorkloadName,
    #[serde(skip_serializing_if = "Option::is_none")]
    hot: Option<Hot>,
    store: StoreName,
    threads: usize,
    records: u64,
    rounds: u16,
    transactions_per_s: Rates,
    #[serde(serialize_with = "crate::drive::ok_or_violations")]
    consistency: Vec<String>,
}

impl Args {
    pub(crate) fn carry_out(&self, seed: u64, report: &Report) -> Result<(), Error> {
        let threads = usize::from(self.threads);
        let able: Vec<StoreName> = self.stores().iter().copied().filter(|store| store.refusal().is_none()).collect();
        if let (Some(first), true) = (self.stores().first(), able.is_empty()) {
            let why = first.refusal().unwrap_or("is not for this");
            return Err(Error::NotSupported { engine: name_of(first), why });
        }
        let rows = match self.workload {
            WorkloadName::Smallbank => self.rows(&SmallBank::new(self.records(), self.hot, seed)?, &able),
            WorkloadName::Ycsb => self.rows(&SmallTransactions::standard(self.records(), seed)?, &able),
        }?;
        report.text(&self.text(&rows, threads))?;
        report.result(&rows)?;
        let violated = rows.iter().find_map(|row| Some((row.consistency.len(), row.consistency.first()?.clone())));
        violated.map_or(Ok(()), |(violations, first)| Err(Error::Inconsistent { violations, first }))
    }

    /// The stores as given, or all that there are.
    fn stores(&self) -> &[StoreName] {
        if self.store.is_empty() { StoreName::IN_THIS_BUILD } else { &self.store }
    }

    fn records(&self) -> u64 {
        self.records.unwrap_or(match self.workload {
            WorkloadName::Smallbank => 100_000,
            WorkloadName::Ycsb => 1_000_000,
        })
    }

    fn hot(&self) -> Option<Hot> {
        (self.workload == WorkloadName::Smallbank).then_some(self.hot)
    }

    fn rows<W: Contest>(&self, workload: &W, stores: &[StoreName]) -> Result<Vec<Row>, Error> {
        let threads = usize::from(self.threads);
        thread::scope(|scope| {
            let mut seats = Vec::new();
            for &store in stores {
                seats.push(Seat::taken(scope, name_of(&store), move |desk| self.host(workload, store, desk))?);
            }
            let until = Until::Time(Duration::from_millis(self.slice));
            let rates = interleave(
                self.rounds,
                &seats,
                |_| (),
                |seat, ()| {
                    let tally = seat.ask(Order::Run(until))?.tally;
                    Ok::<_, Error>(tally.committed as f64 / tally.time.as_secs_f64())
                },
            )?;
            let row = |((store, seat), rates): ((&StoreName, &Seat), Rates)| {
                Ok(Row {
                    workload: self.workload,
                    hot: self.hot(),
                    store: *store,
                    threads,
                    records: self.records(),
                    rounds: self.rounds,
                    transactions_per_s: rates,
                    consistency: seat.ask(Order::Check)?.violations,
                })
            };
            stores.iter().zip(&seats).zip(rates).map(row).collect()
        })
    }

    /// Fills a store, and runs it as long as anybody asks.
    fn host<W: Contest>(&self, workload: &W, store: StoreName, desk: &Desk) -> Result<(), Error> {
        let threads = usize::from(self.threads);
        let ours = ours::Ours { workload, threads, memory: u64::from(self.memory) << 30, desk };
        match store {
            StoreName::Drtm => EngineName::Auto.dispatch(ours).map(|_| ()),
            #[cfg(feature = "stores")]
            StoreName::SurrealMx => peer::host::<W, surrealmx::SurrealMx>(workload, threads, desk),
            #[cfg(feature = "stores")]
            StoreName::Redb => peer::host::<W, redb::Redb>(workload, threads, desk),
            #[cfg(not(feature = "stores"))]
            StoreName::SurrealMx | StoreName::Redb => {
                let why = store.refusal().unwrap_or("is not for this");
                Err(Error::NotSupported { engine: name_of(&store), why })
            }
        }
    }

    fn text(&self, rows: &[Row], threads: usize) -> String {
        let records = self.records();
        let mut title = format!("{}, {}, {records} records", name_of(&self.workload), units::threads(threads));
        if let Some(hot) = self.hot() {
            title += &format!(", hot {}", name_of(&hot));
        }
        let first = rows.first().map_or(f64::NAN, |row| row.transactions_per_s.median);
        let cells = rows.iter().map(|row| {
            let Rates { min, median, max } = row.transactions_per_s;
            let rate = |rate: f64| format!("{rate:.0}");
            let checked = if row.consistency.is_empty() { "holds".to_owned() } else { row.consistency.join("; ") };
            vec![name_of(&row.store), rate(median), rate(min), rate(max), format!("{:.2}", median / first), checked]
        });
        let mut text = format!("{title}\n{}\n", table(&["store", "tx/s", "least", "most", "ratio", "check"], 1, cells));
        for store in self.stores() {
            if let Some(why) = store.refusal() {
                text += &prose(&format!("Left out: {} {why}.", name_of(store)));
                text.push('\n');
            }
        }
        let note = "Transactions that were committed, a second: the median of the rounds, the least and the most.";
        text + &prose(note) + "\n"
    }
}

/// A workload that can be run on all stores.
#[cfg(feature = "stores")]
trait Contest: peer::OnPeers {}
#[cfg(feature = "stores")]
impl<W: peer::OnPeers> Contest for W {}

/// A workload that can be run on all stores there are.
#[cfg(not(feature = "stores"))]
trait Contest: crate::drive::Workload {}
#[cfg(not(feature = "stores"))]
impl<W: crate::drive::Workload> Contest for W {}
