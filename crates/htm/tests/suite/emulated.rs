//! Guarantees of the emulation only: its limits, its timer, its determinism, its opacity, and its
//! strictness.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
    time::Duration,
};

use drtm_htm::{
    Access, Cause, Emulated, EmulatedConfig, EmulatedTransaction, Engine, EngineError, FallbackLock, Htm, Line,
    Metered, Outcome, Policy, Profile, Sharing, Stats, Timer, TransactionAborted, Word,
};

use crate::support::{lines, values};

/// One try for each cause.
const ONCE: Policy = Policy::DBX.divided_by(u32::MAX);

/// No interrupts, so that only the tested cause aborts.
fn untimed(profile: Profile) -> EmulatedConfig {
    EmulatedConfig::new(profile).with_timer(Timer::Off)
}

fn engine(config: EmulatedConfig) -> Htm<Emulated> {
    Htm::new(Emulated::new(config).expect("a valid configuration"))
}

fn once<'m, T>(
    config: EmulatedConfig,
    body: impl FnMut(&mut EmulatedTransaction<'m>) -> Result<T, TransactionAborted>,
) -> Outcome<T> {
    engine(config).worker().attempt(ONCE, body)
}

/// Returns `count` lines aligned to the size of a 64-set way, so that the first is in set 0.
fn aligned(memory: &[Line], count: usize) -> &[Line] {
    let first = memory.iter().position(|line| std::ptr::from_ref(line).addr().is_multiple_of(64 * 64));
    &memory[first.expect("a page begins within 64 lines")..][..count]
}

fn read<'m, A: Access<'m>>(tx: &mut A, lines: &'m [Line]) -> Result<(), A::Abort> {
    lines.iter().try_for_each(|line| tx.load(&line[0]).map(|_| ()))
}

fn write<'m, A: Access<'m>>(tx: &mut A, lines: &'m [Line]) -> Result<(), A::Abort> {
    lines.iter().try_for_each(|line| tx.store(&line[0], 1))
}

const CAPACITY: Outcome<()> = Outcome::Fallback(Cause::Capacity);
const COMMITTED: Outcome<()> = Outcome::Committed(());

#[test]
fn the_write_set_is_the_cache_and_not_a_line_more() {
    for (profile, whole) in [
        (Profile::L1_32K_8, 512),
        (Profile::L1_48K_12, 768),
        (Profile::L1_32K_8.hyperthreaded(), 256),
        (Profile::L1_48K_12.hyperthreaded(), 384),
    ] {
        assert_eq!(profile.write_bytes(), whole * 64);
        let memory = lines(whole + 65);
        let memory = aligned(&memory, whole + 1);
        assert_eq!(once(untimed(profile), |tx| write(tx, &memory[..whole])), COMMITTED);
        assert_eq!(once(untimed(profile), |tx| write(tx, memory)), CAPACITY);
    }
}

#[test]
fn a_set_overflows_when_its_ways_are_written_whatever_else_is_free() {
    let memory = lines(9 * 64 + 64);
    let memory = aligned(&memory, 9 * 64);
    let one_set: Vec<&Line> = memory.iter().step_by(64).collect();
    let store = |count: usize| {
        let lines = &one_set[..count];
        once(untimed(Profile::L1_32K_8), |tx| lines.iter().try_for_each(|line| tx.store(&line[0], 1)))
    };
    assert_eq!(store(8), COMMITTED);
    assert_eq!(store(9), CAPACITY);
}

#[test]
fn the_read_set_is_the_tracker_and_not_a_line_more() {
    let memory = lines(1001);
    let profile = Profile::new(64, 8, 1000);
    assert_eq!(once(untimed(profile), |tx| read(tx, &memory[..1000])), COMMITTED);
    assert_eq!(once(untimed(profile), |tx| read(tx, &memory)), CAPACITY);
    // A line that is read twice is tracked once.
    assert_eq!(
        once(untimed(profile), |tx| read(tx, &memory[..1000]).and_then(|()| read(tx, &memory[..1000]))),
        COMMITTED
    );
    // 4 MiB on the papers' processor.
    assert_eq!(Profile::L1_32K_8.read_lines * 64, 4 << 20);
    assert_eq!(Profile::L1_32K_8.hyperthreaded().read_lines * 64, 2 << 20);
}

#[test]
fn reads_before_writes_tolerate_more_than_writes_before_reads() {
    let (reads, writes) = (lines(2_000), lines(600));
    let writes = aligned(&writes, 512);
    let config = untimed(Profile::L1_32K_8);
    assert_eq!(once(config, |tx| read(tx, &reads).and_then(|()| write(tx, writes))), COMMITTED);
    assert_eq!(once(config, |tx| write(tx, writes).and_then(|()| read(tx, &reads))), CAPACITY);
    assert_eq!(once(config, |tx| write(tx, &writes[..1]).and_then(|()| read(tx, &reads))), CAPACITY);
}

#[test]
fn a_transaction_longer_than_the_period_always_aborts_and_a_shorter_one_at_most_every_other_time() {
    let rate = |duration: u64| {
        let timer = Timer::Virtual { period: 1_000, access: 0 };
        let htm = engine(EmulatedConfig::new(Profile::L1_32K_8).with_timer(timer));
        let mut worker = htm.worker();
        for _ in 0..3_000 {
            let _ = worker.attempt(ONCE, |tx| tx.spin(duration));
        }
        let stats = htm.stats();
        assert_eq!(stats.aborts(), stats.system);
        stats.system as f64 / stats.attempts() as f64
    };
    assert_eq!(rate(1_000), 1.0);
    assert_eq!(rate(5_000), 1.0);
    let rates: Vec<f64> = [1, 10, 100, 300, 900].map(rate).to_vec();
    assert!(rates.is_sorted(), "{rates:?}");
    assert!((0.49..=0.51).contains(&rates[4]), "{rates:?}");
    assert!(rates[0] < 0.002, "{rates:?}");
}

#[test]
fn the_wall_timer_aborts_what_takes_longer_than_its_period() {
    let timer = Timer::Wall { period: Duration::from_micros(50) };
    let outcome = once(EmulatedConfig::new(Profile::L1_32K_8).with_timer(timer), |tx| {
        thread::sleep(Duration::from_millis(1));
        tx.spin(1)
    });
    assert_eq!(outcome, Outcome::Fallback(Cause::System));
    let never = Timer::Wall { period: Duration::MAX };
    assert_eq!(once(EmulatedConfig::new(Profile::L1_32K_8).with_timer(never), |tx| tx.spin(1)), COMMITTED);
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let memory = lines(64);
    let run = |seed| {
        let config = EmulatedConfig::new(Profile::new(4, 2, 12))
            .with_timer(Timer::Virtual { period: 97, access: 3 })
            .with_events_one_in(40)
            .with_seed(seed);
        let htm = engine(config);
        let mut workers = [htm.worker(), htm.worker()];
        let mut random = fastrand::Rng::with_seed(1);
        let causes: Vec<Outcome<()>> = (0..500)
            .map(|turn| {
                workers[turn % 2].attempt(ONCE, |tx| {
                    (0..random.usize(0..8)).try_for_each(|_| {
                        let line = &memory[random.usize(0..64)];
                        if random.bool() { tx.load(&line[0]).map(|_| ()) } else { tx.store(&line[0], 1) }
                    })
                })
            })
            .collect();
        (causes, htm.stats())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    let (_, stats) = run(3);
    assert!(stats.commits > 0 && stats.capacity > 0 && stats.system > 0, "{stats:?}");
}

#[test]
fn chance_events_come_about_as_often_as_asked() {
    let memory = lines(1);
    let htm = engine(untimed(Profile::L1_32K_8).with_events_one_in(10));
    let mut worker = htm.worker();
    for _ in 0..10_000 {
        let _ = worker.attempt(ONCE, |tx| tx.load(&memory[0][0]));
    }
    let Stats { system, .. } = htm.stats();
    assert!((900..1_100).contains(&system), "{system} in 10000");
}

/// Runs `other` on another thread and waits for it. The thread of an htm transaction must not run
/// it itself.
fn meanwhile(other: impl FnOnce() + Send) {
    thread::scope(|scope| scope.spawn(other).join().expect("no panic"));
}

#[test]
fn a_zombie_never_sees_two_words_that_did_not_exist_at_once() {
    let memory = lines(3);
    let htm = Htm::new(Emulated::default());
    let set_both = |value| {
        meanwhile(|| {
            let outcome = htm.worker().attempt(Policy::DBX, |tx| {
                tx.store(&memory[0][0], value)?;
                tx.store(&memory[1][0], value)
            });
            assert_eq!(outcome, Outcome::Committed(()));
        });
    };
    let seen_second = Cell::new(false);
    let outcome = htm.worker().attempt(ONCE, |tx| {
        tx.load(&memory[0][0])?;
        set_both(1);
        tx.load(&memory[1][0])?;
        seen_second.set(true);
        Ok(())
    });
    assert_eq!(outcome, Outcome::Fallback(Cause::Conflict));
    assert!(!seen_second.get(), "the second load must not return");

    // A change before the transaction's first access is no conflict, as in hardware.
    let outcome = htm.worker().attempt(ONCE, |tx| {
        tx.load(&memory[2][0])?;
        set_both(2);
        Ok((tx.load(&memory[0][0])?, tx.load(&memory[1][0])?))
    });
    assert_eq!(outcome, Outcome::Committed((2, 2)));
}

#[test]
fn neighbours_on_a_line_conflict_and_neighbouring_lines_do_not() {
    let memory = lines(2);
    let htm = Htm::new(Emulated::default());
    let with_store_to = |word: &Word| {
        htm.worker().attempt(ONCE, |tx| {
            tx.store(&memory[0][0], 1)?;
            meanwhile(|| htm.engine().store(word, 1));
            Ok(())
        })
    };
    assert_eq!(with_store_to(&memory[0][7]), Outcome::Fallback(Cause::Conflict));
    assert_eq!(with_store_to(&memory[1][0]), Outcome::Committed(()));
}

#[test]
fn lines_that_share_a_version_conflict_only_falsely() {
    // One version for all memory: transactions still commit, one at a time.
    let memory = lines(5);
    let htm = engine(EmulatedConfig::default().with_tracked_lines(1));
    let outcome = htm.worker().attempt(ONCE, |tx| {
        read(tx, &memory)?;
        write(tx, &memory)
    });
    assert_eq!(outcome, Outcome::Committed(()));
    assert_eq!(values(htm.engine(), &memory), [1; 5]);
    let outcome = htm.worker().attempt(ONCE, |tx| {
        tx.load(&memory[0][0])?;
        meanwhile(|| htm.engine().store(&memory[4][0], 9));
        Ok(())
    });
    assert_eq!(outcome, Outcome::Fallback(Cause::Conflict));
}

#[test]
fn a_failed_compare_exchange_takes_the_line_as_in_hardware() {
    let memory = lines(1);
    let htm = Htm::new(Emulated::default());
    let outcome = htm.worker().attempt(ONCE, |tx| {
        tx.load(&memory[0][0])?;
        meanwhile(|| assert_eq!(htm.engine().compare_exchange(&memory[0][0], 5, 6), Err(0)));
        Ok(())
    });
    assert_eq!(outcome, Outcome::Fallback(Cause::Conflict));
}

#[test]
fn plain_operations_do_what_they_say() {
    fn check<E: Engine>(engine: E) {
        let word = Word::new(0b0110);
        assert_eq!(engine.fetch_or(&word, 0b1000), 0b0110);
        assert_eq!(engine.fetch_and(&word, 0b1100), 0b1110);
        assert_eq!(engine.fetch_add(&word, 1), 0b1100);
        assert_eq!(engine.swap(&word, u64::MAX), 0b1101);
        assert_eq!(engine.fetch_add(&word, 2), u64::MAX);
        assert_eq!(engine.compare_exchange(&word, 1, 5), Ok(1));
        assert_eq!(engine.compare_exchange(&word, 1, 6), Err(5));
        engine.store_relaxed(&word, 8);
        assert_eq!(engine.load_relaxed(&word), 8);
        engine.store(&word, 9);
        assert_eq!((engine.load(&word), word.into_inner()), (9, 9));
    }
    check(drtm_htm::NoHtm);
    check(Emulated::default());
}

fn panics_with(message: &str, body: impl FnOnce()) {
    let payload = catch_unwind(AssertUnwindSafe(body)).expect_err("a panic");
    let shown = payload.downcast_ref::<String>().expect("a message");
    assert!(shown.contains(message), "{shown}");
}

#[test]
fn breaking_the_contract_panics_and_leaves_everything_usable() {
    let (memory, lock) = (lines(1), FallbackLock::new());
    let htm = Htm::new(Emulated::default());
    let mut worker = htm.worker();
    panics_with("plain access inside an htm transaction", || {
        let _ = worker.attempt(Policy::DBX, |tx| {
            tx.store(&memory[0][0], 1)?;
            htm.engine().store(&memory[0][0], 2);
            Ok(())
        });
    });
    panics_with("htm transaction begun inside another", || {
        let _ = worker.attempt(Policy::DBX, |tx| {
            tx.store(&memory[0][0], 1)?;
            Ok(htm.worker().attempt(Policy::DBX, |_| Ok(())))
        });
    });
    // `run` takes its lock by a plain access.
    panics_with("plain access inside an htm transaction", || {
        let _ = worker.attempt(Policy::DBX, |_| Ok(lock.run(htm.engine(), |_| Ok(()))));
    });
    assert_eq!(values(htm.engine(), &memory), [0]);
    assert_eq!(worker.attempt(Policy::DBX, |tx| tx.store(&memory[0][0], 3)), Outcome::Committed(()));
    assert_eq!(values(htm.engine(), &memory), [3]);
}

#[test]
fn a_token_kept_from_another_transaction_aborts_this_one() {
    let memory = lines(1);
    let mut worker = Htm::new(Emulated::default()).worker();
    let mut kept = None;
    let _ = worker.attempt(ONCE, |tx| {
        kept = Some(tx.abort::<1>());
        Ok(())
    });
    let outcome = worker.attempt(ONCE, |tx| {
        tx.store(&memory[0][0], 1)?;
        kept.take().map_or(Ok(()), Err)
    });
    assert_eq!(outcome, Outcome::Fallback(Cause::Explicit(0)));
    assert_eq!(memory.into_iter().map(|line| Emulated::default().load(&line[0])).sum::<u64>(), 0);
}

#[test]
fn a_meter_sees_nested_regions_and_counts_words_and_lines_once() {
    let memory = lines(3);
    let outcome = once(untimed(Profile::L1_32K_8), |tx| {
        let mut tx = Metered::new(tx);
        tx.load(&memory[0][0])?;
        tx.load(&memory[0][0])?;
        tx.load(&memory[0][7])?;
        tx.nested(|tx| {
            tx.load(&memory[1][0])?;
            tx.store(&memory[1][0], 1)?;
            tx.store(&memory[2][3], 1)
        })?;
        Ok(tx.working_set())
    });
    let set = outcome.committed().expect("small enough");
    assert_eq!((set.bytes_read, set.lines_read, set.line_bytes_read()), (24, 2, 128));
    assert_eq!((set.bytes_written, set.lines_written, set.line_bytes_written()), (16, 2, 128));
}

#[test]
fn configurations_that_describe_no_machine_are_refused() {
    let default = EmulatedConfig::default();
    for (config, named) in [
        (EmulatedConfig::new(Profile::new(0, 8, 1)), "sets"),
        (EmulatedConfig::new(Profile::new(64, 0, 1)), "ways"),
        (EmulatedConfig::new(Profile::new(64, 8, 0)), "read tracker"),
        (default.with_timer(Timer::Wall { period: Duration::ZERO }), "nanoseconds"),
        (default.with_timer(Timer::Virtual { period: 0, access: 1 }), "ticks"),
        (default.with_tracked_lines(0), "tracked lines"),
        (default.with_tracked_lines(1_000), "tracked lines"),
        (default.with_tracked_lines(1 << 60), "tracked lines"),
    ] {
        let error = Emulated::new(config).expect_err(named);
        assert!(matches!(error, EngineError::Emulation { .. }) && error.to_string().contains(named), "{error}");
    }
    assert_eq!(Emulated::default().admits(Sharing::Threads), Ok(()));
    assert_eq!(Emulated::default().admits(Sharing::Processes), Err(EngineError::ForeignMemory));
    assert_eq!(drtm_htm::NoHtm.admits(Sharing::Processes), Ok(()));
}
