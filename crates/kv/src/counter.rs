//! Counting keys: in several words, a line each, so that workers seldom meet.

use drtm_htm::{Engine, LINE_WORDS, Word};

use crate::bounds::SHARDS;

/// Words that a counter takes, from a line's boundary.
pub(crate) const WORDS: usize = SHARDS * LINE_WORDS;

/// The sum of all shards, each of which alone may be below zero.
pub(crate) fn sum<E: Engine>(engine: &E, counter: &[Word]) -> u64 {
    let shards = counter.iter().step_by(LINE_WORDS);
    let sum = shards.fold(0_i64, |sum, shard| sum.wrapping_add(engine.load_relaxed(shard) as i64));
    sum.max(0) as u64
}

/// Adds to one worker's shard; gives what is in it then.
#[inline(always)]
pub(crate) fn add<E: Engine>(engine: &E, counter: &[Word], worker: u64, change: i64) -> i64 {
    let shard = &counter[worker as usize % SHARDS * LINE_WORDS];
    (engine.fetch_add(shard, change as u64) as i64).wrapping_add(change)
}
