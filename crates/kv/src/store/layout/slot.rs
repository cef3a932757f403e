//! The bucket: eight slots of a key and a place, and the bucket's own fields, in 128 bytes.
//!
//! A slot is two words: a *meta* word with the record's place, and a *key* word. Eight slots fill
//! the bucket, so its link, lock, version and depth use spare bits of the meta words. A place needs
//! 40 bits and a tag 16, which leaves 8. In each cache line, the last slot gives its tag's 16 bits
//! to the bucket's fields. Its tag is in the spare bits of the line's first two slots. So link and
//! version each lie within one word, and a line by itself is consistent. A READ of the bucket may
//! fetch its two lines at different moments, but no slot is torn between them.
//!
//! ```text
//!          63        48 47     40 39                               0
//!         +------------+---------+----------------------------------+
//! meta 0  | tag        | tag 3 lo| place                            |   line 0
//! meta 1  | tag        | tag 3 hi| place                            |
//! meta 2  | tag        | depth   | place                            |
//! meta 3  | version (23)  | lock | place                            |
//!         +------------+---------+----------------------------------+
//! meta 4  | tag        | tag 7 lo| place                            |   line 1
//! meta 5  | tag        | tag 7 hi| place                            |
//! meta 6  | tag        | 0       | place                            |
//! meta 7  | link (24)            | place                            |
//!         +------------+---------+----------------------------------+
//! ```
//!
//! A place of zero is an empty slot. A tag is the record's incarnation (14 bits) and two bits that
//! are zero. Link zero means no bucket.

use super::{Cycle, Field, INCARNATION_BITS, PLACE_BITS};
use crate::store::bounds::BUCKET_VERSION_USED;

/// The number of slots in a bucket.
pub(crate) const SLOTS: usize = 8;

/// The number of words in a bucket.
pub(crate) const BUCKET_WORDS: usize = 2 * SLOTS;

/// The number of bytes in a bucket: two cache lines.
pub(crate) const BUCKET_BYTES: u64 = 8 * BUCKET_WORDS as u64;

const _: () = assert!(BUCKET_BYTES == 128);

const PLACE: Field = Field::new(0, PLACE_BITS);
const SPARE: Field = PLACE.then(8);
const TAG: Field = SPARE.then(16);
const LOCK: Field = PLACE.then(1);
const VERSION: Field = LOCK.then(23);
const LINK: Field = PLACE.then(24);

const _: () = assert!(TAG.ends_word() && VERSION.ends_word() && LINK.ends_word());
const _: () = assert!(INCARNATION_BITS <= TAG.max().count_ones());

/// The cycle of buckets' versions.
const VERSIONS: Cycle = Cycle::of(VERSION, BUCKET_VERSION_USED);

/// The number of slots in a line. The last one stores its tag in the others.
pub(crate) const LINE_SLOTS: usize = SLOTS / 2;

/// Returns the index of a slot's meta word in its bucket.
#[inline(always)]
pub(crate) const fn meta_word(slot: usize) -> usize {
    2 * slot
}

/// Returns the index of a slot's key word in its bucket.
#[inline(always)]
pub(crate) const fn key_word(slot: usize) -> usize {
    2 * slot + 1
}

/// A record's place, and the incarnation of its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The offset in words from the region's beginning; never zero.
    pub(crate) word: u64,
    pub(crate) incarnation: u16,
}

impl Place {
    /// The largest word that a slot can hold.
    pub(crate) const MAX_WORD: u64 = PLACE.max();

    /// Returns place and incarnation in one word, as in a slot that stores its own tag.
    #[inline(always)]
    pub(crate) const fn to_link(self) -> u64 {
        Bits::with_tag(Bits::with_place(0, self.word), self.incarnation)
    }

    #[inline(always)]
    pub(crate) const fn from_link(link: u64) -> Self {
        Self { word: Bits::place(link), incarnation: Bits::tag(link) }
    }
}

/// The fields of a meta word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bits;

impl Bits {
    /// The slots whose meta words have the bucket's own fields: version and lock, link, and depth.
    pub(crate) const VERSION_SLOT: usize = LINE_SLOTS - 1;
    pub(crate) const LINK_SLOT: usize = SLOTS - 1;
    pub(crate) const DEPTH_SLOT: usize = LINE_SLOTS - 2;

    /// The largest link.
    pub(crate) const MAX_LINK: u64 = LINK.max();

    /// Returns whether a slot's tag is in its neighbours' spare bits.
    #[inline(always)]
    pub(crate) const fn lends_its_tag(slot: usize) -> bool {
        slot % LINE_SLOTS == LINE_SLOTS - 1
    }

    /// Returns the slots of the line whose spare bits hold the low and the high half of such a
    /// slot's tag.
    #[inline(always)]
    pub(crate) const fn lenders(slot: usize) -> [usize; 2] {
        let first = slot % SLOTS / LINE_SLOTS * LINE_SLOTS;
        [first, first + 1]
    }

    #[inline(always)]
    pub(crate) const fn place(meta: u64) -> u64 {
        PLACE.get(meta)
    }

    #[inline(always)]
    pub(crate) const fn with_place(meta: u64, word: u64) -> u64 {
        PLACE.set(meta, word)
    }

    #[inline(always)]
    pub(crate) const fn tag(meta: u64) -> u16 {
        TAG.get(meta) as u16
    }

    #[inline(always)]
    pub(crate) const fn with_tag(meta: u64, tag: u16) -> u64 {
        TAG.set(meta, tag as u64)
    }

    #[inline(always)]
    pub(crate) const fn spare(meta: u64) -> u8 {
        SPARE.get(meta) as u8
    }

    #[inline(always)]
    pub(crate) const fn with_spare(meta: u64, spare: u8) -> u64 {
        SPARE.set(meta, spare as u64)
    }

    /// Returns how many bits of the hash are in the bucket's number. `None`: the bucket is not in
    /// use. It is stored incremented by one, so that fresh memory's zeros mean "not in use".
    #[inline(always)]
    pub(crate) const fn depth(depth_meta: u64) -> Option<u32> {
        (Self::spare(depth_meta) as u32).checked_sub(1)
    }

    #[inline(always)]
    pub(crate) const fn with_depth(depth_meta: u64, depth: u32) -> u64 {
        Self::with_spare(depth_meta, depth as u8 + 1)
    }

    #[inline(always)]
    pub(crate) const fn is_locked(version_meta: u64) -> bool {
        LOCK.get(version_meta) != 0
    }

    #[inline(always)]
    pub(crate) const fn locked(version_meta: u64) -> u64 {
        LOCK.set(version_meta, 1)
    }

    /// Returns the word unlocked, with the same version.
    #[inline(always)]
    pub(crate) const fn unlocked(version_meta: u64) -> u64 {
        LOCK.set(version_meta, 0)
    }

    /// Returns the word unlocked, with the next version.
    #[inline(always)]
    pub(crate) const fn released(version_meta: u64) -> u64 {
        LOCK.set(VERSION.set(version_meta, VERSIONS.next(VERSION.get(version_meta))), 0)
    }

    /// Returns the next version.
    #[inline(always)]
    pub(crate) const fn next_version(version: u32) -> u32 {
        VERSIONS.next(version as u64) as u32
    }

    /// Returns whether the version is the first of a quarter of all versions.
    #[inline(always)]
    pub(crate) const fn begins_quarter(version_meta: u64) -> bool {
        VERSIONS.begins_quarter(VERSION.get(version_meta))
    }

    #[inline(always)]
    pub(crate) const fn version(version_meta: u64) -> u32 {
        VERSION.get(version_meta) as u32
    }

    #[inline(always)]
    pub(crate) const fn link(link_meta: u64) -> u64 {
        LINK.get(link_meta)
    }

    #[inline(always)]
    pub(crate) const fn with_link(link_meta: u64, link: u64) -> u64 {
        LINK.set(link_meta, link)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_kept_in_its_own_line() {
        for slot in 0..SLOTS {
            let line = |slot| meta_word(slot) / 8;
            if Bits::lends_its_tag(slot) {
                for lender in Bits::lenders(slot) {
                    assert_eq!(line(lender), line(slot));
                    assert!(!Bits::lends_its_tag(lender) && lender != Bits::DEPTH_SLOT);
                }
            }
        }
        assert!(Bits::lends_its_tag(Bits::VERSION_SLOT) && Bits::lends_its_tag(Bits::LINK_SLOT));
    }

    #[test]
    fn fields_of_a_meta_word_are_independent() {
        let meta = Bits::with_tag(Bits::with_spare(Bits::with_place(0, Place::MAX_WORD), 0xAB), 0x3FFF);
        assert_eq!((Bits::place(meta), Bits::spare(meta), Bits::tag(meta)), (Place::MAX_WORD, 0xAB, 0x3FFF));
        let meta = Bits::with_link(Bits::with_place(0, 5), Bits::MAX_LINK);
        assert_eq!((Bits::place(meta), Bits::link(meta)), (5, Bits::MAX_LINK));
    }

    #[test]
    fn releasing_changes_the_version_and_keeps_the_place() {
        let mut meta = Bits::with_place(0, 77);
        for version in 0..5 {
            assert_eq!((Bits::version(meta), Bits::is_locked(meta)), (version, false));
            meta = Bits::locked(meta);
            assert_eq!((Bits::version(meta), Bits::is_locked(meta), Bits::place(meta)), (version, true, 77));
            meta = Bits::released(meta);
        }
        let last = VERSION.set(Bits::locked(meta), (1 << BUCKET_VERSION_USED) - 1);
        assert_eq!((Bits::version(Bits::released(last)), Bits::place(last)), (0, 77));
    }
}
