//! A node's directory and last-level cache, each line of which has a tag: which transaction under
//! way has written it (module 2 of the paper).

use super::{
    cache::{Cache, Place},
    filter::Filter,
    profile::{Line, MachineProfile, Replacement},
};

/// The state of a line of the last-level cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Entry {
    /// The filters of the transaction that has written the line, plus one, or zero.
    tag: u16,
    /// Whether memory has another value. Of a tagged line, memory has the committed one.
    pub(super) is_dirty: bool,
    /// The cores whose caches may have the line, a bit each.
    pub(super) sharers: u32,
}

impl Entry {
    pub(super) fn writer(self) -> Option<u16> {
        self.tag.checked_sub(1)
    }

    pub(super) fn set_writer(&mut self, slot: Option<u16>) {
        self.tag = slot.map_or(0, |slot| slot + 1);
    }
}

#[derive(Clone, Debug)]
pub(super) struct Directory {
    cache: Cache<Entry>,
    replacement: Replacement,
    /// Sets of a slice that one bit of a write filter stands for are this far apart.
    indexed: usize,
}

impl Directory {
    /// Creates an empty one, with a slice for each core.
    pub(super) fn new(profile: &MachineProfile) -> Self {
        let cache = Cache::new(profile.llc, profile.cores);
        let indexed = profile.write_bits.1 as usize;
        assert!(cache.sets() >= indexed, "a bit of the write filter stands for at least one set");
        Self { cache, replacement: profile.replacement, indexed }
    }

    #[inline]
    pub(super) fn touch(&mut self, line: Line) -> Option<Place> {
        self.cache.touch(line)
    }

    #[inline]
    pub(super) fn state(&mut self, place: Place) -> &mut Entry {
        self.cache.state(place)
    }

    /// Adds a line that is not there. Returns its place, and what was evicted.
    pub(super) fn fill(&mut self, line: Line) -> (Place, Option<(Line, Entry)>) {
        let spares = self.replacement == Replacement::SparesWritten;
        self.cache.fill(line, |entry| spares && entry.writer().is_some())
    }

    pub(super) fn remove(&mut self, line: Line) -> Option<Entry> {
        self.cache.remove(line)
    }

    /// Returns the lines that are tagged with a transaction, whose write filter says which sets can
    /// have them.
    pub(super) fn written(&self, slot: u16, filter: &Filter) -> Vec<Line> {
        let mut found = Vec::new();
        filter.each_index(|index| {
            for index in (index..self.cache.sets()).step_by(self.indexed) {
                self.cache.find_all(index, |entry| entry.writer() == Some(slot), &mut found);
            }
        });
        found
    }

    #[cfg(test)]
    pub(super) fn contents(&self) -> Vec<(Line, Entry)> {
        self.cache.contents()
    }

    #[cfg(test)]
    pub(super) fn find(&self, line: Line) -> Option<Entry> {
        self.cache.contents().into_iter().find(|(held, _)| *held == line).map(|(_, entry)| entry)
    }
}
