//! Crash images: a run stops at each call to the disk, and the database is reopened twice from what
//! is left.

use std::sync::Arc;

use drtm_htm::NoHtm;
use drtm_testing::rounds;
use drtm_txn::{
    Durability, Mutation,
    durability::storage::{self, Image},
};
use parking_lot::Mutex;

use super::{Rows, Sound, Tables, hooked::Hooked, open_with, with};

/// Transactions of a run, between restarts.
const RUN: u64 = 8;

/// The result of a run.
struct Left {
    /// The rows after each transaction that may have committed, beginning with the last
    /// acknowledged one.
    possible: Vec<Rows>,
}

/// A fault of the database, if any.
type Fault = Option<Mutation>;

/// Events of a run beside its transactions.
#[derive(Clone, Copy, Debug)]
enum Beside {
    Nothing,
    /// Checkpoints with concurrent transactions. Those that wait for durability fill segments;
    /// those that do not make a checkpoint meet commits that are not durable.
    Checkpoints(Durability),
}

/// The progress of a run's transactions.
struct State {
    rows: Rows,
    /// The states that can survive: the last durable rows, and all later ones.
    possible: Vec<Rows>,
    has_failed: bool,
    /// The seed of the next transaction.
    next: u64,
}

impl State {
    /// Runs a transaction, unless one has failed. Returns whether none has.
    fn go_on(&mut self, tables: &Tables<'_>, durability: Durability) -> bool {
        if self.has_failed {
            return false;
        }
        self.next += 1;
        self.has_failed = tables.run_as(durability, self.next, &mut self.rows).is_err();
        if durability == Durability::Sync && !self.has_failed {
            self.possible.clear();
        }
        self.possible.push(self.rows.clone());
        !self.has_failed
    }
}

/// Runs transactions until the disk stops, or all are done. Before them, the rows are one of
/// `possible`.
fn run(disk: &Image, (beside, fault): (Beside, Fault), seed: u64, possible: Vec<Rows>) -> Result<Left, String> {
    let hooked = Hooked::new(disk);
    let builder = with(hooked.builder(Durability::Sync), fault);
    let Ok(db) = builder.build_with::<Sound>(NoHtm) else { return Ok(Left { possible }) };
    // Creating tables may fail; the rows are unchanged then.
    let Ok(tables) = Tables::of(&db) else { return Ok(Left { possible }) };
    let Ok(rows) = tables.rows() else { return Ok(Left { possible }) };
    if !possible.contains(&rows) {
        return Err(format!("recovered {rows:?}\nwhich is none of {possible:?}"));
    }
    let possible = vec![rows.clone()];
    let state = State { rows, possible, has_failed: false, next: seed.wrapping_mul(1_000) };
    let state = Arc::new(Mutex::new(state));
    for number in 0..RUN {
        if !state.lock().go_on(&tables, Durability::Sync) {
            break;
        }
        if let Beside::Checkpoints(durability) = beside
            && (seed + number).is_multiple_of(3)
        {
            let (state, other, pairs, texts) = (Arc::clone(&state), db.clone(), tables.pairs, tables.texts);
            hooked.before_writes(move || {
                state.lock().go_on(&Tables { db: &other, pairs, texts }, durability);
            });
            let made = db.checkpoint();
            hooked.no_more();
            // A failed checkpoint leaves the log as it was, unless the disk has stopped.
            if made.is_err() {
                break;
            }
        }
    }
    state.lock().go_on(&tables, Durability::Sync);
    let possible = state.lock().possible.clone();
    Ok(Left { possible })
}

/// Runs with a crash at a call, then with another crash, and reopens the database.
fn check(how: (Beside, Fault), seed: u64, first: u64, second: u64) -> Result<(), String> {
    let mut random = fastrand::Rng::with_seed(seed ^ first << 32 ^ second << 48);
    let mut choose = |most| random.u64(0..most);
    let disk = Image::recycling();
    disk.fail_at(first, storage::Fault::Crash);
    let left = run(&disk, how, seed, vec![Rows::none()])?;
    let disk = disk.after_crash(&mut choose);
    disk.fail_at(second, storage::Fault::Crash);
    let left = run(&disk, how, seed + 1, left.possible)?;
    let disk = if seed.is_multiple_of(4) { disk.after_kill() } else { disk.after_crash(&mut choose) };
    // Without another crash everything must succeed.
    let left = run(&disk, how, seed + 2, left.possible)?;
    let db = open_with(&disk.after_kill(), how.1).map_err(|error| error.to_string())?;
    let rows = Tables::of(&db).and_then(|tables| tables.rows()).map_err(|error| error.to_string())?;
    let is_possible = left.possible.len() == 1 && left.possible.contains(&rows);
    if is_possible { Ok(()) } else { Err(format!("{rows:?}\ninstead of {:?}", left.possible)) }
}

/// Checks runs that crash at every call, each with some second crash.
fn check_all(how: (Beside, Fault), seeds: u64) -> Result<u64, String> {
    let mut images = 0;
    for seed in 0..seeds {
        let disk = Image::default();
        run(&disk, how, seed, vec![Rows::none()])?;
        let calls = disk.calls();
        for first in 0..=calls {
            check(how, seed, first, fastrand::Rng::with_seed(seed * 1_000 + first).u64(0..calls))
                .map_err(|why| format!("seed {seed}, call {first}: {why}"))?;
            images += 2;
        }
    }
    Ok(images)
}

#[test]
fn what_was_acknowledged_survives_every_crash_and_nothing_in_part() {
    let images = check_all((Beside::Nothing, None), rounds(20)).unwrap_or_else(|why| panic!("{why}"));
    assert!(images > 1_000, "{images} images");
}

const WAITING: Beside = Beside::Checkpoints(Durability::Sync);
const NOT_WAITING: Beside = Beside::Checkpoints(Durability::Async);

#[test]
fn so_it_does_while_checkpoints_are_made() {
    let check = |beside| check_all((beside, None), rounds(6)).unwrap_or_else(|why| panic!("{why}"));
    let images = check(WAITING) + check(NOT_WAITING);
    assert!(images > 2_000, "{images} images");
}

#[test]
fn crash_images_notice_removals_that_are_dropped_early() {
    assert!(check_all((Beside::Nothing, Some(Mutation::RemovalsDropped)), 20).is_err());
}

#[test]
fn crash_images_notice_a_number_that_is_not_restored() {
    assert!(check_all((Beside::Nothing, Some(Mutation::NumberNotRestored)), 20).is_err());
}

#[test]
fn crash_images_notice_a_directory_that_is_not_synced() {
    assert!(check_all((Beside::Nothing, Some(Mutation::DirectoryNotSynced)), 20).is_err());
}

#[test]
fn crash_images_notice_recycled_frames_that_are_believed() {
    assert!(check_all((NOT_WAITING, Some(Mutation::RecycledBelieved)), 20).is_err());
}

#[test]
fn crash_images_notice_a_checkpoint_that_counts_too_early() {
    assert!(check_all((NOT_WAITING, Some(Mutation::CheckpointTooEarly)), 20).is_err());
}

#[test]
fn crash_images_notice_segments_that_are_removed_beside_a_checkpoint_that_needs_them() {
    assert!(check_all((WAITING, Some(Mutation::SegmentsRemovedTooFar)), 20).is_err());
}
