//! The cost of the database's commit in instructions, compared with a commit written by hand for
//! one kind of transaction. `scripts/commit-cost` counts them.
//!
//! ```text
//! commit_cost generic|by-hand transaction|commit READS WRITES BYTES COUNT
//! ```
//!
//! A transaction reads some rows and increments others, all in one hash table, in one thread,
//! without transactional memory. Both versions give the same guarantee to other threads: they lock
//! writes in memory order, read the epoch, validate reads, and write values under the locks. The
//! version by hand uses only the store's records. It assumes one table with rows of one length,
//! existing rows, and a known number of rows. It omits the other features of a database: insertion
//! and removal, ranges, values of other lengths, open snapshots, hooks, the starvation ticket,
//! error details, statistics, and waiting: a locked row fails the transaction.
//!
//! The counts are those of `transactions` (a whole run), or of `finish_generic` and
//! `finish_by_hand` (commits alone, after all reads).

use std::{env, hint::black_box, process::ExitCode};

use drtm_htm::{Engine, NoHtm, Word, fence_locked};
use drtm_kv::{
    ForHolder, HashConfig, HashTable, Holder, KvTable, Locking, ReadEntry, Records, Store, ValueSink, Version,
};
use drtm_txn::{Builder, Config, Db, PodRef, Table, TableDef, Tx};

const ROWS: u64 = 10_000;
const MEMORY: u64 = 1 << 30;
const USAGE: &str = "usage: commit_cost generic|by-hand transaction|commit READS WRITES BYTES(8, 100, 1000) COUNT";

type Failure = Box<dyn std::error::Error>;

/// The parameters of a run.
struct Run {
    reads: u64,
    writes: u64,
    count: u64,
    /// Whether only commits are counted. Transactions are explicit then.
    commits_alone: bool,
}

impl Run {
    /// Returns the distinct keys of a transaction: those read, and those written.
    fn keys(&self, turn: u64) -> (impl Iterator<Item = u64> + Clone, impl Iterator<Item = u64> + Clone) {
        let first = turn.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let key = move |place: u64| (first + 617 * place) % ROWS;
        ((0..self.reads).map(key), (self.reads..self.reads + self.writes).map(key))
    }
}

/// Increments a row: a write count, padded to the row's length.
fn add<const N: usize>(row: &mut [u8; N]) {
    if let Some(count) = row.first_chunk_mut::<8>() {
        *count = (u64::from_le_bytes(*count) + 1).to_le_bytes();
    }
}

fn count_of<const N: usize>(row: &[u8; N]) -> u64 {
    row.first_chunk::<8>().map_or(0, |count| u64::from_le_bytes(*count))
}

#[derive(Debug)]
struct Local;

impl Config for Local {
    type Engine = NoHtm;
}

/// The database's transactions.
struct Generic<'d, const N: usize> {
    db: &'d Db<Local>,
    rows: Table<u64, PodRef<[u8; N]>>,
}

#[inline(never)]
fn finish_generic(tx: Tx<'_, Local>) -> Result<(), drtm_txn::Error> {
    tx.commit()
}

impl<const N: usize> Generic<'_, N> {
    fn body(&self, run: &Run, turn: u64, tx: &mut Tx<'_, Local>) -> Result<(), drtm_txn::Error> {
        let (mut reads, mut writes) = run.keys(turn);
        reads.try_for_each(|key| tx.view(self.rows, &key, |row| black_box(row[0])).map(|_| ()))?;
        writes.try_for_each(|key| tx.update(self.rows, &key, add).map(|_| ()))
    }

    #[inline(never)]
    fn transactions(&self, run: &Run) -> Result<(), Failure> {
        for turn in 0..run.count {
            if run.commits_alone {
                let mut tx = self.db.begin()?;
                self.body(run, turn, &mut tx)?;
                finish_generic(tx)?;
            } else {
                self.db.transact(|tx| self.body(run, turn, tx))?;
            }
        }
        Ok(())
    }

    /// Runs it. Returns the sum of the rows' write counts.
    fn carry_out(run: &Run) -> Result<u64, Failure> {
        let db = Builder::new().memory(MEMORY).build_with::<Local>(NoHtm)?;
        let rows = db.table(TableDef::hash("rows").with_room_for(ROWS))?;
        (0..ROWS).try_for_each(|key| db.transact(|tx| tx.insert(rows, key, &[0; N])))?;
        Generic { db: &db, rows }.transactions(run)?;
        let counts = (0..ROWS).map(|key| Ok(db.transact(|tx| tx.view(rows, &key, count_of))?.unwrap_or(0)));
        counts.sum()
    }
}

/// A row's value as it is read.
struct Value<const N: usize>([u8; N]);

impl<const N: usize> ValueSink for Value<N> {
    #[inline(always)]
    fn of(&mut self, length: usize) -> &mut [u8] {
        &mut self.0[..length.min(N)]
    }
}

struct Write<const N: usize> {
    seen: ReadEntry,
    value: Value<N>,
}

/// The transactions by hand.
struct ByHand<'s, const N: usize> {
    table: &'s HashTable<NoHtm>,
    records: Records<'s, NoHtm>,
    /// The epoch.
    number: &'s Word,
    me: Holder,
    reads: Vec<ReadEntry>,
    writes: Vec<Write<N>>,
}

impl<const N: usize> ByHand<'_, N> {
    #[inline(always)]
    fn read(&self, key: u64, value: &mut Value<N>) -> Result<ReadEntry, Failure> {
        match self.table.read(key, ForHolder(self.me), value)? {
            Ok(seen) if seen.is_present() => Ok(seen),
            _ => Err("a row is missing".into()),
        }
    }

    /// Commits. Returns whether that succeeded.
    #[inline(never)]
    fn finish_by_hand(&mut self) -> Result<bool, Failure> {
        let Self { table, records, number, me, reads, writes } = self;
        writes.sort_unstable_by_key(|write| write.seen.at);
        for (locked, write) in writes.iter().enumerate() {
            // A row that was read before it was written is unchanged if it still has that version.
            let locking = records.lock(write.seen.at, *me)?;
            let is_taken = matches!(locking, Locking::Taken { .. });
            if !matches!(locking, Locking::Taken { version, .. } if version == write.seen.version) {
                writes[..locked + usize::from(is_taken)].iter().for_each(|write| records.unlock(write.seen.at));
                return Ok(false);
            }
        }
        fence_locked();
        let epoch = NoHtm.load(number);
        if !reads.iter().all(|seen| records.is_still(*seen, *me)) {
            writes.iter().for_each(|write| records.unlock(write.seen.at));
            return Ok(false);
        }
        for write in writes.iter() {
            let version = Version::new((write.seen.version.number() + 1).max(epoch << 16));
            table.write_held(write.seen.at, version, &write.value.0)?;
        }
        reads.clear();
        writes.clear();
        Ok(true)
    }

    #[inline(never)]
    fn transactions(&mut self, run: &Run) -> Result<(), Failure> {
        for turn in 0..run.count {
            let (reads, writes) = run.keys(turn);
            for key in reads {
                let mut value = Value([0; N]);
                let seen = self.read(key, &mut value)?;
                black_box(value.0[0]);
                self.reads.push(seen);
            }
            for key in writes {
                let mut value = Value([0; N]);
                let seen = self.read(key, &mut value)?;
                add(&mut value.0);
                self.writes.push(Write { seen, value });
            }
            if !self.finish_by_hand()? {
                return Err("no other thread is here, and yet a transaction has failed".into());
            }
        }
        Ok(())
    }

    /// Runs it. Returns the sum of the rows' write counts.
    fn carry_out(run: &Run) -> Result<u64, Failure> {
        let store = Store::in_memory(NoHtm, MEMORY)?;
        let table = store.hash_table(HashConfig::for_keys(ROWS))?;
        let mut worker = store.worker()?;
        (0..ROWS).try_for_each(|key| table.insert(&mut worker, key, &[0; N]).map(|_| ()))?;
        let number: &[Word; 1] = store.region().array(store.region().extend(8, 64)?)?;
        NoHtm.store(&number[0], 1);
        let (records, me) = (store.records(), worker.holder());
        let (reads, writes) = (Vec::with_capacity(64), Vec::with_capacity(64));
        ByHand::<N> { table: &table, records, number: &number[0], me, reads, writes }.transactions(run)?;
        let mut row = [0; N];
        let counts = (0..ROWS).map(|key| Ok(table.get(key, &mut row)?.map_or(0, |_| count_of(&row))));
        counts.sum()
    }
}

fn carry_out(arguments: &[&str]) -> Result<(), Failure> {
    let [who, what, reads, writes, bytes, count] = arguments else { return Err(USAGE.into()) };
    let commits_alone = match *what {
        "transaction" => false,
        "commit" => true,
        _ => return Err(USAGE.into()),
    };
    let run = Run { reads: reads.parse()?, writes: writes.parse()?, count: count.parse()?, commits_alone };
    if run.reads + run.writes > 16 {
        return Err("a transaction has 16 rows at most".into());
    }
    let written = match (*who, *bytes) {
        ("generic", "8") => Generic::<8>::carry_out(&run),
        ("generic", "100") => Generic::<100>::carry_out(&run),
        ("generic", "1000") => Generic::<1000>::carry_out(&run),
        ("by-hand", "8") => ByHand::<8>::carry_out(&run),
        ("by-hand", "100") => ByHand::<100>::carry_out(&run),
        ("by-hand", "1000") => ByHand::<1000>::carry_out(&run),
        _ => return Err(USAGE.into()),
    }?;
    if written != run.writes * run.count {
        return Err(format!("rows were written {written} times, and not {}", run.writes * run.count).into());
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match carry_out(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("commit_cost: {failure}");
            ExitCode::FAILURE
        }
    }
}
