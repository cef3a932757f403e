//! Scatters numbers over 64 bits.

use crate::Random;

/// Maps numbers one to one, so that every output bit depends on every input bit: SplitMix64's
/// finalizer.
#[inline]
pub const fn scatter(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ number >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ number >> 31
}

/// Returns the generator of one numbered row of a population. The row is the same whichever thread
/// makes it, and in whatever order.
pub fn of_row(seed: u64, number: u64) -> Random {
    Random::seeded(scatter(seed).wrapping_add(scatter(number ^ 0x5851_F42D_4C95_7F2D)))
}
