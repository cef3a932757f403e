//! Deliberate faults, each of which a checker must find.

use drtm_bench::history::{Anomaly, CycleKind};
use drtm_testing::rounds;
use drtm_txn::Mutation;

use crate::{
    bed::{Bed, Fault},
    history::{SIZES, anomalies},
};

macro_rules! faults {
    ($($fault:ident),+) => {$(
        #[derive(Debug)]
        struct $fault;

        impl Fault for $fault {
            const FAULT: Option<Mutation> = Some(Mutation::$fault);
        }
    )+};
}

faults!(CommitWithoutValidation, CommitDespitePhantoms);

/// Runs random transactions until an anomaly is found that is expected.
fn finds<T: Fault>(is_expected: impl Fn(&Anomaly<u64>) -> bool) {
    let found = (0..rounds(60)).any(|seed| {
        let all = anomalies::<T>(&Bed::simulated(seed), SIZES[0], 3, 40, seed);
        all.iter().any(&is_expected)
    });
    assert!(found, "nothing that is expected of {:?}", T::FAULT);
}

fn is_cycle(anomaly: &Anomaly<u64>, kinds: &[CycleKind]) -> bool {
    matches!(anomaly, Anomaly::Cycle(cycle) if kinds.contains(&cycle.kind))
}

#[test]
fn commits_without_validation_are_found() {
    finds::<CommitWithoutValidation>(|anomaly| {
        is_cycle(anomaly, &[CycleKind::LostUpdate, CycleKind::GSingle, CycleKind::G2])
    });
}

#[test]
fn commits_despite_phantoms_are_found() {
    finds::<CommitDespitePhantoms>(|anomaly| is_cycle(anomaly, &[CycleKind::G2, CycleKind::GSingle]));
}
