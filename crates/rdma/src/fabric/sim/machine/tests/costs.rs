//! The cycles of short sequences, computed by hand from Table III, and the storage of section VI.

use super::super::{Fetch, Kind, Line, MachineProfile, Message, Node, Progress, Storage};
use crate::NodeId;

fn nodes() -> [Node; 2] {
    [0, 1].map(|id| Node::new(NodeId(id), &MachineProfile::HADES))
}

#[test]
fn accesses_cost_what_their_level_does() {
    let [mut node, _] = nodes();
    let tx = node.begin(0).expect("filters are free");
    let mut cost = |now, line, kind| node.access(now, tx, Line(line), kind).cycles;
    // The directory, 40; the hash, 2; memory, 200.
    assert_eq!(cost(0, 1, Kind::Read), 242);
    assert_eq!(cost(1_000, 1, Kind::Read), 2, "first level");
    assert_eq!(cost(1_000, 1, Kind::Write), 42, "the directory must know of the write");
    assert_eq!([cost(1_000, 1, Kind::Write), cost(1_000, 1, Kind::Read)], [2, 2]);
    // Eight lines more in the same set of 8 ways of the first level, and not of the second.
    for line in 1..=8 {
        assert_eq!(cost(1_000 * (line + 1), 1 + 128 * line, Kind::Read), 242);
    }
    assert_eq!(cost(10_000, 1, Kind::Write), 12, "second level");
    // Lines 4 apart share one of 4 channels, for 8 cycles each.
    assert_eq!([cost(20_000, 2, Kind::Read), cost(20_000, 6, Kind::Read)], [242, 250]);
    assert_eq!(cost(20_000, 3, Kind::Read), 242, "another channel");
}

#[test]
fn another_transaction_s_line_is_in_the_last_level() {
    let [mut node, _] = nodes();
    let (first, second) = (node.begin(0).expect("filters are free"), node.begin(1).expect("filters are free"));
    assert_eq!(node.access(0, first, Line(1), Kind::Read).cycles, 242);
    assert_eq!(node.access(0, second, Line(1), Kind::Read).cycles, 42);
}

#[test]
fn a_switch_of_transactions_clears_what_is_recorded() {
    let [mut node, _] = nodes();
    let (first, second) = (node.begin(0).expect("filters are free"), node.begin(0).expect("filters are free"));
    let mut read = |tx| node.access(0, tx, Line(1), Kind::Read).cycles;
    assert_eq!([read(first), read(first), read(second), read(second), read(first)], [242, 2, 42, 2, 42]);
}

#[test]
fn the_steps_of_a_commit_cost_what_they_do() {
    let [mut own, mut other] = nodes();
    let tx = own.begin(0).expect("filters are free");
    for line in 0..5 {
        assert_eq!(own.access(0, tx, Line(line), Kind::Write).stop, None);
    }
    // A range of three lines: the first and the last are written in part.
    own.record(tx, NodeId(1), &[Line(7), Line(8), Line(9)]);
    // Two addresses hashed, 4; the locking buffer, 40; two lines of the directory, 42; memory, 200.
    assert_eq!(other.fetch(0, tx, Fetch::Write, &[Line(7), Line(9)]).cycles, 286);

    // Five lines are found, 120; compared to the locks, 10; the buffer, 40; the NIC, 10.
    let asked = own.commit_step(tx);
    assert_eq!((asked.cycles, asked.progress), (180, Progress::Waits));
    // Three addresses compared to the locks, 6; the buffer, 40; compared to all filters, 6.
    let answer = other.receive(0, &asked.messages[0].1);
    assert_eq!(answer.cycles, 52);
    assert_eq!(own.receive(0, &answer.messages[0].1).cycles, 0, "the NIC's own");
    assert_eq!(own.commit_step(tx).progress, Progress::Decided);
    let ended = own.commit_step(tx);
    assert_eq!((ended.cycles, ended.progress), (120, Progress::Committed), "five tags are cleared");
    assert_eq!(ended.messages, [(NodeId(1), Message::Validate { tx })]);
    // Three lines one after the other: 40, 2, 2.
    assert_eq!(other.receive(0, &ended.messages[0].1).cycles, 44);
}

#[test]
fn the_storage_is_that_of_section_6() {
    let parts = |storage: Storage| (storage.core_pairs, storage.nic_pairs, storage.entries, storage.tag_bits);
    let small = Storage::of(&MachineProfile::HADES);
    assert_eq!(parts(small), (10, 40, 10, 4));
    assert_eq!(parts(Storage::of(&MachineProfile::cluster(90, 16, 5))), (32, 160, 32, 5));
    // The parts: 704 bytes are 0.7 KB, 256 bytes 0.25 KB.
    assert_eq!([small.core_bits / 8, small.nic_bits / 8], [704, 256]);
}
