//! Fetching a record of which only the place is known.
//!
//! How long it is, the record itself says. So a first READ is as long as records have been of late;
//! where that is too short, a second is as long as the record has said. One may say anything (it
//! may be torn), so its lengths are bounded before they are believed that far.

use std::{
    ops::Deref,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use drtm_rdma::{Port, VerbError, Verbs, Words};

use super::{
    error::RemoteError,
    image::{Image, LEAST_WORDS, Whole},
};
use crate::{Location, Look, Turn, Version, keys::Keys, peer::turns_of};

/// Words of a first READ before anything is known of a table's records: two cache lines.
const FIRST_GUESS: usize = 16;

/// How long the records of a table are.
#[derive(Debug)]
pub(super) struct Expected(AtomicUsize);

impl Expected {
    pub(super) fn new() -> Self {
        Self(AtomicUsize::new(FIRST_GUESS))
    }

    /// Words to fetch, without asking for more than one READ can bring.
    pub(super) fn words<P: Port>(&self, verbs: Verbs<'_, P>) -> usize {
        self.0.load(Relaxed).min(most_words(verbs)).max(LEAST_WORDS)
    }

    /// Learns from a record: at once if it was longer, slowly if it was shorter, since a second
    /// READ costs more than some words.
    fn learn(&self, words: usize) {
        let expected = self.0.load(Relaxed);
        let next = expected - expected.saturating_sub(words).div_ceil(16);
        if next.max(words) != expected {
            self.0.store(next.max(words), Relaxed);
        }
    }
}

/// Words that one READ can bring.
fn most_words<P: Port>(verbs: Verbs<'_, P>) -> usize {
    verbs.endpoint().capabilities().max_read_bytes / size_of::<u64>()
}

/// What was fetched.
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

/// Fetches so many words, and the turn that it was after them.
async fn fetch<'e, P: Port>(
    verbs: Verbs<'e, P>,
    at: Location,
    count: usize,
) -> Result<(Fetched<'e, P>, Turn), VerbError> {
    let (most, turns) = (most_words(verbs), turns_of(at.record));
    if count <= most {
        // Of two READs to one node, the later one is the later.
        let mut batch = verbs.batch();
        if let (Ok(words), Ok(turn)) = (batch.read(at.record, count), batch.read(turns, 1)) {
            batch.ring();
            return Ok((Fetched::AtOnce(words.await?), Turn(turn.await?[0])));
        }
        // There was no room for both at once.
        drop(batch);
        let words = verbs.read(at.record, count).await?;
        return Ok((Fetched::AtOnce(words), Turn(verbs.read_word(turns).await?)));
    }
    // From different moments, as the lines of each are: the checksum is for all of them.
    let mut words = Vec::with_capacity(count);
    while words.len() < count {
        let piece = verbs.read(at.record + 8 * words.len() as u64, most.min(count - words.len())).await?;
        words.extend_from_slice(&piece);
    }
    Ok((Fetched::InPieces(words), Turn(verbs.read_word(turns).await?)))
}

/// What became of looking at a record that is there.
pub(super) enum Looked {
    At(Look<Whole>),
    /// What was fetched does not belong together, and shows this version.
    Torn(Version),
}

/// Looks at a record once: at `fetched`, if there is something already, and then at as much of the
/// record as it takes.
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
                // It was a lie, told by words of different moments: there is no record so long.
                Err(VerbError::OutOfBounds { .. }) if claimed.is_some() => {
                    (Image::Torn(claimed.unwrap_or_default()), at.since)
                }
                // Records are short near the end of a region. This one tells how short.
                Err(VerbError::OutOfBounds { .. }) if count > LEAST_WORDS => {
                    count = LEAST_WORDS;
                    continue;
                }
                Err(error) => return Err(error.into()),
            },
        };
        // Another record, perhaps, whose incarnation has come round to that of the one looked for.
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
            Image::Unchecked => return Err(RemoteError::NotForPeers { at: at.record }),
        });
    }
}

/// Tells corruption from bad luck.
#[derive(Debug, Default)]
pub(super) struct Suspicion {
    version: Version,
    times: u32,
}

impl Suspicion {
    /// One READ can be torn by the write that announced a version, and the next by the write that
    /// takes it away. A third finds another version, or whole words, unless nobody writes and the
    /// words are just wrong.
    const TIMES: u32 = 3;

    /// Takes note of a record that looked torn; whether that proves that it is corrupt.
    pub(super) fn is_proven_by(&mut self, version: Version) -> bool {
        self.times = if self.version == version { self.times + 1 } else { 1 };
        self.version = version;
        self.times >= Self::TIMES
    }
}
