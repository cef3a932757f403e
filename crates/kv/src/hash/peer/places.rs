//! The known places of the segments of a table on another node.

use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use drtm_rdma::{Port, Remote, Verbs};

use crate::{
    hash::segments::{self, SegmentPlace},
    remote::peer::{PeerError, within},
    store::layout::BUCKET_BYTES,
};

/// The places of segments that have been fetched. Segments never move, so these places stay valid.
///
/// Memory is allocated as the table's own: for the header at first, and for a directory's segments
/// when the first of them is fetched.
#[derive(Debug)]
pub(super) struct Places {
    table: Remote,
    /// The first of the header's words that have the places.
    header: Remote,
    /// By segment: the offset, or zero if it is not known.
    first: [AtomicU64; segments::DOUBLING],
    further: [OnceLock<Box<[AtomicU64]>>; segments::DIRECTORIES],
}

impl Places {
    pub(super) fn new(table: Remote, word: usize) -> Self {
        Self {
            table,
            header: table + 8 * word as u64,
            first: [const { AtomicU64::new(0) }; _],
            further: [const { OnceLock::new() }; _],
        }
    }

    /// Returns a bucket's place. `None`: its segment does not exist.
    pub(super) async fn of<P: Port>(&self, verbs: Verbs<'_, P>, bucket: u64) -> Result<Option<Remote>, PeerError> {
        if bucket >= segments::MOST {
            return Ok(None);
        }
        let (segment, within_segment) = segments::locate(bucket);
        let kept = segments::kept(segment);
        let known = self.known(&kept);
        let begins = match known.load(Relaxed) {
            0 => {
                let begins = self.ask(verbs, &kept).await?;
                known.store(begins, Relaxed);
                begins
            }
            begins => begins,
        };
        if begins == 0 {
            return Ok(None);
        }
        within(self.table, "the place of a segment", begins, within_segment * BUCKET_BYTES).map(Some)
    }

    fn known(&self, kept: &SegmentPlace) -> &AtomicU64 {
        match *kept {
            SegmentPlace::Header(word) => &self.first[word],
            SegmentPlace::Directory { word, length, index } => {
                let directory = &self.further[word - segments::DOUBLING];
                let known = directory.get_or_init(|| (0..length).map(|_| AtomicU64::new(0)).collect());
                &known[index as usize]
            }
        }
    }

    async fn ask<P: Port>(&self, verbs: Verbs<'_, P>, kept: &SegmentPlace) -> Result<u64, PeerError> {
        match *kept {
            SegmentPlace::Header(word) => Ok(verbs.read_word(self.header + 8 * word as u64).await?),
            SegmentPlace::Directory { word, index, .. } => {
                match verbs.read_word(self.header + 8 * word as u64).await? {
                    0 => Ok(0),
                    directory => {
                        let at = within(self.table, "the place of a directory of segments", directory, 8 * index)?;
                        Ok(verbs.read_word(at).await?)
                    }
                }
            }
        }
    }
}
