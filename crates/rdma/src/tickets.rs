//! Operations that are waited for: one entry each, from staging until its value is taken.
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
//! "Drop" is that of the future. An entry's generation increases when it is freed, so that late
//! completions of an earlier operation are recognized.

use crate::{
    NodeId, Phase, VerbError,
    buffers::Buffer,
    port::{Frame, Ticket},
};

/// The number of a coroutine of the running executor.
pub(crate) type Task = u32;

/// No coroutine: the waiter is polled by another executor.
pub(crate) const NOBODY: Task = Task::MAX;

/// The value of a completed operation.
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
    /// The target and the phase of a call.
    call: Option<(NodeId, Phase)>,
}

/// What to do about a completion.
#[derive(Debug)]
pub(crate) enum Completed {
    /// Wake this coroutine, if any.
    Wake(Task),
    /// The waiter is gone; recycle the value.
    Unwanted(Outcome),
    /// The operation was already over; recycle the value.
    Stale(Outcome),
}

#[derive(Debug, Default)]
pub(crate) struct Tickets {
    entries: Vec<Entry>,
    free: Vec<u32>,
}

impl Tickets {
    /// Opens an entry for an operation that is staged or, with `posted`, posted at once. `waiter`
    /// is the coroutine that already waits for it.
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

    /// Frees an entry and returns its state.
    #[inline(always)]
    fn close(&mut self, ticket: Ticket) -> State {
        let entry = &mut self.entries[ticket.index as usize];
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(ticket.index);
        std::mem::replace(&mut entry.state, State::Free)
    }

    /// Marks the operation as posted. Returns the ticket, or `None` if it is unsignaled.
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

    /// Returns whether fetched words wait for their coroutine to take them.
    pub(crate) fn has_untaken_words(&self) -> bool {
        self.entries.iter().any(|entry| matches!(entry.state, State::Done(Ok(Value::Words(_)))))
    }

    /// Returns whether a posted operation is waited for.
    pub(crate) fn is_awaited(&self, ticket: Ticket) -> bool {
        matches!(self.entries[ticket.index as usize].state, State::Posted)
    }

    /// Returns whether there is a value to take.
    pub(crate) fn is_complete(&self, ticket: Ticket) -> bool {
        let entry = self.entries.get(ticket.index as usize).filter(|entry| entry.generation == ticket.generation);
        entry.is_some_and(|entry| matches!(entry.state, State::Done(_)))
    }

    /// Withdraws an operation whose batch was dropped.
    pub(crate) fn withdraw(&mut self, ticket: Ticket) {
        if let Some(entry) = self.live(ticket) {
            match entry.state {
                State::Unsignaled => drop(self.close(ticket)),
                _ => entry.state = State::Done(Err(VerbError::NotRung)),
            }
        }
    }

    /// Completes an operation.
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

    /// Takes the value. If there is none yet, registers `waiter` and returns `None`.
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

    /// Abandons an operation whose waiter is gone. Returns a value that has already arrived, to be
    /// recycled.
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

    /// Returns the phase of a call that is still unanswered.
    pub(crate) fn call_phase(&mut self, ticket: Ticket) -> Option<Phase> {
        self.live(ticket)?.call.map(|(_, phase)| phase)
    }

    /// Returns a call to this node that is still unanswered.
    pub(crate) fn call_to(&self, node: NodeId) -> Option<Ticket> {
        let waits = |entry: &Entry| {
            matches!(entry.state, State::Posted | State::Abandoned) && entry.call.is_some_and(|(to, _)| to == node)
        };
        let index = self.entries.iter().position(waits)?;
        Some(Ticket { index: index as u32, generation: self.entries[index].generation })
    }

    /// Returns the number of entries in use.
    pub(crate) fn open_count(&self) -> usize {
        self.entries.len() - self.free.len()
    }
}
