//! Tests that a soak's checks detect rows that were tampered with, and databases with deliberate
//! faults.

use std::time::Instant;

use drtm_drive::{
    Plain,
    faulty::{Faulty, with_fault},
};
use drtm_htm::NoHtm;
use drtm_txn::{Db, Durability, Error as DbError, Mutation, durability::storage::Image};

use super::{
    End,
    book::{Book, Finding},
    crash, faults,
    ledger::{BANK, LISTS, Ledger, ids, note_of},
    life::{Ended, Life, NEVER, open},
};

fn runs(count: u64) -> End {
    End { runs: Some(count), at: Instant::now() }
}

#[test]
fn a_sound_database_passes() {
    let tally = crash::soak::<Plain>(3, runs(100)).expect("nothing but the disk fails");
    assert!(tally.wrong() == 0 && tally.crash_points > 50 && tally.acknowledged > 100, "{tally:?}");
    // About one crash in a hundred hits a checkpoint in progress, so many are needed.
    assert!(tally.checkpoints > 100 && tally.unfinished_checkpoints > 0, "{tally:?}");
    let tally = faults::soak::<Plain>(3, runs(60)).expect("nothing but the disk fails");
    assert!(tally.wrong() == 0 && tally.faults.values().sum::<u64>() == 60 && tally.acknowledged > 100, "{tally:?}");
}

/// Runs a life, changes a row of the recovered database behind the book's back, and returns the
/// findings.
fn tampered(tamper: impl FnOnce(&Db<Plain>, &Ledger) -> Result<(), DbError>) -> Vec<Finding> {
    let (disk, mut book) = (Image::default(), Book::default());
    let life =
        Life { number: 1, threads: 2, transactions: 60, mode: Durability::Sync, seed: 7, checkpoint_every: NEVER };
    assert_eq!(life.on::<Plain>(&disk, NoHtm, &mut book, true).expect("no fault"), Ended::Whole);
    let db = open::<Plain>(&disk, (Durability::Sync, NEVER), NoHtm).expect("no fault");
    let ledger = Ledger::open(&db).expect("no fault");
    assert_eq!(book.check(&db, &ledger).expect("memory"), []);
    assert!(book.survivors() > 60, "{}", book.survivors());
    tamper(&db, &ledger).expect("there is such a row");
    book.check(&db, &ledger).expect("memory")
}

/// Returns the list with the most elements.
fn longest(db: &Db<Plain>, ledger: &Ledger) -> Result<(u32, Vec<u8>), DbError> {
    let lists =
        db.read(|tx| (0..LISTS).map(|list| Ok((list, tx.get(ledger.lists, list)?.unwrap_or_default()))).collect())?;
    let lists: Vec<(u32, Vec<u8>)> = lists;
    Ok(lists.into_iter().max_by_key(|(_, bytes)| bytes.len()).expect("there are lists"))
}

#[test]
fn whatever_is_tampered_with_is_noticed() {
    let is_partial = |findings: &[Finding]| findings.iter().any(|finding| matches!(finding, Finding::Partial(_)));
    let is_lost = |findings: &[Finding]| findings.iter().any(|finding| matches!(finding, Finding::Lost(_)));
    assert_eq!(tampered(|_, _| Ok(())), []);
    let shortened = tampered(|db, ledger| {
        let (list, mut bytes) = longest(db, ledger)?;
        bytes.truncate(bytes.len() - 8);
        db.transact(|tx| tx.put(ledger.lists, list, &bytes))
    });
    assert!(is_partial(&shortened), "{shortened:?}");
    let reordered = tampered(|db, ledger| {
        let (list, mut bytes) = longest(db, ledger)?;
        let first = bytes[..8].to_vec();
        bytes.copy_within(8..16, 0);
        bytes[8..16].copy_from_slice(&first);
        db.transact(|tx| tx.put(ledger.lists, list, &bytes))
    });
    assert!(is_partial(&reordered), "{reordered:?}");
    let gone = tampered(|db, ledger| {
        let last = ids(&longest(db, ledger)?.1).pop().expect("it has elements");
        db.transact(|tx| tx.remove(ledger.journal, last).map(drop))
    });
    assert!(is_partial(&gone) && is_lost(&gone), "{gone:?}");
    let richer =
        tampered(|db, ledger| db.transact(|tx| tx.update(ledger.accounts, 3, |row| row.balance += 1).map(drop)));
    assert!(is_partial(&richer), "{richer:?}");
    let fewer = tampered(|db, ledger| db.transact(|tx| tx.remove(ledger.accounts, BANK - 1).map(drop)));
    assert!(is_partial(&fewer), "{fewer:?}");
    let counted = tampered(|db, ledger| db.transact(|tx| tx.update(ledger.counts, 1, |row| row.made -= 1).map(drop)));
    assert!(is_partial(&counted), "{counted:?}");
    let noted = tampered(|db, ledger| {
        let list = longest(db, ledger)?.0;
        db.transact(|tx| tx.put(ledger.notes, note_of(list), b"another"))
    });
    assert!(is_partial(&noted), "{noted:?}");
}

/// Returns whether a soak detects a database with a deliberate fault.
fn is_found_out(fault: Mutation) -> bool {
    let soak = |seed| crash::soak::<Faulty>(seed, runs(10)).is_ok_and(|tally| tally.wrong() > 0);
    with_fault(fault, || (0..40).any(soak))
}

#[test]
fn databases_with_deliberate_faults_are_found_out() {
    assert!(is_found_out(Mutation::RemovalsDropped), "removals that recovery forgets");
    assert!(is_found_out(Mutation::NumberNotRestored), "a number that recovery does not restore");
    assert!(is_found_out(Mutation::DirectoryNotSynced), "a segment's name that is not synced");
    assert!(is_found_out(Mutation::SegmentsRemovedTooFar), "segments that a checkpoint removes too early");
}
