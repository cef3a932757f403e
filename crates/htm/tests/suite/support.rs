//! What the tests of several files share.

use drtm_htm::{Engine, Line};

/// `count` lines of zeros.
pub(crate) fn lines(count: usize) -> Vec<Line> {
    (0..count).map(|_| Line::default()).collect()
}

/// The first word of each line, in order.
pub(crate) fn values<E: Engine>(engine: &E, lines: &[Line]) -> Vec<u64> {
    lines.iter().map(|line| engine.load(&line[0])).collect()
}

/// How many rounds a stress runs: `base`, times `DRTM_STRESS` where that is set.
pub(crate) fn rounds(base: u64) -> u64 {
    let factor = std::env::var("DRTM_STRESS").ok().map_or(1, |factor| {
        factor.parse().unwrap_or_else(|_| panic!("DRTM_STRESS must be a whole number, and is {factor:?}"))
    });
    base * factor
}
