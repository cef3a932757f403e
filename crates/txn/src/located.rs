//! Where records are that a transaction has asked for ahead, so that they need not be looked for
//! again.
//!
//! Rows are most often come to in the order in which they were asked for: so what is remembered of
//! a table is a stream, and where in it the transaction is. What is remembered are hints: a record
//! that has moved since, or is gone, has another incarnation, and is then looked for as ever.
//!
//! A row is asked for in two steps, or a few: its bucket, which tells where the record is, or a
//! next bucket, and then the record. Between them nobody waits for the bucket: a next step is made
//! when the transaction has made two of its own. If it comes to one of the rows before, it has to
//! wait; then the others' buckets are there, too, or nearly, and their records are asked for while
//! this one's is waited for.

use std::ops::Range;

use drtm_kv::{BucketHint, PrefetchMask, Whereabouts};

use crate::heap_size::vec_bytes;

/// How many tables' rows are remembered. A later one takes the place of an earlier one.
const STREAMS: usize = 8;

/// How many rows are remembered in all.
const MOST: usize = 4096;

/// How many rows of a stream are looked at for one that is not the next.
const REACH: usize = 16;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) word: u64,
    pub(crate) at: Whereabouts,
}

/// A table's rows among the entries, from the one that is to be come to next on.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// Whose rows they are.
    owner: Owner,
    begin: u32,
    next: u32,
    end: u32,
}

/// A table, as one transaction sees it: no transaction's number is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Owner(u64);

impl Owner {
    #[inline(always)]
    fn of(transaction: u32, table: u16) -> Self {
        Self(u64::from(transaction) << 16 | u64::from(table))
    }
}

/// Rows whose buckets were asked for, and whose records are yet to be: those among these entries.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    table: u16,
    begin: u32,
    end: u32,
    lines: &'static PrefetchMask,
    /// The step of the transaction from which on it is time.
    ripe_at: u64,
}

/// As many steps of the transaction may be made before what was asked for is there.
const RIPENS: u64 = 2;

#[derive(Debug)]
pub(crate) struct Located {
    entries: Vec<Entry>,
    streams: [Stream; STREAMS],
    /// The number of the transaction, after which what it has asked for is forgotten.
    transaction: u32,
    waiting: Vec<Waiting>,
    /// How many of them do not wait any more.
    served: usize,
    /// Steps that transactions have made.
    steps: u64,
    /// When it is time for the first of those that wait.
    ripe_at: u64,
}

impl Default for Located {
    fn default() -> Self {
        let (entries, waiting) = (Vec::new(), Vec::new());
        let streams = Default::default();
        Self { entries, streams, transaction: 1, waiting, served: 0, steps: 0, ripe_at: u64::MAX }
    }
}

impl Located {
    /// Returns how many bytes of the heap it has.
    pub(crate) fn bytes(&self) -> usize {
        vec_bytes(&self.entries) + vec_bytes(&self.waiting)
    }

    /// Remembers rows of a table, whose buckets were asked for: after those that were noted last if
    /// these are the same table's. Whether there was room for them: if not, nothing has been
    /// remembered.
    #[inline(always)]
    pub(crate) fn note(
        &mut self,
        table: u16,
        rows: impl ExactSizeIterator<Item = (u64, BucketHint)>,
        lines: &'static PrefetchMask,
        go_on: impl FnOnce(&mut Self),
    ) -> bool {
        let begin = self.entries.len();
        if begin + rows.len() > MOST {
            return false;
        }
        self.entries.extend(rows.map(|(word, bucket)| Entry { word, at: Whereabouts::Bucket(bucket) }));
        if self.step() {
            go_on(self);
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
        let ripe_at = self.steps + RIPENS;
        self.waiting.push(Waiting { table, begin: entries.start, end: entries.end, lines, ripe_at });
        self.ripe_at = self.ripe_at.min(ripe_at);
    }

    /// Whether nothing was asked for. Then steps need not be counted either.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The transaction makes a step. Whether it is time to [go on](Self::go_on) with what was asked
    /// for.
    #[inline(always)]
    pub(crate) fn step(&mut self) -> bool {
        self.steps += 1;
        self.steps >= self.ripe_at
    }

    /// Asks for records of rows for which it is time; of all if one of them `is_come_to`.
    #[inline(always)]
    pub(crate) fn go_on(&mut self, is_come_to: bool, mut locate: impl FnMut(u16, Asked<'_>) -> Left) {
        let steps = self.steps;
        let waiting = self.waiting.get(self.served..).unwrap_or(&[]);
        // They wait in the order in which it will be time for them.
        let due = match is_come_to {
            true => waiting.len(),
            false => waiting.iter().take_while(|waiting| waiting.ripe_at <= steps).count(),
        };
        for _ in 0..due {
            let waiting = self.waiting[self.served];
            self.served += 1;
            self.go_on_with(waiting, |asked| locate(waiting.table, asked));
        }
        match self.waiting.get(self.served) {
            Some(first) => self.ripe_at = first.ripe_at,
            None => self.wait_for_nothing(),
        }
    }

    /// Nothing waits any more.
    #[inline(always)]
    fn wait_for_nothing(&mut self) {
        self.waiting.clear();
        (self.served, self.ripe_at) = (0, u64::MAX);
    }

    /// Takes the next step with rows that are waiting. Some may have to wait once more.
    #[inline(always)]
    fn go_on_with(&mut self, waiting: Waiting, locate: impl FnOnce(Asked<'_>) -> Left) {
        let Waiting { table, begin, end, lines, .. } = waiting;
        let left = locate(Asked { entries: &mut self.entries[begin as usize..end as usize], lines });
        if left.begin < left.end {
            self.wait(table, begin + left.begin..begin + left.end, lines);
        }
    }

    /// Where a row is, if that was noted.
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
        self.find_apart(table, word)
    }

    /// The same for a row that is come to again, or out of its turn.
    #[inline(never)]
    fn find_apart(&mut self, table: u16, word: u64) -> Whereabouts {
        let stream = &mut self.streams[usize::from(table) % STREAMS];
        let (begin, next, end) = (stream.begin as usize, stream.next as usize, stream.end as usize);
        let before = (begin..next).next_back().into_iter();
        let mut near = before.chain((next..end).take(REACH)).chain((begin..next).take(REACH));
        let Some(found) = near.find(|at| self.entries[*at].word == word) else { return Whereabouts::Unknown };
        stream.next = found as u32 + 1;
        self.entries[found].at
    }

    /// The rows of a table that were asked for and are yet to be come to, in their order.
    #[inline(always)]
    fn rows(&self, table: u16) -> &[Entry] {
        let stream = &self.streams[usize::from(table) % STREAMS];
        if stream.owner != Owner::of(self.transaction, table) {
            return &[];
        }
        self.entries.get(stream.next as usize..stream.end as usize).unwrap_or(&[])
    }

    /// Whether this row of a table was asked for, behind so many that are yet to be come to.
    #[inline(always)]
    pub(crate) fn has(&self, table: u16, behind: usize, word: u64) -> bool {
        self.rows(table).get(behind).is_some_and(|entry| entry.word == word)
    }

    /// The rows of a table that are come to next, if they were asked for: no more than until it is
    /// time to [go on](Self::go_on).
    #[inline(always)]
    pub(crate) fn ahead(&self, table: u16) -> &[Entry] {
        let rows = self.rows(table);
        let steps = self.ripe_at.saturating_sub(self.steps + 1);
        &rows[..rows.len().min(usize::try_from(steps).unwrap_or(usize::MAX))]
    }

    /// Where this row of a table is, if it is the one that is come to next, and was asked for.
    #[inline(always)]
    pub(crate) fn next(&self, table: u16, word: u64) -> Option<Whereabouts> {
        self.rows(table).first().filter(|entry| entry.word == word).map(|entry| entry.at)
    }

    /// The transaction has made a step with each of so many of them.
    #[inline(always)]
    pub(crate) fn pass(&mut self, table: u16, rows: usize) {
        self.streams[usize::from(table) % STREAMS].next += rows as u32;
        self.steps += rows as u64;
    }

    /// Forgets everything, for the next transaction.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        if !self.is_empty() {
            self.entries.clear();
            self.wait_for_nothing();
            self.transaction = self.transaction.wrapping_add(1).max(1);
        }
    }
}

/// Rows of a table whose buckets were asked for.
#[derive(Debug)]
pub(crate) struct Asked<'e> {
    entries: &'e mut [Entry],
    lines: &'e PrefetchMask,
}

/// From the first to behind the last of the rows of which only another bucket has been asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    begin: u32,
    end: u32,
}

impl Left {
    pub(crate) const NOTHING: Self = Self { begin: u32::MAX, end: 0 };
}

impl Asked<'_> {
    /// Asks for their records, and remembers where these are.
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
