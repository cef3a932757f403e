//! The operations that somebody waits for: one entry each, from staging to the moment its value is
//! taken.
//!
//! ```text
//!            ring                complete               take
//!   Staged ────────▶ Posted ──────────────▶ Done(..) ────────▶ free
//!     │ drop           │ drop                  │ drop
//!     ▼                ▼                       ▼
//!   Unsignaled       Abandoned              free, and the buffer goes back to its pool
//!     │ ring           │ complete
//!     ▼                ▼
//!   free             free, and the buffer goes back to its pool
//! ```
//!
//! "Drop" is that of the future. An entry's generation grows when it is freed, so that what arrives
//! late for an earlier operation is recognised.

use crate::{
    NodeId, Phase, VerbError,
    buffers::Buffer,
    port::{Frame, Ticket},
};

/// A coroutine of the executor that runs, by number.
pub(crate) type Task = u32;

/// No coroutine: whoever waits is polled by another executor.
pub(crate) const NOBODY: Task = Task::MAX;

/// What a completed operation gives.
#[derive(Debug)]
pub enum Value {
    Nothing,
    Number(u64),
    Words(Buffer<u64>),
    Reply { from: NodeId, frame: Frame },
}

type Outcome = Result<Value, VerbError>;

#[derive(Debug)]
enum State {
    Free,
    Staged,
    Unsignaled,
    Posted,
    Abandoned,
    Done(Outcome),
}

#[derive(Debug)]
struct Entry {
    generation: u32,
    waiter: Task,
    state: State,
    /// Whom a call went to, and for what.
    call: Option<(NodeId, Phase)>,
}

/// What is to be done about a completion.
#[derive(Debug)]
pub(crate) enum Completed {
    /// The coroutine, if any, can go on.
    Wake(Task),
    /// Nobody is interested any more; the value is to be recycled.
    Unwanted(Outcome),
    /// The operation was already over; the value is to be recycled.
    Stale(Outcome),
}

#[derive(Debug, Default)]
pub(crate) struct Tickets {
    entries: Vec<Entry>,
    free: Vec<u32>,
}

impl Tickets {
    /// An operation that is staged, or, with `posted`, goes out at once, and the coroutine that
    /// waits for it already.
    #[inline(always)]
    pub(crate) fn open(&mut self, posted: bool, waiter: Task, call: Option<(NodeId, Phase)>) -> Ticket {
        let state = if posted { State::Posted } else { State::Staged };
        let index = match self.free.pop() {
            Some(index) => {
                let entry = &mut self.entries[index as usize];
                (entry.state, entry.waiter, entry.call) = (state, waiter, call);
                index
            }
            None => {
                self.entries.push(Entry { generation: 0, waiter, state, call });
                // So that freeing an entry never allocates.
                self.free.reserve(self.entries.len());
                (self.entries.len() - 1) as u32
            }
        };
        Ticket { index, generation: self.entries[index as usize].generation }
    }

    #[inline(always)]
    fn live(&mut self, ticket: Ticket) -> Option<&mut Entry> {
        self.entries.get_mut(ticket.index as usize).filter(|entry| entry.generation == ticket.generation)
    }

    /// Frees an entry and gives what it was.
    #[inline(always)]
    fn close(&mut self, ticket: Ticket) -> State {
        let entry = &mut self.entries[ticket.index as usize];
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(ticket.index);
        std::mem::replace(&mut entry.state, State::Free)
    }

    /// The operation is handed to the port: with this ticket, or without one when it is unsignaled.
    pub(crate) fn ring(&mut self, ticket: Ticket) -> Option<Ticket> {
        let entry = self.live(ticket)?;
        match (&entry.state, entry.call) {
            (State::Unsignaled, None) => {
                self.close(ticket);
                None
            }
            (State::Unsignaled, Some(_)) => {
                entry.state = State::Abandoned;
                Some(ticket)
            }
            _ => {
                entry.state = State::Posted;
                Some(ticket)
            }
        }
    }

    /// Whether there are words that were fetched for a coroutine that has not taken them yet.
    pub(crate) fn has_untaken_words(&self) -> bool {
        self.entries.iter().any(|entry| matches!(entry.state, State::Done(Ok(Value::Words(_)))))
    }

    /// Whether somebody waits for an operation that is handed to the port.
    pub(crate) fn is_awaited(&self, ticket: Ticket) -> bool {
        matches!(self.entries[ticket.index as usize].state, State::Posted)
    }

    /// Whether there is a value to be taken.
    pub(crate) fn is_complete(&self, ticket: Ticket) -> bool {
        let entry = self.entries.get(ticket.index as usize).filter(|entry| entry.generation == ticket.generation);
        entry.is_some_and(|entry| matches!(entry.state, State::Done(_)))
    }

    /// The operation's batch was dropped.
    pub(crate) fn withdraw(&mut self, ticket: Ticket) {
        if let Some(entry) = self.live(ticket) {
            match entry.state {
                State::Unsignaled => drop(self.close(ticket)),
                _ => entry.state = State::Done(Err(VerbError::NotRung)),
            }
        }
    }

    /// The operation is over.
    #[inline(always)]
    pub(crate) fn complete(&mut self, ticket: Ticket, outcome: Outcome) -> Completed {
        let Some(entry) = self.live(ticket) else { return Completed::Stale(outcome) };
        match entry.state {
            State::Posted => {
                entry.state = State::Done(outcome);
                Completed::Wake(entry.waiter)
            }
            State::Abandoned => {
                self.close(ticket);
                Completed::Unwanted(outcome)
            }
            _ => Completed::Stale(outcome),
        }
    }

    /// The value, once it is there; until then `waiter` is remembered.
    #[inline(always)]
    pub(crate) fn take(&mut self, ticket: Ticket, waiter: Task) -> Option<Outcome> {
        let Some(entry) = self.live(ticket) else { return Some(Err(VerbError::NotRung)) };
        match &mut entry.state {
            State::Posted => {
                entry.waiter = waiter;
                None
            }
            state @ State::Staged => {
                *state = State::Unsignaled;
                Some(Err(VerbError::NotRung))
            }
            _ => match self.close(ticket) {
                State::Done(outcome) => Some(outcome),
                _ => Some(Err(VerbError::NotRung)),
            },
        }
    }

    /// Nobody waits any more. What had already come is given back to be recycled.
    pub(crate) fn abandon(&mut self, ticket: Ticket) -> Option<Outcome> {
        let entry = self.live(ticket)?;
        match &mut entry.state {
            state @ State::Staged => *state = State::Unsignaled,
            state @ State::Posted => *state = State::Abandoned,
            _ => {
                if let State::Done(outcome) = self.close(ticket) {
                    return Some(outcome);
                }
            }
        }
        None
    }

    /// For what a call was made that is still unanswered.
    pub(crate) fn call_phase(&mut self, ticket: Ticket) -> Option<Phase> {
        self.live(ticket)?.call.map(|(_, phase)| phase)
    }

    /// A call to this node that is still unanswered.
    pub(crate) fn call_to(&self, node: NodeId) -> Option<Ticket> {
        let waits = |entry: &Entry| {
            matches!(entry.state, State::Posted | State::Abandoned) && entry.call.is_some_and(|(to, _)| to == node)
        };
        let index = self.entries.iter().position(waits)?;
        Some(Ticket { index: index as u32, generation: self.entries[index].generation })
    }

    /// Entries in use.
    pub(crate) fn open_count(&self) -> usize {
        self.entries.len() - self.free.len()
    }
}
