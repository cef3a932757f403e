//! Waiting, refusals, and hardware that runs out.

use super::super::{Fetch, TxId};
use super::super::{
    Filter, Kind, Line, MachineProfile, Message, Node, Progress, Served, Shape, Stop, Stopped,
    mutation::{self, Mutation},
};
use crate::NodeId;

fn node(profile: &MachineProfile) -> Node {
    Node::new(NodeId(0), profile)
}

/// A transaction of node 1.
fn guest(slot: u16) -> TxId {
    TxId { node: NodeId(1), slot, attempt: 1 }
}

#[test]
fn a_guest_without_filters_is_squashed_until_another_one_ends() {
    let mut node = node(&MachineProfile { nic_pairs: 1, ..MachineProfile::HADES });
    let [first, second] = [0, 1].map(guest);
    let mut read = |tx| node.fetch(0, tx, Fetch::Read, &[Line(1)]).stop;
    assert_eq!([read(first), read(second)], [None, Some(Stop::Squashed(Stopped::NicFull))]);
    let refused = node.receive(0, &Message::Intend { tx: second, lines: vec![Line(2)] });
    assert_eq!(refused.messages, [(NodeId(1), Message::Squash { tx: second, why: Stopped::NicFull })]);
    assert_eq!(node.receive(0, &Message::Abort { tx: first }).messages, []);
    assert_eq!(node.fetch(0, second, Fetch::Read, &[Line(1)]).stop, None);
}

#[test]
fn a_commit_without_a_locking_buffer_is_squashed() {
    let mut node = node(&MachineProfile { locking_buffers: 1, ..MachineProfile::HADES });
    let [first, second] = [0, 1].map(|core| node.begin(core).expect("filters are free"));
    assert_eq!(node.access(0, first, Line(1), Kind::Read).stop, None);
    assert_eq!(node.access(0, second, Line(2), Kind::Read).stop, None);
    assert_eq!(node.hold(first, &[Line(1)]).stop, None);
    assert_eq!(node.hold(second, &[Line(2)]).stop, Some(Stop::Denied), "a read can wait");
    assert_eq!(node.commit_step(second).progress, Progress::Stopped(Stop::Squashed(Stopped::Locked)));
    let asked = node.receive(0, &Message::Intend { tx: guest(0), lines: vec![Line(3)] });
    assert_eq!(asked.progress, Progress::Stopped(Stop::Squashed(Stopped::Locked)));
}

#[test]
fn a_denied_fetch_and_a_denied_intent_leave_nothing() {
    let mut node = node(&MachineProfile::HADES);
    let tx = node.begin(0).expect("filters are free");
    assert_eq!(node.access(0, tx, Line(1), Kind::Write).stop, None);
    assert_eq!(node.commit_step(tx).progress, Progress::Continues, "it has locked");
    assert_eq!(node.fetch(0, guest(0), Fetch::Read, &[Line(1)]).stop, Some(Stop::Denied));
    let reader = node.begin(1).expect("filters are free");
    assert_eq!(node.hold(reader, &[Line(2)]).stop, None);
    let intend = Message::Intend { tx: guest(0), lines: vec![Line(2)] };
    assert_eq!(node.receive(0, &intend).progress, Progress::Stopped(Stop::Denied));
    assert!(node.nic.guests.is_empty());
    node.release(reader);
    assert_eq!(node.receive(0, &intend).messages, [(NodeId(1), Message::Ack { tx: guest(0), from: NodeId(0) })]);
}

#[test]
fn the_end_of_a_read_does_not_unlock_a_commit() {
    let mut node = node(&MachineProfile::HADES);
    let [tx, other] = [0, 1].map(|core| node.begin(core).expect("filters are free"));
    assert_eq!(node.access(0, tx, Line(1), Kind::Write).stop, None);
    node.record(tx, NodeId(1), &[]);
    assert_eq!(node.commit_step(tx).progress, Progress::Waits);
    node.release(tx);
    assert_eq!(node.access(0, other, Line(1), Kind::Read).stop, Some(Stop::Denied));
}

/// Returns a line, and two others with which a core's write filter has the line, too.
fn blurred() -> (Line, [Line; 2]) {
    let MachineProfile { read_bits, write_bits: (hashed, indexed), .. } = MachineProfile::HADES;
    let line = Line(7);
    let same_index = Line(7 + u64::from(indexed));
    let is_found = |same_hash: &Line| {
        let mut writes = Filter::new(Shape::Split { hashed, indexed });
        let mut reads = Filter::new(Shape::Hashed { bits: read_bits });
        [same_index, *same_hash].into_iter().for_each(|line| writes.add(line));
        reads.add(line);
        writes.may_have(line) && ![same_index, *same_hash].iter().any(|&line| reads.may_have(line))
    };
    (line, [same_index, (8..4_000).map(Line).find(is_found).expect("one of 512 has the hash's bit")])
}

#[test]
fn a_held_line_is_not_denied_by_a_later_lock() {
    let (held, written) = blurred();
    let run = || -> [Served; 2] {
        let mut node = node(&MachineProfile::HADES);
        let [holder, reader, writer] = [0, 1, 2].map(|core| node.begin(core).expect("filters are free"));
        assert_eq!(node.hold(holder, &[held]).stop, None);
        assert!(written.iter().all(|&line| node.access(0, writer, line, Kind::Write).stop.is_none()));
        assert_eq!(node.commit_step(writer).progress, Progress::Continues, "it has locked");
        [holder, reader].map(|tx| node.access(0, tx, held, Kind::Read))
    };
    let denied = Some(Stop::Denied);
    assert_eq!(run().map(|served| served.stop), [None, denied], "a false positive");
    let with_fault = mutation::with_fault(Some(Mutation::HoldsMeetLaterLocks), run);
    assert_eq!(with_fault.map(|served| served.stop), [denied; 2]);
}
