//! Fetching a record of which only the place is known.
//!
//! The record itself has its length. So a first READ is as long as recent records were. If that is
//! too short, a second READ is as long as the record says. A torn record may have any lengths, so
//! they are bounded before they are used.

use std::{
    ops::Deref,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use drtm_rdma::{Port, VerbError, Verbs, Words};

use super::{
    error::RemoteError,
    image::{Image, LEAST_WORDS, Whole},
};
use crate::{Location, Look, Turn, Version, record::keys::Keys, remote::peer::turns_of};

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

/// Fetches `count` words, and then the turn.
async fn fetch<'e, P: Port>(
    verbs: Verbs<'e, P>,
    at: Location,
    count: usize,
) -> Result<(Fetched<'e, P>, Turn), VerbError> {
    let (most, turns) = (most_words(verbs), turns_of(at.record));
    if count <= most {
        // Two READs to one node are executed in order.
        let mut batch = verbs.batch();
        if let (Ok(words), Ok(turn)) = (batch.read(at.record, count), batch.read(turns, 1)) {
            batch.ring();
            return Ok((Fetched::AtOnce(words.await?), Turn(turn.await?[0])));
        }
        // The queue had no room for both at once.
        drop(batch);
        let words = verbs.read(at.record, count).await?;
        return Ok((Fetched::AtOnce(words), Turn(verbs.read_word(turns).await?)));
    }
    // The pieces are from different moments, as lines are: the checksum covers all of them.
    let mut words = Vec::with_capacity(count);
    while words.len() < count {
        let piece = verbs.read(at.record + 8 * words.len() as u64, most.min(count - words.len())).await?;
        words.extend_from_slice(&piece);
    }
    Ok((Fetched::InPieces(words), Turn(verbs.read_word(turns).await?)))
}

/// The outcome of one read of a record.
pub(super) enum Looked {
    At(Look<Whole>),
    /// The fetched words are torn, and have this version.
    Torn(Version),
}

/// Reads a record once: first from `fetched`, if that is given, and then as much of the record as
/// necessary.
pub(super) async fn look<K: Keys, P: Port>(
    verbs: Verbs<'_, P>,
    at: Location,
    key: K::Key<'_>,
    expected: &Expected,
    fetched: Option<(Words<'_, P>, Turn)>,
    value: &mut Vec<u8>,
) -> Result<Looked, RemoteError> {
    let mut count = expected.words(verbs);
    let mut image = fetched.map(|(words, turn)| (Image::of::<K>(&words, at.incarnation, key, value), turn));
    let mut claimed = None;
    loop {
        let (seen, turn) = match image.take() {
            Some(image) => image,
            None => match fetch(verbs, at, count).await {
                Ok((words, turn)) => (Image::of::<K>(&words, at.incarnation, key, value), turn),
                // The length was wrong, from torn words: there is no record so long.
                Err(VerbError::OutOfBounds { .. }) if claimed.is_some() => {
                    (Image::Torn(claimed.unwrap_or_default()), at.since)
                }
                // Records near the end of a region may be short. This READ fetches the length.
                Err(VerbError::OutOfBounds { .. }) if count > LEAST_WORDS => {
                    count = LEAST_WORDS;
                    continue;
                }
                Err(error) => return Err(error.into()),
            },
        };
        // It may be another record, whose incarnation has wrapped around to the expected one.
        if !at.is_within(turn) {
            return Ok(Looked::At(Look::Stale));
        }
        return Ok(match seen {
            Image::Whole(whole) => {
                expected.learn(whole.shape.value_words().end + 1);
                Looked::At(Look::Found(whole))
            }
            Image::Longer(words, version) => {
                (count, claimed) = (words, Some(version));
                continue;
            }
            Image::Other => Looked::At(Look::Other),
            Image::Stale => Looked::At(Look::Stale),
            Image::Writing => Looked::At(Look::Busy),
            Image::Torn(version) => Looked::Torn(version),
        });
    }
}

/// Distinguishes corruption from repeatedly torn READs.
#[derive(Debug, Default)]
pub(super) struct Suspicion {
    version: Version,
    times: u32,
}

impl Suspicion {
    /// One READ can be torn by the write that stored a version, and the next by the write that
    /// replaces it. A third READ finds another version or consistent words, unless no thread writes
    /// and the words are corrupt.
    const TIMES: u32 = 3;

    /// Counts a record that looked torn. Returns whether it is corrupt.
    pub(super) fn is_proven_by(&mut self, version: Version) -> bool {
        self.times = if self.version == version { self.times + 1 } else { 1 };
        self.version = version;
        self.times >= Self::TIMES
    }
}
