//! One node in a loop, two nodes, and threads.

use proptest::prelude::*;

use super::*;

/// A node, and what time it is for each of its workers.
struct Run {
    board: Board,
    workers: Vec<(Chooser, u64)>,
}

impl Run {
    fn new(forms: Forms, workers: usize) -> Self {
        let workers = (0..workers).map(|worker| (Chooser::default(), 7 * worker as u64)).collect();
        Self { board: Board::new(forms), workers }
    }

    /// Runs transactions one after the other, which take so long by way. Gives how many took
    /// each way.
    fn run(&mut self, transactions: u32, took: impl Fn(usize) -> u64) -> [u32; COUNT] {
        let mut ways = [0; COUNT];
        for _ in 0..transactions {
            let (chooser, now) = self.workers.iter_mut().min_by_key(|(_, now)| *now).expect("some");
            let choice = chooser.choose(&self.board, Time::from_nanos(*now));
            let nanos = took(usize::from(choice.way));
            *now += nanos;
            chooser.ended(choice, Duration::from_nanos(nanos));
            ways[usize::from(choice.way)] += 1;
        }
        ways
    }
}

#[test]
fn the_best_way_is_found_and_found_again() {
    for (best, workers) in [(0, 1), (1, 1), (2, 1), (0, 8), (1, 8), (2, 8)] {
        let mut run = Run::new(WAYS[2], workers);
        let took = |best: usize| move |way: usize| if way == best { 20_000 } else { 30_000 };
        run.run(1_000, took(best));
        let ways = run.run(10_000, took(best));
        assert!(ways[best] > 9_700, "{ways:?}");
        // Things change, and times of the way that was best hardly do.
        let other = (best + 1) % COUNT;
        let changed = move |way: usize| {
            if way == best {
                22_000
            } else if way == other {
                16_000
            } else {
                30_000
            }
        };
        run.run(60_000, changed);
        let ways = run.run(10_000, changed);
        assert!(ways[other] > 9_700, "{ways:?}");
    }
}

#[test]
fn a_change_is_seen_at_once() {
    for (factor, workers) in [(10, 1), (10, 8), (1, 1), (1, 8)] {
        // The first is best, and becomes the worst. All take as long as before, or a tenth.
        let mut run = Run::new(WAYS[2], workers);
        run.run(5_000, |way| [100_000, 200_000, 300_000][way]);
        assert_eq!((run.board.plan().best, run.board.plan().unknown), (0, 0));
        let changed = |way: usize| [300_000, 200_000, 100_000][way] / factor;
        run.run(800, changed);
        let ways = run.run(1_000, changed);
        assert!(ways[2] > 900, "{factor}, {workers}: {ways:?}");
    }
}

#[test]
fn times_that_scatter_are_no_change() {
    let mut run = Run::new(WAYS[0], 4);
    let drawn = std::cell::Cell::new(1_u64);
    let took = |way: usize| {
        drawn.set(drawn.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
        // One of sixteen takes ten times as long.
        (20_000 + 10_000 * way as u64) * if drawn.get() >> 60 == 0 { 10 } else { 1 }
    };
    run.run(5_000, took);
    let era = run.board.plan().era;
    run.run(100_000, took);
    assert_eq!(run.board.plan().era, era);
}

#[test]
fn bad_ways_are_tried_more_seldom() {
    let tried = |worse: u64| {
        let mut run = Run::new(WAYS[0], 4);
        let took = |way: usize| if way == 0 { 20_000 } else { 20_000 + worse };
        run.run(5_000, took);
        let [_, one, other] = run.run(200_000, took);
        one + other
    };
    let (slightly, much) = (tried(1_000), tried(40_000));
    assert!((4_000..8_000).contains(&slightly), "{slightly}");
    assert!((50..slightly / 8).contains(&much), "{much}");
}

#[test]
fn ways_that_are_as_good_are_kept_to() {
    let mut run = Run::new(WAYS[1], 1);
    run.run(1_000, |_| 10_000);
    let best = run.board.plan().best;
    run.run(10_000, |way| 10_000 - 100 * way as u64);
    assert_eq!(run.board.plan().best, best);
}

#[test]
fn nodes_try_the_same_at_the_same_time() {
    let runs = [WAYS[0], WAYS[2]].map(|forms| {
        let mut run = Run::new(forms, 2);
        run.run(5_000, |way| 20_000 + 1_000 * way as u64);
        run
    });
    let from = runs.iter().flat_map(|run| run.workers.iter().map(|(_, now)| *now)).max().expect("some");
    let tried = (0..100_000).filter(|step| {
        let now = Time::from_nanos(from + step * 1_000);
        let [one, other] = runs.each_ref().map(|run| run.board.plan().choice(now));
        assert_eq!((one.way, one.place), (other.way, other.place));
        one.place.is_some_and(|place| place != PRESENT as u8)
    });
    assert!((1_000..10_000).contains(&tried.count()));
}

#[test]
fn nothing_is_lost_by_threads() {
    let threads = 4;
    let run = Run::new(WAYS[0], threads);
    let board = &run.board;
    std::thread::scope(|scope| {
        for (mut chooser, mut now) in run.workers {
            scope.spawn(move || {
                for _ in 0..20_000 {
                    let choice = chooser.choose(board, Time::from_nanos(now));
                    let took = 10_000 * (3 - u64::from(choice.way));
                    now += took;
                    chooser.ended(choice, Duration::from_nanos(took));
                }
            });
        }
    });
    // Each time is of one way.
    let (plan, found) = (board.plan(), board.found.try_lock().expect("none has it"));
    assert_eq!((plan.best, plan.unknown), (2, 0));
    assert_eq!(found.ways.map(|mean| mean.nanos.round()), [30_000.0, 20_000.0, 10_000.0]);
}

proptest! {
    #[test]
    fn any_times_will_do(times in proptest::collection::vec((any::<u64>(), any::<u64>()), 1..200)) {
        let (board, mut chooser) = (Board::new(WAYS[0]), Chooser::default());
        for (now, took) in times {
            let choice = chooser.choose(&board, Time::from_nanos(now));
            prop_assert!(WAYS.contains(&choice.forms()));
            chooser.ended(choice, Duration::from_nanos(took));
            let plan = board.plan();
            prop_assert_eq!(Plan::from_word(plan.to_word()), plan);
            prop_assert!((SLOT[0]..=SLOT[1]).contains(&plan.power));
        }
    }
}
