//! The places of records that a transaction has prefetched, so that they need not be looked up
//! again.
//!
//! Rows are usually read in the order in which they were prefetched. So the places are kept as a
//! stream for each table, with the transaction's position in it. They are hints: a record that has
//! moved since, or is gone, has another incarnation, and its row is then looked up in full.
//!
//! A prefetch takes two steps, or a few more: first the bucket, which gives the place of the record
//! or of another bucket, and then the record. No thread waits for the bucket in between: the next
//! step is made after the transaction has made two of its own. A row that is read earlier has to
//! wait. By then the other rows' buckets have arrived, or nearly, so their records are prefetched
//! while this one is waited for.

use std::ops::Range;

use drtm_kv::{BucketHint, PrefetchMask, Whereabouts};

use crate::memory::heap_size::vec_bytes;

/// The number of tables with a stream. A later table replaces an earlier one.
const STREAMS: usize = 8;

/// The most rows that are kept in all.
const MOST: usize = 4096;

/// The number of rows of a stream that are searched for a row that is not the next.
const REACH: usize = 16;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) word: u64,
    pub(crate) at: Whereabouts,
}

/// The rows of one table among the entries, and the position of the next one to be read.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// The table and transaction that the rows belong to.
    owner: Owner,
    begin: u32,
    next: u32,
    end: u32,
}

/// A table in one transaction. No transaction's number is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Owner(u64);

impl Owner {
    #[inline(always)]
    fn of(transaction: u32, table: u16) -> Self {
        Self(u64::from(transaction) << 16 | u64::from(table))
    }
}

/// Rows whose buckets were prefetched, but not their records: a range of the entries.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    table: u16,
    begin: u32,
    end: u32,
    lines: &'static PrefetchMask,
    /// The step of the transaction at which the buckets have probably arrived.
    due_at: u64,
}

/// The number of the transaction's steps until prefetched memory has probably arrived.
const STEPS_UNTIL_DUE: u64 = 2;

#[derive(Debug)]
pub(crate) struct Located {
    entries: Vec<Entry>,
    streams: [Stream; STREAMS],
    /// The number of the transaction. A new transaction invalidates the streams of the one before.
    transaction: u32,
    waiting: Vec<Waiting>,
    /// How many of `waiting` have been served.
    served: usize,
    /// The number of steps that transactions have made.
    steps: u64,
    /// The step at which the first waiting rows are due.
    due_at: u64,
}

impl Default for Located {
    fn default() -> Self {
        let (entries, waiting) = (Vec::new(), Vec::new());
        let streams = Default::default();
        Self { entries, streams, transaction: 1, waiting, served: 0, steps: 0, due_at: u64::MAX }
    }
}

impl Located {
    /// Returns its size on the heap, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        vec_bytes(&self.entries) + vec_bytes(&self.waiting)
    }

    /// Adds rows of a table, whose buckets were prefetched. They continue the table's stream if it
    /// was the last one added to. Returns whether there was room; if not, nothing was added.
    #[inline(always)]
    pub(crate) fn note(
        &mut self,
        table: u16,
        rows: impl ExactSizeIterator<Item = (u64, BucketHint)>,
        lines: &'static PrefetchMask,
        advance: impl FnOnce(&mut Self),
    ) -> bool {
        let begin = self.entries.len();
        if begin + rows.len() > MOST {
            return false;
        }
        self.entries.extend(rows.map(|(word, bucket)| Entry { word, at: Whereabouts::Bucket(bucket) }));
        if self.step() {
            advance(self);
        }
        let (begin, end) = (begin as u32, self.entries.len() as u32);
        let (stream, owner) = (&mut self.streams[usize::from(table) % STREAMS], Owner::of(self.transaction, table));
        if (stream.owner, stream.end) != (owner, begin) {
            *stream = Stream { owner, begin, next: begin, end };
        }
        stream.end = end;
        self.wait(table, begin..end, lines);
        true
    }

    #[inline(always)]
    fn wait(&mut self, table: u16, entries: Range<u32>, lines: &'static PrefetchMask) {
        let due_at = self.steps + STEPS_UNTIL_DUE;
        self.waiting.push(Waiting { table, begin: entries.start, end: entries.end, lines, due_at });
        self.due_at = self.due_at.min(due_at);
    }

    /// Returns whether nothing was prefetched. Then steps need not be counted.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Counts a step of the transaction. Returns whether it is time to [continue](Self::advance)
    /// the prefetches.
    #[inline(always)]
    pub(crate) fn step(&mut self) -> bool {
        self.steps += 1;
        self.steps >= self.due_at
    }

    /// Prefetches the records of rows that are due. `is_needed` says that the transaction accesses
    /// a waiting row: then all of them are due.
    #[inline(always)]
    pub(crate) fn advance(&mut self, is_needed: bool, mut locate: impl FnMut(u16, Asked<'_>) -> Left) {
        let steps = self.steps;
        let waiting = self.waiting.get(self.served..).unwrap_or(&[]);
        // They are in the order in which they become due.
        let due = match is_needed {
            true => waiting.len(),
            false => waiting.iter().take_while(|waiting| waiting.due_at <= steps).count(),
        };
        for _ in 0..due {
            let waiting = self.waiting[self.served];
            self.served += 1;
            self.advance_one(waiting, |asked| locate(waiting.table, asked));
        }
        match self.waiting.get(self.served) {
            Some(first) => self.due_at = first.due_at,
            None => self.wait_for_nothing(),
        }
    }

    /// Clears the waiting rows.
    #[inline(always)]
    fn wait_for_nothing(&mut self) {
        self.waiting.clear();
        (self.served, self.due_at) = (0, u64::MAX);
    }

    /// Makes the next step for rows that are waiting. Some may have to wait again.
    #[inline(always)]
    fn advance_one(&mut self, waiting: Waiting, locate: impl FnOnce(Asked<'_>) -> Left) {
        let Waiting { table, begin, end, lines, .. } = waiting;
        let left = locate(Asked { entries: &mut self.entries[begin as usize..end as usize], lines });
        if left.begin < left.end {
            self.wait(table, begin + left.begin..begin + left.end, lines);
        }
    }

    /// Returns where a row is, if it was prefetched.
    #[inline(always)]
    pub(crate) fn find(&mut self, table: u16, word: u64) -> Whereabouts {
        let stream = &mut self.streams[usize::from(table) % STREAMS];
        if stream.owner != Owner::of(self.transaction, table) {
            return Whereabouts::Unknown;
        }
        if let [entry, ..] = self.entries.get(stream.next as usize..stream.end as usize).unwrap_or(&[])
            && entry.word == word
        {
            stream.next += 1;
            return entry.at;
        }
        self.find_slow(table, word)
    }

    /// Like [`find`](Self::find), for a row that is read again, or out of order.
    #[inline(never)]
    fn find_slow(&mut self, table: u16, word: u64) -> Whereabouts {
        let stream = &mut self.streams[usize::from(table) % STREAMS];
        let (begin, next, end) = (stream.begin as usize, stream.next as usize, stream.end as usize);
        let before = (begin..next).next_back().into_iter();
        let mut near = before.chain((next..end).take(REACH)).chain((begin..next).take(REACH));
        let Some(found) = near.find(|at| self.entries[*at].word == word) else { return Whereabouts::Unknown };
        stream.next = found as u32 + 1;
        self.entries[found].at
    }

    /// Returns the rows of a table that were prefetched and not read yet, in order.
    #[inline(always)]
    fn rows(&self, table: u16) -> &[Entry] {
        let stream = &self.streams[usize::from(table) % STREAMS];
        if stream.owner != Owner::of(self.transaction, table) {
            return &[];
        }
        self.entries.get(stream.next as usize..stream.end as usize).unwrap_or(&[])
    }

    /// Returns whether this row of a table was prefetched, `behind` rows after the next one.
    #[inline(always)]
    pub(crate) fn has(&self, table: u16, behind: usize, word: u64) -> bool {
        self.rows(table).get(behind).is_some_and(|entry| entry.word == word)
    }

    /// Returns the next rows of a table, if they were prefetched. It returns no more than the steps
    /// until it is time to [continue](Self::advance) the prefetches.
    #[inline(always)]
    pub(crate) fn ahead(&self, table: u16) -> &[Entry] {
        let rows = self.rows(table);
        let steps = self.due_at.saturating_sub(self.steps + 1);
        &rows[..rows.len().min(usize::try_from(steps).unwrap_or(usize::MAX))]
    }

    /// Returns where this row of a table is, if it is the next one in the stream.
    #[inline(always)]
    pub(crate) fn next(&self, table: u16, word: u64) -> Option<Whereabouts> {
        self.rows(table).first().filter(|entry| entry.word == word).map(|entry| entry.at)
    }

    /// Counts one step for each of this many rows, and advances the table's position behind them.
    #[inline(always)]
    pub(crate) fn pass(&mut self, table: u16, rows: usize) {
        self.streams[usize::from(table) % STREAMS].next += rows as u32;
        self.steps += rows as u64;
    }

    /// Clears it, for the next transaction.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        if !self.is_empty() {
            self.entries.clear();
            self.wait_for_nothing();
            self.transaction = self.transaction.wrapping_add(1).max(1);
        }
    }
}

/// Rows of a table whose buckets were prefetched.
#[derive(Debug)]
pub(crate) struct Asked<'e> {
    entries: &'e mut [Entry],
    lines: &'e PrefetchMask,
}

/// The range of rows for which only another bucket has been prefetched, from the first to behind
/// the last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    begin: u32,
    end: u32,
}

impl Left {
    pub(crate) const NOTHING: Self = Self { begin: u32::MAX, end: 0 };
}

impl Asked<'_> {
    /// Prefetches their records, and stores the records' places.
    #[inline(always)]
    pub(crate) fn locate(self, mut locate: impl FnMut(u64, BucketHint, &PrefetchMask) -> Whereabouts) -> Left {
        let mut left = Left::NOTHING;
        for (entry, index) in self.entries.iter_mut().zip(0..) {
            if let Whereabouts::Bucket(bucket) = entry.at {
                entry.at = locate(entry.word, bucket, self.lines);
                if let Whereabouts::Bucket(_) = entry.at {
                    left = Left { begin: left.begin.min(index), end: index + 1 };
                }
            }
        }
        left
    }
}

#[cfg(test)]
mod tests;
