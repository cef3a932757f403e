//! The bits of every word that the store shares. They are drawn in `docs/layout.md`; sizes are
//! asserted here.

mod head;
mod node;
mod slot;
mod state;
mod version;

pub use head::Head;
pub(crate) use node::{FANOUT, NODE_HEADER, NODE_WORDS, Stamp, Target};
pub(crate) use slot::{BUCKET_BYTES, BUCKET_WORDS, Bits, LINE_SLOTS, Place, SLOTS, key_word, meta_word};
pub(crate) use state::MAX_INCARNATION;
pub use state::{Holder, State};
pub use version::Version;

/// A field of a word: `bits` wide, from bit `shift` up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    shift: u32,
    bits: u32,
}

impl Field {
    pub(crate) const fn new(shift: u32, bits: u32) -> Self {
        assert!(bits > 0 && bits < 64 && shift + bits <= 64);
        Self { shift, bits }
    }

    /// Returns the field that begins where this one ends.
    pub(crate) const fn then(self, bits: u32) -> Self {
        Self::new(self.shift + self.bits, bits)
    }

    pub(crate) const fn max(self) -> u64 {
        (1 << self.bits) - 1
    }

    #[inline(always)]
    pub(crate) const fn get(self, word: u64) -> u64 {
        word >> self.shift & self.max()
    }

    /// Returns the word with this field replaced. Bits of `value` beyond the field are dropped.
    #[inline(always)]
    pub(crate) const fn set(self, word: u64, value: u64) -> u64 {
        word & !(self.max() << self.shift) | (value & self.max()) << self.shift
    }

    /// Returns whether the field reaches up to the word's last bit.
    pub(crate) const fn ends_word(self) -> bool {
        self.shift + self.bits == 64
    }
}

/// A counter that wraps around, in a field of which it uses the lowest bits. Outside of tests it
/// uses all of them.
///
/// A round has four *quarters*. Before a counter can have an old value again, it begins a quarter
/// four times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cycle {
    mask: u64,
}

impl Cycle {
    pub(crate) const fn of(field: Field, used: u32) -> Self {
        assert!(used > 2 && used <= field.bits);
        Self { mask: (1 << used) - 1 }
    }

    #[inline(always)]
    pub(crate) const fn next(self, value: u64) -> u64 {
        (value + 1) & self.mask
    }

    /// Returns whether this value is the first of a quarter.
    #[inline(always)]
    pub(crate) const fn begins_quarter(self, value: u64) -> bool {
        value & self.mask >> 2 == 0
    }
}

/// The number of bits of a record's place, counted in words: 8 TiB of region.
pub(crate) const PLACE_BITS: u32 = 40;

/// The number of bits of an incarnation, in a record's head and in links to the record.
pub(crate) const INCARNATION_BITS: u32 = 14;
