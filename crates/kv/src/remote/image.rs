//! The image of a record: the words that a READ has fetched, and their validation.
//!
//! Nothing is trusted before the checksum has been verified, and lengths not even then. An image
//! may be torn, stale, of memory that is no record, or from a malicious peer. Whatever the words
//! are, the result is one of the cases of [`Image`].

use std::convert::Infallible;

use crate::{
    Head, State, Version,
    record::{HEAD, HEADER_WORDS, KEY, STATE, Shape, VERSION, checksum::checksum, keys::Keys},
};

/// The number of words of the smallest record with a checksum. They have the record's length.
pub(super) const LEAST_WORDS: usize = HEADER_WORDS + 1;

/// What the words at a record's place are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Image {
    /// The key's record. Its value has been copied.
    Whole(Whole),
    /// Another key's record, which has the same fingerprint.
    Other,
    /// Another use of the memory, or a record that was removed or moved.
    Stale,
    /// A record that is being written.
    Writing,
    /// A torn record, with a version and a state that it had during the READ.
    Torn(Version, State),
    /// A record that has this many words, of which fewer were fetched.
    Longer(usize, Version, State),
}

/// The header of a record that was fetched consistently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Whole {
    pub(super) version: Version,
    /// Of the same READ: it may be from before or after the rest.
    pub(super) state: State,
    pub(super) head: Head,
    pub(super) shape: Shape,
}

impl Image {
    /// Validates what was fetched from the place of a record with this incarnation, and copies the
    /// value.
    pub(super) fn of<K: Keys>(words: &[u64], incarnation: u16, key: K::Key<'_>, value: &mut Vec<u8>) -> Self {
        let Some(header) = words.first_chunk::<LEAST_WORDS>() else {
            return Self::Longer(LEAST_WORDS, Version::default(), State::FREE);
        };
        let (version, state, head) = (Version(header[VERSION]), State(header[STATE]), Head(header[HEAD]));
        // Incarnations only advance, and this one was complete before its place could be learned.
        if head.incarnation() != incarnation || version.is_removed() {
            return Self::Stale;
        }
        if version.is_writing() {
            return Self::Writing;
        }
        if !head.is_checked() {
            // The table's records have checksums, so this is another table's: after the owner has
            // restarted, for example.
            return Self::Stale;
        }
        let Ok(shape) = Shape::told::<K, Infallible>(head, || Ok(header[HEADER_WORDS]));
        if !shape.is_possible() {
            return Self::Torn(version, state);
        }
        let at = shape.value_words();
        let Some(sum) = words.get(at.end) else { return Self::Longer(at.end + 1, version, state) };
        copy_bytes(&words[at.clone()], shape.value, value);
        if *sum != checksum(header[KEY], version, head, shape.lengths_if_any(), value) {
            return Self::Torn(version, state);
        }
        if header[KEY] != K::word(key) {
            return Self::Stale;
        }
        match shape.key {
            Some(length) => {
                Self::with_key::<K>(Whole { version, state, head, shape }, &words[LEAST_WORDS..at.start], length, key)
            }
            None => Self::Whole(Whole { version, state, head, shape }),
        }
    }

    /// Returns the header of a record that is locked, if it still has the version that was seen
    /// there before. Its value was validated then, and has not changed.
    pub(super) fn unchanged<K: Keys>(words: &[u64], incarnation: u16, key: K::Key<'_>, seen: Version) -> Option<Whole> {
        let header = words.first_chunk::<LEAST_WORDS>()?;
        let (version, state, head) = (Version(header[VERSION]), State(header[STATE]), Head(header[HEAD]));
        let is_it = head.incarnation() == incarnation && header[KEY] == K::word(key) && head.is_checked();
        let Ok(shape) = Shape::told::<K, Infallible>(head, || Ok(header[HEADER_WORDS]));
        (is_it && version == seen && shape.is_possible()).then_some(Whole { version, state, head, shape })
    }

    /// Validates the bytes of a long key. The checksum covers the fingerprint, and the fingerprint
    /// the bytes.
    fn with_key<K: Keys>(whole: Whole, words: &[u64], length: usize, key: K::Key<'_>) -> Self {
        let is_key = K::with_bytes(key, |key| {
            length == key.len()
                && words.iter().zip(key.chunks(8)).all(|(word, bytes)| word.to_le_bytes().starts_with(bytes))
        });
        if is_key {
            return Self::Whole(whole);
        }
        let mut found = Vec::new();
        copy_bytes(words, length, &mut found);
        match K::from_bytes(&found) {
            Some(other) if K::word(other) == K::word(key) => Self::Other,
            _ => Self::Torn(whole.version, whole.state),
        }
    }
}

/// Copies the first `length` bytes of words that have at least as many.
fn copy_bytes(words: &[u64], length: usize, into: &mut Vec<u8>) {
    into.clear();
    into.reserve(size_of_val(words));
    for word in words {
        into.extend_from_slice(&word.to_le_bytes());
    }
    into.truncate(length);
}
