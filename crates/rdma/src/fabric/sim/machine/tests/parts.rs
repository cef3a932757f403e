//! Caches and filters beside simple models of them.

use std::collections::VecDeque;

use fastrand::Rng;
use proptest::prelude::*;

use super::super::{
    Filter, Kind, Level, Line, MachineProfile, Move, Node, Replacement, Shape, Stop, Stopped,
    cache::Cache,
    directory::{Directory, Entry},
};
use crate::NodeId;

/// A cache as lists, the last used line at the end of each.
struct Lists {
    sets: Vec<VecDeque<(u64, bool)>>,
    ways: usize,
}

impl Lists {
    fn touch(&mut self, line: u64) -> bool {
        let count = self.sets.len() as u64;
        let set = &mut self.sets[(line % count) as usize];
        let found = set.iter().position(|(held, _)| *held == line);
        if let Some(entry) = found.and_then(|at| set.remove(at)) {
            set.push_back(entry);
        }
        found.is_some()
    }

    fn fill(&mut self, line: u64, is_spared: bool) -> Option<u64> {
        let (count, ways) = (self.sets.len() as u64, self.ways);
        let set = &mut self.sets[(line % count) as usize];
        let evicted = (set.len() == ways).then(|| {
            let first = set.iter().position(|(_, spared)| !spared).unwrap_or(0);
            set.remove(first).expect("a full set").0
        });
        set.push_back((line, is_spared));
        evicted
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_cache_evicts_the_least_recently_used_line_that_is_not_spared(
        accesses in proptest::collection::vec((0_u64..64, proptest::bool::weighted(0.3)), 1..400),
        ways in 1_usize..5,
    ) {
        let level = Level { bytes: 4 * ways as u64 * Line::BYTES, ways, cycles: 1 };
        let mut cache = Cache::<bool>::new(level, 1);
        let mut lists = Lists { sets: vec![VecDeque::new(); 4], ways };
        for (line, is_spared) in accesses {
            let is_there = cache.touch(Line(line)).is_some();
            prop_assert_eq!(is_there, lists.touch(line));
            if !is_there {
                let (place, evicted) = cache.fill(Line(line), |spared| *spared);
                *cache.state(place) = is_spared;
                prop_assert_eq!(evicted.map(|(line, _)| line.0), lists.fill(line, is_spared));
            }
        }
    }

    #[test]
    fn a_filter_has_every_line_that_was_added(lines in proptest::collection::vec(any::<u64>(), 0..200)) {
        for shape in [Shape::Hashed { bits: 1024 }, Shape::Split { hashed: 512, indexed: 4096 }] {
            let mut filter = Filter::new(shape);
            for &line in &lines {
                filter.add(Line(line));
            }
            prop_assert!(lines.iter().all(|&line| filter.may_have(Line(line))));
            let bits = filter.words().iter().map(|word| word.count_ones() as usize).sum::<usize>();
            prop_assert!(bits <= 2 * lines.len());
            filter.clear();
            prop_assert!(lines.iter().all(|&line| !filter.may_have(Line(line))));
        }
    }

    #[test]
    fn the_write_filter_leads_to_every_tagged_line(lines in proptest::collection::btree_set(0_u64..1 << 30, 0..60)) {
        let profile = MachineProfile::HADES;
        let mut directory = Directory::new(&profile);
        let (hashed, indexed) = profile.write_bits;
        let mut filter = Filter::new(Shape::Split { hashed, indexed });
        for (at, &line) in lines.iter().enumerate() {
            let (place, evicted) = directory.fill(Line(line));
            prop_assert!(evicted.is_none());
            // Every other line is of another transaction.
            directory.state(place).set_writer(Some(at as u16 % 2));
            if at % 2 == 0 {
                filter.add(Line(line));
            }
        }
        let mut found: Vec<u64> = directory.written(0, &filter).iter().map(|line| line.0).collect();
        found.sort_unstable();
        let expected: Vec<u64> = lines.into_iter().step_by(2).collect();
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn filters_have_other_lines_as_often_as_theory_says() {
    // Two bits of 1024, of which 2n are set; one of 512 and one of 4096, of which n are.
    let set = |bits: f64, added: i32| 1.0 - (1.0 - 1.0 / bits).powi(added);
    let shapes = [Shape::Hashed { bits: 1024 }, Shape::Split { hashed: 512, indexed: 4096 }];
    let mut rng = Rng::with_seed(7);
    for lines in [20, 50, 100] {
        let theory = [set(1024.0, 2 * lines).powi(2), set(512.0, lines) * set(4096.0, lines)];
        for (shape, theory) in shapes.into_iter().zip(theory) {
            let (mut met, mut probes) = (0, 0);
            let mut filter = Filter::new(shape);
            for _ in 0..4_000 {
                filter.clear();
                (0..lines).for_each(|_| filter.add(Line(rng.u64(..1 << 30))));
                probes += 100;
                met += (0..100).filter(|_| filter.may_have(Line(rng.u64(..1 << 30)))).count();
            }
            let expected = theory * f64::from(probes);
            let spread = 6.0 * expected.sqrt() + 1.0;
            assert!((met as f64 - expected).abs() < spread, "{shape:?}, {lines} lines: {met} of {probes}, {expected}");
        }
    }
}

/// A machine whose last-level cache has one set of two ways.
fn tiny(replacement: Replacement) -> MachineProfile {
    let level = Level { bytes: 2 * Line::BYTES, ways: 2, cycles: 1 };
    MachineProfile {
        cores: 1,
        l1: level,
        l2: level,
        llc: level,
        write_bits: (64, 1),
        replacement,
        ..MachineProfile::HADES
    }
}

#[test]
fn the_eviction_of_a_written_line_squashes_its_writer() {
    let mut node = Node::new(NodeId(0), &tiny(Replacement::Lru));
    let tx = node.begin(0).expect("filters are free");
    assert_eq!(node.access(0, tx, Line(1), Kind::Write).stop, None);
    assert_eq!(node.access(0, tx, Line(2), Kind::Read).stop, None);
    assert_eq!(node.access(0, tx, Line(3), Kind::Read).stop, Some(Stop::Squashed(Stopped::Evicted)));
    assert_eq!(node.counts().evictions, 1);
    assert!(node.moves().contains(&Move::Dropped(Line(1))));
}

#[test]
fn the_eviction_of_a_read_line_squashes_nothing_and_written_lines_are_spared() {
    let mut node = Node::new(NodeId(0), &tiny(Replacement::SparesWritten));
    let tx = node.begin(0).expect("filters are free");
    assert_eq!(node.access(0, tx, Line(1), Kind::Write).stop, None);
    for line in 2..10 {
        assert_eq!(node.access(0, tx, Line(line), Kind::Read).stop, None);
        let evicted = node.moves().iter().filter(|moved| matches!(moved, Move::Dropped(_))).count();
        assert_eq!(evicted, usize::from(line > 2));
    }
    assert_eq!(node.access(0, tx, Line(10), Kind::Write).stop, None);
    // Both ways are written.
    assert_eq!(node.access(0, tx, Line(11), Kind::Read).stop, Some(Stop::Squashed(Stopped::Evicted)));
}

#[test]
fn the_first_write_of_a_committed_dirty_line_saves_it() {
    let mut node = Node::new(NodeId(0), &MachineProfile::HADES);
    let tx = node.begin(0).expect("filters are free");
    assert_eq!(node.access(0, tx, Line(1), Kind::Write).stop, None);
    assert_eq!(node.moves(), [Move::Fetched(Line(1))], "memory has it");
    while node.commit_step(tx).progress != super::super::Progress::Committed {}
    assert_eq!(node.directory.find(Line(1)).map(|it: Entry| it.is_dirty), Some(true));
    let next = node.begin(0).expect("filters are free");
    assert_eq!(node.access(0, next, Line(1), Kind::Write).stop, None);
    assert_eq!(node.moves(), [Move::WrittenBack(Line(1))]);
    assert_eq!(node.access(0, next, Line(1), Kind::Write).stop, None);
    assert_eq!(node.moves(), [], "once is enough");
}
