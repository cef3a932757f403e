//! The end of a key's path through the tree.

use drtm_htm::Engine;

use super::node::Seen;
use crate::store::layout::Place;

/// The position of a word in its leaf, or where it would be inserted, as of the leaf's stamp.
#[derive(Debug)]
pub struct InsertPoint<'t, E: Engine> {
    /// The root under which the leaf was found, as it was then.
    pub(super) root: Seen<'t, E>,
    /// The number of roots above that one.
    pub(super) depth: usize,
    pub(super) word: u64,
    pub(super) leaf: Seen<'t, E>,
    pub(super) slot: usize,
    /// The word's link. `None`: the word is absent.
    pub(super) link: Option<u64>,
}

impl<E: Engine> InsertPoint<'_, E> {
    /// Returns the record at the end of a key's path.
    #[inline(always)]
    pub(super) fn record(&self) -> Option<Place> {
        self.link.map(Place::from_link)
    }
}

/// The outcome of an attempt to put a record into its leaf.
#[derive(Debug)]
pub enum Put {
    /// The record is in the leaf at this place.
    Done(u64),
    /// Another key with a higher version was removed meanwhile: start from this number.
    Below(u64),
    /// The leaf has changed, or is being changed.
    Retry,
}
