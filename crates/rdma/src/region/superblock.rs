//! The superblock: the first words of every region, which describe it and hold its roots.
//!
//! ```text
//! word  0      magic
//!       1      format
//!       2      capacity in bytes
//!       3      checksum of words 0, 1, 2 and 5 (XXH3, lower half)
//!       4      bytes allocated, from the region's beginning; grows
//!       5      kind of engine: 1 without regions, 2 hardware's, 3 emulated
//!       6..8   zero
//!       8..24  roots: one word for each thing that must be found again
//!      24      turns: counts the rounds of what is used again and again
//!      25..32  zero, so that `turns` has a cache line of its own
//!      32      time: what it is at least, as leases of this memory's records count it
//!      33..40  zero, so that `time` has a cache line of its own
//! ```
//!
//! Words 0 to 3 and 5 are written once, before another process can see the region. Accesses through
//! engines of two kinds would not be atomic with each other, so a region is opened only with an
//! engine of the kind that it was created with.

use drtm_htm::{Engine, EngineKind, Word};
use xxhash_rust::xxh3::xxh3_64;

use super::RegionError;
use crate::Offset;

/// The words of the superblock.
pub(super) const WORDS: usize = 40;

/// The bytes of the superblock.
pub(super) const BYTES: u64 = 8 * WORDS as u64;

/// The number of root words, from which the contents of a region are found.
pub const ROOTS: usize = TURNS - FIRST_ROOT;

const MAGIC: u64 = u64::from_le_bytes(*b"drtm-reg");
const FORMAT: u64 = 6;

const CHECKSUM: usize = 3;
const ALLOCATED: usize = 4;
const ENGINE: usize = 5;
const FIRST_ROOT: usize = 8;
const TURNS: usize = 24;
const TIME: usize = 32;

/// The offset of the word that counts turns in every region (see
/// [`Region::turns`](crate::Region::turns)).
pub const TURNS_AT: Offset = Offset::new(8 * TURNS as u64);

/// The superblock of a mapped region.
#[derive(Clone, Copy, Debug)]
pub(super) struct Superblock<'a>(pub(super) &'a [Word]);

impl<'a> Superblock<'a> {
    /// Writes the superblock of a new region, in which nothing else is allocated.
    pub(super) fn write<E: Engine>(self, engine: &E, capacity: u64) {
        let described = [MAGIC, FORMAT, capacity, kind_of(engine)];
        for (word, value) in DESCRIBED.into_iter().zip(described) {
            engine.store(&self.0[word], value);
        }
        engine.store(&self.0[CHECKSUM], u64::from(checksum(described)));
        engine.store(self.allocated(), BYTES);
    }

    /// Reads and checks the superblock. Returns the capacity.
    pub(super) fn read<E: Engine>(self, engine: &E) -> Result<u64, RegionError> {
        let described = DESCRIBED.map(|word| engine.load(&self.0[word]));
        let [magic, format, capacity, kind] = described;
        if magic != MAGIC {
            return Err(RegionError::Magic { found: magic });
        }
        if format != FORMAT {
            return Err(RegionError::Format { found: format, known: FORMAT });
        }
        let (found, computed) = (engine.load(&self.0[CHECKSUM]), checksum(described));
        if found != u64::from(computed) {
            return Err(RegionError::Checksum { found: found as u32, computed });
        }
        if kind != kind_of(engine) {
            return Err(RegionError::OtherEngine { found: name_of(kind), ours: name_of(kind_of(engine)) });
        }
        Ok(capacity)
    }

    /// Returns the word that counts the allocated bytes.
    pub(super) fn allocated(self) -> &'a Word {
        &self.0[ALLOCATED]
    }

    pub(super) fn root(self, index: usize) -> Option<&'a Word> {
        self.0[FIRST_ROOT..TURNS].get(index)
    }

    #[inline(always)]
    pub(super) fn turns(self) -> &'a Word {
        &self.0[TURNS]
    }

    pub(super) fn time(self) -> &'a Word {
        &self.0[TIME]
    }
}

/// The words that describe the region.
const DESCRIBED: [usize; 4] = [0, 1, 2, ENGINE];

/// Returns the kind of an engine. An engine without htm on this machine counts as one without htm
/// at all.
pub(crate) fn kind_of<E: Engine>(engine: &E) -> u64 {
    match E::KIND {
        _ if !engine.has_htm() => 1,
        EngineKind::None => 1,
        EngineKind::Rtm => 2,
        EngineKind::Emulated => 3,
    }
}

pub(crate) fn name_of(kind: u64) -> &'static str {
    match kind {
        1 => "without regions",
        2 => "of hardware regions",
        3 => "of emulated regions",
        _ => "of an unknown kind",
    }
}

fn checksum(words: [u64; 4]) -> u32 {
    xxh3_64(words.map(u64::to_le_bytes).as_flattened()) as u32
}
