//! Chosen transactions, and the faults that the exploration must find in them.

use super::{
    super::mutation::Mutation::{self, *},
    explore::explore,
    world::{
        At, Config, Hardware,
        Op::{self, Fill, Read, Record, Write},
        Program,
    },
};

const A: At = (0, 0);
const A2: At = (0, 1);
const B: At = (1, 0);
const B2: At = (1, 1);

fn config<const N: usize>(name: &'static str, programs: [(usize, usize, &[Op]); N]) -> Config {
    let programs = programs.map(|(home, core, ops)| Program { home, core, ops: ops.to_vec() });
    Config { name, programs: programs.to_vec(), attempts: 1, evictions: 0, hardware: Hardware::Ample }
}

/// Transactions of interest: two or three on two nodes, and two on the third of three.
pub(super) fn chosen() -> Vec<Config> {
    vec![
        config("write skew", [(0, 0, &[Read(A), Fill(B)]), (1, 0, &[Read(B), Fill(A)])]),
        config("partial writes", [(0, 0, &[Write(A), Write(B)]), (1, 0, &[Write(A), Write(B)])]),
        config("whole lines", [(0, 0, &[Fill(B), Fill(B2)]), (1, 0, &[Fill(B), Fill(B2)])]),
        config("a writer and a reader", [(0, 0, &[Fill(A), Fill(B)]), (1, 0, &[Read(B), Read(A)])]),
        config("updates of another node", [(0, 0, &[Fill(B), Fill(B2)]), (1, 0, &[Read(B), Read(B2)])]),
        config("one node", [(0, 0, &[Read(A), Fill(A2)]), (0, 1, &[Read(A2), Fill(A)])]),
        config("disjoint", [(0, 0, &[Write(A), Fill(B)]), (1, 0, &[Read(A2), Fill(B2)])]),
        config("a record", [(0, 0, &[Record]), (1, 0, &[Fill(A), Fill(A2)])]),
        Config { attempts: 2, ..config("tried again", [(0, 0, &[Read(B), Fill(A)]), (1, 0, &[Read(A), Fill(B)])]) },
        Config { evictions: 1, ..config("evicted", [(0, 0, &[Fill(A), Fill(B)]), (1, 0, &[Read(A)])]) },
        Config {
            attempts: 2,
            evictions: 1,
            ..config("evicted and tried again", [(0, 0, &[Fill(A), Fill(B)]), (1, 0, &[Fill(B)])])
        },
        config("before it", [(0, 0, &[Fill(A)]), (0, 1, &[Fill(A), Read(B)]), (1, 0, &[Fill(B)])]),
        config("a third node", [(2, 0, &[Read(A), Fill(B)]), (2, 1, &[Read(B), Fill(A)])]),
        config("one core", [(0, 0, &[Read(A)]), (0, 0, &[Read(A), Read(B)]), (1, 0, &[Fill(A), Fill(B)])]),
        config("three", [(0, 0, &[Read(A), Fill(B)]), (1, 0, &[Read(B), Fill(A)]), (0, 1, &[Read(B), Read(A)])]),
    ]
}

/// Asserts that the exploration finds each fault in the transactions of this name.
fn are_found(faults: &[(Mutation, &str)]) {
    let chosen = chosen();
    for &(fault, name) in faults {
        let config = chosen.iter().find(|config| config.name == name).expect("they are chosen");
        let (wrong, path) = explore(config, Some(fault)).wrong.unwrap_or_else(|| panic!("{fault:?} is not found"));
        println!("{fault:?}, {name}: {wrong}, after {} actions: {path:?}", path.len());
    }
}

/// What the paper's text leaves out, as it would be without our repair.
#[test]
fn each_hole_breaks_something() {
    are_found(&[
        (IntendedNotLocked, "whole lines"),
        (SquashesNotMarked, "partial writes"),
        (LockAndDetectApart, "a third node"),
        (AttemptsNotTold, "evicted and tried again"),
        (CommittedNotSaved, "partial writes"),
        (SpeculativeServed, "partial writes"),
        (RecordedOutlives, "one core"),
        (MessagesUnordered, "partial writes"),
        (DecidedEvicted, "evicted"),
    ]);
}

#[test]
fn each_fault_is_found() {
    are_found(&[
        (RecordedSurvivesSwitch, "one core"),
        (PartialNotInserted, "partial writes"),
        (TagsNotChecked, "before it"),
        (ReadersNotChecked, "one node"),
        (WritesNotChecked, "partial writes"),
        (LocalsNotSquashed, "write skew"),
        (GuestsNotSquashed, "partial writes"),
        (AckWithoutLock, "evicted and tried again"),
        (ReadsNotLocked, "a third node"),
        (FetchPassesLock, "partial writes"),
        (AccessPassesLock, "write skew"),
        (FirstAckDecides, "a third node"),
        (UnlockBeforeUpdates, "write skew"),
        (LocksOutliveSquash, "write skew"),
        (FiltersOutlive, "write skew"),
        (SquashedLinesStay, "partial writes"),
    ]);
}
