//! Numbers of varying length: seven bits in each byte, the lowest first, and the highest bit set in
//! all but the last.

use super::take;

/// The most bytes of a number.
pub(super) const LONGEST: usize = length(u64::MAX);

const BITS: u32 = 7;
const MORE: u8 = 1 << BITS;

/// Returns how many bytes a number has.
pub(super) const fn length(number: u64) -> usize {
    (u64::BITS - (number | 1).leading_zeros()).div_ceil(BITS) as usize
}

/// Appends a number.
#[inline]
pub(super) fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= u64::from(MORE) {
        bytes.push(number as u8 | MORE);
        number >>= BITS;
    }
    bytes.push(number as u8);
}

/// Takes a number. `None` if there is none, or one that has more than 64 bits.
#[inline(always)]
pub(super) fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    // Most have one byte.
    match **bytes {
        [byte, ref rest @ ..] if byte < MORE => {
            *bytes = rest;
            Some(byte.into())
        }
        _ => take_long(bytes),
    }
}

fn take_long(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(BITS as usize) {
        let byte = *take(bytes, 1)?.first()?;
        let part = u64::from(byte & !MORE);
        if part << shift >> shift != part {
            return None;
        }
        number |= part << shift;
        if byte < MORE {
            return Some(number);
        }
    }
    None
}

/// Returns a difference as a number that is small if the difference is, in either direction.
#[inline]
pub(super) const fn signed(difference: u64) -> u64 {
    difference << 1 ^ ((difference as i64) >> 63) as u64
}

/// Returns the difference that [`signed`] made a number of.
#[inline]
pub(super) const fn unsigned(number: u64) -> u64 {
    number >> 1 ^ (number & 1).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Numbers of every length.
    fn numbers() -> impl Strategy<Value = u64> {
        (any::<u64>(), 0..64_u32).prop_map(|(number, shift)| number >> shift)
    }

    proptest! {
        #[test]
        fn numbers_come_back(numbers in prop::collection::vec(numbers(), 0..9)) {
            let mut bytes = Vec::new();
            for number in &numbers {
                let before = bytes.len();
                put(&mut bytes, *number);
                prop_assert_eq!(bytes.len() - before, length(*number));
            }
            let mut rest = &bytes[..];
            for number in &numbers {
                prop_assert_eq!(take_varint(&mut rest), Some(*number));
            }
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn differences_come_back_and_small_ones_are_short(number in numbers()) {
            for difference in [number, number.wrapping_neg()] {
                prop_assert_eq!(unsigned(signed(difference)), difference);
            }
            prop_assert!(number >= 64 || length(signed(number)) == 1 && length(signed(number.wrapping_neg())) == 1);
        }

        #[test]
        fn noise_is_never_a_panic(noise in prop::collection::vec(any::<u8>(), 0..12)) {
            let mut rest = &noise[..];
            if let Some(number) = take_varint(&mut rest) {
                prop_assert!(length(number) <= noise.len() - rest.len());
            }
        }
    }

    #[test]
    fn a_number_of_more_than_64_bits_is_none() {
        let longest = [[0xff; 9].as_slice(), &[1]].concat();
        assert_eq!(take_varint(&mut &longest[..]), Some(u64::MAX));
        for last in [2, 0x81] {
            let longer = [[0xff; 9].as_slice(), &[last], &[0]].concat();
            assert_eq!(take_varint(&mut &longer[..]), None);
        }
        assert_eq!(take_varint(&mut &longest[..9]), None);
    }
}
