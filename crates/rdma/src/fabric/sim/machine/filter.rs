//! Bloom filters of lines.
//!
//! A filter never forgets a line, and sometimes has one that was not added. It also keeps the lines
//! themselves, which the hardware does not: no decision depends on them, except for counting false
//! positives.

use super::{mutation::Mutation, profile::Line};

/// How a filter's bits are chosen.
///
/// # Example
///
/// See [`Filter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// Two of the bits, by the hash of the address. Assumed: the paper gives no number of hashes,
    /// and its Table IV agrees with two.
    Hashed {
        /// The filter's bits: a power of two, at most 65536.
        bits: u32,
    },
    /// One bit by the hash of the address, and one by its index in the last-level cache, so that
    /// the filter says which sets can have its lines.
    Split {
        /// The bits of the first part: a power of two, at most 65536.
        hashed: u32,
        /// The bits of the second part: a power of two, no more than a slice of the cache has sets.
        indexed: u32,
    },
}

/// The hash of a line's address, computed once for all filters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    pub(super) line: Line,
    hash: u32,
}

impl Key {
    #[inline]
    pub(super) fn of(line: Line) -> Self {
        let hash =
            line.0.to_le_bytes().iter().fold(!0_u32, |crc, &byte| TABLE[usize::from((crc as u8) ^ byte)] ^ (crc >> 8));
        Self { line, hash: !hash }
    }
}

/// CRC-32C, of bytes. The paper names CRC as its hash, and no polynomial: assumed.
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82F6_3B78 } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// A Bloom filter of lines.
///
/// # Example
///
/// ```
/// use drtm_rdma::machine::{Filter, Line, Shape};
///
/// let mut filter = Filter::new(Shape::Hashed { bits: 1024 });
/// filter.add(Line(42));
/// assert!(filter.may_have(Line(42)) && !filter.may_have(Line(43)));
/// filter.clear();
/// assert!(filter.is_empty());
/// ```
#[derive(Clone, Debug)]
pub struct Filter {
    shape: Shape,
    words: Box<[u64]>,
    lines: Vec<Line>,
}

impl Filter {
    /// Creates an empty filter.
    ///
    /// # Example
    ///
    /// See [`Filter`].
    ///
    /// # Panics
    ///
    /// If a number of bits is not a power of two, or is too large.
    #[must_use]
    pub fn new(shape: Shape) -> Self {
        let part = |bits: u32| {
            assert!(bits.is_power_of_two() && bits <= 1 << 16, "{bits} bits are no power of two up to 65536");
            bits
        };
        let bits = match shape {
            Shape::Hashed { bits } => part(bits),
            Shape::Split { hashed, indexed } => part(hashed) + part(indexed),
        };
        Self { shape, words: vec![0; bits.div_ceil(64) as usize].into(), lines: Vec::new() }
    }

    /// Adds a line.
    ///
    /// # Example
    ///
    /// See [`Filter`].
    pub fn add(&mut self, line: Line) {
        self.insert(Key::of(line));
    }

    /// Returns whether a line was added. Sometimes true for another one.
    ///
    /// # Example
    ///
    /// See [`Filter`].
    #[must_use]
    pub fn may_have(&self, line: Line) -> bool {
        self.contains(Key::of(line))
    }

    /// Removes all lines.
    ///
    /// # Example
    ///
    /// See [`Filter`].
    pub fn clear(&mut self) {
        self.words.fill(0);
        self.lines.clear();
    }

    /// Returns whether no line was added.
    ///
    /// # Example
    ///
    /// See [`Filter`].
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    #[inline]
    pub(super) fn insert(&mut self, key: Key) {
        for bit in self.bits_of(key) {
            self.words[bit as usize / 64] |= 1 << (bit % 64);
        }
        self.lines.push(key.line);
    }

    #[inline]
    pub(super) fn contains(&self, key: Key) -> bool {
        !self.lines.is_empty()
            && self.bits_of(key).iter().all(|bit| self.words[*bit as usize / 64] >> (bit % 64) & 1 == 1)
    }

    /// Returns whether a line that the filter may have was in fact added.
    pub(super) fn has(&self, line: Line) -> bool {
        self.lines.contains(&line)
    }

    /// Calls `visit` with the indices, modulo the bits of the second part, that have lines.
    pub(super) fn each_index(&self, mut visit: impl FnMut(usize)) {
        let Shape::Split { hashed, .. } = self.shape else { return };
        let first = hashed as usize;
        for (at, &word) in self.words.iter().enumerate().skip(first / 64) {
            let mut left = word;
            while left != 0 {
                let bit = at * 64 + left.trailing_zeros() as usize;
                left &= left - 1;
                if bit >= first {
                    visit(bit - first);
                }
            }
        }
    }

    /// Returns the bits, as the hardware has them.
    #[cfg(test)]
    pub(super) fn words(&self) -> &[u64] {
        &self.words
    }

    #[inline]
    fn bits_of(&self, key: Key) -> [u32; 2] {
        match self.shape {
            Shape::Hashed { bits } => [key.hash & (bits - 1), key.hash >> 16 & (bits - 1)],
            Shape::Split { hashed, indexed } => [key.hash & (hashed - 1), hashed + (key.line.0 as u32 & (indexed - 1))],
        }
    }
}

/// The lines that a transaction has read and written, as filters have them.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) reads: Filter,
    pub(super) writes: Filter,
}

impl Pair {
    pub(super) fn new(reads: Shape, writes: Shape) -> Self {
        Self { reads: Filter::new(reads), writes: Filter::new(writes) }
    }

    /// Returns whether writing this line conflicts. Reading conflicts with `writes` alone.
    #[inline]
    pub(super) fn meets_write(&self, key: Key) -> bool {
        self.reads.contains(key)
            || (self.writes.contains(key) && !super::mutation::includes(Mutation::WritesNotChecked))
    }

    /// Returns whether a met line is in fact there.
    pub(super) fn has(&self, line: Line) -> bool {
        self.reads.has(line) || self.writes.has(line)
    }

    pub(super) fn clear(&mut self) {
        self.reads.clear();
        self.writes.clear();
    }
}
