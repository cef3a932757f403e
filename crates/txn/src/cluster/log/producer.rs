//! The producer's side of a ring: what is given out, what is settled, and what the backup has
//! freed. It knows no memory.
//!
//! ```text
//!      head          settled                     tail
//!  ------+--------------+--------------------------+---------------- positions
//!  freed | applied, or  | decided, void, or open   | reserved, free
//!        | about to be  | (the first one is open)  |
//! ```
//!
//! Space is reserved as an amount. A record gets its position when it is written, so that of two
//! transactions that depend on each other, the earlier has the lower position.

use std::collections::VecDeque;

/// A record that is written, or being written.
#[derive(Debug)]
struct Open {
    position: u64,
    is_settled: bool,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Producer {
    size: u64,
    head: u64,
    tail: u64,
    reserved: u64,
    /// From the first that is not settled on.
    open: VecDeque<Open>,
    /// Up to where the backup knows what is settled.
    told: u64,
}

impl Producer {
    /// Creates the producer of a ring of so many bytes, whose first record will be at `tail`.
    pub(super) fn new(size: u64, tail: u64) -> Self {
        Self { size, head: tail, tail, reserved: 0, open: VecDeque::new(), told: tail }
    }

    /// Reserves so many bytes, if they are free.
    pub(super) fn reserve(&mut self, bytes: u64) -> bool {
        let is_free = self.tail + self.reserved + bytes <= self.head + self.size;
        self.reserved += if is_free { bytes } else { 0 };
        is_free
    }

    /// Gives back what was reserved, and not used.
    pub(super) fn give_back(&mut self, bytes: u64) {
        self.reserved -= bytes.min(self.reserved);
    }

    /// Gives the position of a record that is written now, in space that was reserved.
    pub(super) fn begin(&mut self, bytes: u64) -> u64 {
        let position = self.tail;
        self.give_back(bytes);
        self.tail += bytes;
        self.open.push_back(Open { position, is_settled: false });
        position
    }

    /// Notes that the record at a position is decided, or void.
    pub(super) fn settle(&mut self, position: u64) {
        if let Ok(at) = self.open.binary_search_by_key(&position, |open| open.position) {
            self.open[at].is_settled = true;
        }
        while self.open.pop_front_if(|open| open.is_settled).is_some() {}
    }

    /// Returns up to where all records are decided, or void.
    pub(super) fn settled(&self) -> u64 {
        self.open.front().map_or(self.tail, |open| open.position)
    }

    /// Notes that the backup knows what is settled up to here.
    pub(super) fn note_told(&mut self, settled: u64) {
        self.told = self.told.max(settled);
    }

    /// Returns whether something is settled that the backup was not told.
    pub(super) fn has_news(&self) -> bool {
        self.settled() > self.told
    }

    /// Notes up to where the backup has freed the ring, if that can be.
    pub(super) fn note_freed(&mut self, head: u64) {
        if (self.head..=self.settled()).contains(&head) {
            self.head = head;
        }
    }

    /// Returns whether the backup has applied everything.
    pub(super) fn is_drained(&self) -> bool {
        self.head == self.tail
    }

    pub(super) fn head(&self) -> u64 {
        self.head
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Reserve(u64),
        GiveBack(prop::sample::Index),
        Begin(prop::sample::Index),
        Settle(prop::sample::Index),
        Free(prop::sample::Index),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (1..9_u64).prop_map(|words| Step::Reserve(8 * words)),
            1 => any::<prop::sample::Index>().prop_map(Step::GiveBack),
            3 => any::<prop::sample::Index>().prop_map(Step::Begin),
            3 => any::<prop::sample::Index>().prop_map(Step::Settle),
            2 => any::<prop::sample::Index>().prop_map(Step::Free),
        ];
        prop::collection::vec(step, 0..200)
    }

    proptest! {
        /// Against a list of records, each with what became of it.
        #[test]
        fn it_gives_out_what_is_free_and_settles_in_order(steps in steps()) {
            const SIZE: u64 = 256;
            let mut producer = Producer::new(SIZE, SIZE);
            // Reserved amounts; then records with their positions, lengths, and whether settled.
            let (mut reserved, mut records): (Vec<u64>, Vec<(u64, u64, bool)>) = (Vec::new(), Vec::new());
            let (mut tail, mut freed) = (SIZE, 0);
            for step in steps {
                let used: u64 = records[freed..].iter().map(|record| record.1).sum::<u64>() + reserved.iter().sum::<u64>();
                match step {
                    Step::Reserve(bytes) => {
                        prop_assert_eq!(producer.reserve(bytes), used + bytes <= SIZE);
                        if used + bytes <= SIZE {
                            reserved.push(bytes);
                        }
                    }
                    Step::GiveBack(at) if !reserved.is_empty() => {
                        producer.give_back(reserved.swap_remove(at.index(reserved.len())));
                    }
                    Step::Begin(at) if !reserved.is_empty() => {
                        let bytes = reserved.swap_remove(at.index(reserved.len()));
                        prop_assert_eq!(producer.begin(bytes), tail);
                        records.push((tail, bytes, false));
                        tail += bytes;
                    }
                    Step::Settle(at) if !records.is_empty() => {
                        let record = at.index(records.len());
                        producer.settle(records[record].0);
                        records[record].2 = true;
                    }
                    Step::Free(at) => {
                        let settled = records.iter().take_while(|record| record.2).count();
                        freed = freed.max(at.index(settled + 1));
                        producer.note_freed(records.get(freed).map_or(tail, |record| record.0));
                        // What cannot be is not believed.
                        producer.note_freed(tail + 8);
                        producer.note_freed(0);
                    }
                    _ => {}
                }
                let open = records.iter().find(|record| !record.2);
                prop_assert_eq!(producer.settled(), open.map_or(tail, |record| record.0));
                prop_assert_eq!(producer.is_drained(), freed == records.len());
            }
        }
    }
}
