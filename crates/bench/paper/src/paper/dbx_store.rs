//! DBX, Figs. 6, 7 and 11: YCSB on the memory store, and what single operations cost as
//! transactions.

use std::hint::black_box;

use drtm_drive::{Client, Done, Finished, Until, run_clients, scatter::scatter, spread};
use drtm_htm::{Native, NoHtm, Rtm};
use drtm_kv::{HashConfig, HashTable, Inline, KvTable, Store, Tree, Worker};
use drtm_report::{
    chart::{Axis, Scale},
    units::Quantity,
};
use drtm_txn::{Builder, Db, DefaultConfig, Ordered, PodRef, Table, TableDef};

use super::{
    effort::{Effort, Sum},
    entries::{Entry, Grid, NO_RTM, THREADS},
    panel::{Curve, Kind, Measured, Panel, Published, Study},
};
use crate::Error;

pub(super) const STUDIES: &[Study] = &[Study { panels: &[TREES, HASH_TABLES, TRANSACTIONS, COST], measure }];

const OPERATIONS: Axis = Axis { title: "operations/s", quantity: Quantity::Operations, scale: Scale::Linear };
const RATIO: Axis = Axis { title: "relative to the tree alone", quantity: Quantity::Ratio, scale: Scale::Linear };

const TREE: &str = "B+ tree";
const HASH: &str = "hash table";
const IN_LOCKS: &str = "transactions, record locks";
const IN_RTM: &str = "transactions, RTM";

const NO_REGIONS_BELOW: &str =
    "operations of our store use no regions: readers check versions, writers lock a node or record";
const NO_SPINLOCK: &str = "there is no such variant of our store";
const ANOTHER_SYSTEM: &str = "another system, which is not part of this program";

const TREES: Panel = Panel {
    name: "dbx-fig6",
    title: "DBX Fig. 6: YCSB on trees, 80 % reads, 20 % reads with a write",
    x: Some(THREADS),
    y: OPERATIONS,
    published: &[],
    note: "Keys of 8 bytes, values of 100, uniform. The paper's text has ratios only: at 8 threads its tree in RTM is 7.6 % \
           faster than Masstree's, and Silo's 36 % slower than that.",
};

const HASH_TABLES: Panel = Panel {
    name: "dbx-fig7",
    title: "DBX Fig. 7: the same on hash tables",
    x: Some(THREADS),
    y: OPERATIONS,
    published: &[],
    note: "The paper's text has a ratio only: at 8 threads its table in RTM is 19 % slower than its lock-free one.",
};

const TRANSACTIONS: Panel = Panel {
    name: "dbx-fig11a",
    title: "DBX Fig. 11: single operations on a tree, alone and as transactions",
    x: Some(THREADS),
    y: OPERATIONS,
    published: &[],
    note: "A transaction reads a row, or reads and writes it.",
};

const COST: Panel = Panel {
    name: "dbx-fig11b",
    title: "DBX Fig. 11: single operations as transactions, relative to the tree alone",
    x: Some(THREADS),
    y: RATIO,
    published: &[Published::at(IN_RTM, 8, 0.80)],
    note: "Of medians within this run. The paper's tree alone is in RTM, too.",
};

/// The number of operations between two readings of the clock.
const BATCH: u64 = 64;

type Value = [u8; 100];

/// Returns the key with this number.
fn key(number: u64) -> u64 {
    scatter(number)
}

/// A store with records.
trait Records: Sync {
    type Session<'s>: Session
    where
        Self: 's;

    fn session(&self) -> Self::Session<'_>;
}

/// One thread's access to the records. Methods return whether the key exists.
trait Session: Send {
    fn get(&mut self, key: u64) -> Result<bool, Error>;
    fn modify(&mut self, key: u64) -> Result<bool, Error>;
}

struct InTree {
    store: Store<NoHtm>,
    tree: Tree<NoHtm, Inline>,
}

struct InHash {
    store: Store<NoHtm>,
    table: HashTable<NoHtm, Inline>,
}

/// Each operation is a transaction.
struct InDatabase {
    db: Db<DefaultConfig>,
    table: Table<u64, PodRef<Value>, Ordered>,
}

/// Returns the memory for this many records.
fn memory(records: u64) -> u64 {
    (256 << 20) + 512 * records
}

impl InTree {
    fn filled(records: u64) -> Result<Self, Error> {
        let store = Store::in_memory(NoHtm, memory(records))?;
        let tree = store.tree_of()?;
        let mut worker = store.worker().expect("a worker");
        (0..records).try_for_each(|number| tree.insert(&mut worker, key(number), &[1; 100]).map(drop))?;
        drop(worker);
        Ok(Self { store, tree })
    }
}

impl InHash {
    fn filled(records: u64) -> Result<Self, Error> {
        let store = Store::in_memory(NoHtm, memory(records))?;
        let table = store.hash_table_of(HashConfig::for_keys(records))?;
        let mut worker = store.worker().expect("a worker");
        (0..records).try_for_each(|number| table.insert(&mut worker, key(number), &[1; 100]).map(drop))?;
        drop(worker);
        Ok(Self { store, table })
    }
}

impl InDatabase {
    fn filled(records: u64, engine: Native) -> Result<Self, Error> {
        let db = Builder::new().memory(memory(records)).build_with::<DefaultConfig>(engine)?;
        let table = db.table(TableDef::ordered("records"))?;
        (0..records).try_for_each(|number| db.transact(|tx| tx.insert(table, key(number), &[1; 100])))?;
        Ok(Self { db, table })
    }
}

struct TreeSession<'s> {
    tree: &'s Tree<NoHtm, Inline>,
    worker: Worker<NoHtm>,
    value: Value,
}

impl Records for InTree {
    type Session<'s> = TreeSession<'s>;

    fn session(&self) -> TreeSession<'_> {
        TreeSession { tree: &self.tree, worker: self.store.worker().expect("a worker"), value: [1; 100] }
    }
}

impl Session for TreeSession<'_> {
    fn get(&mut self, key: u64) -> Result<bool, Error> {
        Ok(self.tree.get(key, &mut self.value)?.is_some())
    }

    fn modify(&mut self, key: u64) -> Result<bool, Error> {
        let is_there = self.get(key)?;
        self.value[0] = self.value[0].wrapping_add(1);
        Ok(self.tree.update(&mut self.worker, key, &self.value)?.is_some() && is_there)
    }
}

struct HashSession<'s> {
    table: &'s HashTable<NoHtm, Inline>,
    worker: Worker<NoHtm>,
    value: Value,
}

impl Records for InHash {
    type Session<'s> = HashSession<'s>;

    fn session(&self) -> HashSession<'_> {
        HashSession { table: &self.table, worker: self.store.worker().expect("a worker"), value: [1; 100] }
    }
}

impl Session for HashSession<'_> {
    fn get(&mut self, key: u64) -> Result<bool, Error> {
        Ok(self.table.get(key, &mut self.value)?.is_some())
    }

    fn modify(&mut self, key: u64) -> Result<bool, Error> {
        let is_there = self.get(key)?;
        self.value[0] = self.value[0].wrapping_add(1);
        Ok(self.table.update(&mut self.worker, key, &self.value)?.is_some() && is_there)
    }
}

impl Records for InDatabase {
    type Session<'s> = &'s Self;

    fn session(&self) -> &Self {
        self
    }
}

impl Session for &InDatabase {
    fn get(&mut self, key: u64) -> Result<bool, Error> {
        let found = self.db.transact(|tx| tx.get(self.table, key))?;
        Ok(black_box(found).is_some())
    }

    fn modify(&mut self, key: u64) -> Result<bool, Error> {
        let found = self.db.transact(|tx| tx.update(self.table, key, |row| row[0] = row[0].wrapping_add(1)))?;
        Ok(found.is_some())
    }
}

/// A thread that reads and writes.
struct User<S> {
    session: S,
    records: u64,
    random: fastrand::Rng,
}

impl<S: Session> Client for User<S> {
    fn kinds() -> &'static [&'static str] {
        &["operations"]
    }

    fn run_next(&mut self, _date: u64) -> Result<Done, drtm_drive::Error> {
        let Self { session, records, random } = self;
        for _ in 0..BATCH {
            let key = key(random.u64(..*records));
            let is_there = if random.u8(..5) == 0 { session.modify(key)? } else { session.get(key)? };
            if !is_there {
                return Err(Error::Misbehaved { engine: "the store".to_owned(), did: "lost a record" }.into());
            }
        }
        Ok(Done { kind: 0, is_committed: true })
    }
}

/// Runs operations on this many threads.
fn run<R: Records>(subject: &R, records: u64, seed: u64, threads: usize, until: Until) -> Result<Finished, Error> {
    let user = |thread| {
        let random = fastrand::Rng::with_seed(spread(seed, thread));
        User { session: subject.session(), records, random }
    };
    let mut tally = run_clients(&mut (0..threads).map(user).collect::<Vec<_>>(), until, |_| {})?;
    tally.committed *= BATCH;
    Ok(Finished::of(tally))
}

/// Returns a series of operations on these records.
fn entry<'e, R: Records>(series: &'static str, effort: &'e Effort, subject: &'e R, records: u64) -> Entry<'e> {
    Entry::of(series, Kind::Measured, move |threads| {
        let until = effort.pace(threads).until;
        Ok(Some(Box::new(move || run(subject, records, effort.seed, threads, until))))
    })
}

fn measure(effort: &Effort) -> Result<Measured, Error> {
    let records = if effort.is_quick { 1_000 } else { 1_000_000 };
    let (tree, hash) = (InTree::filled(records)?, InHash::filled(records)?);
    let plain = InDatabase::filled(records, Native::without_htm())?;
    let in_rtm = Rtm::detect().ok().map(|rtm| InDatabase::filled(records, rtm.into())).transpose()?;
    let entries = [
        entry(TREE, effort, &tree, records),
        entry(HASH, effort, &hash, records),
        entry(IN_LOCKS, effort, &plain, records),
        match &in_rtm {
            Some(in_rtm) => entry(IN_RTM, effort, in_rtm, records),
            None => Entry::absent(IN_RTM, NO_RTM),
        },
    ];
    let grid = Grid::measure(effort, &entries, &effort.threads)?;
    let of = |series: &[&str], absent: &[(&'static str, &'static str)]| -> Vec<Curve> {
        let ours = grid.throughput().into_iter().filter(|curve| series.contains(&curve.series));
        ours.chain(absent.iter().map(|(series, why)| Curve::absent(series, why))).collect()
    };
    let over_tree = |sum: &Sum, all: &[Option<Sum>]| Some(sum.rates.median / all.first()?.as_ref()?.rates.median);
    let cost = grid.curves(over_tree).into_iter().filter(|curve| [IN_LOCKS, IN_RTM].contains(&curve.series)).collect();
    let curves = vec![
        of(
            &[TREE],
            &[
                ("tree in RTM", NO_REGIONS_BELOW),
                ("tree with a spinlock", NO_SPINLOCK),
                ("Masstree", ANOTHER_SYSTEM),
                ("Silo's tree", ANOTHER_SYSTEM),
            ],
        ),
        of(&[HASH], &[("table in RTM", NO_REGIONS_BELOW), ("DBX's lock-free table", ANOTHER_SYSTEM)]),
        of(&[TREE, IN_LOCKS, IN_RTM], &[("transactions, spinlock", NO_SPINLOCK)]),
        cost,
    ];
    let source = format!("{}; {records} records", effort.source());
    Ok(Measured { curves, source, failure: None })
}
