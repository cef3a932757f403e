//! Where records are that a transaction has asked for ahead, so that they need not be looked for again.
//!
//! What is remembered are hints: a record that has moved since, or is gone, has another incarnation, and is then looked for as ever.

use drtm_kv::Handle;

/// How many are remembered. A later one takes the place of an earlier one.
const PLACES: usize = 128;

#[derive(Clone, Copy, Debug)]
struct Place {
    transaction: u32,
    table: u16,
    word: u64,
    at: Option<Handle>,
}

#[derive(Debug)]
pub(crate) struct Located {
    places: [Place; PLACES],
    /// The number of the transaction, after which what it has asked for is forgotten.
    transaction: u32,
    is_empty: bool,
}

impl Default for Located {
    fn default() -> Self {
        let nowhere = Place { transaction: 0, table: 0, word: 0, at: None };
        Self { places: [nowhere; PLACES], transaction: 1, is_empty: true }
    }
}

/// Which place a key has. Keys that follow one another have different ones.
#[inline(always)]
fn slot(table: u16, word: u64) -> usize {
    (word as usize ^ (usize::from(table) << 6)) % PLACES
}

impl Located {
    #[inline(always)]
    pub(crate) fn note(&mut self, table: u16, word: u64, at: Handle) {
        self.is_empty = false;
        self.places[slot(table, word)] = Place { transaction: self.transaction, table, word, at: Some(at) };
    }

    #[inline(always)]
    pub(crate) fn find(&self, table: u16, word: u64) -> Option<Handle> {
        if self.is_empty {
            return None;
        }
        let place = &self.places[slot(table, word)];
        let is_it = (place.transaction, place.table, place.word) == (self.transaction, table, word);
        if is_it { place.at } else { None }
    }

    /// Forgets everything, for the next transaction.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        if !self.is_empty {
            self.transaction = self.transaction.wrapping_add(1);
            self.is_empty = true;
        }
    }
}
