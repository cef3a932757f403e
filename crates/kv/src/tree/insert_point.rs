//! Where a key's way through the tree ends.

use drtm_htm::Engine;

use super::node::Seen;
use crate::layout::Place;

/// Where a word is in its leaf, or would be: as of the leaf's stamp.
#[derive(Debug)]
pub struct InsertPoint<'t, E: Engine> {
    /// The root under which the leaf was found, as it was then.
    pub(super) root: Seen<'t, E>,
    /// Roots above that one.
    pub(super) depth: usize,
    pub(super) word: u64,
    pub(super) leaf: Seen<'t, E>,
    pub(super) slot: usize,
    /// The word's link, if the word is there.
    pub(super) link: Option<u64>,
}

impl<E: Engine> InsertPoint<'_, E> {
    /// The record at the end of a key's way.
    #[inline(always)]
    pub(super) fn record(&self) -> Option<Place> {
        self.link.map(Place::from_link)
    }
}

/// What became of an attempt to put a record into its leaf.
#[derive(Debug)]
pub enum Put {
    /// It is in the leaf at this place.
    Done(u64),
    /// A key was removed meanwhile that had a higher version: start from this one.
    Below(u64),
    /// The leaf has changed, or somebody is changing it.
    Retry,
}
