//! One-sided writes of another node's records, under their locks.

use drtm_rdma::{Pending, Port, VerbError, Verbs};
use smallvec::SmallVec;

use super::{error::RemoteError, lock::RecordLock};
use crate::{
    Location, State, Version,
    record::{STATE, VERSION, checksum::checksum},
};

/// The words of a value and its checksum: up to half a kilobyte on the stack.
type Sealed = SmallVec<[u64; 64]>;

impl RecordLock {
    /// Posts the writes of a value, with a version that the caller chooses, and of the unlocking:
    /// one round trip. On an error, nothing is posted. The record is written and unlocked once the
    /// completion arrives.
    ///
    /// # Errors
    ///
    /// When the value has another length than the previous one, or when the queue has no room.
    pub fn post_write<'e, P: Port>(
        &self,
        verbs: Verbs<'e, P>,
        version: Version,
        value: &[u8],
    ) -> Result<Pending<'e, P, ()>, RemoteError> {
        if value.len() != self.value_length() {
            return Err(RemoteError::OtherLength { is: self.value_length(), given: value.len() });
        }
        Ok(post(verbs, self, version, &seal(self, version, value))?)
    }
}

/// Returns the words of the value and its checksum.
fn seal(lock: &RecordLock, version: Version, value: &[u8]) -> Sealed {
    let words = value.chunks(8).map(|bytes| {
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(whole)
    });
    let sum = checksum(lock.key, version, lock.whole.head, lock.whole.shape.lengths_if_any(), value);
    words.chain([sum]).collect()
}

/// Posts all writes in one batch, in order, or none. Returns the last completion. If another one
/// fails, then so does the last, and the record stays locked.
fn post<'e, P: Port>(
    verbs: Verbs<'e, P>,
    lock: &RecordLock,
    version: Version,
    sealed: &[u64],
) -> Result<Pending<'e, P, ()>, VerbError> {
    let Location { record, .. } = lock.location;
    let word = |word: usize| record + 8 * word as u64;
    let most = verbs.endpoint().capabilities().max_write_bytes / size_of::<u64>();
    let mut batch = verbs.batch();
    batch.write(word(VERSION), &[lock.version().writing().0])?.unsignaled();
    let mut at = lock.whole.shape.value_words().start;
    for piece in sealed.chunks(most.max(1)) {
        batch.write(word(at), piece)?.unsignaled();
        at += piece.len();
    }
    batch.write(word(VERSION), &[version.0])?.unsignaled();
    let freed = batch.write(word(STATE), &[State::FREE.0])?;
    batch.ring();
    Ok(freed)
}
