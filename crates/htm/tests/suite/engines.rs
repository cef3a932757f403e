//! One behavioural suite over every engine: the same checks on `NoHtm`, `Traced`, `Emulated`, and
//! on `Rtm` where it is available.
//!
//! A check is generic over the engine. On an engine without htm transactions it checks that the
//! transaction is not entered, and that the section under the lock gives the same guarantees. On a
//! machine without RTM the `rtm` tests print that and return.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use crate::support::{lines, rounds, values};
use drtm_htm::{
    Access, Cause, Emulated, Engine, EngineKind, FallbackLock, Htm, Line, MAX_CODE, MAX_NESTING, NoHtm, Outcome,
    Policy, Retryable, Rtm, Stats, Traced, Worker,
};

macro_rules! on_every_engine {
    ($($check:ident),+ $(,)?) => {
        mod none {
            use super::*;
            $(#[test] fn $check() { super::$check(Htm::new(NoHtm)); })+
        }
        mod traced {
            use super::*;
            $(#[test] fn $check() { super::$check(Htm::new(Traced)); })+
        }
        mod emulated {
            use super::*;
            $(#[test] fn $check() { super::$check(Htm::new(Emulated::default())); })+
        }
        mod rtm {
            use super::*;
            $(#[test] fn $check() {
                match Rtm::detect() {
                    Ok(rtm) => super::$check(Htm::new(rtm)),
                    Err(why) => println!("not exercised: {why}"),
                }
            })+
        }
    };
}

on_every_engine!(
    a_committed_transaction_is_visible_whole,
    an_abort_rolls_back_every_store,
    a_transaction_reads_its_own_stores,
    explicit_codes_reach_the_caller,
    a_swallowed_abort_still_aborts,
    concurrent_increments_are_all_counted,
    a_transaction_sees_plain_writers_at_one_moment,
    plain_readers_see_a_transaction_at_one_moment,
    a_panic_in_the_transaction_alone_is_undone_and_forgotten,
    a_recurring_panic_surfaces_with_nothing_stored_and_nothing_held,
    transactions_nest_flat_to_the_limit_and_no_deeper,
    an_abort_inside_a_nested_transaction_aborts_the_outermost,
    the_lock_excludes_regions_and_sections_alike,
    a_held_lock_is_waited_for_and_not_fallen_back_from,
    counters_add_up_over_workers_living_and_departed,
    a_policy_of_never_enters_no_transaction,
    a_try_more_is_a_try_more,
);

const EMPTY: u8 = 7;

/// Adds `amount` to the first word of each line.
fn add_to_all<'m, A: Access<'m>>(tx: &mut A, lines: &'m [Line], amount: u64) -> Result<(), A::Abort> {
    lines.iter().try_for_each(|line| {
        let value = tx.load(&line[0])?;
        tx.store(&line[0], value + amount)
    })
}

/// Returns whether an attempt without a reason to abort committed. Hardware never guarantees that;
/// the emulation does here.
fn committed<E: Engine, T: PartialEq + std::fmt::Debug>(outcome: Outcome<T>, value: T) -> bool {
    match E::KIND {
        EngineKind::None => {
            assert_eq!(outcome, Outcome::Fallback(Cause::Unavailable));
            false
        }
        EngineKind::Emulated => {
            assert_eq!(outcome, Outcome::Committed(value));
            true
        }
        EngineKind::Rtm => outcome.committed().is_some_and(|committed| committed == value),
    }
}

fn a_committed_transaction_is_visible_whole<E: Engine>(htm: Htm<E>) {
    let shared = lines(8);
    let mut worker = htm.worker();
    let outcome = worker.attempt(Policy::DBX, |tx| add_to_all(tx, &shared, 3).map(|()| 42));
    let expected = if committed::<E, _>(outcome, 42) { 3 } else { 0 };
    assert_eq!(values(htm.engine(), &shared), vec![expected; 8]);

    let lock = FallbackLock::new();
    let done = worker.elide(
        &lock,
        Policy::DBX,
        |tx| add_to_all(tx, &shared, 1).map(|()| 5),
        |held| add_to_all(held, &shared, 1).map(|()| 5),
    );
    assert_eq!(done, Ok(5));
    assert_eq!(values(htm.engine(), &shared), vec![expected + 1; 8]);
}

fn an_abort_rolls_back_every_store<E: Engine>(htm: Htm<E>) {
    fn store_then_abort<'m, A: Access<'m>>(tx: &mut A, lines: &'m [Line], stores: usize) -> Result<(), A::Abort> {
        add_to_all(tx, &lines[..stores], 1)?;
        // Twice to the same word: an abort must restore the value before the first.
        add_to_all(tx, &lines[..stores], 1)?;
        Err(tx.abort::<EMPTY>())
    }
    let (lock, shared) = (FallbackLock::new(), lines(6));
    let before: Vec<u64> = (10..16).collect();
    for (line, value) in shared.iter().zip(&before) {
        htm.engine().store(&line[0], *value);
    }
    let mut worker = htm.worker();
    for stores in 0..=shared.len() {
        let transaction = worker.attempt(Policy::DBX, |tx| store_then_abort(tx, &shared, stores));
        assert!(transaction.committed().is_none());
        assert_eq!(values(htm.engine(), &shared), before);
        let section = lock.run(htm.engine(), |held| store_then_abort(held, &shared, stores));
        assert_eq!(section, Err(Cause::Explicit(EMPTY)));
        assert_eq!(values(htm.engine(), &shared), before);
    }
}

fn a_transaction_reads_its_own_stores<E: Engine>(htm: Htm<E>) {
    fn twice<'m, A: Access<'m>>(tx: &mut A, line: &'m Line) -> Result<(u64, u64), A::Abort> {
        tx.store(&line[0], 1)?;
        let first = tx.load(&line[0])?;
        tx.store(&line[0], first + 1)?;
        // Distinct from its neighbour on the line.
        let neighbour = tx.load(&line[1])?;
        Ok((tx.load(&line[0])?, neighbour))
    }
    let (lock, shared) = (FallbackLock::new(), lines(1));
    let read = htm.worker().elide(&lock, Policy::DBX, |tx| twice(tx, &shared[0]), |held| twice(held, &shared[0]));
    assert_eq!(read, Ok((2, 0)));
}

fn explicit_codes_reach_the_caller<E: Engine>(htm: Htm<E>) {
    fn check<E: Engine, const CODE: u8>(worker: &mut Worker<E>) {
        let outcome: Outcome<()> = worker.attempt(Policy::DBX, |tx| Err(tx.abort::<CODE>()));
        let cause = match E::KIND {
            EngineKind::None => Cause::Unavailable,
            EngineKind::Emulated | EngineKind::Rtm => Cause::Explicit(CODE),
        };
        assert_eq!(outcome, Outcome::Fallback(cause));
        let lock = FallbackLock::new();
        let refused: Result<(), Cause> =
            worker.elide(&lock, Policy::DBX, |tx| Err(tx.abort::<CODE>()), |held| Err(held.abort::<CODE>()));
        assert_eq!(refused, Err(Cause::Explicit(CODE)));
    }
    let mut worker = htm.worker();
    check::<E, 0>(&mut worker);
    check::<E, 1>(&mut worker);
    check::<E, 0x7F>(&mut worker);
    check::<E, 0x80>(&mut worker);
    check::<E, MAX_CODE>(&mut worker);
}

fn a_swallowed_abort_still_aborts<E: Engine>(htm: Htm<E>) {
    fn stubborn<'m, A: Access<'m>>(tx: &mut A, line: &'m Line) -> Result<(), A::Abort> {
        tx.store(&line[0], 1)?;
        drop(tx.abort::<EMPTY>());
        assert!(tx.load(&line[0]).is_err() && tx.store(&line[0], 2).is_err() && tx.spin(1).is_err());
        Ok(())
    }
    let (lock, shared) = (FallbackLock::new(), lines(1));
    let transaction = htm.worker().attempt(Policy::DBX, |tx| stubborn(tx, &shared[0]));
    assert!(transaction.committed().is_none());
    let section = lock.run(htm.engine(), |held| stubborn(held, &shared[0]));
    assert_eq!(section, Err(Cause::Explicit(EMPTY)));
    assert_eq!(values(htm.engine(), &shared), [0]);
}

fn concurrent_increments_are_all_counted<E: Engine>(htm: Htm<E>) {
    let (lock, shared) = (FallbackLock::new(), lines(3));
    let rounds = rounds(2_000);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut worker = htm.worker();
                for _ in 0..rounds {
                    let done = worker.elide(
                        &lock,
                        Policy::DBX,
                        |tx| add_to_all(tx, &shared, 1),
                        |held| add_to_all(held, &shared, 1),
                    );
                    assert_eq!(done, Ok(()));
                }
            });
        }
    });
    assert_eq!(values(htm.engine(), &shared), vec![3 * rounds; 3]);
}

fn a_transaction_sees_plain_writers_at_one_moment<E: Engine>(htm: Htm<E>) {
    let (shared, stop) = (lines(2), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            // The first line is ahead of the second by one or equal, at every moment.
            while !stop.load(Relaxed) {
                htm.engine().fetch_add(&shared[0][0], 1);
                htm.engine().fetch_add(&shared[1][0], 1);
            }
        });
        let mut worker = htm.worker();
        for _ in 0..rounds(2_000) {
            let outcome = worker.attempt(Policy::DBX, |tx| {
                let behind = tx.load(&shared[1][0])?;
                tx.spin(50)?;
                let ahead = tx.load(&shared[0][0])?;
                // Checked inside: a zombie transaction would fail here.
                if ahead.wrapping_sub(behind) > 1 {
                    return Err(tx.abort::<EMPTY>());
                }
                Ok(())
            });
            assert_ne!(outcome, Outcome::Fallback(Cause::Explicit(EMPTY)));
        }
        stop.store(true, Relaxed);
    });
}

fn plain_readers_see_a_transaction_at_one_moment<E: Engine>(htm: Htm<E>) {
    let (shared, stop) = (lines(4), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut worker = htm.worker();
            while !stop.load(Relaxed) {
                let outcome = worker.attempt(Policy::DBX, |tx| add_to_all(tx, &shared, 1));
                if outcome == Outcome::Fallback(Cause::Unavailable) {
                    break;
                }
            }
        });
        for _ in 0..rounds(20_000) {
            let seen = values(htm.engine(), &shared);
            assert!(seen.is_sorted(), "a later read missed a commit that an earlier one saw: {seen:?}");
        }
        stop.store(true, Relaxed);
    });
}

/// Panics without printing.
fn quiet_panic() -> ! {
    resume_unwind(Box::new("on purpose"))
}

fn a_panic_in_the_transaction_alone_is_undone_and_forgotten<E: Engine>(htm: Htm<E>) {
    let (lock, shared) = (FallbackLock::new(), lines(2));
    let mut worker = htm.worker();
    let done = worker.elide(
        &lock,
        Policy::DBX,
        |tx| {
            add_to_all(tx, &shared, 100)?;
            quiet_panic()
        },
        |held| add_to_all(held, &shared, 1),
    );
    assert_eq!(done, Ok(()));
    assert_eq!(values(htm.engine(), &shared), [1, 1]);
    let stats = htm.stats();
    match E::KIND {
        EngineKind::None => assert_eq!(stats, Stats::default()),
        EngineKind::Emulated => assert_eq!((stats.panicked, stats.aborts(), stats.fallbacks), (1, 1, 1)),
        EngineKind::Rtm => assert_eq!((stats.commits, stats.fallbacks), (0, 1)),
    }
}

fn a_recurring_panic_surfaces_with_nothing_stored_and_nothing_held<E: Engine>(htm: Htm<E>) {
    let (lock, shared) = (FallbackLock::new(), lines(2));
    let mut worker = htm.worker();
    for _ in 0..2 {
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            worker.elide(
                &lock,
                Policy::DBX,
                |tx| {
                    add_to_all(tx, &shared, 100)?;
                    quiet_panic()
                },
                |held| -> Result<(), Cause> {
                    add_to_all(held, &shared, 100)?;
                    quiet_panic()
                },
            )
        }));
        let payload = panicked.expect_err("the fallback's panic surfaces");
        assert_eq!(payload.downcast_ref(), Some(&"on purpose"));
        assert_eq!(values(htm.engine(), &shared), [0, 0]);
    }
    // The lock is free, and the worker is usable.
    assert_eq!(lock.run(htm.engine(), |held| add_to_all(held, &shared, 1)), Ok(()));
    let outcome = worker.attempt_unless(&lock, Policy::DBX, |tx| add_to_all(tx, &shared, 1));
    let expected = if committed::<E, _>(outcome, ()) { 2 } else { 1 };
    assert_eq!(values(htm.engine(), &shared), [expected; 2]);
}

/// Stores to `line` at each of `depth` levels, the outermost counted.
fn nest<'m, A: Access<'m>>(tx: &mut A, line: &'m Line, depth: u8) -> Result<u64, A::Abort> {
    let value = tx.load(&line[0])? + 1;
    tx.store(&line[0], value)?;
    if depth == 1 { Ok(value) } else { tx.nested(|tx| nest(tx, line, depth - 1)) }
}

fn transactions_nest_flat_to_the_limit_and_no_deeper<E: Engine>(htm: Htm<E>) {
    let (lock, shared) = (FallbackLock::new(), lines(1));
    let mut worker = htm.worker();
    let mut to_depth = |depth| {
        worker.elide(&lock, Policy::DBX, |tx| nest(tx, &shared[0], depth), |held| nest(held, &shared[0], depth))
    };
    assert_eq!(to_depth(MAX_NESTING), Ok(u64::from(MAX_NESTING)));
    assert_eq!(to_depth(MAX_NESTING + 1), Err(Cause::Nested));
    assert_eq!(values(htm.engine(), &shared), [u64::from(MAX_NESTING)], "too deep is rolled back");
    // Leaving a level makes room for another.
    let in_a_row = lock.run(htm.engine(), |held| {
        (0..20).try_for_each(|_| held.nested(|held| nest(held, &shared[0], MAX_NESTING - 1).map(|_| ())))
    });
    assert_eq!(in_a_row, Ok(()));
}

fn an_abort_inside_a_nested_transaction_aborts_the_outermost<E: Engine>(htm: Htm<E>) {
    let shared = lines(1);
    let outcome = htm.worker().attempt(Policy::DBX, |tx| {
        tx.store(&shared[0][0], 1)?;
        let inner: Result<(), _> = tx.nested(|tx| Err(tx.abort::<EMPTY>()));
        // There is no partial abort: ignoring the inner one has no effect.
        drop(inner);
        Ok(())
    });
    assert!(outcome.committed().is_none());
    assert_eq!(values(htm.engine(), &shared), [0]);
}

fn the_lock_excludes_regions_and_sections_alike<E: Engine>(htm: Htm<E>) {
    /// Increments all lines together, in two passes, and detects concurrent changes.
    fn move_on<'m, A: Access<'m>>(tx: &mut A, lines: &'m [Line], torn: &Cell<bool>) -> Result<(), A::Abort> {
        let first = tx.load(&lines[0][0])?;
        for line in lines {
            torn.set(torn.get() | (tx.load(&line[0])? != first));
            tx.store(&line[0], first + 1)?;
        }
        tx.spin(20)?;
        for line in lines {
            torn.set(torn.get() | (tx.load(&line[0])? != first + 1));
        }
        Ok(())
    }
    let (lock, shared) = (FallbackLock::new(), lines(3));
    let rounds = rounds(2_000);
    thread::scope(|scope| {
        for thread in 0..3 {
            let (htm, lock, shared) = (&htm, &lock, &shared);
            scope.spawn(move || {
                let mut worker = htm.worker();
                let torn = Cell::new(false);
                for round in 0..rounds {
                    // Sometimes takes the lock directly, so that sections and htm transactions
                    // meet.
                    let policy = if round % 3 == thread { Policy::NEVER } else { Policy::DBX };
                    let done = worker.elide(
                        lock,
                        policy,
                        |tx| move_on(tx, shared, &torn),
                        |held| move_on(held, shared, &torn),
                    );
                    assert_eq!(done, Ok(()));
                    assert!(!torn.get(), "another thread was in the critical section");
                }
            });
        }
    });
    assert_eq!(values(htm.engine(), &shared), vec![3 * rounds; 3]);
}

fn a_held_lock_is_waited_for_and_not_fallen_back_from<E: Engine>(htm: Htm<E>) {
    if E::KIND == EngineKind::None {
        return;
    }
    let (lock, shared) = (FallbackLock::new(), lines(1));
    let (taken, entered) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            let done = lock.run(htm.engine(), |held| {
                taken.store(true, Relaxed);
                held.spin(200_000)?;
                assert!(!entered.load(Relaxed), "a transaction was entered although the lock was held");
                held.store(&shared[0][0], 1)
            });
            assert_eq!(done, Ok(()));
        });
        while !taken.load(Relaxed) {
            thread::yield_now();
        }
        let seen = htm.worker().attempt_unless(&lock, Policy::DBX, |tx| {
            entered.store(true, Relaxed);
            tx.load(&shared[0][0])
        });
        assert_eq!(seen, Outcome::Committed(1));
    });
    assert_eq!(htm.stats().lock_held, 0, "waiting is cheaper than finding out inside");
}

fn counters_add_up_over_workers_living_and_departed<E: Engine>(htm: Htm<E>) {
    let shared = lines(1);
    let one_of_each = |worker: &mut Worker<E>| {
        let _ = worker.attempt(Policy::DBX, |tx| add_to_all(tx, &shared, 1));
        let _ = worker.attempt(Policy::DBX, |tx| Err::<(), _>(tx.abort::<EMPTY>()));
        let _ = worker.attempt(Policy::DBX, |tx| nest(tx, &shared[0], MAX_NESTING + 1));
    };
    let before = htm.stats();
    let mut living = htm.worker();
    one_of_each(&mut living);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| one_of_each(&mut htm.worker())).join().expect("no panic");
        }
    });
    let counted = htm.stats() - before;
    match E::KIND {
        EngineKind::None => assert_eq!(counted, Stats::default()),
        EngineKind::Emulated | EngineKind::Rtm => {
            assert_eq!((counted.explicit, counted.nested), (3, 3));
            assert_eq!(counted.commits + counted.fallbacks, 9);
            assert_eq!(counted.attempts(), counted.commits + counted.aborts());
        }
    }
    drop(living);
    assert_eq!(htm.stats() - before, counted, "a departed worker's counts stay");
}

fn a_policy_of_never_enters_no_transaction<E: Engine>(htm: Htm<E>) {
    let entered = Cell::new(false);
    let outcome = htm.worker().attempt(Policy::NEVER, |_tx| {
        entered.set(true);
        Ok(())
    });
    let cause = if E::KIND == EngineKind::None { Cause::Unavailable } else { Cause::NotTried };
    assert_eq!(outcome, Outcome::Fallback(cause));
    assert!(!entered.get());
    assert_eq!(htm.stats().attempts(), 0);
}

fn a_try_more_is_a_try_more<E: Engine>(htm: Htm<E>) {
    for tries in 1..5 {
        let before = htm.stats();
        let policy = Policy::DBX.with_tries(Retryable::Explicit, tries).expect("not zero");
        let outcome = htm.worker().attempt(policy, |tx| Err::<(), _>(tx.abort::<EMPTY>()));
        assert!(outcome.committed().is_none());
        let expected = if E::KIND == EngineKind::None { 0 } else { u64::from(tries) };
        assert_eq!((htm.stats() - before).explicit, expected);
    }
}
