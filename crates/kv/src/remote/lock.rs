//! Locking another node's records, and giving locks up.

use drtm_rdma::{Atomicity, Batch, Capabilities, Pending, Port, Remote, VerbError, Verbs, Words};

use super::{
    backoff::Backoff,
    error::RemoteError,
    image::Whole,
    record::RecordPeer,
    wire::{Answer, Request, ask},
};
use crate::{
    Acquire, Head, Holder, Leases, Location, Look, State, Turn, Version, acquire,
    keys::Keys,
    layout::Place,
    peer::turns_of,
    record::{HEAD, STATE},
};

/// Who swaps the state words of records that peers lock: exactly one kind of agent for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Locking {
    /// Whoever wants the lock, since all swaps are atomic with each other.
    BySwap,
    /// The owner's processors alone: the NIC's swaps are not atomic with theirs, or there are none.
    ByMessage,
}

impl Locking {
    /// The one place where it is decided.
    fn over(capabilities: &Capabilities) -> Self {
        match capabilities.atomicity {
            Atomicity::Global => Self::BySwap,
            Atomicity::Hca | Atomicity::None => Self::ByMessage,
        }
    }
}

/// Two words to be read with a lock.
struct Line {
    at: Option<Remote>,
    is: Option<[u64; 2]>,
    /// Whether the lock was taken by the first doorbell that was rung for it.
    is_prompt: bool,
}

/// A record that its holder has locked. It stays locked until it is [written](RecordPeer::write) or
/// [unlocked](RecordPeer::unlock): to drop this is not to give the lock up, which takes a round
/// trip.
///
/// # Example
///
/// See [`RecordPeer`].
#[derive(Debug)]
#[must_use = "the record stays locked until it is written or unlocked"]
pub struct RecordLock {
    pub(super) location: Location,
    pub(super) holder: Holder,
    /// The word that stands for the key.
    pub(super) key: u64,
    pub(super) whole: Whole,
    line: Option<[u64; 2]>,
    is_prompt: bool,
}

/// The words of a line, under way: fetched at once where that cannot tear them, and one after the
/// other elsewhere.
enum LineWords<'e, P: Port> {
    Together(Posted<'e, P>),
    InTurn([Posted<'e, P>; 2]),
}

/// Words that are being read, if there was room for that.
type Posted<'e, P> = Result<Pending<'e, P, Words<'e, P>>, VerbError>;

impl<'e, P: Port> LineWords<'e, P> {
    fn post(verbs: Verbs<'e, P>, batch: &mut Batch<'e, P>, at: Remote) -> Self {
        if verbs.endpoint().capabilities().reads_at_once(at.offset, 2) {
            Self::Together(batch.read(at, 2))
        } else {
            Self::InTurn([batch.read(at, 1), batch.read(at + 8, 1)])
        }
    }

    async fn fetched(self) -> Option<[u64; 2]> {
        Some(match self {
            Self::Together(words) => {
                let words = words.ok()?.await.ok()?;
                [words[0], words[1]]
            }
            Self::InTurn([first, second]) => [first.ok()?.await.ok()?[0], second.ok()?.await.ok()?[0]],
        })
    }
}

impl RecordLock {
    /// The words that were [read after](RecordPeer::lock_and_read) the lock was taken, if there was
    /// room for that.
    #[must_use]
    pub fn line(&self) -> Option<[u64; 2]> {
        self.line
    }

    /// Whether the first doorbell that was rung for the lock has taken it: no later, then, than
    /// what was posted behind that.
    #[must_use]
    pub fn is_prompt(&self) -> bool {
        self.is_prompt
    }

    /// The version that the record has, and will have while it is locked.
    #[must_use]
    pub fn version(&self) -> Version {
        self.whole.version
    }

    /// The length of its value, which a value that is written in place must have.
    #[must_use]
    pub fn value_length(&self) -> usize {
        self.whole.shape.value
    }

    /// Where it is.
    #[must_use]
    pub fn location(&self) -> Location {
        self.location
    }
}

impl<K: Keys> RecordPeer<K> {
    /// Locks the record in the name of `holder`, who knows this of leases, and reads its value.
    ///
    /// One round trip where state words are swapped by peers, two where the owner is asked to lock:
    /// it must [serve](crate::Service) the table then.
    ///
    /// # Errors
    ///
    /// When an operation fails, or the record is corrupt. The record is not locked then, unless the
    /// fabric has failed to say whether it is.
    pub async fn lock<P: Port>(
        &self,
        verbs: Verbs<'_, P>,
        location: Location,
        key: K::Key<'_>,
        holder_and_leases: (Holder, Leases),
        value: &mut Vec<u8>,
    ) -> Result<Look<RecordLock>, RemoteError> {
        let mut backoff = Backoff::default();
        loop {
            match self.lock_and_read(verbs, location, key, holder_and_leases, value, None).await? {
                Look::Busy if backoff.again(verbs).await => {}
                looked => return Ok(looked),
            }
        }
    }

    /// [Locks](Self::lock) the record if it is free, without waiting for it, and reads two words of
    /// the owner's in the same round trip: after the lock was taken, and the first no later than
    /// the second. They are the lock's [line](RecordLock::line).
    ///
    /// # Errors
    ///
    /// As for [`lock`](Self::lock).
    pub async fn lock_and_read<P: Port>(
        &self,
        verbs: Verbs<'_, P>,
        location: Location,
        key: K::Key<'_>,
        (holder, leases): (Holder, Leases),
        value: &mut Vec<u8>,
        line_at: Option<Remote>,
    ) -> Result<Look<RecordLock>, RemoteError> {
        let mut line = Line { at: line_at, is: None, is_prompt: false };
        let fetched = match self.acquire(verbs, location, key, (holder, leases), &mut line).await?.found() {
            Ok(fetched) => fetched,
            Err(not_had) => return Ok(not_had),
        };
        let looked = self.look(verbs, location, key, fetched, value).await;
        let not_it = match looked.map(Look::found) {
            Ok(Ok(whole)) => {
                let key = K::word(key);
                let Line { is: line, is_prompt, .. } = line;
                return Ok(Look::Found(RecordLock { location, holder, key, whole, line, is_prompt }));
            }
            Ok(Err(other)) => Ok(other),
            Err(error) => Err(error),
        };
        // It is another record by now, or not readable: what was locked is given up.
        self.release(verbs, location, holder).await?;
        not_it
    }

    /// Gives a lock up. The record is as it was before it was locked.
    ///
    /// # Errors
    ///
    /// When an operation fails, or the lock is not the holder's any more: then it has been taken
    /// from him, and the record is not touched.
    pub async fn unlock<P: Port>(&self, verbs: Verbs<'_, P>, lock: RecordLock) -> Result<(), RemoteError> {
        self.release(verbs, lock.location, lock.holder).await
    }

    /// Tries once to lock the record. Gives what was fetched along with it, perhaps.
    async fn acquire<'e, P: Port>(
        &self,
        verbs: Verbs<'e, P>,
        location: Location,
        key: K::Key<'_>,
        (holder, leases): (Holder, Leases),
        line: &mut Line,
    ) -> Result<Look<Option<(Words<'e, P>, Turn)>>, RemoteError> {
        match Locking::over(verbs.endpoint().capabilities()) {
            Locking::BySwap => self.swap_and_fetch(verbs, location, (holder, leases), line).await,
            Locking::ByMessage => {
                let place = Place { word: location.record.offset.word(), incarnation: location.incarnation };
                let request =
                    K::with_bytes(key, |key| Request::Lock { key, place, holder, leases }.to_bytes(self.table));
                match ask(verbs, Self::owner(location), &request).await?.answer()? {
                    Answer::Done(_) => Ok(Look::Found(None)),
                    Answer::Stale => Ok(Look::Stale),
                    Answer::Busy => Ok(Look::Busy),
                    _ => Err(RemoteError::Reply { what: "it does not answer a request for a lock" }),
                }
            }
        }
    }

    /// Swaps the state word as [`acquire`] says, first as of a free record, and fetches the record
    /// along with that.
    async fn swap_and_fetch<'e, P: Port>(
        &self,
        verbs: Verbs<'e, P>,
        location: Location,
        (holder, leases): (Holder, Leases),
        line: &mut Line,
    ) -> Result<Look<Option<(Words<'e, P>, Turn)>>, RemoteError> {
        let at = location.record + 8 * STATE as u64;
        let mut seen = State::FREE;
        while let Acquire::Swap(from) = acquire(seen, holder, leases) {
            let mut batch = verbs.batch();
            let swap = batch.compare_swap(at, from.0, holder.word());
            let read = batch.read(location.record, self.expected.words(verbs));
            let turn = batch.read(turns_of(location.record), 1);
            let line_words = line.at.map(|at| LineWords::post(verbs, &mut batch, at));
            (line.is, line.is_prompt) = (None, false);
            let (found, words) = match (swap, read, turn) {
                (Ok(swap), Ok(read), Ok(turn)) => {
                    batch.ring();
                    let (found, words, turn) = (State(swap.await?), read.await, turn.await);
                    if let Some(words) = line_words {
                        line.is = words.fetched().await;
                    }
                    line.is_prompt = seen == State::FREE;
                    (found, Some(words.and_then(|words| Ok((words, Turn(turn?[0]))))))
                }
                _ => {
                    // There was no room for all at once.
                    drop((batch, line_words));
                    (State(verbs.compare_swap(at, from.0, holder.word()).await?), None)
                }
            };
            // Not decisive: what cannot be fetched so is fetched otherwise.
            let words = match words {
                None | Some(Err(VerbError::OutOfBounds { .. })) => None,
                Some(Ok(words)) => Some(words),
                Some(Err(error)) => {
                    if found == from {
                        self.release(verbs, location, holder).await?;
                    }
                    return Err(error.into());
                }
            };
            if found == from {
                return Ok(Look::Found(words));
            }
            // Memory that is free is locked, too, and will be for long.
            if words.is_some_and(|(words, _)| Head(words[HEAD]).incarnation() != location.incarnation) {
                return Ok(Look::Stale);
            }
            seen = found;
        }
        Ok(Look::Busy)
    }

    async fn release<P: Port>(&self, verbs: Verbs<'_, P>, at: Location, holder: Holder) -> Result<(), RemoteError> {
        let found = match Locking::over(verbs.endpoint().capabilities()) {
            Locking::BySwap => {
                State(verbs.compare_swap(at.record + 8 * STATE as u64, holder.word(), State::FREE.0).await?)
            }
            Locking::ByMessage => {
                let place = Place { word: at.record.offset.word(), incarnation: at.incarnation };
                let request = Request::Unlock { place, holder }.to_bytes(self.table);
                match ask(verbs, Self::owner(at), &request).await?.answer()? {
                    Answer::Done(_) => holder.into(),
                    Answer::Held(found) => found,
                    _ => return Err(RemoteError::Reply { what: "it does not answer a request to unlock" }),
                }
            }
        };
        if found == holder.into() { Ok(()) } else { Err(RemoteError::NotHolder { at: at.record, found }) }
    }
}
