//! Parcels of the other side: those that arrive early wait for the others.

use std::collections::VecDeque;

use super::{
    mutation::{Mutation, includes},
    outbox::WINDOW,
};

/// A datagram that no correct peer sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nonsense(pub(crate) &'static str);

/// A parcel that has arrived before its turn: its bytes, and whether the message goes on.
type Early = (Vec<u8>, bool);

/// Takes each parcel once, in the order of their numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Inbox {
    /// The number up to which all are taken.
    taken: u64,
    /// Those from two numbers later on.
    early: VecDeque<Option<Early>>,
    /// The first parcels of a message whose last is not taken.
    begun: Vec<u8>,
    spare: Vec<Vec<u8>>,
}

impl Inbox {
    pub(super) fn new() -> Self {
        Self { taken: 0, early: VecDeque::new(), begun: Vec::new(), spare: Vec::new() }
    }

    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// Takes a parcel, and delivers the messages that are complete by it. Returns whether it was
    /// its turn. `most` bytes are the longest message.
    pub(super) fn take(
        &mut self,
        number: u64,
        bytes: &[u8],
        more: bool,
        most: usize,
        deliver: &mut impl FnMut(&[u8]),
    ) -> Result<bool, Nonsense> {
        if number <= self.taken && !includes(Mutation::TakeTwice) {
            return Ok(false);
        }
        let ahead = number.saturating_sub(self.taken + 1);
        if ahead > 0 && !includes(Mutation::TakeEarly) {
            self.keep(ahead, bytes, more)?;
            return Ok(false);
        }
        self.accept(bytes, more, most, deliver)?;
        // The one that was waited for is taken, so the early ones are one number nearer.
        while let Some(early) = self.early.pop_front() {
            let Some((bytes, more)) = early else { break };
            self.accept(&bytes, more, most, deliver)?;
            self.spare.push(bytes);
        }
        Ok(true)
    }

    fn keep(&mut self, ahead: u64, bytes: &[u8], more: bool) -> Result<(), Nonsense> {
        if ahead >= WINDOW as u64 {
            return Err(Nonsense("a parcel beyond the window"));
        }
        let place = ahead as usize - 1;
        if self.early.len() <= place {
            self.early.resize_with(place + 1, || None);
        }
        if self.early[place].is_none() {
            let mut kept = self.spare.pop().unwrap_or_default();
            kept.clear();
            kept.extend_from_slice(bytes);
            self.early[place] = Some((kept, more));
        }
        Ok(())
    }

    fn accept(
        &mut self,
        bytes: &[u8],
        more: bool,
        most: usize,
        deliver: &mut impl FnMut(&[u8]),
    ) -> Result<(), Nonsense> {
        if self.begun.len() + bytes.len() > most {
            return Err(Nonsense("a message that is too long"));
        }
        self.taken += 1;
        if more || !self.begun.is_empty() {
            self.begun.extend_from_slice(bytes);
        }
        match (more, self.begun.is_empty()) {
            (true, _) => {}
            (false, true) => deliver(bytes),
            (false, false) => {
                deliver(&self.begun);
                self.begun.clear();
            }
        }
        Ok(())
    }
}
