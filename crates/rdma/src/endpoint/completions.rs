//! Handling completions: returning buffers, delivering values to the waiting coroutines, and waking
//! these.

use crate::{
    Counters, NodeId, VerbError,
    buffers::Pool,
    port::{Events, Frame, Ticket, Verb},
    tasks::TaskSet,
    tickets::{Completed, Tickets, Value},
    timers::Timers,
};

/// The state that completions change.
#[derive(Debug)]
pub(crate) struct Completions {
    pub(super) tickets: Tickets,
    pub(super) words: Pool<u64>,
    pub(super) bytes: Pool<u8>,
    pub(super) counters: Counters,
    /// Coroutines that are ready to run.
    pub(crate) ready: TaskSet,
    /// Coroutines that wait for room in a queue or for a buffer.
    pub(super) crowded: TaskSet,
    /// Coroutines that wait for changes of nodes' presence.
    pub(crate) watchers: TaskSet,
    /// Coroutines that sleep.
    pub(crate) timers: Timers,
    /// Operations that are posted and not completed, including those without a ticket.
    pub(crate) under_way: usize,
    /// Unanswered calls.
    pub(crate) calls: usize,
    /// Replies that are no longer waited for.
    pub(super) unwanted: Vec<Frame>,
}

impl Completions {
    /// Delivers a value to its waiter. Returns whether the operation was still open.
    #[inline(always)]
    fn settle(&mut self, ticket: Ticket, outcome: Result<Value, VerbError>) -> bool {
        self.ready.take_all(&mut self.crowded);
        match self.tickets.complete(ticket, outcome) {
            Completed::Wake(task) => {
                self.ready.insert(task);
                true
            }
            Completed::Unwanted(outcome) => {
                self.discard(outcome);
                true
            }
            Completed::Stale(outcome) => {
                self.discard(outcome);
                false
            }
        }
    }

    #[cold]
    fn discard(&mut self, outcome: Result<Value, VerbError>) {
        match outcome {
            Ok(Value::Words(buffer)) => self.words.put(buffer),
            Ok(Value::Reply { frame, .. }) => self.unwanted.push(frame),
            Ok(Value::Nothing | Value::Number(_)) | Err(_) => {}
        }
    }
}

impl Events for Completions {
    #[inline(always)]
    fn completed(&mut self, ticket: Option<Ticket>, verb: Verb, result: Result<u64, VerbError>) {
        self.under_way -= 1;
        let outcome = match verb {
            Verb::Read { into, .. } => match result {
                Ok(_) => Ok(Value::Words(into)),
                Err(error) => {
                    self.words.put(into);
                    Err(error)
                }
            },
            Verb::Write { from, .. } => {
                self.words.put(from);
                result.map(|_| Value::Nothing)
            }
            Verb::CompareSwap { .. } | Verb::FetchAdd { .. } => result.map(Value::Number),
            Verb::Send { bytes, .. } => {
                self.bytes.put(bytes);
                result.map(|_| Value::Nothing)
            }
            Verb::Call { bytes, .. } => {
                self.bytes.put(bytes);
                // A delivered call ends with its reply.
                if let (Err(error), Some(ticket)) = (result, ticket)
                    && self.settle(ticket, Err(error))
                {
                    self.calls -= 1;
                }
                return self.ready.take_all(&mut self.crowded);
            }
        };
        match ticket {
            Some(ticket) => drop(self.settle(ticket, outcome)),
            None => {
                self.ready.take_all(&mut self.crowded);
                self.discard(outcome);
            }
        }
    }

    fn replied(&mut self, ticket: Ticket, from: NodeId, frame: Option<Frame>) {
        if let (Some(phase), Some(frame)) = (self.tickets.call_phase(ticket), &frame) {
            self.counters.phase(phase).bytes_in += frame.len() as u64;
        }
        let outcome = match frame {
            Some(frame) => Ok(Value::Reply { from, frame }),
            None => Err(VerbError::Unanswered { node: from }),
        };
        if self.settle(ticket, outcome) {
            self.calls -= 1;
        }
    }

    fn departed(&mut self, node: NodeId, error: VerbError) {
        while let Some(ticket) = self.tickets.call_to(node) {
            self.settle(ticket, Err(error));
            self.calls -= 1;
        }
    }

    fn changed(&mut self) {
        self.ready.take_all(&mut self.watchers);
    }
}
