//! Directions of ranges.

/// Which way a range goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Up,
    Down,
}
