//! Model checking of record operations of transactions: every interleaving, and every value that
//! weak memory lets a load return, of small cases.
//!
//! The code is the production code; only the words are loom's, in a small box. Each case runs on
//! both kinds of tables, and twice on each with either thread first, because loom's exploration
//! depends on it. *Mutations*, deliberate faults, must make the same checks fail; those tests
//! expect a panic.
//!
//! Other faults were tried by hand, and were found:
//!
//! - an older version is not checked again before its link is followed, or its newer one is not:
//!   `what_is_asked_for_outlives_what_is_not`;
//! - a read of an older version does not wait for the record's lock holder:
//!   `an_earlier_writer_is_waited_for`;
//! - a record moves without its older versions: `what_is_kept_is_found`;
//! - an absent key's record is removed whatever its version is:
//!   `a_record_is_taken_out_or_used_again`; or although it has older versions:
//!   `what_a_removed_key_was_is_found`;
//! - a lock is taken without a check of the incarnation: `a_record_that_moves_is_found_whole`;
//! - a record counts as unchanged although it is locked: `what_is_still_so_is_of_one_moment`;
//! - memory is written once more without its lock:
//!   `who_was_mistaken_about_a_record_unlocks_it_for_nobody_else`.
//!
//! This test does not detect older versions that are freed without being marked as free: the next
//! version in their memory marks it as well.

use std::sync::{Arc, Mutex};

use drtm_htm::NoHtm;
use drtm_kv::{
    Acquire, ForHolder, Handle, HashConfig, HashTable, Inline, KvTable, Locking, Mutation, Past, Placed, ReadEntry,
    Reaped, RetainOutcome, Store, Tree, Version, Worker, mutated,
};
use loom::thread;

use crate::{explore, transacted::Transacted};

/// Both kinds of tables.
trait Table: Transacted<NoHtm, Inline> {
    /// The most preemptions that are feasible.
    const PREEMPTIONS: usize;

    fn small(store: &Store<NoHtm>) -> Self;
}

impl Table for HashTable<NoHtm> {
    // A bucket has many words, and each may be read stale.
    const PREEMPTIONS: usize = 1;

    fn small(store: &Store<NoHtm>) -> Self {
        store.hash_table(HashConfig::default().fixed()).expect("a table")
    }
}

impl Table for Tree<NoHtm> {
    const PREEMPTIONS: usize = 2;

    fn small(store: &Store<NoHtm>) -> Self {
        store.tree().expect("a tree")
    }
}

const SHORT: usize = 16;
const LONG: usize = 40;

/// Returns a value that shows whether it is torn, and which version it belongs to.
fn value(version: u64, length: usize) -> Vec<u8> {
    let mut value = vec![version as u8; length];
    value[0] = length as u8;
    value
}

fn assert_is_of(found: &[u8], version: Version) {
    assert_eq!(found, value(version.number(), found.len()), "a mix of versions at {version:?}");
}

fn version(number: u64) -> Version {
    Version::new(number)
}

#[derive(Clone)]
struct World<T> {
    store: Store<NoHtm>,
    table: T,
    /// Workers that may have freed memory are kept here. Loom does not know the mutex that would
    /// hand the memory to another thread, and would not order the accesses before and after.
    kept: Arc<Mutex<Vec<Worker<NoHtm>>>>,
    /// The worker that initially has all records locked, or has the memory of one, in cases that
    /// need it.
    holder: Arc<Mutex<Option<Worker<NoHtm>>>>,
    /// The initial records.
    begun: Vec<(u64, ReadEntry)>,
}

impl<T: Table> World<T> {
    /// Creates a table with these keys, the first in version 10, and so on.
    fn new(keys: &[u64]) -> Self {
        let store = Store::in_memory(NoHtm, 2048).expect("a store");
        let table = T::small(&store);
        let mut world = Self { store, table, kept: Arc::default(), holder: Arc::default(), begun: Vec::new() };
        for (key, number) in keys.iter().zip(10..) {
            let seen = world.work(|worker| world.insert(worker, *key, number));
            world.begun.push((*key, seen));
        }
        world
    }

    /// Returns an initial record as it was then.
    fn begun(&self, key: u64) -> ReadEntry {
        self.begun.iter().find(|(begun, _)| *begun == key).expect("it was there").1
    }

    /// Creates a table with these keys, whose records a worker has locked.
    fn locked(keys: &[u64]) -> Self {
        let world = Self::new(keys);
        let worker = world.store.worker().expect("a worker");
        for key in keys {
            world.lock(&worker, world.begun(*key).at);
        }
        *world.holder.lock().expect("no panic") = Some(worker);
        world
    }

    /// Adds an absent key that has a record.
    fn and_an_absent_key(mut self, key: u64) -> Self {
        let Placed::Made(seen) = self.work(|worker| self.place(worker, key, &value(0, SHORT))) else {
            panic!("it is new")
        };
        self.begun.push((key, seen));
        self
    }

    /// Removes an absent key's record: the worker of [`go_on`](Self::go_on) gets its memory.
    fn and_its_memory_free(self, key: u64) -> Self {
        let mut worker = self.store.worker().expect("a worker");
        assert_eq!(self.table.reap(&mut worker, key, self.begun(key), || ()).expect("sound"), Reaped::Out);
        *self.holder.lock().expect("no panic") = Some(worker);
        self
    }

    /// Runs `work` by the worker that has locked the records.
    fn go_on(&self, work: impl FnOnce(&mut Worker<NoHtm>)) {
        let mut worker = self.holder.lock().expect("no panic").take().expect("records are locked");
        work(&mut worker);
        self.kept.lock().expect("no panic").push(worker);
    }

    /// Runs `work` by a worker of its own.
    fn work<R>(&self, work: impl FnOnce(&mut Worker<NoHtm>) -> R) -> R {
        let mut worker = self.store.worker().expect("a worker");
        let done = work(&mut worker);
        self.kept.lock().expect("no panic").push(worker);
        done
    }

    fn place(&self, worker: &mut Worker<NoHtm>, key: u64, value: &[u8]) -> Placed {
        self.table.place::<ForHolder>(worker, key, value, None, |_| ()).expect("room")
    }

    /// Creates a record, and makes the key present in a version.
    fn insert(&self, worker: &mut Worker<NoHtm>, key: u64, number: u64) -> ReadEntry {
        let Placed::Made(seen) = self.place(worker, key, &value(number, SHORT)) else { panic!("it is new") };
        self.lock(worker, seen.at);
        self.store.records().publish(seen.at, version(number)).expect("sound");
        ReadEntry { version: version(number), ..seen }
    }

    fn fetch(&self, worker: &Worker<NoHtm>, key: u64) -> Result<ReadEntry, T::Guard> {
        let mut found = Vec::new();
        let fetched = self.table.fetch(key, worker.holder(), &mut found).expect("sound");
        if let Ok(seen) = fetched
            && seen.is_present()
        {
            assert_is_of(&found, seen.version);
        }
        fetched
    }

    /// Looks up the key's record.
    fn locate(&self, worker: &Worker<NoHtm>, key: u64) -> ReadEntry {
        match self.fetch(worker, key) {
            Ok(seen) => seen,
            Err(_) => panic!("key {key} is not there"),
        }
    }

    /// Locks a record that does not move meanwhile. Returns its version.
    fn lock(&self, worker: &Worker<NoHtm>, at: Handle) -> Version {
        loop {
            match self.store.records().lock(at, worker.holder()).expect("sound") {
                Locking::Taken { version, .. } => return version,
                Locking::Held(_) => thread::yield_now(),
                Locking::Mine { .. } | Locking::Gone => panic!("it is another's, and no other takes it away"),
            }
        }
    }

    /// Locks a record if it is unchanged since it was read.
    fn lock_seen(&self, worker: &Worker<NoHtm>, seen: ReadEntry) -> bool {
        match self.store.records().lock(seen.at, worker.holder()).expect("sound") {
            Locking::Taken { version, .. } if version == seen.version => true,
            Locking::Taken { .. } => {
                self.store.records().unlock(seen.at);
                false
            }
            Locking::Mine { .. } | Locking::Held(_) | Locking::Gone => false,
        }
    }

    fn write(&self, worker: &mut Worker<NoHtm>, key: u64, at: Handle, number: u64, length: usize) -> Handle {
        self.table.write(worker, key, at, version(number), &value(number, length)).expect("room")
    }

    /// Writes a record, and keeps the old version.
    fn write_keeping(&self, worker: &mut Worker<NoHtm>, key: u64, at: Handle, number: u64, length: usize) {
        self.lock(worker, at);
        self.keep(worker, at);
        self.write(worker, key, at, number, length);
    }

    fn keep(&self, worker: &mut Worker<NoHtm>, at: Handle) {
        let kept = self.store.records().keep(worker, at, true).expect("sound");
        assert!(matches!(kept, RetainOutcome::Copied { .. }), "there is room");
    }

    /// Frees a record's older versions, except those that snapshots with these bounds need. The
    /// caller holds the lock.
    fn forget(&self, worker: &mut Worker<NoHtm>, at: Handle, bounds: &[u64]) {
        let is_needed = |from: Version, until: Version| {
            bounds.iter().any(|bound| from.number() < *bound && *bound <= until.number())
        };
        assert!(self.store.records().forget(worker, at, is_needed).expect("sound") > 0);
    }

    /// Returns the state of a key before a version.
    fn was(&self, key: u64, before: u64) -> Past {
        let mut found = Vec::new();
        let past = self.table.fetch_past(key, version(before), &mut found).expect("sound");
        if let Past::Present(version) = past {
            assert_is_of(&found, version);
        }
        past
    }

    /// Returns the number of the key's version; `None` if it is absent.
    fn now(&self, key: u64) -> Option<u64> {
        self.work(|worker| match self.fetch(worker, key) {
            Ok(seen) => seen.is_present().then_some(seen.version.number()),
            Err(_) => None,
        })
    }
}

/// Explores all interleavings of both with this many preemptions, or the table's most, with either
/// thread first. Then runs `check`.
fn explore<T: Table, R: Send + 'static>(
    preemptions: usize,
    world: impl Fn() -> World<T> + Copy + Send + Sync + 'static,
    one: impl Fn(&World<T>) -> R + Copy + Send + Sync + 'static,
    other: impl Fn(&World<T>) -> R + Copy + Send + Sync + 'static,
    check: impl Fn(&World<T>, R, R) + Copy + Send + Sync + 'static,
) {
    let preemptions = preemptions.min(T::PREEMPTIONS);
    explore::explore(preemptions, world, one, other, check);
    explore::explore(preemptions, world, other, one, move |world, second, first| check(world, first, second));
}

/// Two records are written under both locks, the last one first. A reader that sees both, and finds
/// both unchanged, has read a consistent state.
fn what_is_still_so_is_of_one_moment<T: Table>() {
    explore::<T, _>(
        2,
        || World::new(&[1, 2]),
        |world| {
            world.work(|worker| {
                let rows = [1, 2].map(|key| (key, world.begun(key).at));
                for (_, at) in rows {
                    world.lock(worker, at);
                }
                for (key, at) in rows.into_iter().rev() {
                    world.write(worker, key, at, 20, SHORT);
                }
            });
        },
        |world| {
            world.work(|worker| {
                let seen = [1, 2].map(|key| world.locate(worker, key));
                if seen.iter().all(|seen| world.store.records().is_still(*seen, worker.holder())) {
                    let [one, other] = seen.map(|seen| seen.version.number() == 20);
                    assert_eq!(one, other, "two moments");
                }
            });
        },
        |world, (), ()| assert_eq!([1, 2].map(|key| world.now(key)), [Some(20); 2]),
    );
}

/// A record moves, and its memory becomes another record's older version at once. A lookup finds
/// the record; an old handle can lock it only where it was.
fn a_record_that_moves_is_found_whole<T: Table>() {
    explore::<T, _>(
        1,
        || World::new(&[1, 2]),
        |world| {
            world.work(|worker| {
                let at = world.begun(1).at;
                world.lock(worker, at);
                assert_ne!(world.write(worker, 1, at, 20, LONG), at, "it has moved");
                world.write_keeping(worker, 2, world.begun(2).at, 30, SHORT);
            });
        },
        |world| {
            world.work(|worker| {
                let seen = world.locate(worker, 1);
                assert!([10, 20].contains(&seen.version.number()), "{seen:?}");
                if let Locking::Taken { version, .. } =
                    world.store.records().lock(seen.at, worker.holder()).expect("sound")
                {
                    assert_eq!(version, seen.version, "another use of its memory");
                    world.store.records().unlock(seen.at);
                }
            });
        },
        |world, (), ()| assert_eq!((world.now(1), world.now(2)), (Some(20), Some(30))),
    );
}

/// A record moves, and another key's record reuses its memory at once. A late caller with the old
/// handle does not lock that record.
fn another_use_of_memory_is_not_locked<T: Table>() {
    explore::<T, _>(
        1,
        || World::new(&[1]),
        |world| {
            world.work(|worker| {
                let at = world.begun(1).at;
                world.lock(worker, at);
                assert_ne!(world.write(worker, 1, at, 20, LONG), at, "it has moved");
                world.insert(worker, 2, 30);
            });
        },
        |world| {
            world.work(|worker| {
                let seen = world.begun(1);
                if let Locking::Taken { version, .. } =
                    world.store.records().lock(seen.at, worker.holder()).expect("sound")
                {
                    assert_eq!(version, seen.version, "another use of its memory");
                    world.store.records().unlock(seen.at);
                }
            });
        },
        |world, (), ()| assert_eq!((world.now(1), world.now(2)), (Some(20), Some(30))),
    );
}

/// Two workers write a record that they have read, and one of them moves it. Of those that read the
/// same version, one succeeds.
fn who_moves_and_who_writes_come_one_after_the_other<T: Table>() {
    fn attempt<T: Table>(world: &World<T>, length: usize) -> u64 {
        world.work(|worker| {
            let seen = world.locate(worker, 1);
            let is_mine = world.lock_seen(worker, seen);
            if is_mine {
                world.write(worker, 1, seen.at, seen.version.number() + 10, length);
            }
            u64::from(is_mine)
        })
    }
    explore::<T, _>(
        2,
        || World::new(&[1]),
        |world| attempt(world, LONG),
        |world| attempt(world, SHORT),
        |world, one, other| {
            assert!(one + other > 0, "no thread has come through");
            assert_eq!(world.now(1), Some(10 + 10 * (one + other)), "a write is lost");
        },
    );
}

/// An absent key's record is removed, or its key is inserted into it: not both.
fn a_record_is_taken_out_or_used_again<T: Table>() {
    #[derive(Debug, PartialEq)]
    enum Did {
        Reap(Reaped),
        Write(Option<u64>),
    }
    explore::<T, _>(
        2,
        || World::new(&[]).and_an_absent_key(1),
        |world| {
            world.work(|worker| match world.fetch(worker, 1) {
                Ok(seen) if !seen.is_present() => Did::Reap(world.table.reap(worker, 1, seen, || ()).expect("sound")),
                _ => Did::Reap(Reaped::Gone),
            })
        },
        |world| {
            world.work(|worker| {
                let (Placed::Found(seen) | Placed::Made(seen)) = world.place(worker, 1, &value(0, SHORT));
                assert!(!seen.is_present());
                let is_mine = world.lock_seen(worker, seen);
                let number = seen.version.number() + 10;
                if is_mine {
                    world.write(worker, 1, seen.at, number, SHORT);
                }
                Did::Write(is_mine.then_some(number))
            })
        },
        |world, one, other| {
            let Did::Write(written) = other else { panic!("the second writes") };
            assert!(one == Did::Reap(Reaped::Out) || written.is_some(), "no thread has come through: {one:?}");
            assert_eq!(world.now(1), written, "a key is lost with its record: {one:?}");
            assert_eq!(world.table.count().expect("sound"), u64::from(written.is_some()));
        },
    );
}

/// An absent key's record is removed, and its memory becomes another record's older version at
/// once.
fn memory_of_an_absent_key_is_never_read_as_the_key<T: Table>() {
    explore::<T, _>(
        1,
        || World::new(&[2]).and_an_absent_key(1),
        |world| {
            world.work(|worker| {
                assert_eq!(world.table.reap(worker, 1, world.begun(1), || ()).expect("sound"), Reaped::Out);
                world.write_keeping(worker, 2, world.begun(2).at, 30, SHORT);
            });
        },
        |world| {
            assert_eq!(world.now(1), None, "another's value");
            assert_eq!(world.was(1, 100), Past::Absent, "another's past");
        },
        |world, (), ()| assert_eq!((world.now(1), world.now(2)), (None, Some(30))),
    );
}

/// Memory becomes a key's record twice, with a removal in between, while a worker still takes it
/// for its earlier use. That worker must not release another's lock.
#[test]
fn who_was_mistaken_about_a_record_unlocks_it_for_nobody_else() {
    explore::explore(
        3,
        || World::<Tree<NoHtm>>::new(&[]).and_an_absent_key(1).and_its_memory_free(1).and_an_absent_key(2),
        |world| {
            world.go_on(|worker| {
                let Placed::Made(seen) = world.place(worker, 3, &value(0, SHORT)) else { panic!("it is new") };
                world.lock(worker, seen.at);
                let (records, other) = (world.store.records(), world.store.worker().expect("a worker"));
                let found = records.lock(seen.at, other.holder()).expect("sound");
                assert_eq!(found, Locking::Held(Acquire::Locked(worker.holder())), "two have locked it");
            });
        },
        |world| {
            world.work(|worker| {
                assert_eq!(world.table.reap(worker, 2, world.begun(2), || ()).expect("sound"), Reaped::Out);
                let found = world.store.records().lock(world.begun(1).at, worker.holder()).expect("sound");
                assert_eq!(found, Locking::Gone);
            });
        },
        |_, (), ()| {},
    );
}

/// Of two workers that create a key's record one succeeds, and both get the same record.
fn a_key_has_one_record<T: Table>() {
    explore::explore(
        T::PREEMPTIONS.min(2),
        || World::<T>::new(&[]),
        |world| world.work(|worker| world.place(worker, 1, &value(1, SHORT))),
        |world| world.work(|worker| world.place(worker, 1, &value(2, SHORT))),
        |world, one, other| {
            let (Placed::Made(made), Placed::Found(found)) =
                (if matches!(one, Placed::Made(_)) { (one, other) } else { (other, one) })
            else {
                panic!("{one:?} {other:?}")
            };
            assert_eq!((made, world.table.count().expect("sound")), (found, 1));
        },
    );
}

/// The guard of an absent key changes before the key is visible.
fn a_key_that_comes_is_told_of<T: Table>() {
    explore::<T, _>(
        1,
        || World::new(&[2]),
        |world| {
            world.work(|worker| world.insert(worker, 1, 10));
        },
        |world| {
            world.work(|worker| {
                let Err(place) = world.fetch(worker, 1) else { return };
                if world.fetch(worker, 1).is_ok() {
                    assert!(!world.store.records().is_unchanged(&place), "a phantom");
                }
            });
        },
        |world, (), ()| assert_eq!(world.now(1), Some(10)),
    );
}

/// A snapshot for which an old version is kept finds it, while the key is written in place or
/// moves.
fn what_is_kept_is_found<T: Table>() {
    for length in [SHORT, LONG] {
        explore::<T, _>(
            2,
            || World::new(&[1]),
            move |world| world.work(|worker| world.write_keeping(worker, 1, world.begun(1).at, 20, length)),
            |world| assert_eq!(world.was(1, 15), Past::Present(version(10))),
            |world, (), ()| {
                assert_eq!(world.was(1, 15), Past::Present(version(10)));
                assert_eq!(world.was(1, 25), Past::Present(version(20)));
            },
        );
    }
}

/// The key is removed, and its record stays for snapshots that need its old version.
fn what_a_removed_key_was_is_found<T: Table>() {
    explore::<T, _>(
        2,
        || World::new(&[1]),
        |world| {
            world.work(|worker| {
                let at = world.begun(1).at;
                world.lock(worker, at);
                world.keep(worker, at);
                let seen = ReadEntry { at, version: version(20).as_removed() };
                world.store.records().publish(at, seen.version).expect("sound");
                assert_eq!(world.table.reap(worker, 1, seen, || ()).expect("sound"), Reaped::Busy);
            });
        },
        |world| assert_eq!(world.was(1, 15), Past::Present(version(10))),
        |world, (), ()| assert_eq!((world.now(1), world.was(1, 25)), (None, Past::Absent)),
    );
}

/// An old version that no snapshot needs is freed from between two others, and its memory is reused
/// at once for another old version.
fn what_is_asked_for_outlives_what_is_not<T: Table>() {
    explore::<T, _>(
        1,
        || {
            let world = World::new(&[1]);
            world.work(|worker| {
                let at = world.begun(1).at;
                world.write_keeping(worker, 1, at, 20, SHORT);
                world.write_keeping(worker, 1, at, 30, SHORT);
            });
            world
        },
        |world| {
            world.work(|worker| {
                let at = world.begun(1).at;
                world.lock(worker, at);
                world.forget(worker, at, &[15]);
                world.keep(worker, at);
                world.write(worker, 1, at, 40, SHORT);
            });
        },
        |world| assert_eq!(world.was(1, 15), Past::Present(version(10))),
        |world, (), ()| {
            assert_eq!(world.was(1, 15), Past::Present(version(10)));
            assert_eq!(world.was(1, 35), Past::Present(version(30)));
        },
    );
}

/// Without memory for an old version, all earlier ones are freed too, and never read as absent.
fn what_is_forgotten_is_told<T: Table>() {
    explore::<T, _>(
        2,
        || {
            let world = World::new(&[1]);
            world.work(|worker| world.write_keeping(worker, 1, world.begun(1).at, 20, SHORT));
            world
        },
        |world| {
            world.work(|worker| {
                let at = world.begun(1).at;
                world.lock(worker, at);
                let kept = world.store.records().keep(worker, at, false).expect("sound");
                assert!(matches!(kept, RetainOutcome::Discarded { freed } if freed > 0));
                world.write(worker, 1, at, 30, SHORT);
            });
        },
        |world| {
            let past = world.was(1, 15);
            assert!(past == Past::Present(version(10)) || past == Past::TooOld, "{past:?}");
        },
        |world, (), ()| assert_eq!(world.was(1, 15), Past::TooOld),
    );
}

/// A snapshot waits for a writer that held the record's lock when the snapshot began. It does not
/// wait for later ones, which keep the old version.
fn an_earlier_writer_is_waited_for<T: Table>() {
    explore::<T, _>(
        1,
        || World::locked(&[1]),
        |world| {
            world.go_on(|worker| {
                let at = world.begun(1).at;
                world.write(worker, 1, at, 14, SHORT);
                world.write_keeping(worker, 1, at, 20, SHORT);
            });
        },
        |world| assert_eq!(world.was(1, 15), Past::Present(version(14)), "what came before is not seen"),
        |world, (), ()| assert_eq!(world.was(1, 15), Past::Present(version(14))),
    );
}

macro_rules! on_both_tables {
    ($($case:ident),+ $(,)?) => {
        mod hash {
            $(#[test]
            fn $case() {
                super::$case::<super::HashTable<super::NoHtm>>();
            })+
        }
        mod tree {
            $(#[test]
            fn $case() {
                super::$case::<super::Tree<super::NoHtm>>();
            })+
        }
    };
}

on_both_tables! {
    what_is_still_so_is_of_one_moment,
    a_record_that_moves_is_found_whole,
    who_moves_and_who_writes_come_one_after_the_other,
    a_record_is_taken_out_or_used_again,
    memory_of_an_absent_key_is_never_read_as_the_key,
    a_key_has_one_record,
    a_key_that_comes_is_told_of,
    what_is_kept_is_found,
    what_a_removed_key_was_is_found,
    what_is_asked_for_outlives_what_is_not,
    what_is_forgotten_is_told,
    an_earlier_writer_is_waited_for,
}

#[test]
#[should_panic(expected = "a mix of versions")]
fn mutation_without_looking_at_the_version_again_a_mix_is_found() {
    mutated(Mutation::ReadWithoutVersion, what_is_still_so_is_of_one_moment::<Tree<NoHtm>>);
}

#[test]
#[should_panic(expected = "a mix of versions")]
fn mutation_without_a_fence_before_the_value_a_mix_is_found() {
    mutated(Mutation::WriteWithoutFence, what_is_still_so_is_of_one_moment::<HashTable<NoHtm>>);
}

#[test]
fn another_use_of_memory_is_not_locked_in_a_tree() {
    another_use_of_memory_is_not_locked::<Tree<NoHtm>>();
}

#[test]
#[should_panic(expected = "another use of its memory")]
fn mutation_without_another_incarnation_another_use_of_its_memory_is_found() {
    mutated(Mutation::RetireWithoutIncarnation, another_use_of_memory_is_not_locked::<Tree<NoHtm>>);
}
