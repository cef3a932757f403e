//! `drtm-bench compare`: runs workloads on this database and on other transactional stores, in one
//! process.
//!
//! - `order_queue`: stores that are filled once and then take turns.
//! - `ours`: this database on any engine, as the workloads' own commands run it.
//! - `peer`, `surrealmx`, `redb`: other stores behind one trait; `smallbank`, `ycsb`: the workloads
//!   on it. Only with the feature `stores`.
//! - `durable`: durable commits of single rows, by this database, by `raw`, and by other stores
//!   (`redb`, `heed`, `fjall`, `surrealmx`).

mod durable;
#[cfg(feature = "stores")]
mod fjall;
#[cfg(feature = "stores")]
mod heed;
mod order_queue;
mod ours;
#[cfg(feature = "stores")]
mod peer;
mod raw;
#[cfg(feature = "stores")]
mod redb;
#[cfg(feature = "stores")]
mod smallbank;
#[cfg(feature = "stores")]
mod surrealmx;
#[cfg(feature = "stores")]
mod ycsb;

use std::{path::PathBuf, thread, time::Duration};

use clap::{Args as ClapArgs, ValueEnum, value_parser};
use drtm_drive::{
    DurabilityName, EngineName, Until,
    rates::{Rates, interleave},
    reject_limit,
};
use drtm_report::{Report, name_of, prose, table, units};
use drtm_workloads::{
    smallbank::{Hot, SmallBank},
    ycsb::SmallTransactions,
};
use serde::Serialize;

use self::{
    durable::{Ground, ROWS},
    order_queue::{Order, OrderQueue, Seat},
    raw::Raw,
};
use crate::StoreError;
use drtm_drive::Error;

/// Measure workloads on this database beside other transactional stores
///
/// All stores are filled first. Then, in each round, every store runs the workload for a slice of
/// time, so that other load on the machine affects all alike. A first round is not counted.
/// Background work of a store runs also while the others do. At the end each store's rows are
/// checked, as the workload's own command does. Compare within one run.
///
/// SmallBank: as its own command runs it. YCSB: transactions of four operations on different
/// records of 100 bytes, 80 % reads and 20 % reads with a write, by Zipf's distribution. This
/// database prefetches these records, and the second row in SmallBank; the others have no prefetch.
/// A transaction that is retried on conflict counts once; one that the workload aborts does not
/// count. Read-only transactions begin as such where a store supports it.
///
/// With `--durability sync`: transactions that put one row of 100 bytes each, and are durable when
/// they return. Each thread writes rows of its own. `raw` is the floor: a leader writes and syncs
/// the bytes of all waiting threads at once. Stores that do not sync with `fdatasync` use their
/// default.
///
/// Other stores are in the binary only if it was built with `--features stores`.
///
/// JSON: [{workload, hot (of SmallBank), store, threads, records, rounds, transactions_per_s: {min,
/// median, max}, consistency: "ok"|[TEXT, ...]}]
#[derive(Debug, ClapArgs)]
#[command(verbatim_doc_comment, after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// What to run
    #[arg(value_enum, required_unless_present = "durability")]
    workload: Option<WorkloadName>,

    /// What commits wait for. With durable commits, the workload is single-row transactions
    #[arg(long, value_enum, conflicts_with = "workload", value_name = "WHEN")]
    durability: Option<DurabilityName>,

    /// Directory of the durable stores' files: empty or not there yet, and removed at the end
    /// [default: among the system's temporary files]
    #[arg(long, requires = "durability", value_name = "DIR")]
    path: Option<PathBuf>,

    /// The stores; ratios are to the first [default: all in this build]
    #[arg(long, value_parser = reject_limit::<StoreName>(), value_delimiter = ',', value_name = "STORE,...")]
    store: Vec<StoreName>,

    /// Threads that run transactions, in each store [default: 1; 1,2,16,64 for durable commits]
    #[arg(long, value_parser = value_parser!(u16).range(1..=1024), value_delimiter = ',', value_name = "N,...")]
    threads: Vec<u16>,

    /// Initial records, or customers [default: 1000000; 100000 customers]
    #[arg(long, value_parser = value_parser!(u64).range(8..1 << 32), value_name = "N")]
    records: Option<u64>,

    /// Which customers of SmallBank are accessed more often
    #[arg(long, value_enum, default_value_t)]
    hot: Hot,

    /// Rounds
    #[arg(long, value_parser = value_parser!(u16).range(1..=10_000), default_value_t = 7, value_name = "N")]
    rounds: u16,

    /// Milliseconds that each store runs in a round
    #[arg(long, value_parser = value_parser!(u64).range(1..=600_000), default_value_t = 500, value_name = "MS")]
    slice: u64,

    /// Memory that this database may use, in GiB
    #[arg(long, value_parser = value_parser!(u16).range(1..=4096), default_value_t = 64, value_name = "GIB")]
    memory: u16,
}

const AFTER_HELP: &str = "\
Examples:
  drtm-bench compare smallbank                                  all stores of this build
  drtm-bench compare ycsb --store drtm,surrealmx --threads 2    with --features stores
  drtm-bench compare --durability sync --path DIR               commits to the disk of DIR, beside what it can take";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum WorkloadName {
    /// The six transactions of SmallBank
    Smallbank,
    /// Transactions of several operations of YCSB
    Ycsb,
    /// Durable commits of single rows
    #[value(skip)]
    Commits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum StoreName {
    /// This database, on this machine's best engine
    Drtm,
    /// Multi-version, with serializable transactions; in memory
    #[value(name = "surrealmx")]
    #[serde(rename = "surrealmx")]
    SurrealMx,
    /// A copy-on-write B-tree with one writer at a time; in memory and without syncing, unless
    /// commits are durable
    Redb,
    /// For durable commits: the bytes alone, with one `fdatasync` for all waiting threads
    Raw,
    /// For durable commits: LMDB, a copy-on-write B+ tree with one writer at a time
    Heed,
    /// For durable commits: a log-structured merge tree
    Fjall,
}

impl StoreName {
    /// Returns the stores of this build that run a workload.
    fn all(workload: WorkloadName) -> &'static [Self] {
        match (workload, cfg!(feature = "stores")) {
            (WorkloadName::Commits, true) => {
                &[Self::Raw, Self::Drtm, Self::Redb, Self::Heed, Self::Fjall, Self::SurrealMx]
            }
            (WorkloadName::Commits, false) => &[Self::Raw, Self::Drtm],
            (_, true) => &[Self::Drtm, Self::SurrealMx, Self::Redb],
            (_, false) => &[Self::Drtm],
        }
    }

    /// Returns why this store cannot run the workload; `None` if it can.
    fn refusal(self, workload: WorkloadName) -> Option<&'static str> {
        match self {
            _ if Self::all(workload).contains(&self) => None,
            Self::Raw | Self::Heed | Self::Fjall if workload != WorkloadName::Commits => {
                Some("is for --durability sync only")
            }
            _ => Some("is not in this build: build with --features stores"),
        }
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
    #[serde(serialize_with = "drtm_drive::ok_or_violations")]
    consistency: Vec<String>,
}

impl Args {
    pub(crate) fn execute(&self, seed: u64, report: &Report) -> Result<(), Error> {
        let workload = self.workload()?;
        let stores = self.stores(workload);
        let able: Vec<StoreName> = stores.iter().copied().filter(|store| store.refusal(workload).is_none()).collect();
        if let (Some(first), true) = (stores.first(), able.is_empty()) {
            let why = first.refusal(workload).unwrap_or("is not for this");
            return Err(StoreError::NotSupported { engine: name_of(first), why }.into());
        }
        let mut rows = Vec::new();
        for threads in self.threads(workload) {
            let some = match workload {
                WorkloadName::Smallbank => {
                    let bank = SmallBank::new(self.records(workload, threads), self.hot, seed)?;
                    self.rows(workload, threads, &able, |store, orders| self.host(&bank, threads, store, orders))
                }
                WorkloadName::Ycsb => {
                    let ycsb = SmallTransactions::standard(self.records(workload, threads), seed)?;
                    self.rows(workload, threads, &able, |store, orders| self.host(&ycsb, threads, store, orders))
                }
                WorkloadName::Commits => {
                    let ground = Ground::new(self.path.as_deref())?;
                    self.rows(workload, threads, &able, |store, orders| host_durably(store, &ground, threads, orders))
                }
            }?;
            report.text(&self.text(workload, &some, threads))?;
            rows.extend(some);
        }
        report.result(&rows)?;
        let violated = rows.iter().find_map(|row| Some((row.consistency.len(), row.consistency.first()?.clone())));
        violated.map_or(Ok(()), |(violations, first)| Err(Error::Inconsistent { violations, first }))
    }

    fn workload(&self) -> Result<WorkloadName, Error> {
        match (self.workload, self.durability) {
            (_, Some(DurabilityName::Sync)) => Ok(WorkloadName::Commits),
            (Some(workload), None) => Ok(workload),
            _ => Err(Error::Options {
                option: "--durability",
                with: "a comparison of stores in memory",
                instead: "say --durability sync, or name a workload instead",
            }),
        }
    }

    /// Returns the given stores, or all of this build.
    fn stores(&self, workload: WorkloadName) -> &[StoreName] {
        if self.store.is_empty() { StoreName::all(workload) } else { &self.store }
    }

    fn threads(&self, workload: WorkloadName) -> Vec<usize> {
        match (self.threads.as_slice(), workload) {
            ([], WorkloadName::Commits) => vec![1, 2, 16, 64],
            ([], _) => vec![1],
            (threads, _) => threads.iter().map(|threads| usize::from(*threads)).collect(),
        }
    }

    fn records(&self, workload: WorkloadName, threads: usize) -> u64 {
        match (workload, self.records) {
            (WorkloadName::Commits, _) => ROWS * threads as u64,
            (_, Some(records)) => records,
            (WorkloadName::Smallbank, None) => 100_000,
            (WorkloadName::Ycsb, None) => 1_000_000,
        }
    }

    fn rows(
        &self,
        workload: WorkloadName,
        threads: usize,
        stores: &[StoreName],
        host: impl Fn(StoreName, &OrderQueue) -> Result<(), Error> + Sync,
    ) -> Result<Vec<Row>, Error> {
        let host = &host;
        thread::scope(|scope| {
            let mut seats = Vec::new();
            for &store in stores {
                seats.push(Seat::taken(scope, name_of(&store), move |orders| host(store, orders))?);
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
                    workload,
                    hot: (workload == WorkloadName::Smallbank).then_some(self.hot),
                    store: *store,
                    threads,
                    records: self.records(workload, threads),
                    rounds: self.rounds,
                    transactions_per_s: rates,
                    consistency: seat.ask(Order::Check)?.violations,
                })
            };
            stores.iter().zip(&seats).zip(rates).map(row).collect()
        })
    }

    /// Fills a store, and runs orders until the asking side drops its queue.
    fn host<W: Contest>(
        &self,
        workload: &W,
        threads: usize,
        store: StoreName,
        orders: &OrderQueue,
    ) -> Result<(), Error> {
        let ours = ours::Ours { workload, threads, memory: u64::from(self.memory) << 30, orders };
        match store {
            StoreName::Drtm => EngineName::Auto.dispatch(ours).map(|_| ()),
            #[cfg(feature = "stores")]
            StoreName::SurrealMx => peer::host::<W, surrealmx::SurrealMx>(workload, threads, orders),
            #[cfg(feature = "stores")]
            StoreName::Redb => peer::host::<W, redb::Redb>(workload, threads, orders),
            _ => Err(StoreError::NotSupported { engine: name_of(&store), why: "is not for this" }.into()),
        }
    }

    fn text(&self, workload: WorkloadName, rows: &[Row], threads: usize) -> String {
        let records = self.records(workload, threads);
        let name = match workload {
            WorkloadName::Commits => "durable commits of one row".to_owned(),
            workload => name_of(&workload),
        };
        let mut title = format!("{name}, {}, {records} records", units::threads(threads));
        if workload == WorkloadName::Smallbank {
            title += &format!(", hot {}", name_of(&self.hot));
        }
        let first = rows.first().map_or(f64::NAN, |row| row.transactions_per_s.median);
        let cells = rows.iter().map(|row| {
            let Rates { min, median, max } = row.transactions_per_s;
            let rate = |rate: f64| format!("{rate:.0}");
            let checked = if row.consistency.is_empty() { "holds".to_owned() } else { row.consistency.join("; ") };
            vec![name_of(&row.store), rate(median), rate(min), rate(max), format!("{:.2}", median / first), checked]
        });
        let mut text = format!("{title}\n{}\n", table(&["store", "tx/s", "least", "most", "ratio", "check"], 1, cells));
        for store in self.stores(workload) {
            if let Some(why) = store.refusal(workload) {
                text += &prose(&format!("Left out: {} {why}.", name_of(store)));
                text.push('\n');
            }
        }
        let note = "Transactions that were committed, a second: the median of the rounds, the least and the most.";
        text + &prose(note) + "\n"
    }
}

/// Runs a store with durable commits until the asking side drops its queue.
fn host_durably(store: StoreName, ground: &Ground, threads: usize, orders: &OrderQueue) -> Result<(), Error> {
    let directory = ground.directory(&format!("{}-{threads}", name_of(&store)))?;
    match store {
        StoreName::Raw => durable::host::<Raw>(&directory, threads, orders),
        StoreName::Drtm => durable::host::<durable::Ours>(&directory, threads, orders),
        #[cfg(feature = "stores")]
        StoreName::SurrealMx => durable::host::<surrealmx::SurrealMx>(&directory, threads, orders),
        #[cfg(feature = "stores")]
        StoreName::Redb => durable::host::<redb::Redb>(&directory, threads, orders),
        #[cfg(feature = "stores")]
        StoreName::Heed => durable::host::<heed::Heed>(&directory, threads, orders),
        #[cfg(feature = "stores")]
        StoreName::Fjall => durable::host::<fjall::Fjall>(&directory, threads, orders),
        #[cfg(not(feature = "stores"))]
        _ => Err(StoreError::NotSupported { engine: name_of(&store), why: "is not in this build" }.into()),
    }
}

/// A workload that runs on all stores.
#[cfg(feature = "stores")]
trait Contest: peer::OnPeers {}
#[cfg(feature = "stores")]
impl<W: peer::OnPeers> Contest for W {}

/// A workload that runs on all stores of this build.
#[cfg(not(feature = "stores"))]
trait Contest: drtm_drive::Workload {}
#[cfg(not(feature = "stores"))]
impl<W: drtm_drive::Workload> Contest for W {}
