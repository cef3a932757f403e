//! An index over a list that grows: finds the numbers of its entries by hashes.

/// From how many entries on a list is worth an index.
pub(super) const INDEX_FROM: usize = if cfg!(test) { 4 } else { 8 };

/// The fewest slots of an index.
const LEAST_SLOTS: usize = if cfg!(test) { 16 } else { 128 };

#[cfg(test)]
thread_local! {
    /// How often this thread has looked at an entry of some list.
    pub(super) static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Counts a look at an entry, for tests.
#[inline(always)]
pub(super) fn step() {
    #[cfg(test)]
    STEPS.set(STEPS.get() + 1);
}

/// No number.
const EMPTY: u32 = u32::MAX;

/// Numbers of entries, by open addressing. An entry whose hash has changed may be here twice: only
/// the place of its hash of now counts.
#[derive(Debug, Default)]
pub(super) struct Finder {
    /// A power of two of these, or none.
    slots: Vec<u32>,
    used: usize,
}

impl Finder {
    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        if self.used > 0 {
            self.slots.fill(EMPTY);
            self.used = 0;
        }
    }

    /// Returns the entry with a hash for which `is_it` holds.
    pub(super) fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        let mut at = self.first(hash);
        while self.slots[at] != EMPTY {
            step();
            if is_it(self.slots[at]) {
                return Some(self.slots[at]);
            }
            at = self.next(at);
        }
        None
    }

    /// Adds an entry. `hash_of` gives the hashes of all.
    pub(super) fn add(&mut self, number: u32, hash_of: impl Fn(u32) -> u64) {
        if 2 * (self.used + 1) > self.slots.len() {
            let length = (2 * self.slots.len()).max(LEAST_SLOTS);
            let before = std::mem::replace(&mut self.slots, vec![EMPTY; length]);
            self.used = 0;
            before.into_iter().filter(|number| *number != EMPTY).for_each(|number| self.put(number, hash_of(number)));
        }
        self.put(number, hash_of(number));
    }

    fn put(&mut self, number: u32, hash: u64) {
        let mut at = self.first(hash);
        while self.slots[at] != EMPTY {
            step();
            if self.slots[at] == number {
                return;
            }
            at = self.next(at);
        }
        self.slots[at] = number;
        self.used += 1;
    }

    fn first(&self, hash: u64) -> usize {
        // Whatever bits of the hash differ.
        (hash.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & (self.slots.len() - 1)
    }

    fn next(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }
}
