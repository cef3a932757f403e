//! What verbs do not promise, made visible: these tests search for each imperfection, on one thread
//! and by seeds, and must find it where it is configured and nowhere else.

use drtm_rdma::{Atomicity, LocalConfig, Phase, Tearing, VerbError, block_on};

use crate::support::{Plain, with, word};

const SEEDS: u64 = 200;

/// Whether some seed shows it.
fn found(config: impl Fn(u64) -> LocalConfig, shows: impl Fn(&Plain) -> bool) -> bool {
    (0..SEEDS).any(|seed| shows(&Plain::new(2, config(seed))))
}

/// The words of a READ during which the owner writes 1 to these words, some after each poll.
fn read_under_a_writer(world: &Plain, words: usize, writes: &[&[u64]]) -> Vec<u64> {
    let endpoint = world.endpoint(0);
    let mut batch = endpoint.during(Phase::Other).batch();
    let mut pending = batch.read(word(1, 0), words).expect("room");
    batch.ring();
    let mut writes = writes.iter();
    loop {
        match pending.try_take() {
            Ok(outcome) => break outcome.expect("the words are there").to_vec(),
            Err(not_yet) => pending = not_yet,
        }
        endpoint.progress();
        for index in writes.next().copied().unwrap_or_default() {
            world.store(word(1, *index), 1);
        }
    }
}

/// What a READ sees of two lines, the second of which the owner writes first, and both between two
/// polls.
fn two_lines(world: &Plain) -> (u64, u64) {
    let words = read_under_a_writer(world, 16, &[&[8, 0]]);
    (words[0], words[8])
}

/// Neither all old nor all new.
fn reads_in_halves(world: &Plain) -> bool {
    two_lines(world) == (0, 1)
}

/// As no reader could find them that looks at the first line first.
fn reads_backwards(world: &Plain) -> bool {
    two_lines(world) == (1, 0)
}

fn tears_within_a_line(world: &Plain) -> bool {
    let words = read_under_a_writer(world, 8, &[&[0], &[1], &[2], &[3], &[4], &[5], &[6], &[7]]);
    words.windows(2).any(|pair| pair[0] < pair[1])
}

#[test]
fn a_read_of_several_lines_is_torn_in_any_order() {
    assert!(found(LocalConfig::harsh, reads_backwards));
    assert!(found(LocalConfig::harsh, reads_in_halves));
    let in_order = |seed| LocalConfig::harsh(seed).scattered(false);
    assert!(found(in_order, reads_in_halves));
    assert!(!found(in_order, reads_backwards));
    assert!(!found(|_| LocalConfig::perfect(), |world| reads_backwards(world) || reads_in_halves(world)));
}

#[test]
fn a_line_is_read_at_one_moment_unless_told_otherwise() {
    assert!(!found(LocalConfig::harsh, tears_within_a_line));
    assert!(found(|seed| LocalConfig::harsh(seed).tearing(Tearing::Words), tears_within_a_line));
}

/// The owner looks while a WRITE is under way: whether it finds a word new whose predecessor is
/// old.
fn writes_out_of_order(world: &Plain) -> bool {
    let endpoint = world.endpoint(0);
    let mut batch = endpoint.during(Phase::Other).batch();
    batch.write(word(1, 0), &[1; 12]).expect("room").unsignaled();
    batch.ring();
    loop {
        let busy = endpoint.progress();
        let seen: Vec<u64> = (0..12).map(|index| world.load(word(1, index))).collect();
        if seen.windows(2).any(|pair| pair[0] < pair[1]) {
            return true;
        }
        if !busy {
            return false;
        }
    }
}

#[test]
fn a_write_becomes_visible_in_any_order() {
    assert!(found(LocalConfig::harsh, writes_out_of_order));
    assert!(!found(|seed| LocalConfig::harsh(seed).scattered(false), writes_out_of_order));
    assert!(!found(|_| LocalConfig::perfect(), writes_out_of_order));
}

/// A READ, and a WRITE posted after it, whose words the READ sees.
fn write_passes_read(world: &Plain) -> bool {
    let endpoint = world.endpoint(0);
    with(&endpoint, async |verbs| {
        let mut batch = verbs.batch();
        let before = batch.read(word(1, 0), 32)?;
        batch.write(word(1, 0), &[1; 32])?.unsignaled();
        batch.ring();
        Ok(before.await?.contains(&1))
    })
}

#[test]
fn a_write_may_pass_a_read_posted_before_it() {
    assert!(found(LocalConfig::harsh, write_passes_read));
    assert!(!found(|seed| LocalConfig::harsh(seed).passing(false), write_passes_read));
}

/// An atomic and a WRITE are never passed, nor is a READ by another READ or by an atomic.
#[test]
fn nothing_else_is_passed() {
    let broken = |world: &Plain| {
        let endpoint = world.endpoint(0);
        with(&endpoint, async |verbs| {
            let mut batch = verbs.batch();
            let before = batch.read(word(1, 0), 32)?;
            let old = batch.fetch_add(word(1, 0), 1)?;
            batch.write(word(1, 0), &[5; 32])?.unsignaled();
            let after = batch.read(word(1, 0), 32)?;
            batch.ring();
            let (before, old, after) = (before.await?, old.await?, after.await?);
            Ok(before[0] != 0 || old != 0 || after.iter().any(|word| *word != 5))
        })
    };
    assert!(!found(LocalConfig::harsh, broken));
}

/// The NIC adds 1 and, while it is at it, the processor adds 100: whether one of them is lost.
fn loses_an_update(world: &Plain, by_swap: bool) -> bool {
    let endpoint = world.endpoint(0);
    let verbs = endpoint.during(Phase::Other);
    let mut batch = verbs.batch();
    let pending = if by_swap { batch.compare_swap(word(1, 0), 0, 1) } else { batch.fetch_add(word(1, 0), 1) };
    let mut pending = pending.expect("room");
    batch.ring();
    let mut added = false;
    let old = loop {
        match pending.try_take() {
            Ok(outcome) => break outcome.expect("the word is there"),
            Err(not_yet) => pending = not_yet,
        }
        // Whichever poll it is that the seed puts the window after.
        if endpoint.progress() && !added {
            let window = world.load(word(1, 1));
            if window > 0 {
                world.store(word(1, 1), window - 1);
            } else {
                world.cpu_add(word(1, 0), 100);
                added = true;
            }
        }
    };
    let total = world.load(word(1, 0));
    let expected = match (added, by_swap && old != 0) {
        (true, false) => 101,
        (true, true) => 100,
        (false, _) => 1,
    };
    total != expected
}

#[test]
fn a_nic_atomic_beside_a_processors_loses_an_update_unless_global() {
    for by_swap in [false, true] {
        for wait in 0..4 {
            let shows = |world: &Plain| {
                world.store(word(1, 1), wait);
                loses_an_update(world, by_swap)
            };
            let global = |seed| LocalConfig::harsh(seed).atomicity(Atomicity::Global);
            assert!(!found(global, shows), "atomic with everything");
        }
        let shows = |world: &Plain| loses_an_update(world, by_swap);
        assert!(found(LocalConfig::harsh, shows), "not found: by_swap {by_swap}");
    }
}

/// NIC atomics of two endpoints, polled in turns, never lose anything to each other.
#[test]
fn nic_atomics_are_atomic_with_each_other() {
    for seed in 0..SEEDS {
        let world = Plain::new(3, LocalConfig::harsh(seed));
        let endpoints = [world.endpoint(0), world.endpoint(2)];
        for endpoint in &endpoints {
            let mut batch = endpoint.during(Phase::Other).batch();
            for _ in 0..5 {
                batch.fetch_add(word(1, 0), 1).expect("room").unsignaled();
            }
            batch.ring();
        }
        while endpoints.iter().fold(false, |busy, endpoint| endpoint.progress() | busy) {}
        assert_eq!(world.load(word(1, 0)), 10);
    }
}

/// An endpoint that goes away in the middle of an atomic leaves the target's NIC to others.
#[test]
fn a_dropped_endpoint_holds_nothing_up() {
    for seed in 0..50 {
        let world = Plain::new(3, LocalConfig::harsh(seed));
        for polls in 0..8 {
            let leaving = world.endpoint(0);
            let mut batch = leaving.during(Phase::Other).batch();
            batch.fetch_add(word(1, 0), 1).expect("room").unsignaled();
            batch.ring();
            for _ in 0..polls {
                leaving.progress();
            }
        }
        let endpoint = world.endpoint(2);
        let outcome: Result<u64, VerbError> =
            block_on(&endpoint, endpoint.during(Phase::Other).fetch_add(word(1, 0), 1));
        assert!(outcome.is_ok_and(|old| old <= 8));
    }
}

/// The same seed gives the same run.
#[test]
fn chances_are_reproducible() {
    let run = |seed| {
        let world = Plain::new(2, LocalConfig::harsh(seed));
        (0..20)
            .map(|_| read_under_a_writer(&world, 64, &[&[0], &[8], &[16], &[24], &[32], &[40], &[48], &[56]]))
            .collect::<Vec<_>>()
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}
