//! The inner state of an endpoint: its port, its completions, and the conversion of intents into
//! requests.

use std::{collections::VecDeque, mem};

use crate::{
    Capabilities, Counters, NodeId, Phase, Port, Tally, VerbError,
    endpoint::{
        buffers::{Buffer, Pool},
        intent::{self, Intent},
        port::{Activity, Frame, Received, Reply, ReplyTo, Ticket, Verb, Work},
        tickets::{Gives, NOBODY, Task, Tickets, Value},
    },
    executor::{tasks::TaskSet, timers::Timers},
};

use super::completions::Completions;

#[derive(Debug)]
pub(crate) struct Inner<P: Port> {
    pub(crate) port: P,
    capabilities: Capabilities,
    pub(crate) completions: Completions,
    /// Coroutines that wait for a message.
    pub(crate) receivers: TaskSet,
    /// Replies that wait for room. They do not wait for requests.
    replies: VecDeque<(ReplyTo, Reply)>,
    /// Whether an executor runs on this endpoint.
    occupied: bool,
    /// The result of the last poll.
    pub(crate) activity: Activity,
    /// How often the endpoint has slept.
    pub(crate) naps: u64,
    /// Lists for batches, reused so that each need not allocate its own.
    spare: Vec<Vec<Work>>,
    /// Requests of one phase that will share doorbells, while more are being gathered.
    gathered: Option<(Phase, Vec<Work>)>,
}

impl<P: Port> Inner<P> {
    pub(super) fn new(port: P) -> Self {
        let buffers = port.buffers();
        Self {
            capabilities: port.capabilities(),
            port,
            completions: Completions {
                tickets: Tickets::default(),
                words: Pool::new(&buffers),
                bytes: Pool::new(&buffers),
                counters: Counters::default(),
                ready: TaskSet::default(),
                crowded: TaskSet::default(),
                watchers: TaskSet::default(),
                timers: Timers::default(),
                under_way: 0,
                calls: 0,
                unwanted: Vec::new(),
                ended: Vec::new(),
            },
            receivers: TaskSet::default(),
            replies: VecDeque::new(),
            occupied: false,
            activity: Activity::Idle,
            naps: 0,
            spare: Vec::new(),
            gathered: None,
        }
    }

    pub(crate) fn counters(&self) -> Counters {
        self.completions.counters
    }

    /// Returns the free buffers of words, those of bytes, and the operations that are still held.
    pub(super) fn at_rest(&self) -> (usize, usize, usize) {
        (self.completions.words.free(), self.completions.bytes.free(), self.completions.tickets.open_count())
    }

    /// Begins an executor with this many coroutines, all of which are ready. Returns false if
    /// another executor runs here.
    pub(crate) fn begin_run(&mut self, tasks: usize) -> bool {
        if mem::replace(&mut self.occupied, true) {
            return false;
        }
        self.completions.ready.fill(tasks);
        self.receivers.reset(tasks);
        self.completions.crowded.reset(tasks);
        self.completions.watchers.reset(tasks);
        true
    }

    /// Adds a coroutine to the executor, which is ready.
    pub(crate) fn admit(&mut self, task: Task) {
        for set in [
            &mut self.receivers,
            &mut self.completions.crowded,
            &mut self.completions.watchers,
            &mut self.completions.ready,
        ] {
            set.make_room(task);
        }
        self.completions.ready.insert(task);
    }

    /// Ends the executor, with all of its coroutines.
    pub(crate) fn end_run(&mut self) {
        self.occupied = false;
        if !self.receivers.is_empty() {
            self.receivers.reset(0);
            self.port.retire();
        }
    }

    /// Polls the port once, and wakes the coroutines that became ready.
    #[inline]
    pub(crate) fn poll(&mut self) -> Activity {
        let mut activity = self.port.poll(&mut self.completions);
        if !self.replies.is_empty() {
            activity = activity.max(self.send_waiting_replies());
        }
        if !self.completions.timers.is_empty() {
            self.wake_sleepers();
        }
        while let Some(frame) = self.completions.unwanted.pop() {
            self.port.recycle_reply(frame);
        }
        if !self.receivers.is_empty() && self.port.has_mail() {
            self.completions.ready.take_all(&mut self.receivers);
        }
        self.activity = activity;
        activity
    }

    fn wake_sleepers(&mut self) {
        let now = self.port.now();
        while let Some(task) = self.completions.timers.go_off(now) {
            self.completions.ready.insert(task);
        }
    }

    /// Sleeps until something happens, a timer goes off, or `at_most` has passed. Does not sleep if
    /// `quiet` returns false.
    pub(crate) fn nap(&mut self, at_most: Option<std::time::Duration>, quiet: impl FnOnce() -> bool) {
        let timer = self.completions.timers.next();
        let until = match (timer, at_most) {
            (timer, None) => timer,
            (timer, Some(at_most)) => {
                let latest = self.port.now() + at_most;
                Some(timer.map_or(latest, |timer| timer.min(latest)))
            }
        };
        self.naps += 1;
        self.port.wait(until, !self.receivers.is_empty(), quiet);
    }

    /// Registers a coroutine that waits for room.
    pub(crate) fn crowd(&mut self, task: Task) {
        self.completions.crowded.insert(task);
    }

    /// Converts an intent into a request: checks it, reserves a place in the queue, and takes a
    /// ticket and a buffer. `waiter` is the coroutine that waits for it, if it is to be posted at
    /// once.
    #[inline(always)]
    fn prepare<I: Intent>(
        &mut self,
        intent: &I,
        phase: Phase,
        posted: bool,
        waiter: Task,
    ) -> Result<(Ticket, Verb), VerbError> {
        intent.check(&self.capabilities)?;
        if I::IS_CALL && self.completions.calls >= self.capabilities.max_calls {
            return Err(VerbError::TooManyCalls { most: self.capabilities.max_calls });
        }
        let node = intent.node();
        self.port.reserve(node)?;
        // The buffer comes last: what owns it is then moved to its queue without a detour.
        let ticket = self.completions.tickets.open(posted, waiter, I::IS_CALL.then_some((node, phase)));
        match intent.verb(&mut self.completions.words, &mut self.completions.bytes) {
            Some(verb) => {
                self.completions.calls += usize::from(I::IS_CALL);
                Ok((ticket, verb))
            }
            None => Err(self.without_buffer(ticket, node, intent.bytes())),
        }
    }

    #[cold]
    fn without_buffer(&mut self, ticket: Ticket, node: NodeId, bytes: usize) -> VerbError {
        self.completions.tickets.close(ticket);
        self.port.release(node);
        VerbError::BuffersExhausted { bytes }
    }

    /// Adds a request to a batch.
    #[inline(always)]
    pub(crate) fn stage(&mut self, intent: &impl Intent, phase: Phase) -> Result<(Work, Ticket), VerbError> {
        let (ticket, verb) = self.prepare(intent, phase, false, NOBODY)?;
        Ok((Work { ticket: Some(ticket), verb }, ticket))
    }

    /// Posts one request that a coroutine waits for, and rings its doorbell.
    #[inline(always)]
    pub(crate) fn post(&mut self, intent: &impl Intent, phase: Phase, waiter: Task) -> Result<Ticket, VerbError> {
        let (ticket, verb) = self.prepare(intent, phase, true, waiter)?;
        if self.gathered.is_some() {
            self.gather(phase, Work { ticket: Some(ticket), verb });
            return Ok(ticket);
        }
        let tally = self.completions.counters.phase(phase);
        tally.doorbells += 1;
        tally.round_trips += 1;
        intent::count(&verb, tally);
        self.completions.under_way += 1;
        self.port.post(Work { ticket: Some(ticket), verb });
        self.port.ring();
        Ok(ticket)
    }

    /// Returns an empty list of requests.
    pub(crate) fn list(&mut self) -> Vec<Work> {
        self.spare.pop().unwrap_or_default()
    }

    /// Posts all requests of a batch, and rings one doorbell for each target node.
    #[inline]
    pub(crate) fn ring(&mut self, mut works: Vec<Work>, phase: Phase) {
        for work in &mut works {
            work.ticket = work.ticket.and_then(|ticket| self.completions.tickets.ring(ticket));
        }
        if self.gathered.is_some() {
            works.drain(..).for_each(|work| self.gather(phase, work));
        } else {
            self.post_all(&mut works, phase);
        }
        self.spare.push(works);
    }

    /// Begins gathering: requests share doorbells from now on. Returns false if they already do.
    pub(super) fn begin_gathering(&mut self) -> bool {
        if self.gathered.is_some() {
            return false;
        }
        let works = self.list();
        self.gathered = Some((Phase::Other, works));
        true
    }

    /// Ends gathering, and posts the gathered requests.
    pub(super) fn end_gathering(&mut self) {
        self.post_gathered();
        self.spare.extend(self.gathered.take().map(|(_, works)| works));
    }

    /// Posts the requests gathered so far, and continues gathering. A request that waits for room
    /// waits for these too.
    pub(super) fn post_gathered(&mut self) {
        if let Some((phase, works)) = &mut self.gathered {
            let (phase, mut works) = (*phase, mem::take(works));
            self.post_all(&mut works, phase);
            self.gathered = Some((phase, works));
        }
    }

    /// Keeps a request for a shared doorbell. Requests of different phases do not share one.
    fn gather(&mut self, phase: Phase, work: Work) {
        if self.gathered.as_ref().is_some_and(|(of, _)| *of != phase) {
            self.post_gathered();
        }
        let Some((of, works)) = &mut self.gathered else { unreachable!("requests are being gathered") };
        *of = phase;
        works.push(work);
    }

    /// Posts requests, and rings one doorbell for each target node.
    #[inline(always)]
    fn post_all(&mut self, works: &mut Vec<Work>, phase: Phase) {
        let Some(first) = works.first() else { return };
        let (node, mut to_one, mut awaited) = (first.verb.node(), true, false);
        let Completions { tickets, counters, under_way, .. } = &mut self.completions;
        let tally = counters.phase(phase);
        for work in works.iter() {
            intent::count(&work.verb, tally);
            to_one &= work.verb.node() == node;
            awaited |= work.ticket.is_some_and(|ticket| tickets.is_awaited(ticket));
        }
        if to_one {
            tally.doorbells += 1;
            tally.round_trips += u64::from(awaited);
        } else {
            count_doorbells(works, tickets, tally);
        }
        *under_way += works.len();
        for work in works.drain(..) {
            self.port.post(work);
        }
        self.port.ring();
    }

    /// Discards a batch that was never rung.
    pub(crate) fn withdraw(&mut self, mut works: Vec<Work>) {
        for work in works.drain(..) {
            self.port.release(work.verb.node());
            match work.verb {
                Verb::Read { into: buffer, .. } | Verb::Write { from: buffer, .. } => {
                    self.completions.words.put(buffer)
                }
                Verb::Send { bytes, .. } => self.completions.bytes.put(bytes),
                Verb::Call { bytes, .. } => {
                    self.completions.bytes.put(bytes);
                    self.completions.calls -= 1;
                }
                Verb::CompareSwap { .. } | Verb::FetchAdd { .. } => {}
            }
            if let Some(ticket) = work.ticket {
                self.completions.tickets.withdraw(ticket);
            }
        }
        self.spare.push(works);
    }

    #[inline(always)]
    pub(crate) fn take<T>(
        &mut self,
        ticket: Ticket,
        waiter: Task,
        given: impl FnOnce(&mut Value) -> T,
    ) -> Option<Result<T, VerbError>> {
        self.completions.tickets.take(ticket, waiter, given)
    }

    pub(crate) fn is_complete(&self, ticket: Ticket) -> bool {
        self.completions.tickets.is_complete(ticket)
    }

    /// Handles the drop of an operation's future.
    pub(crate) fn abandon(&mut self, ticket: Ticket) {
        match self.completions.tickets.abandon(ticket) {
            Some((Gives::Words, value)) => self.completions.words.put(value.words),
            Some((Gives::Reply, Value { reply: Some((_, frame)), .. })) => self.port.recycle_reply(frame),
            Some(_) | None => {}
        }
    }

    #[inline]
    pub(crate) fn put_words(&mut self, buffer: Buffer<u64>) {
        self.completions.words.put(buffer);
    }

    pub(crate) fn receive(&mut self, phase: Phase) -> Option<Received> {
        let received = self.port.receive()?;
        let tally = self.completions.counters.phase(phase);
        tally.received += 1;
        tally.bytes_in += received.frame.len() as u64;
        Some(received)
    }

    pub(crate) fn reply(&mut self, to: ReplyTo, reply: Reply, phase: Phase) {
        let tally = self.completions.counters.phase(phase);
        tally.replies += 1;
        tally.doorbells += 1;
        tally.bytes_out += reply.frame.len() as u64;
        if !self.replies.is_empty() {
            self.replies.push_back((to, reply));
        } else if let Err((reply, _)) = self.port.reply(&to, reply) {
            self.replies.push_back((to, reply));
        }
    }

    /// Sends the replies that wait, as far as there is room.
    #[cold]
    fn send_waiting_replies(&mut self) -> Activity {
        let mut activity = Activity::Idle;
        for _ in 0..self.replies.len() {
            let Some((to, reply)) = self.replies.pop_front() else { break };
            if let Err((reply, waits)) = self.port.reply(&to, reply) {
                self.replies.push_back((to, reply));
                activity = activity.max(waits);
            }
        }
        activity
    }

    pub(crate) fn recycle_message(&mut self, frame: Frame) {
        self.port.recycle_message(frame);
    }

    pub(crate) fn recycle_reply(&mut self, frame: Frame) {
        self.port.recycle_reply(frame);
    }
}

impl<P: Port> Drop for Inner<P> {
    fn drop(&mut self) {
        self.send_waiting_replies();
        for (_, reply) in mem::take(&mut self.replies) {
            self.port.recycle_message(reply.frame);
        }
    }
}

/// Counts the doorbells of requests to several nodes.
#[cold]
fn count_doorbells(works: &[Work], tickets: &Tickets, tally: &mut Tally) {
    for (index, work) in works.iter().enumerate() {
        let node = work.verb.node();
        if works[..index].iter().all(|earlier| earlier.verb.node() != node) {
            tally.doorbells += 1;
            let mut to_node = works[index..].iter().filter(|later| later.verb.node() == node);
            let awaited = |work: &Work| work.ticket.is_some_and(|ticket| tickets.is_awaited(ticket));
            tally.round_trips += u64::from(to_node.any(awaited));
        }
    }
}
