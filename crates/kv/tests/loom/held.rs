//! Model checking of what transactions do with records: every interleaving, and every value that
//! weak memory lets a load return, of small cases.
//!
//! The code is the one that runs otherwise; only the words are loom's, in a small box. Each case
//! runs on both kinds of tables, and twice on each, with either thread beginning: what the checker
//! explores depends on it. *Mutations*, deliberate faults, must make the same checks fail, and
//! those tests expect a panic.
//!
//! Other faults have been tried by hand, and were found:
//!
//! - an older version that is not looked at again before its link is followed, or whose newer one
//!   is not: `what_is_asked_for_outlives_what_is_not`;
//! - a look back that does not wait for who has the record locked:
//!   `an_earlier_writer_is_waited_for`;
//! - a record that moves and leaves its older versions behind: `what_is_kept_is_found`;
//! - an absent key's record that is taken out in whatever version it is:
//!   `a_record_is_taken_out_or_used_again`; although it has older versions:
//!   `what_a_removed_key_was_is_found`;
//! - a lock that is taken without a look at the incarnation: `a_record_that_moves_is_found_whole`;
//! - a record that is still as it was seen although somebody has it locked:
//!   `what_is_still_so_is_of_one_moment`;
//! - memory that is filled once more without its lock:
//!   `who_was_mistaken_about_a_record_unlocks_it_for_nobody_else`.
//!
//! Older versions that are forgotten without being marked as free are not noticed here: what is
//! kept in their memory next marks it as well.

use std::sync::{Arc, Mutex};

use drtm_htm::NoHtm;
use drtm_kv::{
    Acquire, Handle, HashConfig, HashTable, Inline, KvTable, Locking, Mutation, Past, Placed, ReadEntry, Reaped,
    RetainOutcome, Store, Tree, Version, Worker, mutated,
};
use loom::thread;

use crate::{explore, transacted::Transacted};

/// Both kinds of tables.
trait Table: Transacted<NoHtm, Inline> {
    /// So many preemptions can be borne, at most.
    const PREEMPTIONS: usize;

    fn small(store: &Store<NoHtm>) -> Self;
}

impl Table for HashTable<NoHtm> {
    // There is much to look at in a bucket, and each word of it may be seen as it was before.
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

/// A value that shows whether it is whole, and which version it belongs to.
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
    /// Workers that may have freed something. They keep it: the checker does not know of the mutex
    /// by which it would come to another thread, and would not order what is done before and after.
    kept: Arc<Mutex<Vec<Worker<NoHtm>>>>,
    /// Who has locked all records of the beginning, or has the memory of one, if that is how a case
    /// begins.
    holder: Arc<Mutex<Option<Worker<NoHtm>>>>,
    /// The records of the beginning.
    begun: Vec<(u64, ReadEntry)>,
}

impl<T: Table> World<T> {
    /// A table with these keys, the first in version 10, and so on.
    fn new(keys: &[u64]) -> Self {
        let store = Store::in_memory(NoHtm, 8192).expect("a store");
        let table = T::small(&store);
        let mut world = Self { store, table, kept: Arc::default(), holder: Arc::default(), begun: Vec::new() };
        for (key, number) in keys.iter().zip(10..) {
            let seen = world.work(|worker| world.insert(worker, *key, number));
            world.begun.push((*key, seen));
        }
        world
    }

    /// A record of the beginning, as it was then.
    fn begun(&self, key: u64) -> ReadEntry {
        self.begun.iter().find(|(begun, _)| *begun == key).expect("it was there").1
    }

    /// The same, and somebody has locked their records.
    fn locked(keys: &[u64]) -> Self {
        let world = Self::new(keys);
        let worker = world.store.worker().expect("a worker");
        for key in keys {
            world.lock(&worker, world.begun(*key).at);
        }
        *world.holder.lock().expect("no panic") = Some(worker);
        world
    }

    /// The same, where another key is not there, and yet has a record.
    fn and_an_absent_key(mut self, key: u64) -> Self {
        let Placed::Made(seen) = self.work(|worker| self.place(worker, key, &value(0, SHORT))) else {
            panic!("it is new")
        };
        self.begun.push((key, seen));
        self
    }

    /// Takes out the record of an absent key: whoever [goes on](Self::go_on) has its memory.
    fn and_its_memory_free(self, key: u64) -> Self {
        let mut worker = self.store.worker().expect("a worker");
        assert_eq!(self.table.reap(&mut worker, key, self.begun(key), || ()).expect("sound"), Reaped::Out);
        *self.holder.lock().expect("no panic") = Some(worker);
        self
    }

    /// Does something as the one who has locked the records.
    fn go_on(&self, work: impl FnOnce(&mut Worker<NoHtm>)) {
        let mut worker = self.holder.lock().expect("no panic").take().expect("records are locked");
        work(&mut worker);
        self.kept.lock().expect("no panic").push(worker);
    }

    /// Does something by a worker of its own.
    fn work<R>(&self, work: impl FnOnce(&mut Worker<NoHtm>) -> R) -> R {
        let mut worker = self.store.worker().expect("a worker");
        let done = work(&mut worker);
        self.kept.lock().expect("no panic").push(worker);
        done
    }

    fn place(&self, worker: &mut Worker<NoHtm>, key: u64, value: &[u8]) -> Placed {
        self.table.place(worker, key, value, None, |_| ()).expect("room")
    }

    /// Makes a record, and the key present in a version.
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

    /// The key's record.
    fn sight(&self, worker: &Worker<NoHtm>, key: u64) -> ReadEntry {
        match self.fetch(worker, key) {
            Ok(seen) => seen,
            Err(_) => panic!("key {key} is not there"),
        }
    }

    /// Locks a record that does not move meanwhile. Gives its version.
    fn lock(&self, worker: &Worker<NoHtm>, at: Handle) -> Version {
        loop {
            match self.store.records().lock(at, worker.holder()).expect("sound") {
                Locking::Taken { version, .. } => return version,
                Locking::Held(_) => thread::yield_now(),
                Locking::Mine { .. } | Locking::Gone => panic!("it is another's, and nobody takes it away"),
            }
        }
    }

    /// Locks a record, if it is still as it was seen.
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

    /// Writes a record, and keeps what it was.
    fn write_keeping(&self, worker: &mut Worker<NoHtm>, key: u64, at: Handle, number: u64, length: usize) {
        self.lock(worker, at);
        self.keep(worker, at);
        self.write(worker, key, at, number, length);
    }

    fn keep(&self, worker: &mut Worker<NoHtm>, at: Handle) {
        let kept = self.store.records().keep(worker, at, true).expect("sound");
        assert!(matches!(kept, RetainOutcome::Copied { .. }), "there is room");
    }

    /// Forgets a record's older versions, but for those that are needed by these who ask. The
    /// caller has it locked.
    fn forget(&self, worker: &mut Worker<NoHtm>, at: Handle, bounds: &[u64]) {
        let is_needed = |from: Version, until: Version| {
            bounds.iter().any(|bound| from.number() < *bound && *bound <= until.number())
        };
        assert!(self.store.records().forget(worker, at, is_needed).expect("sound") > 0);
    }

    /// What a key was before a version.
    fn was(&self, key: u64, before: u64) -> Past {
        let mut found = Vec::new();
        let past = self.table.fetch_past(key, version(before), &mut found).expect("sound");
        if let Past::Present(version) = past {
            assert_is_of(&found, version);
        }
        past
    }

    /// The number of the version that a key has, if it is there.
    fn now(&self, key: u64) -> Option<u64> {
        self.work(|worker| match self.fetch(worker, key) {
            Ok(seen) => seen.is_present().then_some(seen.version.number()),
            Err(_) => None,
        })
    }
}

/// Runs both concurrently in every way there is with so many preemptions, or as many as the table
/// bears, with either as the thread that begins, then `check`.
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

/// Two records are written under both locks, the last one first. Who sees both, and that both are
/// still so, has seen one moment.
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
                let seen = [1, 2].map(|key| world.sight(worker, key));
                if seen.iter().all(|seen| world.store.records().is_still(*seen, worker.holder())) {
                    let [one, other] = seen.map(|seen| seen.version.number() == 20);
                    assert_eq!(one, other, "two moments");
                }
            });
        },
        |world, (), ()| assert_eq!([1, 2].map(|key| world.now(key)), [Some(20); 2]),
    );
}

/// A record moves, and its memory is an older version of another at once. Who looks for it finds
/// it; who has its old handle can lock it only where it was.
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
                let seen = world.sight(worker, 1);
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

/// A record moves, and another key's has its memory at once. A late caller that has its old handle
/// does not lock that.
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

/// Two write a record as they have seen it, and one of them moves it. Of those who have seen the
/// same, one does.
fn who_moves_and_who_writes_come_one_after_the_other<T: Table>() {
    fn attempt<T: Table>(world: &World<T>, length: usize) -> u64 {
        world.work(|worker| {
            let seen = world.sight(worker, 1);
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
            assert!(one + other > 0, "nobody has come through");
            assert_eq!(world.now(1), Some(10 + 10 * (one + other)), "a write is lost");
        },
    );
}

/// An absent key's record is taken out, or its key comes back in it: not both.
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
            assert!(one == Did::Reap(Reaped::Out) || written.is_some(), "nobody has come through: {one:?}");
            assert_eq!(world.now(1), written, "a key is lost with its record: {one:?}");
            assert_eq!(world.table.count().expect("sound"), u64::from(written.is_some()));
        },
    );
}

/// An absent key's record is taken out, and its memory is an older version of another at once.
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

/// Memory is made a key's record twice, as a removal comes in between, while somebody still takes
/// it for what it was before. He takes nobody's lock away.
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

/// Of two who make a key's record one does, and both have the same.
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

/// Where a key was not found changes before the key can be found.
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

/// Whoever asks for what a key was, and for whom it is kept, finds that, while the key is written
/// in its place or moves.
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

/// The key is removed, and yet its record stays for who asks for what it was.
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

/// What nobody asks for is forgotten between what was before and after it, and its memory used at
/// once for another older version.
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

/// There is no memory for an older version: then those before it are forgotten too, and never taken
/// for absent.
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

/// Who had the record locked when somebody began to ask is waited for. Who locks it later is not,
/// and what he finds is kept.
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
        |world| assert_eq!(world.was(1, 15), Past::Present(version(14)), "who came before is not seen"),
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
