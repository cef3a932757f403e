//! Emptying a table as a whole: by spans where it has them for itself, record by record elsewhere.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
};

use drtm_htm::{Emulated, Engine, NoHtm};
use drtm_kv::{Bytes, Current, Emptied, HashConfig, HashTable, KvError, KvTable, Store, Tree, Version, Watch, Worker};

const LAST: Version = Version::new(1 << 20);

/// Knows no operations but visits, which the store knows itself.
#[derive(Debug, Default)]
struct Visits {
    turns: AtomicU64,
    /// Whether other operations are said to be running.
    has_others: AtomicBool,
}

impl Watch for Visits {
    fn turned(&self) -> u64 {
        self.turns.fetch_add(1, Relaxed) + 1
    }

    fn has_passed(&self, _turn: u64) -> bool {
        !self.has_others.load(Relaxed)
    }

    fn is_certain(&self) -> bool {
        true
    }

    fn have_all_ended(&self, turn: u64) -> bool {
        self.has_passed(turn)
    }
}

fn store<E: Engine>(engine: E, bytes: u64) -> Result<(Store<E>, Arc<Visits>), KvError> {
    let (store, visits) = (Store::in_memory(engine, bytes)?, Arc::new(Visits::default()));
    let watch: Weak<dyn Watch> = Arc::downgrade(&visits) as _;
    store.watched_by(watch);
    Ok((store, visits))
}

/// A table of any kind, whose keys are numbers.
enum Subject<E: Engine> {
    Hash(HashTable<E>),
    HashOfBytes(HashTable<E, Bytes>),
    Tree(Tree<E>),
    TreeOfBytes(Tree<E, Bytes>),
}

/// Keys that share prefixes of several lengths, so that a tree of byte strings has layers.
fn name(key: u64) -> Vec<u8> {
    let mut name = vec![b'p'; 16 * (key % 3) as usize];
    name.extend(key.to_be_bytes());
    name.extend(vec![key as u8; (key % 20) as usize]);
    name
}

macro_rules! on {
    ($subject:expr, $of:expr, |$table:ident, $key:ident| $body:expr) => {
        match $subject {
            Subject::Hash($table) => {
                let $key = $of;
                $body
            }
            Subject::Tree($table) => {
                let $key = $of;
                $body
            }
            Subject::HashOfBytes($table) => {
                let name = name($of);
                let $key = &*name;
                $body
            }
            Subject::TreeOfBytes($table) => {
                let name = name($of);
                let $key = &*name;
                $body
            }
        }
    };
}

impl<E: Engine> Subject<E> {
    fn all(store: &Store<E>) -> Result<[Self; 4], KvError> {
        let config = HashConfig::default();
        Ok([
            Self::Hash(store.hash_table(config)?),
            Self::HashOfBytes(store.hash_table_of(config)?),
            Self::Tree(store.tree()?),
            Self::TreeOfBytes(store.tree_of()?),
        ])
    }

    fn insert(&self, worker: &mut Worker<E>, row: u64, value: &[u8]) -> Result<Version, KvError> {
        on!(self, row, |table, key| Ok(table.insert(worker, key, value)?.expect("it is new")))
    }

    fn get(&self, row: u64, value: &mut Vec<u8>) -> Result<bool, KvError> {
        on!(self, row, |table, key| Ok(table.read(key, Current, value)?.is_ok_and(|found| found.is_present())))
    }

    fn count(&self) -> Result<u64, KvError> {
        on!(self, 0, |table, _key| table.count())
    }

    fn empty(&self, worker: &mut Worker<E>) -> Result<Emptied, KvError> {
        on!(self, 0, |table, _key| table.empty(worker, LAST))
    }
}

#[test]
fn a_table_that_has_its_spans_for_itself_is_emptied_without_a_look_at_its_records() -> Result<(), KvError> {
    const ROWS: u64 = 40_000;
    for which in 0..4 {
        let (store, _visits) = store(NoHtm, 64 << 20)?;
        let mut worker = store.worker()?;
        let table = Subject::all(&store)?.into_iter().nth(which).expect("one of four");
        (0..ROWS).try_for_each(|key| table.insert(&mut worker, key, &[1; 200]).map(drop))?;
        let emptied = table.empty(&mut worker)?;
        // Keys of several lengths have several sizes, and of each size a worker has begun a span.
        assert_eq!((emptied.records, emptied.visited, table.count()?), (ROWS, 0, 0), "table {which}");
        assert!(emptied.spans > 100, "table {which}: {emptied:?}");
        store.release_spans();
        assert_eq!(store.waiting_spans(), 0);
        assert!(store.free_spans() >= ROWS * 232, "table {which}: {} bytes are free", store.free_spans());

        // The memory serves rows of another size, in the same table, with higher versions.
        let (allocated, mut value) = (store.region().allocated(), Vec::new());
        for key in 0..ROWS / 4 {
            assert!(!table.get(key, &mut value)?, "table {which}: row {key} is still there");
            assert!(table.insert(&mut worker, key, &[2; 600])? > LAST);
        }
        assert!(store.region().allocated() - allocated < 8 << 20, "table {which} has taken new memory");
        for key in 0..ROWS {
            assert_eq!(table.get(key, &mut value)?, key < ROWS / 4, "table {which}: row {key}");
        }
        assert_eq!(value, [2; 600]);
        // And it is emptied again.
        assert_eq!(table.empty(&mut worker)?.records, ROWS / 4);
    }
    Ok(())
}

#[test]
fn records_beside_those_of_another_table_are_freed_one_by_one() -> Result<(), KvError> {
    const ROWS: u64 = 10_000;
    for which in 0..4 {
        let (store, _visits) = store(Emulated::default(), 64 << 20)?;
        let mut worker = store.worker()?;
        let table = Subject::all(&store)?.into_iter().nth(which).expect("one of four");
        let other = store.hash_table(HashConfig::default())?;
        for key in 0..ROWS {
            table.insert(&mut worker, key, &[1; 200])?;
            // Each size that the table has.
            other.insert(&mut worker, key, &vec![3; 200 + (key % 64) as usize])?;
        }
        let emptied = table.empty(&mut worker)?;
        assert_eq!((emptied.records, table.count()?), (ROWS, 0), "table {which}");
        assert!(emptied.visited > ROWS / 2, "table {which}: {emptied:?}");
        // They are reused at once, and the other table has kept its rows.
        let allocated = store.region().allocated();
        (0..ROWS).try_for_each(|key| table.insert(&mut worker, key, &[2; 200]).map(drop))?;
        assert!(store.region().allocated() - allocated < 1 << 20, "table {which}");
        let mut value = Vec::new();
        for key in 0..ROWS {
            assert!(other.read(key, Current, &mut value)?.is_ok() && value == vec![3; 200 + (key % 64) as usize]);
            assert!(table.get(key, &mut value)? && value == [2; 200], "table {which}");
        }
    }
    Ok(())
}

/// Records that leave with their span keep their incarnations. So the span serves no record before
/// it has been in quarantine, not even one of the same size.
#[test]
fn spans_that_leave_whole_wait_for_operations() -> Result<(), KvError> {
    let (store, visits) = store(NoHtm, 8 << 20)?;
    let (table, mut worker) = (store.hash_table(HashConfig::default())?, store.worker()?);
    let mut insert = |key| table.insert(&mut worker, key, &[1; 500]).map(|made| made.expect("it is new"));
    let before: Vec<_> = (0..).map_while(|key| insert(key).ok()).collect();
    visits.has_others.store(true, Relaxed);
    let emptied = table.empty(&mut worker, LAST)?;
    assert!(emptied.visited == 0 && store.waiting_spans() > 6 << 20, "{emptied:?}");
    let mut insert = |key| table.insert(&mut worker, key, &[2; 500]).map(|made| made.expect("it is new"));
    assert!(matches!(insert(0), Err(KvError::Full(_))), "operations may have places of the old rows");
    visits.has_others.store(false, Relaxed);
    let after: Vec<_> = (0..).map_while(|key| insert(key).ok()).collect();
    assert!(after.len() + 100 > before.len(), "{} of {} fit", after.len(), before.len());
    Ok(())
}

/// Threads that visit the table meanwhile, as a checkpoint does, see rows as they were or none.
#[test]
fn visitors_see_rows_as_they_were_or_none() -> Result<(), KvError> {
    const ROWS: u64 = 4_000;
    let (store, _visits) = store(Emulated::default(), 64 << 20)?;
    let mut worker = store.worker()?;
    for table in Subject::all(&store)? {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let visitor = scope.spawn(|| {
                let mut value = Vec::new();
                while !is_over.load(Relaxed) {
                    for key in (0..ROWS).step_by(7) {
                        let _visit = store.visit();
                        let is_there = table.get(key, &mut value)?;
                        assert!(!is_there || value == vec![key as u8; 100 + (key % 50) as usize], "row {key}");
                    }
                    thread::yield_now();
                }
                Ok::<(), KvError>(())
            });
            let rounds = (0..8).try_for_each(|round| {
                for key in 0..ROWS {
                    table.insert(&mut worker, key, &vec![key as u8; 100 + (key % 50) as usize])?;
                }
                assert_eq!(table.empty(&mut worker)?.records, ROWS, "round {round}");
                while store.waiting_spans() > 0 {
                    store.release_spans();
                }
                // Its memory becomes another size's, full of zeros.
                let other = store.hash_table(HashConfig::default())?;
                (0..ROWS / 8).try_for_each(|key| other.insert(&mut worker, key, &[0; 2_000]).map(drop))?;
                other.empty(&mut worker, LAST)?;
                Ok::<(), KvError>(())
            });
            is_over.store(true, Relaxed);
            visitor.join().expect("rows are whole").and(rounds)
        })?;
    }
    Ok(())
}
