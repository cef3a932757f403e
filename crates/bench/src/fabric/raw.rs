//! The floor: what the same memory accesses take without any fabric, and what two threads take to
//! say something and answer.

use std::{
    hint::{black_box, spin_loop},
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Release},
    },
    thread,
    time::{Duration, Instant},
};

use crossbeam_utils::CachePadded;
use drtm_htm::{Engine, NoHtm};
use drtm_rdma::Region;
use hdrhistogram::Histogram;

use super::{
    bed::{BYTES, START, Window, new_histogram},
    names::VerbName,
};
use crate::Error;

/// Operations between two looks at the clock, where many are done at a time.
const SLICE: u64 = 256;

/// Operations of a window: one after the other, each timed; or as many as there is time for.
pub(super) fn measure(verb: VerbName, bytes: usize, window: Window, seed: u64) -> Result<(Histogram<u64>, f64), Error> {
    if verb == VerbName::Message {
        return Ok(ring(window));
    }
    let memory = Region::anonymous(NoHtm, BYTES + (1 << 20))?;
    let start = memory.extend(BYTES, START.bytes())?;
    memory.populate(BYTES)?;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut into = vec![0_u64; bytes.div_ceil(8)];
    let mut access = || -> Result<(), Error> {
        let slots = (BYTES - bytes as u64) / 64;
        let words = memory.words(start + 64 * random.u64(0..slots), bytes.div_ceil(8))?;
        match verb {
            VerbName::Read => {
                for (word, value) in words.iter().zip(&mut into) {
                    *value = NoHtm.load(word);
                }
                black_box(&mut into);
            }
            VerbName::Write => words.iter().zip(&into).for_each(|(word, value)| NoHtm.store(word, *value)),
            VerbName::Cas => drop(black_box(NoHtm.compare_exchange(&words[0], 0, 0))),
            VerbName::Faa => drop(black_box(NoHtm.fetch_add(&words[0], 1))),
            VerbName::Message => {}
        }
        Ok(())
    };
    let mut took = new_histogram();
    until(window.counted, || {
        let before = Instant::now();
        access()?;
        took.saturating_record(before.elapsed().as_nanos() as u64);
        Ok(1)
    })?;
    let rate = until(window.counted, || {
        for _ in 0..SLICE {
            access()?;
        }
        Ok(SLICE)
    })?;
    Ok((took, rate))
}

/// Gives how many a second.
fn until(lasts: Duration, mut some: impl FnMut() -> Result<u64, Error>) -> Result<f64, Error> {
    let (begin, mut done) = (Instant::now(), 0);
    while begin.elapsed() < lasts {
        done += some()?;
    }
    Ok(done as f64 / begin.elapsed().as_secs_f64())
}

/// Two threads that spin: one publishes a number, the other answers with it.
fn ring(window: Window) -> (Histogram<u64>, f64) {
    let (question, answer) = (CachePadded::new(AtomicU64::new(0)), CachePadded::new(AtomicU64::new(0)));
    let mut took = new_histogram();
    let begin = Instant::now();
    let mut number = 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut last = 0;
            while last != u64::MAX {
                let now = question.load(Acquire);
                if now == last {
                    spin_loop();
                    continue;
                }
                last = now;
                answer.store(now, Release);
            }
        });
        while begin.elapsed() < window.counted {
            number += 1;
            let before = Instant::now();
            question.store(number, Release);
            while answer.load(Acquire) != number {
                spin_loop();
            }
            took.saturating_record(before.elapsed().as_nanos() as u64);
        }
        question.store(u64::MAX, Release);
    });
    (took, number as f64 / begin.elapsed().as_secs_f64())
}
