//! Power cuts: the simulated disk stops at a random call, and the database is reopened from it.

use drtm_drive::Progress;
use drtm_htm::NoHtm;
use drtm_txn::{
    Config, Durability,
    durability::{
        format::number_of,
        storage::{Fault, Image, Storage as _},
    },
};
use fastrand::Rng;

use super::{
    End,
    book::{Book, Finding},
    life::{Life, NEVER, check, is_stop, open},
    tally::Tally,
};
use crate::Error;

/// The most calls to the disk before it stops. Opening takes about ten, a commit that waits takes
/// two.
const CALLS: u64 = 120;

/// The most bytes of log between checkpoints, if any are made. A transaction logs some hundreds.
const CHECKPOINT_EVERY: u64 = 8 << 10;

/// The approximate number of calls of an opening.
const OPENING: u64 = 16;

/// Part of a checkpoint's file name, also of an unfinished one.
const CHECKPOINT: &str = ".checkpoint";

/// Crashes databases until the end.
pub(super) fn soak<S: Config<Engine = NoHtm>>(seed: u64, end: End) -> Result<Tally, Error> {
    let mut tally = Tally::new("crash", "simulated", seed);
    let _progress = Progress::spinner("crashing");
    while !end.is_over(tally.runs) {
        run::<S>(&mut Rng::with_seed(drtm_drive::scatter::scatter(seed).wrapping_add(tally.runs)), &mut tally)?;
        tally.runs += 1;
    }
    Ok(tally)
}

/// Runs one database through several lives.
fn run<S: Config<Engine = NoHtm>>(random: &mut Rng, tally: &mut Tally) -> Result<(), Error> {
    let (mut disk, mut book) = (Image::default(), Book::default());
    for number in 1..=random.u32(2..=5) {
        let mode = if random.u8(0..4) == 0 { Durability::Async } else { Durability::Sync };
        let (threads, transactions) = (random.u32(1..=3), random.u32(1..=40));
        let checkpoint_every = if random.u8(0..4) == 0 { NEVER } else { random.u64(..CHECKPOINT_EVERY) };
        let life = Life { number, threads, transactions, mode, seed: random.u64(..), checkpoint_every };
        if random.u8(0..6) > 0 {
            disk.fail_at(random.u64(0..CALLS), Fault::Crash);
        }
        let place = format!("life {number} ({mode:?}, {threads} threads)");
        if let Err(error) = life.on::<S>(&disk, NoHtm, &mut book, random.bool()) {
            tally.count(vec![Finding::Anomaly(error.to_string())], &place);
            return Ok(());
        }
        disk = stopped(&disk, random, tally);
        // It may crash repeatedly during recovery.
        while random.bool() {
            disk.fail_at(random.u64(0..OPENING), Fault::Crash);
            match open::<S>(&disk, (Durability::Sync, NEVER), NoHtm) {
                Ok(_) => {}
                Err(error) if is_stop(&error) => {}
                Err(error) => tally.count(vec![Finding::Anomaly(format!("while it recovers: {error}"))], &place),
            }
            disk = stopped(&disk, random, tally);
        }
        tally.count(check::<S>(&disk, NoHtm, &mut book), &place);
        if tally.wrong() > 0 {
            break;
        }
        disk = stopped(&disk, random, tally);
    }
    tally.acknowledged += book.survivors() as u64;
    Ok(())
}

/// Returns the disk after a power cut or, seldom, after a kill of the process.
fn stopped(disk: &Image, random: &mut Rng, tally: &mut Tally) -> Image {
    let left = what_is_left(disk, random, tally);
    if let Ok(names) = left.list() {
        tally.checkpoints += u64::from(names.iter().any(|name| number_of(name).is_some()));
        let is_unfinished = |name: &String| name.contains(CHECKPOINT) && number_of(name).is_none();
        tally.unfinished_checkpoints += u64::from(names.iter().any(is_unfinished));
    }
    left
}

fn what_is_left(disk: &Image, random: &mut Rng, tally: &mut Tally) -> Image {
    if random.u8(0..5) == 0 {
        tally.kills += 1;
        return disk.after_kill();
    }
    tally.crash_points += 1;
    // The disk loses everything unsynced, nothing, or a mixture.
    match random.u8(0..6) {
        0 => disk.after_crash(&mut |most| most - 1),
        1 => disk.after_crash(&mut |_| 0),
        _ => disk.after_crash(&mut |most| random.u64(0..most)),
    }
}
