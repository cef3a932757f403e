//! Shared code of several test files.

use drtm_htm::{Engine, Line};

pub(crate) use drtm_testing::rounds;

/// Returns `count` lines of zeros.
pub(crate) fn lines(count: usize) -> Vec<Line> {
    (0..count).map(|_| Line::default()).collect()
}

/// Returns the first word of each line, in order.
pub(crate) fn values<E: Engine>(engine: &E, lines: &[Line]) -> Vec<u64> {
    lines.iter().map(|line| engine.load(&line[0])).collect()
}
