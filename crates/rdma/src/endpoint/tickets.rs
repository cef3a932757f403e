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
    endpoint::{
        buffers::Buffer,
        port::{Frame, Ticket},
    },
};

/// The number of a coroutine of the running executor.
pub(crate) type Task = u32;

/// No coroutine: the waiter is polled by another executor.
pub(crate) const NOBODY: Task = Task::MAX;

/// The value of a completed operation: one of these parts, in a place of its own, so that none is
/// moved with all that a value could be.
#[derive(Debug, Default)]
pub struct Value {
    pub(crate) number: u64,
    pub(crate) words: Buffer<u64>,
    pub(crate) reply: Option<(NodeId, Frame)>,
}

/// What an operation gives when it is completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gives {
    Nothing,
    Number,
    Words,
    Reply,
}

/// The part of a value that an operation of one kind gives.
pub(crate) trait Part: Sized {
    const GIVES: Gives;

    /// Puts it into its place.
    fn put(self, value: &mut Value);
}

impl Part for () {
    const GIVES: Gives = Gives::Nothing;

    #[inline(always)]
    fn put(self, _value: &mut Value) {}
}

impl Part for u64 {
    const GIVES: Gives = Gives::Number;

    #[inline(always)]
    fn put(self, value: &mut Value) {
        value.number = self;
    }
}

impl Part for Buffer<u64> {
    const GIVES: Gives = Gives::Words;

    #[inline(always)]
    fn put(self, value: &mut Value) {
        value.words = self;
    }
}

impl Part for (NodeId, Frame) {
    const GIVES: Gives = Gives::Reply;

    #[inline(always)]
    fn put(self, value: &mut Value) {
        value.reply = Some(self);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Staged,
    Unsignaled,
    Posted,
    Abandoned,
    Done(Gives),
    Failed(VerbError),
}

#[derive(Debug)]
struct Entry {
    generation: u32,
    waiter: Task,
    state: State,
    /// Empty while it is not done.
    value: Value,
    /// The target and the phase of a call.
    call: Option<(NodeId, Phase)>,
}

/// The operation that a completion is of.
#[derive(Debug)]
pub(crate) enum Completed<'t> {
    /// It is waited for.
    Awaited(Awaited<'t>),
    /// Its waiter is gone.
    Unwanted,
    /// It was already over.
    Stale,
}

/// An operation that is waited for.
#[derive(Debug)]
pub(crate) struct Awaited<'t>(&'t mut Entry);

impl Awaited<'_> {
    /// Delivers its outcome. Returns the coroutine to wake, if any.
    #[inline(always)]
    pub(crate) fn deliver<V: Part>(self, outcome: Result<V, VerbError>) -> Task {
        match outcome {
            Ok(part) => {
                part.put(&mut self.0.value);
                self.0.state = State::Done(V::GIVES);
            }
            Err(error) => self.0.state = State::Failed(error),
        }
        self.0.waiter
    }
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
        let index = self.free.pop().unwrap_or_else(|| self.grow());
        let entry = &mut self.entries[index as usize];
        (entry.state, entry.waiter, entry.call) = (state, waiter, call);
        Ticket { index, generation: entry.generation }
    }

    /// Adds an entry.
    #[cold]
    fn grow(&mut self) -> u32 {
        let value = Value::default();
        self.entries.push(Entry { generation: 0, waiter: NOBODY, state: State::Free, value, call: None });
        // So that freeing an entry never allocates.
        self.free.reserve(self.entries.len());
        (self.entries.len() - 1) as u32
    }

    #[inline(always)]
    fn live(&mut self, ticket: Ticket) -> Option<&mut Entry> {
        self.entries.get_mut(ticket.index as usize).filter(|entry| entry.generation == ticket.generation)
    }

    /// Frees an entry.
    #[inline(always)]
    pub(crate) fn close(&mut self, ticket: Ticket) {
        let entry = &mut self.entries[ticket.index as usize];
        entry.generation = entry.generation.wrapping_add(1);
        entry.state = State::Free;
        self.free.push(ticket.index);
    }

    /// Marks the operation as posted. Returns the ticket, or `None` if it is unsignaled.
    #[inline]
    pub(crate) fn ring(&mut self, ticket: Ticket) -> Option<Ticket> {
        let entry = self.live(ticket)?;
        match (entry.state, entry.call) {
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
        self.entries.iter().any(|entry| matches!(entry.state, State::Done(Gives::Words)))
    }

    /// Returns whether a posted operation is waited for.
    #[inline]
    pub(crate) fn is_awaited(&self, ticket: Ticket) -> bool {
        matches!(self.entries[ticket.index as usize].state, State::Posted)
    }

    /// Returns whether there is a value to take.
    pub(crate) fn is_complete(&self, ticket: Ticket) -> bool {
        let entry = self.entries.get(ticket.index as usize).filter(|entry| entry.generation == ticket.generation);
        entry.is_some_and(|entry| matches!(entry.state, State::Done(_) | State::Failed(_)))
    }

    /// Withdraws an operation whose batch was dropped.
    pub(crate) fn withdraw(&mut self, ticket: Ticket) {
        if let Some(entry) = self.live(ticket) {
            match entry.state {
                State::Unsignaled => self.close(ticket),
                _ => entry.state = State::Failed(VerbError::NotRung),
            }
        }
    }

    /// Returns the operation of a completion.
    #[inline(always)]
    pub(crate) fn complete(&mut self, ticket: Ticket) -> Completed<'_> {
        let index = ticket.index as usize;
        let entry = self.entries.get(index).filter(|entry| entry.generation == ticket.generation);
        if entry.is_some_and(|entry| matches!(entry.state, State::Posted)) {
            return Completed::Awaited(Awaited(&mut self.entries[index]));
        }
        self.complete_unwanted(ticket)
    }

    #[cold]
    fn complete_unwanted(&mut self, ticket: Ticket) -> Completed<'static> {
        if self.live(ticket).is_some_and(|entry| matches!(entry.state, State::Abandoned)) {
            self.close(ticket);
            return Completed::Unwanted;
        }
        Completed::Stale
    }

    /// Takes the value by `given`, which leaves an empty one. If there is none yet, registers
    /// `waiter` and returns `None`.
    #[inline(always)]
    pub(crate) fn take<T>(
        &mut self,
        ticket: Ticket,
        waiter: Task,
        given: impl FnOnce(&mut Value) -> T,
    ) -> Option<Result<T, VerbError>> {
        let Some(entry) = self.live(ticket) else { return Some(Err(VerbError::NotRung)) };
        if let State::Done(_) = entry.state {
            let value = given(&mut entry.value);
            self.close(ticket);
            return Some(Ok(value));
        }
        self.wait(ticket, waiter).map(Err)
    }

    /// Registers the waiter of an operation that has no value. Returns an error if it will never
    /// have one.
    fn wait(&mut self, ticket: Ticket, waiter: Task) -> Option<VerbError> {
        let entry = self.live(ticket)?;
        match entry.state {
            State::Posted => {
                entry.waiter = waiter;
                None
            }
            State::Staged => {
                entry.state = State::Unsignaled;
                Some(VerbError::NotRung)
            }
            State::Failed(error) => {
                self.close(ticket);
                Some(error)
            }
            _ => Some(VerbError::NotRung),
        }
    }

    /// Abandons an operation whose waiter is gone. Returns a value that has already arrived, to be
    /// recycled.
    pub(crate) fn abandon(&mut self, ticket: Ticket) -> Option<(Gives, Value)> {
        let entry = self.live(ticket)?;
        match entry.state {
            State::Staged => entry.state = State::Unsignaled,
            State::Posted => entry.state = State::Abandoned,
            State::Done(gives) => {
                let value = std::mem::take(&mut entry.value);
                self.close(ticket);
                return Some((gives, value));
            }
            _ => self.close(ticket),
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
