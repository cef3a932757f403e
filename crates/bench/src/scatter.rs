//! Numbers scattered over 64 bits.

use crate::tpcc::Random;

/// Another number for each, of which every bit depends on every bit: SplitMix64's finalizer.
#[inline]
pub(crate) const fn scatter(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ number >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ number >> 31
}

/// The generator of one of a population's numbered rows: whoever makes it, in whatever order, it is
/// the same row.
pub(crate) fn of_row(seed: u64, number: u64) -> Random {
    Random::seeded(scatter(seed).wrapping_add(scatter(number ^ 0x5851_F42D_4C95_7F2D)))
}
