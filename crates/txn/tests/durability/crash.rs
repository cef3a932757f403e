//! Crash images: a run stops at each call to the disk, and what is left of it is opened again, twice.

use drtm_htm::NoHtm;
use drtm_testing::rounds;
use drtm_txn::{
    Setting,
    durability::storage::{Fault, Image},
};

use super::{Faulty, Rows, Sound, Tables, open};

/// Transactions in a run, between restarts.
const RUN: u64 = 8;

/// What a run has left.
struct Left {
    /// All rows after each transaction that may have happened, beginning with the last that was acknowledged.
    possible: Vec<Rows>,
}

/// Runs transactions until the disk stops, or all have been run. `rows` are there at first.
fn run<S: Setting<Engine = NoHtm>>(disk: &Image, seed: u64, possible: Vec<Rows>) -> Result<Left, String> {
    let Ok(db) = open::<S>(disk) else { return Ok(Left { possible }) };
    // Tables may fail to be made, and the rows are unchanged then.
    let Ok(tables) = Tables::of(&db) else { return Ok(Left { possible }) };
    let Ok(mut rows) = tables.rows() else { return Ok(Left { possible }) };
    if !possible.contains(&rows) {
        return Err(format!("recovered {rows:?}\nwhich is none of {possible:?}"));
    }
    for number in 0..RUN {
        let before = rows.clone();
        if tables.run(seed.wrapping_mul(1_000) + number, &mut rows).is_err() {
            return Ok(Left { possible: vec![before, rows] });
        }
    }
    Ok(Left { possible: vec![rows] })
}

/// Runs with a crash at a call, and then another at a call of what follows; opens what is left.
fn check<S: Setting<Engine = NoHtm>>(seed: u64, first: u64, second: u64) -> Result<(), String> {
    let mut random = fastrand::Rng::with_seed(seed ^ first << 32 ^ second << 48);
    let mut choose = |most| random.u64(0..most);
    let disk = Image::default();
    disk.fail_at(first, Fault::Crash);
    let left = run::<S>(&disk, seed, vec![Rows::none()])?;
    let disk = disk.after_crash(&mut choose);
    disk.fail_at(second, Fault::Crash);
    let left = run::<S>(&disk, seed + 1, left.possible)?;
    let disk = if seed.is_multiple_of(4) { disk.after_kill() } else { disk.after_crash(&mut choose) };
    // Without another crash all of it must succeed.
    let left = run::<S>(&disk, seed + 2, left.possible)?;
    let db = open::<S>(&disk.after_kill()).map_err(|error| error.to_string())?;
    let rows = Tables::of(&db).and_then(|tables| tables.rows()).map_err(|error| error.to_string())?;
    let is_possible = left.possible.len() == 1 && left.possible.contains(&rows);
    if is_possible { Ok(()) } else { Err(format!("{rows:?}\ninstead of {:?}", left.possible)) }
}

/// Checks runs that crash at every call, each with some second crash.
fn check_all<S: Setting<Engine = NoHtm>>(seeds: u64) -> Result<u64, String> {
    let mut images = 0;
    for seed in 0..seeds {
        let disk = Image::default();
        run::<S>(&disk, seed, vec![Rows::none()])?;
        let calls = disk.calls();
        for first in 0..=calls {
            check::<S>(seed, first, fastrand::Rng::with_seed(seed * 1_000 + first).u64(0..calls))
                .map_err(|why| format!("seed {seed}, call {first}: {why}"))?;
            images += 2;
        }
    }
    Ok(images)
}

#[test]
fn what_was_acknowledged_survives_every_crash_and_nothing_in_part() {
    let images = check_all::<Sound>(rounds(40)).unwrap_or_else(|why| panic!("{why}"));
    assert!(images > 2_000, "{images} images");
}

#[test]
fn crash_images_notice_removals_that_are_dropped_early() {
    assert!(check_all::<Faulty<1>>(20).is_err());
}

#[test]
fn crash_images_notice_a_number_that_is_not_restored() {
    assert!(check_all::<Faulty<2>>(20).is_err());
}

#[test]
fn crash_images_notice_a_directory_that_is_not_synced() {
    assert!(check_all::<Faulty<5>>(20).is_err());
}
