//! Disk faults: each call fails in turn, while the machine continues.

use drtm_drive::Progress;
use drtm_htm::NoHtm;
use drtm_txn::{
    Config, Durability,
    durability::storage::{Fault, Image},
};
use fastrand::Rng;

use super::{
    End,
    book::{Book, Finding},
    life::{Ended, Life, NEVER, check},
    tally::Tally,
};
use crate::Error;

const KINDS: [(&str, Fault); 3] = [("no-space", Fault::NoSpace), ("device", Fault::Device), ("short", Fault::Short)];

/// Injects faults until the end: each kind into all calls of a life, then into those of another.
pub(super) fn soak<S: Config<Engine = NoHtm>>(seed: u64, end: End) -> Result<Tally, Error> {
    let mut tally = Tally::new("io-faults", "simulated", seed);
    let _progress = Progress::spinner("failing");
    let mut round = 0;
    loop {
        let round_seed = drtm_drive::scatter::scatter(seed).wrapping_add(round);
        let calls = calls::<S>(round_seed)?;
        for call in 0..calls {
            for (name, fault) in KINDS {
                if end.is_over(tally.runs) {
                    return Ok(tally);
                }
                run::<S>(round_seed, (call, fault), &mut tally)?;
                *tally.faults.entry(name).or_default() += 1;
                tally.runs += 1;
            }
        }
        round += 1;
    }
}

/// Returns a life on a disk with an earlier life.
fn second_life(seed: u64, mode: Durability) -> Life {
    Life { number: 2, threads: 1, transactions: 12, mode, seed: seed.wrapping_add(1), checkpoint_every: NEVER }
}

fn mode(seed: u64) -> Durability {
    if seed.is_multiple_of(4) { Durability::Async } else { Durability::Sync }
}

/// Returns the disk of an undisturbed life whose process was killed.
fn prepared<S: Config<Engine = NoHtm>>(seed: u64) -> Result<(Image, Book), Error> {
    let (disk, mut book) = (Image::default(), Book::default());
    let life = Life { number: 1, threads: 1, transactions: 20, mode: Durability::Sync, seed, checkpoint_every: NEVER };
    life.on::<S>(&disk, NoHtm, &mut book, false)?;
    let disk = disk.after_kill();
    Ok((disk, book))
}

/// Returns the number of calls of the second life, its close included.
fn calls<S: Config<Engine = NoHtm>>(seed: u64) -> Result<u64, Error> {
    let (disk, mut book) = prepared::<S>(seed)?;
    second_life(seed, mode(seed)).on::<S>(&disk, NoHtm, &mut book, true)?;
    Ok(disk.calls())
}

fn run<S: Config<Engine = NoHtm>>(seed: u64, (call, fault): (u64, Fault), tally: &mut Tally) -> Result<(), Error> {
    let (disk, mut book) = prepared::<S>(seed)?;
    let mode = mode(seed);
    disk.fail_at(call, fault);
    let place = format!("{fault:?} at call {call} ({mode:?})");
    match second_life(seed, mode).on::<S>(&disk, NoHtm, &mut book, true) {
        Ok(Ended::Stopped) if fault == Fault::Short => {
            tally.count(vec![Finding::Anomaly("a write in two parts has stopped the log".to_owned())], &place);
        }
        Ok(_) => {}
        Err(error) => tally.count(vec![Finding::Anomaly(error.to_string())], &place),
    }
    let mut random = Rng::with_seed(seed ^ call << 8);
    let disk = if random.bool() { disk.after_kill() } else { disk.after_crash(&mut |most| random.u64(0..most)) };
    tally.count(check::<S>(&disk, NoHtm, &mut book), &place);
    tally.acknowledged += book.survivors() as u64;
    Ok(())
}
