//! One-sided writes of another node's records, under their locks.

use drtm_rdma::{Pending, Port, VerbError, Verbs};
use smallvec::SmallVec;

use super::{error::RemoteError, lock::RecordLock};
use crate::{
    Location, State, Version,
    record::{HEADER_WORDS, STATE, VERSION, checksum::checksum, keys::Keys},
};

/// The words from a record's version to its checksum: up to half a kilobyte on the stack.
type Sealed = SmallVec<[u64; 64]>;

impl RecordLock {
    /// Posts the WRITE of a value, with a version that the caller chooses, and the one that unlocks
    /// the record: one round trip. On an error, nothing is posted. The record is written and
    /// unlocked once the completion arrives.
    ///
    /// The owner must not have to keep the present value: no snapshot was open there after the
    /// record was locked.
    ///
    /// # Errors
    ///
    /// When the key is not the one that was locked, when the value has another length than the
    /// previous one, or when the queue has no room.
    ///
    /// # Example
    ///
    /// See [`RecordPeer`](crate::RecordPeer).
    pub fn post_write<'e, K: Keys, P: Port>(
        &self,
        verbs: Verbs<'e, P>,
        key: K::Key<'_>,
        (version, value): (Version, &[u8]),
    ) -> Result<Pending<'e, P, ()>, RemoteError> {
        if K::word(key) != self.key {
            return Err(RemoteError::OtherKey { at: self.location.record });
        }
        if value.len() != self.value_length() {
            return Err(RemoteError::OtherLength { is: self.value_length(), given: value.len() });
        }
        Ok(post(verbs, self, &sealed::<K>(self, key, version, value))?)
    }
}

/// Returns the words of a record from its version to its checksum.
fn sealed<K: Keys>(lock: &RecordLock, key: K::Key<'_>, version: Version, value: &[u8]) -> Sealed {
    const { assert!(VERSION + 1 == HEADER_WORDS, "lengths and key follow the version, and then the value") };
    let shape = lock.whole.shape;
    let mut words = Sealed::new();
    words.push(version.0);
    if shape.has_lengths() {
        words.push(shape.lengths());
        if shape.key.is_some() {
            K::with_bytes(key, |key| words.extend(words_of(key)));
        }
    }
    words.extend(words_of(value));
    words.push(checksum(lock.key, version, lock.whole.head, shape.lengths_if_any(), value));
    words
}

/// Returns bytes as words, the last one filled with zeros.
fn words_of(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks(8).map(|bytes| {
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(whole)
    })
}

/// Posts all writes in one batch, in order, or none. Returns the last completion. If another one
/// fails, then so does the last, and the record stays locked.
fn post<'e, P: Port>(verbs: Verbs<'e, P>, lock: &RecordLock, sealed: &[u64]) -> Result<Pending<'e, P, ()>, VerbError> {
    let Location { record, .. } = lock.location;
    let word = |word: usize| record + 8 * word as u64;
    let most = verbs.endpoint().capabilities().max_write_bytes / size_of::<u64>();
    let mut batch = verbs.batch();
    let mut at = VERSION;
    for piece in sealed.chunks(most.max(1)) {
        batch.write(word(at), piece)?.unsignaled();
        at += piece.len();
    }
    let freed = batch.write(word(STATE), &[State::FREE.0])?;
    batch.ring();
    Ok(freed)
}
