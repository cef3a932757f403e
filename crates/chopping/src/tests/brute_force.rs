//! Every interleaving of a few transactions, in a database of hashes, beside every serial order.

use std::collections::HashSet;

use super::store::{Seen, Store};
use crate::{
    chopping::{Chopping, Execution},
    describe::Kind,
    program::{KnownAccess, Program},
};

/// An instance of a transaction, and the piece in which its user aborts it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instance {
    pub(super) transaction: usize,
    pub(super) aborts_in: Option<usize>,
}

/// How a search ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Every interleaving ends as a serial order does.
    Serializable,
    /// These steps do not: numbers of instances, from 1, and 0 for a publication.
    Not(Vec<usize>),
    /// There are too many.
    TooMany,
}

/// How many states a search may visit.
const MOST: usize = 40_000;

#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    store: Store,
    seen: Vec<Seen>,
    /// How many of its merged pieces each instance has run.
    done: Vec<usize>,
    aborted: Vec<bool>,
}

/// What is left of an execution: the store, and what each committed instance has seen.
type Outcome = (Store, Vec<Option<Seen>>);

struct Search<'p> {
    program: &'p Program,
    chopping: &'p Chopping,
    instances: &'p [Instance],
    serial: HashSet<Outcome>,
    visited: HashSet<State>,
}

/// Searches all interleavings of `instances`, chopped as `chopping` has it.
pub(super) fn search(program: &Program, chopping: &Chopping, instances: &[Instance]) -> Verdict {
    let serial = serial_outcomes(program, instances);
    let mut search = Search { program, chopping, instances, serial, visited: HashSet::new() };
    let seen = std::iter::zip(1.., instances).map(|(number, of)| Seen::new(program, of.transaction, number));
    let state = State {
        store: Store::new(program),
        seen: seen.collect(),
        done: vec![0; instances.len()],
        aborted: vec![false; instances.len()],
    };
    let mut steps = Vec::new();
    search.go(&state, &mut steps).unwrap_or(Verdict::Serializable)
}

fn serial_outcomes(program: &Program, instances: &[Instance]) -> HashSet<Outcome> {
    let mut outcomes = HashSet::new();
    let mut order: Vec<usize> = (0..instances.len()).filter(|&place| instances[place].aborts_in.is_none()).collect();
    permute(&mut order, 0, &mut |order| {
        let mut store = Store::new(program);
        let mut seen = vec![None; instances.len()];
        for &place in order {
            let mut own = Seen::new(program, instances[place].transaction, place as u64 + 1);
            for piece in 0..program.transactions[own.transaction].pieces.len() {
                store.run(program, &mut own, piece, |_| false);
            }
            seen[place] = Some(own);
        }
        outcomes.insert((store, seen));
    });
    outcomes
}

fn permute(order: &mut [usize], from: usize, visit: &mut impl FnMut(&[usize])) {
    if from == order.len() {
        return visit(order);
    }
    for place in from..order.len() {
        order.swap(from, place);
        permute(order, from + 1, visit);
        order.swap(from, place);
    }
}

impl Search<'_> {
    /// Visits all that can follow a state. Returns a verdict as soon as there is one.
    fn go(&mut self, state: &State, steps: &mut Vec<usize>) -> Option<Verdict> {
        if self.visited.len() > MOST {
            return Some(Verdict::TooMany);
        }
        if !self.visited.insert(state.clone()) {
            return None;
        }
        if (0..self.instances.len()).all(|place| self.is_done(state, place)) && !state.store.has_pending() {
            let committed = |place: usize| (!state.aborted[place]).then(|| state.seen[place].clone());
            let outcome = (state.store.clone(), (0..self.instances.len()).map(committed).collect());
            return (!self.serial.contains(&outcome)).then(|| Verdict::Not(steps.clone()));
        }
        if state.store.has_pending() && self.can_publish(state) {
            let mut next = state.clone();
            next.store.publish();
            steps.push(0);
            if let Some(verdict) = self.go(&next, steps) {
                return Some(verdict);
            }
            steps.pop();
        }
        for place in 0..self.instances.len() {
            if self.is_done(state, place) || !self.can_run(state, place) {
                continue;
            }
            let next = self.run(state, place);
            steps.push(place + 1);
            if let Some(verdict) = self.go(&next, steps) {
                return Some(verdict);
            }
            steps.pop();
        }
        None
    }

    /// Returns how many merged pieces an instance has.
    fn pieces(&self, place: usize) -> usize {
        self.chopping.transactions()[self.instances[place].transaction].pieces().len()
    }

    fn is_done(&self, state: &State, place: usize) -> bool {
        state.done[place] == self.pieces(place) || state.aborted[place]
    }

    fn is_under_way(&self, state: &State, place: usize) -> bool {
        state.done[place] > 0 && !self.is_done(state, place)
    }

    /// Returns whether no instance is under way of transactions that are `waited_for`.
    fn is_quiet(&self, state: &State, waited_for: impl Fn(usize) -> bool) -> bool {
        (0..self.instances.len())
            .all(|place| !self.is_under_way(state, place) || !waited_for(self.instances[place].transaction))
    }

    fn can_publish(&self, state: &State) -> bool {
        let is_party = |transaction: usize| {
            self.chopping
                .deferrals()
                .iter()
                .any(|one| one.publisher == transaction || one.subscribers.contains(&transaction))
        };
        self.is_quiet(state, is_party)
    }

    fn can_run(&self, state: &State, place: usize) -> bool {
        let transaction = self.instances[place].transaction;
        if let Execution::TwoRounds { after_publication } = self.chopping.transactions()[transaction].execution() {
            return self.is_quiet(state, |other| writes_what_is_read(self.program, other, transaction))
                && (!after_publication || self.can_publish(state));
        }
        let is_alone = self.program.transactions[transaction].alone;
        state.done[place] > 0 || !is_alone || self.is_quiet(state, |other| other == transaction)
    }

    /// Returns the state after an instance's next merged piece.
    fn run(&self, state: &State, place: usize) -> State {
        let instance = self.instances[place];
        let chopped = &self.chopping.transactions()[instance.transaction];
        let mut next = state.clone();
        if chopped.execution() == (Execution::TwoRounds { after_publication: true }) {
            next.store.publish();
        }
        let merged = &chopped.pieces()[state.done[place]];
        if merged.members().iter().any(|member| Some(member.piece) == instance.aborts_in) {
            // The piece is undone, and what ran before it is not.
            next.aborted[place] = true;
            return next;
        }
        let defers = |access: &KnownAccess| {
            let of = |one: &&crate::Deferral| one.publisher == instance.transaction && one.table == access.table;
            access.kind == Kind::Add
                && self.chopping.deferrals().iter().filter(of).any(|one| one.columns & access.columns != 0)
        };
        for member in merged.members() {
            next.store.run(self.program, &mut next.seen[place], member.piece, defers);
        }
        next.done[place] += 1;
        next
    }
}

/// Returns whether a transaction writes what another one reads.
fn writes_what_is_read(program: &Program, writer: usize, reader: usize) -> bool {
    let accesses =
        |transaction: usize| program.transactions[transaction].pieces.iter().flat_map(|piece| &piece.accesses);
    accesses(writer).filter(|access| access.kind.has_effect()).any(|written| {
        accesses(reader).filter(|read| read.table == written.table).any(|read| match read.kind {
            Kind::Search => written.kind.is_of_rows(),
            _ => written.columns & read.columns != 0,
        })
    })
}
