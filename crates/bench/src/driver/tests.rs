//! Runs of trivial subjects.

use std::{
    cell::Cell,
    convert::Infallible,
    num::{NonZeroU32, NonZeroUsize},
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use super::*;
use crate::smallbank::Kind;

fn setup(threads: usize, every: u32) -> Setup {
    Setup {
        threads: NonZeroUsize::new(threads).expect("some threads"),
        warm_up: Duration::from_millis(5),
        length: Duration::from_millis(40),
        timed_every: NonZeroU32::new(every).expect("not zero"),
    }
}

#[test]
fn everything_is_counted_by_kind_and_only_while_it_counts() {
    let calls = AtomicU64::new(0);
    let run = run(&setup(3, 4), |worker| {
        let calls = &calls;
        let mut kinds = Kind::ALL.into_iter().cycle();
        Ok::<_, Infallible>(move || {
            calls.fetch_add(1, Ordering::Relaxed);
            let kind = kinds.next().unwrap_or(Kind::Balance);
            let outcome = match kind {
                Kind::Balance | Kind::SendPayment => Outcome::Committed,
                Kind::WriteCheck => Outcome::GivenUp,
                _ => Outcome::Refused,
            };
            Ok(Done { kind, outcome, conflicts: worker as u32 })
        })
    });
    let Ok(run) = run else { panic!("{run:?}") };
    let tally = &run.tally;
    let total = tally.total();
    let ended = total.committed + total.refused + total.given_up;
    assert!(ended > 1_000 && ended < calls.into_inner(), "the warming up does not count");
    for kind in Kind::ALL {
        let counts = tally.counts(kind);
        let of_kind = [counts.committed, counts.refused, counts.given_up];
        let expected = match kind {
            Kind::Balance | Kind::SendPayment => 0,
            Kind::WriteCheck => 2,
            _ => 1,
        };
        // Each worker does kinds in turns, so that it is at most one apart from its mean.
        assert!(of_kind[expected].abs_diff(ended / 6) <= 6, "{kind:?}: {counts:?}");
        assert_eq!(of_kind.iter().sum::<u64>(), of_kind[expected]);
    }
    assert!(total.conflicts > 0 && total.conflicts <= 2 * ended);
    // Of six kinds in turns, each fourth call hits every second kind.
    let timed: u64 = Kind::ALL.into_iter().filter_map(|kind| tally.latency(kind)).map(|times| times.len()).sum();
    assert!(timed.abs_diff(ended / 4) <= 3, "{timed} of {ended}");
    assert!(run.time >= Duration::from_millis(40));
    assert_eq!(run.per_second(), total.committed as f64 / run.time.as_secs_f64());
}

#[test]
fn times_are_those_of_whole_transactions() {
    let run = run(&setup(1, 1), |_| {
        Ok::<_, Infallible>(|| {
            thread::sleep(Duration::from_millis(2));
            Ok(Done::committed(()))
        })
    });
    let Ok(run) = run else { panic!("{run:?}") };
    let times = run.tally.latency(()).expect("all are timed");
    assert_eq!(times.len(), run.tally.total().committed);
    assert!(times.min() >= 1_980_000, "{} ns", times.min());
}

#[test]
fn a_worker_that_fails_ends_the_run_for_all() {
    let long = Setup { length: Duration::from_secs(600), warm_up: Duration::from_secs(600), ..setup(3, 1) };
    let begin = Instant::now();
    let failed = run(&long, |worker| {
        let left = Cell::new(1_000);
        Ok(move || {
            left.set(left.get() - i32::from(worker == 1));
            if left.get() == 0 { Err("no more") } else { Ok(Done::committed(())) }
        })
    });
    assert_eq!(failed.err(), Some(DriverError::Worker { worker: 1, source: "no more" }));
    let failed = run(&long, |worker| if worker == 2 { Err("not made") } else { Ok(|| Ok(Done::committed(()))) });
    assert_eq!(failed.err(), Some(DriverError::Worker { worker: 2, source: "not made" }));
    let failed = run(&long, |worker| {
        Ok::<_, Infallible>(move || {
            assert!(worker != 0, "as the test wants it");
            Ok(Done::committed(()))
        })
    });
    assert_eq!(failed.err(), Some(DriverError::Panicked { worker: 0 }));
    assert!(begin.elapsed() < Duration::from_secs(60), "nobody waited for the end");
}

#[test]
fn tallies_add_up() {
    let mut one = Tally::new();
    one.count(Done { conflicts: 2, ..Done::committed(Kind::Balance) });
    one.time(Kind::Balance, Duration::from_micros(1));
    let mut two = Tally::new();
    two.count(Done::refused(Kind::Balance));
    two.count(Done::committed(Kind::WriteCheck));
    two.time(Kind::Balance, Duration::from_secs(1_000_000));
    one.add(&two);
    assert_eq!(one.counts(Kind::Balance), Counts { committed: 1, refused: 1, given_up: 0, conflicts: 2 });
    assert_eq!(one.total(), Counts { committed: 2, refused: 1, given_up: 0, conflicts: 2 });
    let times = one.latency(Kind::Balance).expect("two");
    assert_eq!(times.len(), 2);
    assert!(times.max() >= 100_000_000_000 && times.max() < 150_000_000_000, "the longest that is told from others");
    assert!(one.latency(Kind::WriteCheck).is_none());
}
