//! Deliberate faults, which the comparison with a serial run finds.

use super::Case;
use crate::mutation::Mutation;

fn finds(fault: Mutation) -> bool {
    (0..40).any(|seed| {
        let case = Case { nodes: 3, workers: 3, batch: 12, epochs: 3, keys: 5, inputs: seed };
        match case.run(seed, Some(fault)) {
            Ok(outcome) => case.differs(&outcome).is_some(),
            Err(_) => true,
        }
    })
}

#[test]
fn a_lock_that_is_granted_out_of_order_is_found() {
    assert!(finds(Mutation::LastComesFirst));
    assert!(finds(Mutation::WritersShare));
}

#[test]
fn rows_that_are_not_awaited_are_found() {
    assert!(finds(Mutation::ReadsNotAwaited));
}

#[test]
fn an_abort_that_leaves_something_is_found() {
    assert!(finds(Mutation::AbortsWrite));
}

#[test]
fn batches_that_are_not_awaited_are_found() {
    assert!(finds(Mutation::BatchesNotAwaited));
}
