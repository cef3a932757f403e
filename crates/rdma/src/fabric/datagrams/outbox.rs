//! Parcels that the other side has not acknowledged.

use std::collections::VecDeque;

use super::mutation::{Mutation, includes};

/// How many parcels may be sent and not acknowledged.
pub(crate) const WINDOW: usize = 32;

/// Buffers that are kept for later parcels.
const SPARE: usize = 2 * WINDOW;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Parcel {
    pub(super) bytes: Vec<u8>,
    /// Whether the next parcel continues the message.
    pub(super) more: bool,
    pub(super) asks: bool,
}

/// The numbered parcels of one side, in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Outbox {
    parcels: VecDeque<Parcel>,
    /// The number of the first of them.
    first: u64,
    /// How many of them were sent since the last [`again`](Self::again).
    sent: usize,
    /// The highest number that was ever sent.
    highest: u64,
    spare: Vec<Vec<u8>>,
}

impl Outbox {
    pub(super) fn new() -> Self {
        Self { parcels: VecDeque::new(), first: 1, sent: 0, highest: 0, spare: Vec::new() }
    }

    /// Adds a message, in parcels of at most `most` bytes. The last one asks, if wanted.
    pub(super) fn push(&mut self, head: &[u8], bytes: &[u8], most: usize, asks: bool) {
        debug_assert!(head.len() < most, "the head is in the first parcel");
        let (first, mut rest) = bytes.split_at(bytes.len().min(most - head.len()));
        let mut parcel = self.spare.pop().unwrap_or_default();
        parcel.extend_from_slice(head);
        parcel.extend_from_slice(first);
        while !rest.is_empty() {
            self.parcels.push_back(Parcel { bytes: parcel, more: true, asks: false });
            let (next, after) = rest.split_at(rest.len().min(most));
            parcel = self.spare.pop().unwrap_or_default();
            parcel.extend_from_slice(next);
            rest = after;
        }
        self.parcels.push_back(Parcel { bytes: parcel, more: false, asks });
    }

    /// Returns the next parcel to send with its number, and whether it asks. `None` if all were
    /// sent, or the window is full.
    pub(super) fn next(&self) -> Option<(u64, &Parcel, bool)> {
        if self.sent == WINDOW {
            return None;
        }
        let parcel = self.parcels.get(self.sent)?;
        let number = self.first + self.sent as u64;
        // Before the window is full, so that it is not waited for.
        let presses = self.sent >= WINDOW / 2 && number.is_multiple_of(WINDOW as u64 / 4);
        Some((number, parcel, parcel.asks || presses))
    }

    /// Notes that the parcel of [`next`](Self::next) was sent.
    pub(super) fn sent_next(&mut self) {
        self.highest = self.highest.max(self.first + self.sent as u64);
        self.sent += 1;
    }

    /// Sends all again that is not acknowledged.
    pub(super) fn again(&mut self) {
        self.sent = 0;
    }

    /// Removes the parcels up to a number, which the other side has taken. Returns how many
    /// messages are complete there. `None` if that number was never sent.
    pub(super) fn taken(&mut self, up_to: u64) -> Option<usize> {
        if up_to > self.highest {
            return None;
        }
        let up_to = if includes(Mutation::BelieveEarly) { self.highest.min(up_to + 1) } else { up_to };
        let mut complete = 0;
        while self.first <= up_to
            && let Some(parcel) = self.parcels.pop_front()
        {
            self.first += 1;
            self.sent = self.sent.saturating_sub(1);
            complete += usize::from(!parcel.more);
            if self.spare.len() < SPARE {
                let mut bytes = parcel.bytes;
                bytes.clear();
                self.spare.push(bytes);
            }
        }
        Some(complete)
    }

    pub(super) fn is_full(&self) -> bool {
        self.parcels.len() >= WINDOW
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parcels.is_empty()
    }
}
