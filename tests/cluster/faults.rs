//! Deliberate faults, each of which a checker must find.

use std::{panic::catch_unwind, sync::mpsc, thread, time::Duration};

use drtm_history::{Anomaly, CycleKind};
use drtm_testing::rounds;
use drtm_txn::{Mutation, cluster::Protocol};

use crate::{
    bed::{Bed, Setup, Size},
    history::{SIZES, anomalies},
};

/// How long a run may take that usually takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs random transactions until an anomaly is found that is expected.
fn finds(fault: Mutation, protocol: Protocol, is_expected: impl Fn(&Anomaly<u64>) -> bool) {
    finds_on(fault, Bed::atomic, protocol, is_expected);
}

fn finds_on(
    fault: Mutation,
    bed: impl Fn(u64) -> Bed,
    protocol: Protocol,
    is_expected: impl Fn(&Anomaly<u64>) -> bool,
) {
    let found = (0..rounds(100)).any(|seed| {
        let size = Size { protocol, ..SIZES[0] };
        let bed = bed(seed);
        let run = move || Setup::faulty(fault).run(|| anomalies(&bed, size, 2 + seed % 3, 40, seed));
        let (tell, told) = mpsc::channel();
        thread::spawn(move || tell.send(catch_unwind(run)));
        // An owner may notice before the checker does: it refuses what cannot be, or waits for a
        // lock that a handler has left behind when it panicked.
        match told.recv_timeout(PATIENCE) {
            Ok(Ok(all)) => all.iter().any(&is_expected),
            Ok(Err(_)) | Err(_) => true,
        }
    });
    assert!(found, "nothing that is expected of {fault:?}");
}

fn is_any(_anomaly: &Anomaly<u64>) -> bool {
    true
}

fn is_cycle(anomaly: &Anomaly<u64>, kinds: &[CycleKind]) -> bool {
    matches!(anomaly, Anomaly::Cycle(cycle) if kinds.contains(&cycle.kind))
}

#[test]
fn commits_without_validation_are_found() {
    for protocol in [Protocol::FASST, Protocol::DRTM_H] {
        finds(Mutation::CommitWithoutValidation, protocol, |anomaly| {
            is_cycle(anomaly, &[CycleKind::LostUpdate, CycleKind::GSingle, CycleKind::G2])
        });
    }
}

#[test]
fn commits_despite_phantoms_are_found() {
    finds(Mutation::CommitDespitePhantoms, Protocol::FASST, |anomaly| {
        is_cycle(anomaly, &[CycleKind::G2, CycleKind::GSingle])
    });
}

#[test]
fn insertions_over_those_of_others_are_found() {
    finds(Mutation::InsertedOver, Protocol::FASST, is_any);
}

#[test]
fn locks_that_name_workers_only_are_found() {
    for protocol in [Protocol::FASST, Protocol::DRTM_OCC] {
        finds(Mutation::SlotsNotNamed, protocol, is_any);
    }
}

#[test]
fn a_validation_that_overlooks_locks_is_found() {
    finds(Mutation::LocksOverlooked, Protocol::DRTM_OCC, is_any);
}

#[test]
fn a_validation_of_a_stale_location_is_found() {
    finds(Mutation::StaleLocationsBelieved, Protocol::DRTM_OCC, is_any);
}

#[test]
fn an_abort_that_frees_locks_of_others_is_found() {
    for protocol in [Protocol::FASST, Protocol::FARM] {
        finds(Mutation::OthersUnlocked, protocol, is_any);
    }
}

#[test]
fn unvalidated_reads_of_locked_rows_are_found() {
    finds(Mutation::LockedReadsBelieved, Protocol::DRTM_H, is_any);
}

/// A transaction that is told of its commit before its last phase has ended leaves messages behind,
/// which may be lost and must be kept to be sent again, and locks in its name. Both are the next
/// transaction's then. Where nothing is lost, all to one owner stays in order, and hides that.
#[test]
fn buffers_that_are_used_again_behind_a_passive_commit_are_found() {
    finds_on(Mutation::PassiveStatesReused, Bed::of_datagrams, Protocol::DRTM_H, is_any);
}
