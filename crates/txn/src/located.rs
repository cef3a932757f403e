//! Where records are that a transaction has asked for ahead, so that they need not be looked for again.
//!
//! Rows are most often come to in the order in which they were asked for: so what is remembered of a table is a stream, and where in it the transaction is.
//! What is remembered are hints: a record that has moved since, or is gone, has another incarnation, and is then looked for as ever.

use drtm_kv::Handle;

/// How many tables' rows are remembered. A later one takes the place of an earlier one.
const STREAMS: usize = 8;

/// How many rows are remembered in all.
const MOST: usize = 4096;

/// How many rows of a stream are looked at for one that is not the next.
const REACH: usize = 16;

/// A row, and where it is, if that is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) word: u64,
    pub(crate) at: Option<Handle>,
}

/// A table's rows among the entries.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    transaction: u32,
    table: u16,
    begin: u32,
    next: u32,
    end: u32,
}

#[derive(Debug)]
pub(crate) struct Located {
    entries: Vec<Entry>,
    streams: [Stream; STREAMS],
    /// The number of the transaction, after which what it has asked for is forgotten.
    transaction: u32,
}

impl Default for Located {
    fn default() -> Self {
        Self { entries: Vec::new(), streams: Default::default(), transaction: 1 }
    }
}

impl Located {
    /// Remembers where rows of a table are, or that it is not known: those that `tell` adds, in their order, after those that were noted last if these are the
    /// same table's.
    #[inline(always)]
    pub(crate) fn note(&mut self, table: u16, tell: impl FnOnce(&mut Vec<Entry>)) {
        let begin = self.entries.len() as u32;
        // Whoever tells asks for memory, too, whether it is remembered or not.
        tell(&mut self.entries);
        self.entries.truncate(MOST);
        let end = self.entries.len() as u32;
        if begin == end {
            return;
        }
        let stream = &mut self.streams[usize::from(table) % STREAMS];
        if (stream.transaction, stream.table, stream.end) != (self.transaction, table, begin) {
            *stream = Stream { transaction: self.transaction, table, begin, next: begin, end };
        }
        stream.end = end;
    }

    /// Where a row is, if that was noted.
    #[inline(always)]
    pub(crate) fn find(&mut self, table: u16, word: u64) -> Option<Handle> {
        if self.entries.is_empty() {
            return None;
        }
        let stream = &mut self.streams[usize::from(table) % STREAMS];
        if (stream.transaction, stream.table) != (self.transaction, table) {
            return None;
        }
        // The same as before, or the next.
        let rest = self.entries.get(stream.next as usize..stream.end as usize)?;
        match rest {
            [entry, ..] if entry.word == word => entry.at,
            [_, entry, ..] if entry.word == word => {
                stream.next += 1;
                entry.at
            }
            _ => self.find_apart(table, word),
        }
    }

    /// The same for a row that is come to out of its turn.
    #[inline(never)]
    fn find_apart(&mut self, table: u16, word: u64) -> Option<Handle> {
        let stream = &mut self.streams[usize::from(table) % STREAMS];
        let (begin, next, end) = (stream.begin as usize, stream.next as usize, stream.end as usize);
        let found =
            (next..end).take(REACH).chain((begin..next).take(REACH)).find(|at| self.entries[*at].word == word)?;
        stream.next = found as u32;
        self.entries[found].at
    }

    /// Forgets everything, for the next transaction.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        if !self.entries.is_empty() {
            self.entries.clear();
            self.transaction = self.transaction.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use drtm_htm::NoHtm;
    use drtm_kv::{HashConfig, Placed, Store};

    use super::*;

    /// So many handles of records.
    fn handles(count: usize) -> Vec<Handle> {
        let store = Store::in_memory(NoHtm, 16 << 20).expect("memory");
        let (table, mut worker) = (store.hash_table(HashConfig::default()).expect("room"), store.worker());
        let place = |word| match table.place(&mut worker, word, b"", |_| ()).expect("room") {
            Placed::Made(seen) | Placed::Found(seen) => seen.at,
        };
        (0..count as u64).map(place).collect()
    }

    /// Notes these rows, with numbers of handles.
    fn note(located: &mut Located, table: u16, handles: &[Handle], rows: &[(u64, usize)]) {
        let entries = rows.iter().map(|(word, at)| Entry { word: *word, at: Some(handles[*at]) });
        located.note(table, |all| all.extend(entries));
    }

    #[test]
    fn rows_are_found_in_their_turn_and_out_of_it() {
        let (mut located, handles) = (Located::default(), handles(40));
        let found = |located: &mut Located, table, word| {
            let at = located.find(table, word)?;
            handles.iter().position(|handle| *handle == at)
        };
        assert_eq!(found(&mut located, 1, 10), None);
        note(&mut located, 1, &handles, &[(10, 0), (11, 1)]);
        // In two pieces, and with another table's rows behind them.
        note(&mut located, 1, &handles, &[(12, 2)]);
        note(&mut located, 2, &handles, &[(10, 3), (13, 4)]);
        for word in [10, 10, 11, 12, 12, 10, 12, 11] {
            assert_eq!(found(&mut located, 1, word), Some(word as usize - 10));
        }
        assert_eq!([10, 13, 11].map(|word| found(&mut located, 2, word)), [Some(3), Some(4), None]);
        assert_eq!(found(&mut located, 3, 10), None);

        // Of a table that shares its place with another, the last ones are there; of one that is asked for again, too.
        note(&mut located, 1, &handles, &[(20, 5)]);
        assert_eq!([20, 10].map(|word| found(&mut located, 1, word)), [Some(5), None]);
        note(&mut located, 1 + STREAMS as u16, &handles, &[(20, 6)]);
        assert_eq!((found(&mut located, 1, 20), found(&mut located, 1 + STREAMS as u16, 20)), (None, Some(6)));

        located.clear();
        assert_eq!(found(&mut located, 2, 10), None);
        note(&mut located, 2, &handles, &[(14, 7)]);
        assert_eq!([14, 10].map(|word| found(&mut located, 2, word)), [Some(7), None], "nothing from before");
    }

    #[test]
    fn no_more_is_remembered_than_there_is_room_for() {
        let (mut located, handles) = (Located::default(), handles(1));
        for word in 0..2 * MOST as u64 {
            note(&mut located, 1, &handles, &[(word, 0)]);
        }
        assert_eq!(located.entries.len(), MOST);
        let mut was_asked = false;
        located.note(1, |_| was_asked = true);
        assert!(was_asked, "for the memory, all the same");
        assert!(located.find(1, 0).is_some() && located.find(1, 1).is_some());
        // Far from its turn, a row is looked for as ever.
        assert!(located.find(1, 2 + REACH as u64).is_none() && located.find(1, 2 * MOST as u64 - 1).is_none());
    }
}
