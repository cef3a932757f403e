//! All interleavings of two and three transactions on two nodes.

use std::collections::HashSet;

use super::{
    super::mutation::{self, Mutation},
    world::{Action, Config, Hardware, Op, Program, World},
};

const HARDWARE: [Hardware; 3] = [Hardware::Ample, Hardware::Blurred, Hardware::Scarce];

/// What was found in all interleavings of a configuration.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    pub(super) states: usize,
    pub(super) ends: usize,
    /// The ends at which all, and at which no transactions have committed.
    pub(super) all_committed: usize,
    pub(super) none_committed: usize,
    /// The ends at which commits have squashed at least two transactions.
    pub(super) mutual: usize,
    /// What is wrong, and the actions that lead there.
    pub(super) wrong: Option<(String, Vec<Action>)>,
}

/// Explores a configuration, with a fault if one is given, until something is wrong.
pub(super) fn explore(config: &Config, fault: Option<Mutation>) -> Found {
    mutation::with_fault(fault, || {
        let mut search = Search { config, seen: HashSet::new(), path: Vec::new(), found: Found::default() };
        search.visit(&World::new(config));
        Found { states: search.seen.len(), ..search.found }
    })
}

struct Search<'c> {
    config: &'c Config,
    seen: HashSet<u64>,
    path: Vec<Action>,
    found: Found,
}

impl Search<'_> {
    fn visit(&mut self, world: &World) {
        let mut is_end = true;
        for action in world.actions() {
            let mut next = world.clone();
            if !next.act(self.config, action) {
                continue;
            }
            // What need not happen does not keep an end from being one.
            is_end &= matches!(action, Action::Evict(_));
            if !self.seen.insert(next.fingerprint()) {
                continue;
            }
            self.path.push(action);
            self.visit(&next);
            self.path.pop();
            if self.found.wrong.is_some() {
                return;
            }
        }
        if is_end {
            self.found.ends += 1;
            let committed = world.committed();
            self.found.all_committed += usize::from(committed == self.config.programs.len());
            self.found.none_committed += usize::from(committed == 0);
            self.found.mutual += usize::from(world.squashed.count_ones() > 1);
            if let Err(wrong) = world.judge() {
                self.found.wrong = Some((wrong, self.path.clone()));
            }
        }
    }
}

/// Two transactions, each of which accesses line 0 of one node or of both, in either order.
fn all_of_two() -> Vec<Config> {
    let kinds = [Op::Read as fn(_) -> _, Op::Write, Op::Fill];
    let (here, there) = ((0, 0), (1, 0));
    let mut bodies = Vec::new();
    for first in kinds {
        bodies.extend([vec![first(here)], vec![first(there)]]);
        for second in kinds {
            bodies.extend([vec![first(here), second(there)], vec![first(there), second(here)]]);
        }
    }
    let mut configs = Vec::new();
    for (at, first) in bodies.iter().enumerate() {
        for (other, second) in bodies.iter().enumerate() {
            for home in [0, 1] {
                // On one node, the two are interchangeable.
                if home == 1 || other >= at {
                    let programs = vec![
                        Program { home: 0, core: 0, ops: first.clone() },
                        Program { home, core: 1, ops: second.clone() },
                    ];
                    let name = "two of all";
                    configs.push(Config { name, programs, attempts: 1, evictions: 0, hardware: Hardware::Ample });
                }
            }
        }
    }
    configs
}

#[test]
fn two_transactions_are_serializable_in_every_interleaving() {
    let (mut states, mut ends, mut mutual) = (0, 0, 0);
    for config in all_of_two() {
        let found = explore(&config, None);
        assert_eq!(found.wrong, None, "{config:?}");
        assert!(found.all_committed > 0, "one after the other, both commit: {config:?}");
        states += found.states;
        ends += found.ends;
        mutual += found.mutual;
    }
    println!("{states} states, {ends} ends, {mutual} after two squashed each other");
    assert!(mutual > 0, "two committers can squash each other");
}

#[test]
fn three_drawn_transactions_are_serializable_in_every_interleaving() {
    let mut rng = fastrand::Rng::with_seed(47);
    let (mut states, mut ends) = (0, 0);
    let kinds = [Op::Read as fn(_) -> _, Op::Write, Op::Fill];
    for _ in 0..drtm_testing::rounds(8) {
        let hardware = rng.choice(HARDWARE).expect("one of three");
        let mut program = |at: usize| {
            let mut places = [(0, rng.u64(..2)), (1, rng.u64(..2))];
            rng.shuffle(&mut places);
            let ops = places.map(|place| kinds[rng.usize(..3)](place)).to_vec();
            // Two on one node, on either cores or on one.
            Program { home: at % 2, core: if at == 2 { rng.usize(..2) } else { 0 }, ops }
        };
        let programs = (0..3).map(&mut program).collect();
        let config = Config { name: "three drawn", programs, attempts: 1, evictions: 0, hardware };
        let found = explore(&config, None);
        assert_eq!(found.wrong, None, "{config:?}");
        states += found.states;
        ends += found.ends;
    }
    println!("{states} states, {ends} ends");
}

#[test]
fn chosen_transactions_are_serializable_in_every_interleaving() {
    for config in super::faults::chosen() {
        for hardware in HARDWARE {
            let found = explore(&Config { hardware, ..config.clone() }, None);
            assert_eq!(found.wrong, None, "{config:?}");
            assert!(found.all_committed > 0, "{config:?}");
            if config.name == "disjoint" {
                let conflict = found.all_committed < found.ends;
                assert_eq!(conflict, hardware != Hardware::Ample, "only the hardware makes them conflict");
            }
            let Found { states, ends, all_committed, none_committed, mutual, .. } = found;
            println!(
                "{}, {hardware:?}: {states} states, {ends} ends, {all_committed} with all committed, {none_committed} with none, \
                 {mutual} after squashing each other",
                config.name
            );
        }
    }
}
