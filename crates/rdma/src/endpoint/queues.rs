//! The queues of an endpoint: one for each node.
//!
//! A queue belongs to one incarnation of its node, from its first use or the last reconnection on.
//! All that the fabrics have in common is here: the places, the incarnation and its end, a failure
//! that is not reported yet, and which queues are active. What a fabric keeps for a queue beside
//! that is its [`Line`]: the operations, and the connection that carries them.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{
            AtomicU32,
            Ordering::{Acquire, Relaxed},
        },
    },
};

use crate::{
    NodeId, VerbError,
    endpoint::port::{Events, Ticket, Verb},
    fabric::lifetime::Life,
};

/// What a fabric keeps for a queue.
pub trait Line: fmt::Debug + Send {
    /// Returns whether no operation is pending.
    fn is_empty(&self) -> bool;

    /// Returns whether polls have nothing to do for it, until an operation is posted or something
    /// arrives.
    #[inline(always)]
    fn is_quiet(&self) -> bool {
        self.is_empty()
    }

    /// Returns whether it has failed, which the next poll reports.
    fn has_failed(&self) -> bool {
        false
    }

    /// Begins anew, for another incarnation. No operation is pending.
    fn reset(&mut self) {}
}

/// The part of a queue that is the same for all fabrics, beside the incarnation.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) node: NodeId,
    /// Whether the end of the incarnation was reported, or of the connection to it.
    over: bool,
    /// Whether it is on the list of active queues.
    active: bool,
    /// The number of places that are reserved, until their operations are reported.
    taken: usize,
    /// The failure of an unsignaled operation, until it is reported.
    broken: Option<VerbError>,
}

impl State {
    /// Returns the failure of an earlier, unsignaled operation, with which the next ones end.
    #[inline(always)]
    pub(crate) fn broken(&self) -> Option<VerbError> {
        self.broken
    }

    /// Returns whether the end was reported.
    #[cfg(all(feature = "verbs", not(feature = "model")))]
    pub(crate) fn has_ended(&self) -> bool {
        self.over
    }

    /// Notes the outcome of an operation, in the order of posting. A failure that is not reported
    /// replaces the next operations, up to the first one that reports it.
    #[inline(always)]
    pub(crate) fn note(&mut self, signaled: bool, outcome: &Result<u64, VerbError>) {
        if let Err(error) = outcome {
            self.broken = (!signaled).then_some(*error);
        }
    }

    /// Reports the outcome of an operation, and frees its place.
    #[inline(always)]
    pub(crate) fn complete(
        &mut self,
        ticket: Option<Ticket>,
        verb: Verb,
        outcome: Result<u64, VerbError>,
        events: &mut impl Events,
    ) {
        self.taken -= 1;
        events.completed(ticket, verb, outcome);
    }

    /// Lets the next poll advance the queue, by the list of active queues.
    #[inline(always)]
    pub(crate) fn activate(&mut self, active: &mut Vec<u32>) {
        if !std::mem::replace(&mut self.active, true) {
            active.push(u32::from(self.node.0));
        }
    }

    /// Ends the queue, and reports that, the first time. Returns whether this was the first time.
    #[cold]
    pub(crate) fn end(&mut self, error: VerbError, events: &mut impl Events) -> bool {
        let is_first = !std::mem::replace(&mut self.over, true);
        if is_first {
            events.departed(self.node, error);
        }
        is_first
    }
}

/// The queue to one node.
#[derive(Debug)]
pub(crate) struct Queue<L, Q> {
    /// The incarnation that it belongs to, since its first use or the last reconnection.
    pub(crate) life: Option<Arc<L>>,
    pub(crate) state: State,
    pub(crate) line: Q,
}

impl<L: Life, Q: Line> Queue<L, Q> {
    /// Returns whether operations can no longer be carried out, until it is reconnected.
    #[cfg(all(feature = "tcp", not(feature = "model")))]
    #[inline(always)]
    pub(crate) fn is_over(&self) -> bool {
        self.state.over || self.life.as_ref().is_none_or(|life| life.is_over())
    }

    /// Returns whether the end of its incarnation is not reported yet.
    fn has_departed(&self) -> bool {
        !self.state.over && self.life.as_ref().is_some_and(|life| life.is_over())
    }

    /// Returns the place of the next one in the list of active queues, where it has this place. It
    /// is removed if it is quiet.
    #[inline(always)]
    pub(crate) fn next(&mut self, active: &mut Vec<u32>, place: usize) -> usize {
        if !self.line.is_quiet() {
            return place + 1;
        }
        self.state.active = false;
        active.swap_remove(place);
        place
    }

    /// Reports the end of its incarnation. Pending operations fail when they are carried out.
    #[cold]
    pub(crate) fn report_departure(&mut self, events: &mut impl Events) {
        if let Some(life) = &self.life {
            self.state.end(life.cut_off(), events);
        }
    }

    /// Returns whether it belongs to an incarnation, and can be used.
    fn is_to(&self, life: &Arc<L>) -> bool {
        let belongs = self.life.as_ref().is_some_and(|now| Arc::ptr_eq(now, life));
        belongs && !self.state.over && !self.line.has_failed()
    }

    /// Returns whether all operations of the previous incarnation are reported, and its end.
    fn may_connect(&self) -> bool {
        self.life.is_none() || (self.state.over && self.line.is_empty())
    }

    /// Connects it to an incarnation.
    #[cold]
    pub(crate) fn connect(&mut self, life: Arc<L>) {
        debug_assert!(self.line.is_empty(), "what is for one incarnation is not carried out on another");
        self.line.reset();
        (self.life, self.state.over, self.state.broken) = (Some(life), false, None);
    }
}

/// The queues of an endpoint, by node.
#[derive(Debug)]
pub struct Queues<L, Q> {
    all: Vec<Queue<L, Q>>,
    /// The queues that polls advance.
    active: Vec<u32>,
    depth: usize,
    /// The number of changes of nodes' presence that were seen.
    changes: u32,
}

impl<L: Life, Q: Line> Queues<L, Q> {
    /// Creates a queue for each node, with `depth` places. `changes` is the present number of
    /// changes.
    pub(crate) fn new(nodes: usize, depth: usize, changes: u32, line: impl Fn() -> Q) -> Self {
        let queue = |node| Queue {
            life: None,
            state: State { node: NodeId(node as u16), over: false, active: false, taken: 0, broken: None },
            line: line(),
        };
        Self { all: (0..nodes).map(queue).collect(), active: Vec::new(), depth, changes }
    }

    /// Reserves a place in the queue to a node. Returns false if it has none, or is not connected.
    #[inline(always)]
    pub(crate) fn reserve(&mut self, to: NodeId) -> bool {
        match self.all.get_mut(usize::from(to.0)) {
            Some(queue) if queue.life.is_some() && queue.state.taken < self.depth => {
                queue.state.taken += 1;
                true
            }
            _ => false,
        }
    }

    /// Returns the error of a queue that is connected and has no place.
    pub(crate) fn full(&self, node: NodeId) -> VerbError {
        VerbError::QueueFull { node, depth: self.depth }
    }

    /// Releases a reserved place that was not used.
    pub(crate) fn release(&mut self, to: NodeId) {
        self.all[usize::from(to.0)].state.taken -= 1;
    }

    /// Returns whether the queue to a node has been connected.
    pub(crate) fn is_connected(&self, to: NodeId) -> bool {
        self.all.get(usize::from(to.0)).is_some_and(|queue| queue.life.is_some())
    }

    /// Connects the queue to a node, which is one of the endpoint's, to an incarnation.
    #[cold]
    pub(crate) fn connect(&mut self, to: NodeId, life: Arc<L>) {
        if life.is_over() {
            // The endpoint has seen the change before, but this queue has not.
            self.changes = self.changes.wrapping_sub(1);
        }
        self.all[usize::from(to.0)].connect(life);
    }

    /// Prepares the queue to a node for this incarnation. Returns whether it belongs to it already;
    /// `None` while the end of the previous one is not reported, for which it is made active.
    pub(crate) fn prepare(&mut self, to: NodeId, life: &Arc<L>) -> Option<bool> {
        let queue = &self.all[usize::from(to.0)];
        if queue.is_to(life) {
            return Some(true);
        }
        if queue.may_connect() {
            return Some(false);
        }
        self.activate(to);
        None
    }

    /// Returns the queue to a node, in which a place is reserved, and the list of active queues.
    /// Post the operation first, and then [activate](State::activate) the queue, so that the
    /// operation is moved to its queue without a detour.
    #[inline(always)]
    pub(crate) fn reserved(&mut self, node: NodeId) -> (&mut Queue<L, Q>, &mut Vec<u32>) {
        match self.all.get_mut(usize::from(node.0)) {
            Some(queue) => (queue, &mut self.active),
            None => unreachable!("a place is reserved there"),
        }
    }

    /// Lets the next poll advance the queue to a node.
    pub(crate) fn activate(&mut self, node: NodeId) {
        let (queue, active) = self.reserved(node);
        queue.state.activate(active);
    }

    /// Returns the queue to a node, if there is such a node.
    #[inline(always)]
    pub(crate) fn get(&mut self, node: NodeId) -> Option<&mut Queue<L, Q>> {
        self.all.get_mut(usize::from(node.0))
    }

    /// Returns whether no queue is active.
    #[inline(always)]
    pub(crate) fn is_idle(&self) -> bool {
        self.active.is_empty()
    }

    /// Calls `each` with the active queues.
    pub(crate) fn for_each_active(&mut self, mut each: impl FnMut(&mut Queue<L, Q>)) {
        for active in &self.active {
            each(&mut self.all[*active as usize]);
        }
    }

    /// Returns the active queue at a place of their list, and the list.
    #[inline(always)]
    pub(crate) fn active(&mut self, place: usize) -> Option<(&mut Queue<L, Q>, &mut Vec<u32>)> {
        let active = *self.active.get(place)?;
        Some((&mut self.all[active as usize], &mut self.active))
    }

    /// Returns whether the presence of a node has changed since the endpoint looked.
    #[inline(always)]
    pub(crate) fn has_news(&self, changes: &AtomicU32) -> bool {
        changes.load(Relaxed) != self.changes
    }

    /// Looks at the changes of nodes' presence. Returns the queues whose incarnations have ended.
    #[cold]
    pub(crate) fn take_news(&mut self, changes: &AtomicU32) -> impl Iterator<Item = &mut Queue<L, Q>> {
        self.changes = changes.load(Acquire);
        self.departed()
    }

    /// Returns the queues whose incarnations have ended, which is not reported yet.
    pub(crate) fn departed(&mut self) -> impl Iterator<Item = &mut Queue<L, Q>> {
        self.all.iter_mut().filter(|queue| queue.has_departed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Incarnation,
        endpoint::port::Frame,
        fabric::lifetime::{End, Lifetime},
    };

    const NODE: NodeId = NodeId(0);

    /// The number of pending operations.
    #[derive(Debug, Default)]
    struct Pending(usize);

    impl Line for Pending {
        fn is_empty(&self) -> bool {
            self.0 == 0
        }
    }

    /// The ends that were reported.
    #[derive(Default)]
    struct Ends(Vec<VerbError>);

    impl Events for Ends {
        fn completed(&mut self, _: Option<Ticket>, _: Verb, _: Result<u64, VerbError>) {}
        fn replied(&mut self, _: Ticket, _: NodeId, _: Option<Frame>) {}
        fn departed(&mut self, node: NodeId, error: VerbError) {
            assert_eq!(node, NODE);
            self.0.push(error);
        }
        fn changed(&mut self) {}
    }

    fn verb() -> Verb {
        Verb::FetchAdd {
            at: crate::Remote { node: NODE, region: crate::RegionId(0), offset: crate::Offset::new(0) },
            add: 1,
        }
    }

    #[test]
    fn a_place_is_free_again_when_its_operation_is_reported_or_released() {
        let mut queues = Queues::new(1, 2, 0, Pending::default);
        assert!(!queues.reserve(NODE), "it is not connected");
        queues.connect(NODE, Arc::new(Lifetime::new(NODE, Incarnation(1))));
        assert!(queues.reserve(NODE) && queues.reserve(NODE) && !queues.reserve(NODE));
        assert_eq!(queues.full(NODE), VerbError::QueueFull { node: NODE, depth: 2 });
        let (queue, _) = queues.reserved(NODE);
        queue.state.complete(None, verb(), Ok(0), &mut Ends::default());
        assert!(queues.reserve(NODE) && !queues.reserve(NODE));
        queues.release(NODE);
        assert!(queues.reserve(NODE) && !queues.reserve(NODE));
        assert!(!queues.reserve(NodeId(1)), "there is no such node");
    }

    #[test]
    fn an_end_is_reported_once_and_before_a_reconnection() {
        let (mut queues, mut ends) = (Queues::new(1, 2, 0, Pending::default), Ends::default());
        let lives = [1, 2].map(|number| Arc::new(Lifetime::new(NODE, Incarnation(number))));
        queues.connect(NODE, Arc::clone(&lives[0]));
        assert_eq!(queues.prepare(NODE, &lives[0]), Some(true), "it belongs to it");
        queues.reserved(NODE).0.line.0 = 1;
        lives[0].end(End::Died);
        assert_eq!(queues.prepare(NODE, &lives[1]), None, "the end is not reported");
        for _ in 0..2 {
            queues.departed().for_each(|queue| queue.report_departure(&mut ends));
            assert_eq!(ends.0, [lives[0].cut_off()]);
        }
        assert_eq!(queues.prepare(NODE, &lives[1]), None, "an operation is pending");
        queues.reserved(NODE).0.line.0 = 0;
        assert_eq!(queues.prepare(NODE, &lives[1]), Some(false), "it can be connected");
        queues.connect(NODE, Arc::clone(&lives[1]));
        assert_eq!(queues.prepare(NODE, &lives[1]), Some(true));
    }

    #[test]
    fn a_queue_is_active_until_it_is_quiet() {
        let mut queues = Queues::new(2, 1, 0, Pending::default);
        for node in [0, 1] {
            queues.connect(NodeId(node), Arc::new(Lifetime::new(NodeId(node), Incarnation(1))));
            queues.reserved(NodeId(node)).0.line.0 = 1;
            queues.activate(NodeId(node));
            queues.activate(NodeId(node));
        }
        let mut poll = |quiet: u16| {
            let (mut seen, mut place) = (Vec::new(), 0);
            while let Some((queue, active)) = queues.active(place) {
                seen.push(queue.state.node.0);
                queue.line.0 = usize::from(queue.state.node.0 != quiet);
                place = queue.next(active, place);
            }
            seen
        };
        assert_eq!([poll(0), poll(1), poll(2)], [vec![0, 1], vec![1], vec![]]);
    }

    #[test]
    fn a_failure_that_is_not_reported_replaces_operations_until_one_reports_it() {
        let mut queues = Queues::<Lifetime, Pending>::new(1, 1, 0, Pending::default);
        let (queue, _) = queues.reserved(NODE);
        let failure = VerbError::Unanswered { node: NODE };
        for (signaled, left) in [(true, None), (false, Some(failure)), (false, Some(failure)), (true, None)] {
            queue.state.note(signaled, &Err(failure));
            assert_eq!(queue.state.broken(), left);
        }
        queue.state.note(false, &Ok(0));
        assert_eq!(queue.state.broken(), None);
    }
}
