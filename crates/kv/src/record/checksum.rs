//! Checksums, by which a peer detects that a fetched record is torn.
//!
//! A READ may fetch a record's cache lines at different moments, in any order, so no version in the
//! header validates the value. Tables for peers have one more word behind each value: a checksum of
//! everything that a reader relies on.
//!
//! - The key word. For a long key this is the fingerprint, which a reader computes again from the
//!   key's bytes. So the checksum covers them, and an update of a value need not know the key.
//! - The version, so that a value is not taken for that of another version.
//! - The incarnation and the lengths, so that one use of the memory is not taken for another.
//! - The value, by its own hash.
//!
//! It covers neither the state word, which changes without the value, nor the link to an older
//! version.
//!
//! A writer computes a record's checksum while the version says that the record is being written.
//! Readers on the owner validate versions instead, and ignore the checksum.

use xxhash_rust::xxh3::xxh3_64;

use crate::store::layout::{Head, Version};

/// Returns the checksum of a record with this header and value. `lengths` is zero where the head
/// has the value's length.
pub(crate) fn checksum(key: u64, version: Version, head: Head, lengths: u64, value: &[u8]) -> u64 {
    let words = [key, version.0, head.without_older().0, lengths, xxh3_64(value)];
    let mut bytes = [0; 8 * 5];
    for (bytes, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *bytes = word.to_le_bytes();
    }
    xxh3_64(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_a_reader_relies_on_changes_the_checksum() {
        let head = Head::new(5, Some(3)).checked();
        let reference = checksum(1, Version::new(2), head, 0, b"abc");
        assert_eq!(reference, checksum(1, Version::new(2), head, 0, b"abc"));
        for other in [
            checksum(2, Version::new(2), head, 0, b"abc"),
            checksum(1, Version::new(3), head, 0, b"abc"),
            checksum(1, Version::new(2), Head::new(6, Some(3)).checked(), 0, b"abc"),
            checksum(1, Version::new(2), Head::new(5, Some(4)).checked(), 0, b"abc"),
            checksum(1, Version::new(2), head, 1 << 32, b"abc"),
            checksum(1, Version::new(2), head, 0, b"abd"),
            checksum(1, Version::new(2), head, 0, b"ab"),
        ] {
            assert_ne!(reference, other);
        }
    }
}
