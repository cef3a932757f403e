//! The simulated register, and faults that histories must show.

use std::{sync::Arc, time::Duration};

use drtm_membership::{Configuration, Error, Membership, Register, RegisterOptions, mutation::Mutation};

use crate::{
    driver::{self, Scene},
    history::{History, Summary},
};

/// Virtual time, which steps from event to event.
struct Simulated(Register, u64);

impl Scene for Simulated {
    fn now(&self) -> u64 {
        self.1
    }

    fn step(&mut self) {
        let step = Duration::from_nanos(self.1) + Duration::from_micros(20);
        self.0.advance(step);
        self.1 = step.as_nanos() as u64;
    }
}

fn options(seed: u64, fault: Option<Mutation>) -> RegisterOptions {
    let mut options = RegisterOptions::default();
    options.seed = seed;
    options.fault = fault;
    if !seed.is_multiple_of(4) {
        options.lost = 0.1;
        options.repeated = 0.2;
    }
    if seed.is_multiple_of(3) {
        options.reign = Some(Duration::from_millis(10));
    }
    if seed.is_multiple_of(5) {
        options.delay = Duration::from_micros(10)..=Duration::from_millis(15);
    }
    options
}

fn history(seed: u64, fault: Option<Mutation>) -> Result<History, String> {
    let register = Register::new(options(seed, fault));
    let members = (0..4).map(|_| Arc::new(register.client()) as Arc<dyn Membership>).collect();
    driver::run(members, &mut Simulated(register, 0), 40, seed)
}

#[test]
fn histories_are_linearizable() {
    let mut whole = Summary::default();
    for seed in 0..drtm_testing::rounds(300) {
        let summary = history(seed, None).and_then(|history| history.judge());
        let summary = summary.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        whole.replaced += summary.replaced;
        whole.outdated += summary.outdated;
        whole.unknown += summary.unknown;
        whole.unavailable += summary.unavailable;
    }
    // Everything that can come out did.
    assert!(
        whole.replaced > 100 && whole.outdated > 100 && whole.unknown > 100 && whole.unavailable > 100,
        "{whole:?}"
    );
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    for seed in [1, 15] {
        assert_eq!(history(seed, None), history(seed, None));
    }
    assert_ne!(history(1, None), history(2, None));
}

#[test]
fn faults_are_found() {
    let faults = [
        Mutation::OldNumberAccepted,
        Mutation::RepeatsForgotten,
        Mutation::LostTakenForRefused,
        Mutation::WatchGoesBack,
    ];
    for fault in faults {
        let is_found = |seed| history(seed, Some(fault)).and_then(|history| history.judge()).is_err();
        let found = (0..100).filter(|seed| is_found(*seed)).count();
        assert!(found > 5, "{fault:?} is found by {found} of 100 seeds");
    }
}

#[test]
fn a_node_that_is_cut_off_keeps_what_it_knows_and_catches_up() {
    let register = Register::new(RegisterOptions::default());
    let (cut, other) = (register.client(), register.client());
    let until = |moment: u64| register.advance(Duration::from_millis(moment));
    let mut first = other.replace(0, b"one");
    until(20);
    let first = first.take().expect("an answer").expect("the first");
    assert_eq!(cut.known(), first);
    cut.set_reachable(false);
    let (mut read, mut replace) = (cut.read(), cut.replace(1, b"lost"));
    let mut second = other.replace(1, b"two");
    until(40);
    let second = second.take().expect("an answer").expect("the second");
    assert!(matches!(read.take(), Some(Err(Error::Unavailable { .. }))));
    assert!(matches!(replace.take(), Some(Err(Error::Unknown { .. }))));
    assert_eq!(cut.known(), first);
    let mut watch = cut.watch(1);
    cut.set_reachable(true);
    until(60);
    assert_eq!(watch.take(), Some(Ok(second.clone())));
    let mut late = cut.replace(1, b"late");
    until(80);
    assert_eq!(late.take(), Some(Err(Error::Outdated { current: second })));
}

#[test]
fn limits_hold() {
    let register = Register::new(RegisterOptions::default());
    let wait = |mut answer: drtm_membership::Answer<Configuration>| loop {
        if let Some(outcome) = answer.take() {
            return outcome;
        }
        register.advance(register.next_event().expect("it is under way"));
    };
    crate::limits(&register.client(), wait);
}
