//! One-sided writes of another node's records, under their locks.

use drtm_rdma::{Pending, Port, VerbError, Verbs};
use smallvec::SmallVec;

use super::{backoff::Backoff, error::RemoteError, lock::RecordLock, record::RecordPeer};
use crate::{
    Location, State, Version,
    checksum::checksum,
    keys::Keys,
    record::{STATE, VERSION},
};

/// The words of a value and its checksum: up to half a kilobyte on the stack.
type Sealed = SmallVec<[u64; 64]>;

/// A record that could not be written.
///
/// # Example
///
/// ```
/// use drtm_kv::{KvTable, RemoteError, Unwritten};
///
/// fn what_now(unwritten: Unwritten) -> &'static str {
///     match (unwritten.lock, unwritten.error) {
///         (Some(_lock), RemoteError::OtherLength { .. }) => "unlock it, and ask the owner",
///         (Some(_lock), _) => "try again, or unlock it",
///         (None, _) => "find out what became of the owner",
///     }
/// }
/// # let _ = what_now;
/// ```
#[derive(Debug)]
pub struct Unwritten {
    /// The lock, if nothing has been written. `None`: it is not known what was written, and whether
    /// the record is unlocked.
    pub lock: Option<RecordLock>,
    /// The error.
    pub error: RemoteError,
}

impl<K: Keys> RecordPeer<K> {
    /// Posts the writes of a value, with a version that the caller chooses, and of the unlocking.
    /// On an error, nothing is posted. The record is written and unlocked once the completion
    /// arrives.
    ///
    /// # Errors
    ///
    /// When the value has another length than the previous one, or when the queue has no room.
    pub fn post_write<'e, P: Port>(
        &self,
        verbs: Verbs<'e, P>,
        lock: &RecordLock,
        version: Version,
        value: &[u8],
    ) -> Result<Pending<'e, P, ()>, RemoteError> {
        if value.len() != lock.value_length() {
            return Err(RemoteError::OtherLength { is: lock.value_length(), given: value.len() });
        }
        Ok(post(verbs, lock, version, &seal(lock, version, value))?)
    }

    /// Writes a value of the same length as the previous one, and unlocks the record, in one round
    /// trip. Returns the new version.
    ///
    /// # Errors
    ///
    /// When the value has another length: the error returns the lock. When an operation fails.
    pub async fn write<P: Port>(
        &self,
        verbs: Verbs<'_, P>,
        lock: RecordLock,
        value: &[u8],
    ) -> Result<Version, Unwritten> {
        if value.len() != lock.value_length() {
            let error = RemoteError::OtherLength { is: lock.value_length(), given: value.len() };
            return Err(Unwritten { lock: Some(lock), error });
        }
        let version = lock.version().next();
        let sealed = seal(&lock, version, value);
        let mut backoff = Backoff::default();
        let freed = loop {
            match post(verbs, &lock, version, &sealed) {
                Ok(freed) => break freed,
                Err(VerbError::QueueFull { .. } | VerbError::BuffersExhausted { .. }) if backoff.again(verbs).await => {
                }
                Err(error) => return Err(Unwritten { lock: Some(lock), error: error.into() }),
            }
        };
        // Only the last completion is awaited. If another one has failed, then so has the last, and
        // the record stays locked.
        match freed.await {
            Ok(()) => Ok(version),
            Err(error) => Err(Unwritten { lock: None, error: error.into() }),
        }
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

/// Posts all writes in one batch, in order, or none. Returns the last completion.
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
