//! The bytes of files that are whole or damaged: a header with a magic word, length and checksum,
//! and content.
//!
//! Such a file never has its name before all of it is written. So whatever does not agree with its
//! header is damage, and never the trace of a crash, at whichever byte the file ends. The bytes are
//! in `docs/format.md`.

use xxhash_rust::xxh3::Xxh3;

use crate::mutation::Mutation;

const MAGIC: [u8; 8] = *b"drtm-mem";
const FORMAT: u16 = 1;
const HEADER: usize = 24;

/// What a file contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind(pub(crate) u16);

/// Seals a content of at most `u32::MAX` bytes.
pub(crate) fn seal(kind: Kind, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + content.len());
    bytes.extend(MAGIC);
    bytes.extend(FORMAT.to_le_bytes());
    bytes.extend(kind.0.to_le_bytes());
    bytes.extend((content.len() as u32).to_le_bytes());
    let checksum = checksum(&bytes[8..16], content);
    bytes.extend(checksum.to_le_bytes());
    bytes.extend(content);
    bytes
}

/// Returns the content of a sealed file, or what is wrong with it.
pub(crate) fn open(kind: Kind, bytes: &[u8], fault: Option<Mutation>) -> Result<&[u8], &'static str> {
    let (header, content) = bytes.split_at_checked(HEADER).ok_or("it is shorter than its header")?;
    let (magic, rest) = header.split_at(8);
    let (about, sum) = rest.split_at(8);
    if magic != MAGIC {
        return Err("it does not begin as it must");
    }
    let sum_matches = checksum(about, content).to_le_bytes() == sum || fault == Some(Mutation::ChecksumNotChecked);
    if about[4..8] != (content.len() as u32).to_le_bytes() {
        return Err("it has another length than it says");
    }
    if !sum_matches {
        return Err("its checksum is another");
    }
    if about[0..2] != FORMAT.to_le_bytes() {
        return Err("it has the format of another version");
    }
    if about[2..4] != kind.0.to_le_bytes() {
        return Err("it is a file of another kind");
    }
    Ok(content)
}

fn checksum(about: &[u8], content: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(about);
    hash.update(content);
    hash.digest()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Kind = Kind(7);

    /// Returns how many damaged images are opened as something else than the content.
    fn believed(fault: Option<Mutation>) -> usize {
        let bytes = seal(KIND, b"what is kept");
        assert_eq!(open(KIND, &bytes, fault), Ok(&b"what is kept"[..]));
        let cut = (0..bytes.len()).map(|length| bytes[..length].to_vec());
        let longer = [[&bytes[..], &[0]].concat()];
        let flipped = (0..bytes.len() * 8).map(|bit| {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            other
        });
        cut.chain(longer).chain(flipped).filter(|image| open(KIND, image, fault).is_ok()).count()
    }

    #[test]
    fn no_cut_and_no_flipped_bit_is_believed() {
        assert_eq!(believed(None), 0);
    }

    #[test]
    fn files_whose_checksum_is_not_checked_are_found_out() {
        assert!(believed(Some(Mutation::ChecksumNotChecked)) > 0);
    }

    #[test]
    fn another_kind_is_refused() {
        assert!(open(Kind(8), &seal(KIND, b""), None).is_err());
        assert_eq!(open(KIND, &seal(KIND, b""), None), Ok(&b""[..]));
    }
}
