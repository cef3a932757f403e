//! Model checking: every interleaving, and every value that weak memory lets a load return, of
//! small cases.
//!
//! ```text
//! cargo test --package drtm-htm --features loom --test loom
//! ```
//!
//! The tests check the fallback lock's subscription protocol and the emulated engine's conflict
//! detection. The code is the production code; only the atomics are loom's. Three *mutations* must
//! make the same checks fail, and those tests expect a panic: transactions that do not subscribe,
//! transactions that do not validate, and commits without their memory fences. (RTM itself cannot
//! be model checked. Its part of the subscription protocol is the hardware's strong atomicity,
//! which the emulation provides too.)

use std::sync::Arc;

use drtm_htm::{
    Access, Cause, Emulated, EmulatedConfig, Engine, FallbackLock, Htm, Line, Mutation, Outcome, Policy, Profile, Timer,
};
use drtm_testing::{long, preemptions};
use loom::thread;

/// One try for each cause: more only repeats states.
const ONCE: Policy = Policy::DBX.divided_by(u32::MAX);

/// Two lines and a lock, placed at the beginning of a page, so that each has the same version in
/// every run.
#[repr(align(4096))]
struct Memory {
    x: Line,
    y: Line,
    lock: FallbackLock,
}

#[derive(Clone)]
struct World {
    htm: Htm<Emulated>,
    memory: Arc<Memory>,
}

impl World {
    fn new(engine: impl FnOnce(EmulatedConfig) -> Result<Emulated, drtm_htm::EngineError>) -> Self {
        let config = EmulatedConfig::new(Profile::new(4, 4, 16)).with_timer(Timer::Off).with_tracked_lines(16);
        Self {
            htm: Htm::new(engine(config).expect("a valid configuration")),
            memory: Arc::new(Memory { x: Line::default(), y: Line::default(), lock: FallbackLock::new() }),
        }
    }

    fn both(&self) -> (u64, u64) {
        (self.htm.engine().load(&self.memory.x[0]), self.htm.engine().load(&self.memory.y[0]))
    }
}

/// Explores all interleavings of `first` and `second`, then runs `check`.
///
/// Each is once on the model's first thread: loom's exploration depends on it, and a reader there
/// hides interleavings.
fn explore(
    engine: impl Fn(EmulatedConfig) -> Result<Emulated, drtm_htm::EngineError> + Copy + Send + Sync + 'static,
    first: impl Fn(&World) + Copy + Send + Sync + 'static,
    second: impl Fn(&World) + Copy + Send + Sync + 'static,
    check: impl Fn(&World) + Copy + Send + Sync + 'static,
) {
    explore_within(3, engine, first, second, check);
}

/// Like [`explore`], with at most this many preemptions.
fn explore_within(
    preemptions: usize,
    engine: impl Fn(EmulatedConfig) -> Result<Emulated, drtm_htm::EngineError> + Copy + Send + Sync + 'static,
    first: impl Fn(&World) + Copy + Send + Sync + 'static,
    second: impl Fn(&World) + Copy + Send + Sync + 'static,
    check: impl Fn(&World) + Copy + Send + Sync + 'static,
) {
    once(preemptions, engine, first, second, check);
    once(preemptions, engine, second, first, check);
}

/// Like [`explore`], for two that differ only in names, so that their order does not matter.
fn mirrored(
    engine: impl Fn(EmulatedConfig) -> Result<Emulated, drtm_htm::EngineError> + Copy + Send + Sync + 'static,
    first: impl Fn(&World) + Copy + Send + Sync + 'static,
    second: impl Fn(&World) + Copy + Send + Sync + 'static,
    check: impl Fn(&World) + Copy + Send + Sync + 'static,
) {
    once(3, engine, first, second, check);
}

/// Explores with the second on the spawned thread.
fn once(
    usual: usize,
    engine: impl Fn(EmulatedConfig) -> Result<Emulated, drtm_htm::EngineError> + Copy + Send + Sync + 'static,
    first: impl Fn(&World) + Copy + Send + Sync + 'static,
    second: impl Fn(&World) + Copy + Send + Sync + 'static,
    check: impl Fn(&World) + Copy + Send + Sync + 'static,
) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions(usual));
    model.check(move || {
        let world = World::new(engine);
        let other = world.clone();
        let thread = thread::spawn(move || second(&other));
        first(&world);
        thread.join().expect("no panic");
        check(&world);
    });
}

fn add_to_both<'m, A: Access<'m>>(tx: &mut A, memory: &'m Memory, amount: u64) -> Result<(), A::Abort> {
    let x = tx.load(&memory.x[0])?;
    tx.store(&memory.x[0], x + amount)?;
    let y = tx.load(&memory.y[0])?;
    tx.store(&memory.y[0], y + amount)
}

fn add_in_a_transaction(world: &World) {
    let outcome = world.htm.worker().attempt(ONCE, |tx| add_to_both(tx, &world.memory, 1));
    assert!(matches!(outcome, Outcome::Committed(()) | Outcome::Fallback(Cause::Conflict)));
}

#[test]
fn two_regions_never_lose_an_update() {
    mirrored(Emulated::new, add_in_a_transaction, add_in_a_transaction, |world| {
        let commits = world.htm.stats().commits;
        assert_eq!(world.both(), (commits, commits));
    });
}

#[test]
fn a_transaction_and_a_plain_writer_never_lose_an_update() {
    let plain = |world: &World| {
        world.htm.engine().fetch_add(&world.memory.x[0], 10);
    };
    explore(Emulated::new, add_in_a_transaction, plain, |world| {
        let commits = world.htm.stats().commits;
        assert_eq!(world.both(), (10 + commits, commits));
    });
}

#[test]
fn a_plain_reader_sees_all_of_a_commit_once_it_sees_some() {
    let read = |world: &World| {
        let (x, y) = world.both();
        assert!(x <= y, "saw the store to x ({x}) and not the one to y ({y})");
    };
    explore(Emulated::new, add_in_a_transaction, read, |_| {});
}

/// Reads both words in an htm transaction; they are equal even in one that will abort.
fn read_both_in_a_transaction(world: &World) {
    let _ = world.htm.worker().attempt(ONCE, |tx| {
        let x = tx.load(&world.memory.x[0])?;
        let y = tx.load(&world.memory.y[0])?;
        // Not an assertion: a panic here would count as the transaction's own and be rolled back.
        if x != y { Err(tx.abort::<1>()) } else { Ok(()) }
    });
    assert_eq!(world.htm.stats().explicit, 0, "a zombie saw half a commit");
}

#[test]
fn a_transaction_never_sees_half_of_another() {
    explore(Emulated::new, read_both_in_a_transaction, add_in_a_transaction, |_| {});
}

/// Sets one word if the other is still zero. Write skew would set both.
fn set_x_unless_y(world: &World) {
    let _ = world.htm.worker().attempt(ONCE, |tx| match tx.load(&world.memory.y[0])? {
        0 => tx.store(&world.memory.x[0], 1),
        _ => Ok(()),
    });
}

fn set_y_unless_x(world: &World) {
    let _ = world.htm.worker().attempt(ONCE, |tx| match tx.load(&world.memory.x[0])? {
        0 => tx.store(&world.memory.y[0], 1),
        _ => Ok(()),
    });
}

fn no_write_skew(world: &World) {
    assert_ne!(world.both(), (1, 1), "each read what the other had not yet written");
}

#[test]
fn two_regions_that_read_what_the_other_writes_do_not_both_commit() {
    mirrored(Emulated::new, set_x_unless_y, set_y_unless_x, no_write_skew);
}

#[test]
#[should_panic(expected = "each read what the other had not yet written")]
fn mutation_without_validation_write_skew_is_found() {
    explore(
        |config| Emulated::mutated(config, Mutation::SkipValidation),
        set_x_unless_y,
        set_y_unless_x,
        no_write_skew,
    );
}

#[test]
#[should_panic(expected = "a zombie saw half a commit")]
fn mutation_without_validation_a_zombie_is_found() {
    explore(
        |config| Emulated::mutated(config, Mutation::SkipValidation),
        read_both_in_a_transaction,
        add_in_a_transaction,
        |_| {},
    );
}

#[test]
#[should_panic(expected = "each read what the other had not yet written")]
fn mutation_without_fences_write_skew_is_found() {
    explore(|config| Emulated::mutated(config, Mutation::SkipFences), set_x_unless_y, set_y_unless_x, no_write_skew);
}

/// A critical section under the lock, which excludes all others.
fn section(world: &World) {
    let memory = &*world.memory;
    let done = memory.lock.run(world.htm.engine(), |held| {
        let (x, y) = (held.load(&memory.x[0])?, held.load(&memory.y[0])?);
        assert_eq!(x, y, "a transaction committed into the critical section");
        held.store(&memory.x[0], x + 10)?;
        held.store(&memory.y[0], y + 10)
    });
    assert_eq!(done, Ok(()));
}

fn nothing_lost(world: &World) {
    let commits = world.htm.stats().commits;
    assert_eq!(world.both(), (10 + commits, 10 + commits), "an update was lost");
}

#[test]
fn a_transaction_that_subscribes_excludes_the_section() {
    let transaction = |world: &World| {
        let memory = &*world.memory;
        let outcome = world.htm.worker().attempt(ONCE, |tx| {
            memory.lock.subscribe(tx)?;
            add_to_both(tx, memory, 1)
        });
        assert!(matches!(outcome, Outcome::Committed(()) | Outcome::Fallback(Cause::Conflict | Cause::LockHeld)));
    };
    explore_within(long(3, 2), Emulated::new, transaction, section, nothing_lost);
}

#[test]
fn elision_counts_every_section_whether_transaction_or_not() {
    let elide = |world: &World| {
        let memory = &*world.memory;
        let done = world.htm.worker().elide(
            &memory.lock,
            ONCE,
            |tx| add_to_both(tx, memory, 10),
            |held| add_to_both(held, memory, 10),
        );
        assert_eq!(done, Ok(()));
    };
    explore_within(long(3, 2), Emulated::new, elide, section, |world| assert_eq!(world.both(), (20, 20)));
}

#[test]
#[should_panic(expected = "a transaction committed into the critical section")]
fn mutation_without_subscription_a_torn_section_is_found() {
    explore(Emulated::new, add_in_a_transaction, section, |_| {});
}

#[test]
#[should_panic(expected = "an update was lost")]
fn mutation_without_subscription_a_lost_update_is_found() {
    // Reads one word only, so that it cannot see a torn state.
    let section = |world: &World| {
        let (x, y) = (&world.memory.x[0], &world.memory.y[0]);
        let done = world.memory.lock.run(world.htm.engine(), |held| {
            let value = held.load(x)?;
            held.store(x, value + 10)?;
            held.store(y, value + 10)
        });
        assert_eq!(done, Ok(()));
    };
    explore(Emulated::new, add_in_a_transaction, section, nothing_lost);
}
