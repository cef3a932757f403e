//! Fetching a record of which only the place is known.
//!
//! The record itself has its length. So a first READ is as long as recent records were. If that is
//! too short, a second READ is as long as the record says. A torn record may have any lengths, so
//! they are bounded before they are used.

use std::{
    ops::Deref,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use drtm_rdma::{Port, Remote, VerbError, Verbs, Words};

use super::{
    error::RemoteError,
    image::{Image, LEAST_WORDS, Whole},
};
use crate::{Holder, Location, Look, State, Version, record::keys::Keys};

/// The number of words of a first READ before any record of a table was read: two cache lines.
const FIRST_GUESS: usize = 16;

/// The expected length of a table's records.
#[derive(Debug)]
pub(super) struct Expected(AtomicUsize);

impl Expected {
    pub(super) fn new() -> Self {
        Self(AtomicUsize::new(FIRST_GUESS))
    }

    /// Returns the number of words to fetch, which one READ can fetch.
    pub(super) fn words<P: Port>(&self, verbs: Verbs<'_, P>) -> usize {
        self.0.load(Relaxed).min(most_words(verbs)).max(LEAST_WORDS)
    }

    /// Learns from a record's length: at once if it was longer, slowly if shorter, since a second
    /// READ costs more than superfluous words.
    fn learn(&self, words: usize) {
        let expected = self.0.load(Relaxed);
        let next = expected - expected.saturating_sub(words).div_ceil(16);
        if next.max(words) != expected {
            self.0.store(next.max(words), Relaxed);
        }
    }
}

/// Returns the most words that one READ can fetch.
fn most_words<P: Port>(verbs: Verbs<'_, P>) -> usize {
    verbs.endpoint().capabilities().max_read_bytes / size_of::<u64>()
}

/// The fetched words.
enum Fetched<'e, P: Port> {
    AtOnce(Words<'e, P>),
    /// A record that is longer than one READ.
    InPieces(Vec<u64>),
}

impl<P: Port> Deref for Fetched<'_, P> {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        match self {
            Self::AtOnce(words) => words,
            Self::InPieces(words) => words,
        }
    }
}

/// Fetches `count` words.
async fn fetch<P: Port>(verbs: Verbs<'_, P>, at: Remote, count: usize) -> Result<Fetched<'_, P>, VerbError> {
    let most = most_words(verbs);
    if count <= most {
        return Ok(Fetched::AtOnce(verbs.read(at, count).await?));
    }
    // The pieces are from different moments, as lines are: the checksum covers all of them.
    let mut words = Vec::with_capacity(count);
    while words.len() < count {
        let piece = verbs.read(at + 8 * words.len() as u64, most.min(count - words.len())).await?;
        words.extend_from_slice(&piece);
    }
    Ok(Fetched::InPieces(words))
}

/// The outcome of one read of a record.
pub(super) enum Looked {
    At(Look<Whole>),
    /// The fetched words are torn, and have this version and state.
    Torn(Version, State),
}

/// Reads a record once: first from `fetched`, if that is given, and then as much of the record as
/// necessary.
pub(super) async fn look<K: Keys, P: Port>(
    verbs: Verbs<'_, P>,
    at: Location,
    key: K::Key<'_>,
    expected: &Expected,
    fetched: Option<Words<'_, P>>,
    value: &mut Vec<u8>,
) -> Result<Looked, RemoteError> {
    let mut count = expected.words(verbs);
    let mut image = fetched.map(|words| Image::of::<K>(&words, at.incarnation, key, value));
    let mut claimed = None;
    loop {
        let seen = match image.take() {
            Some(image) => image,
            None => match fetch(verbs, at.record, count).await {
                Ok(words) => Image::of::<K>(&words, at.incarnation, key, value),
                // The length was wrong, from torn words: there is no record so long.
                Err(VerbError::OutOfBounds { .. }) if claimed.is_some() => {
                    let (version, state) = claimed.unwrap_or_default();
                    Image::Torn(version, state)
                }
                // Records near the end of a region may be short. This READ fetches the length.
                Err(VerbError::OutOfBounds { .. }) if count > LEAST_WORDS => {
                    count = LEAST_WORDS;
                    continue;
                }
                Err(error) => return Err(error.into()),
            },
        };
        return Ok(match seen {
            Image::Whole(whole) => {
                expected.learn(whole.shape.value_words().end + 1);
                Looked::At(Look::Found(whole))
            }
            Image::Longer(words, version, state) => {
                (count, claimed) = (words, Some((version, state)));
                continue;
            }
            Image::Other => Looked::At(Look::Other),
            Image::Stale => Looked::At(Look::Stale),
            Image::Writing => Looked::At(Look::Busy),
            Image::Torn(version, state) => Looked::Torn(version, state),
        });
    }
}

/// Distinguishes corruption from repeatedly torn READs.
///
/// READs of one version, one after the other, that are torn though each sees the lock free, are not
/// torn for long. The version was being stored or had been when the first saw it, under a lock that
/// was free again when the second looked: so all of it had been stored then. If the third is torn,
/// the next write has begun. Its lock was free again when the fourth looked, so the fifth finds
/// another version, or the record is corrupt.
#[derive(Debug, Default)]
pub(super) struct Suspicion {
    version: Version,
    times: u32,
}

impl Suspicion {
    const TIMES: u32 = 5;

    /// Counts a record that looked torn. Returns whether it is corrupt.
    pub(super) fn is_proven_by(&mut self, version: Version, state: State, mine: Option<Holder>) -> bool {
        if state.holder().is_some_and(|holder| Some(holder) != mine) {
            // A peer may be writing it, or may have died while it did.
            self.times = 0;
            return false;
        }
        self.times = if self.version == version { self.times + 1 } else { 1 };
        self.version = version;
        self.times >= Self::TIMES
    }
}
