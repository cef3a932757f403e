//! The finest pieces of one transaction: what must be merged, and the order of the rest.
//!
//! Three rules merge pieces. Each leaves no choice, so there is one finest chopping, and it does
//! not depend on how other transactions are chopped.
//!
//! 1. Two pieces that a path of conflicts connects outside of their instance are one: the path and
//!    the S-edge between them are an SC-cycle.
//! 2. A piece that must run after one part of a merged piece and before another part belongs to it.
//! 3. A piece that may abort must not come after one with an effect: it becomes part of it.

use std::fmt;

use crate::{
    cycle::Cycle,
    graph::Graph,
    mutation::{self, Mutation},
    program::{KnownTransaction, PieceId, Program},
};

/// Two pieces that must run together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merge {
    /// One piece.
    pub first: PieceId,
    /// The other one.
    pub second: PieceId,
    /// Why they must.
    pub why: Why,
}

/// Why two pieces must run together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// Apart, they would be on an SC-cycle.
    Cycle(Cycle),
    /// The second must run after the first, and before a piece that is merged with the first.
    Order,
    /// The second may abort, and would run after the first, which has an effect.
    Abort,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cycle(cycle) => write!(f, "SC-cycle {cycle}"),
            Self::Order => f.write_str("it depends on a part of the piece, and another part depends on it"),
            Self::Abort => f.write_str("it may abort, and would do so after an effect"),
        }
    }
}

/// The order in which the pieces of a transaction must run: for each piece, those that it must come
/// after.
pub(crate) type Needs = Vec<Vec<usize>>;

/// The pieces of a transaction while they are merged.
pub(crate) struct Merger<'p> {
    known: &'p KnownTransaction,
    transaction: usize,
    needs: &'p Needs,
    /// For each piece, the first one of those that it is merged with.
    group: Vec<usize>,
    merges: Vec<Merge>,
}

impl<'p> Merger<'p> {
    pub(crate) fn new(program: &'p Program, transaction: usize, needs: &'p Needs) -> Self {
        let known = &program.transactions[transaction];
        Self { known, transaction, needs, group: (0..known.pieces.len()).collect(), merges: Vec::new() }
    }

    /// Merges what must be merged, and returns the members of each merged piece, in the order in
    /// which these run, and why each was merged.
    pub(crate) fn finest(mut self, program: &Program, graph: &Graph) -> (Vec<Vec<usize>>, Vec<Merge>) {
        self.merge_cycles(program, graph);
        if mutation::includes(Mutation::MergedInVain) {
            self.merge(0, self.group.len() - 1, Why::Order);
        }
        loop {
            self.merge_between();
            if !self.merge_aborts() {
                break;
            }
        }
        (self.order(), self.merges)
    }

    fn id(&self, piece: usize) -> PieceId {
        PieceId { transaction: self.transaction, piece }
    }

    fn merge(&mut self, first: usize, second: usize, why: Why) {
        let (one, other) = (self.group[first], self.group[second]);
        if one == other {
            return;
        }
        let (to, from) = (one.min(other), one.max(other));
        self.group.iter_mut().filter(|group| **group == from).for_each(|group| *group = to);
        self.merges.push(Merge { first: self.id(first), second: self.id(second), why });
    }

    fn merge_cycles(&mut self, program: &Program, graph: &Graph) {
        for first in 0..self.group.len() {
            for (second, path) in graph.paths(self.id(first)).iter().enumerate().skip(first + 1) {
                if let Some(path) = path
                    && self.group[first] != self.group[second]
                {
                    self.merge(first, second, Why::Cycle(Cycle::new(program, self.id(first), path)));
                }
            }
        }
    }

    /// Merges pieces that must run both after and before parts of one merged piece.
    fn merge_between(&mut self) {
        while let Some((first, second)) = self.between() {
            self.merge(first, second, Why::Order);
        }
    }

    /// Returns a piece, and one that must run after it and before a piece that is merged with it.
    fn between(&self) -> Option<(usize, usize)> {
        let precedes = self.precedes();
        let pieces = 0..self.group.len();
        pieces.flat_map(|after| self.needs[after].iter().map(move |&before| (before, after))).find(
            |&(before, after)| {
                let (one, other) = (self.group[before], self.group[after]);
                one != other && precedes[other][one]
            },
        )
    }

    /// Returns for each two merged pieces whether the first must run before the second, by the
    /// numbers of their first members.
    fn precedes(&self) -> Vec<Vec<bool>> {
        let count = self.group.len();
        let mut precedes = vec![vec![false; count]; count];
        for (after, needs) in self.needs.iter().enumerate() {
            for &before in needs {
                precedes[self.group[before]][self.group[after]] = true;
            }
        }
        for through in 0..count {
            let onward = precedes[through].clone();
            for from in precedes.iter_mut().filter(|from| from[through]) {
                from.iter_mut().zip(&onward).for_each(|(to, onward)| *to |= onward);
            }
        }
        precedes
    }

    /// Merges one piece that may abort with one with an effect that would run before it. Returns
    /// whether there was one.
    fn merge_aborts(&mut self) -> bool {
        if mutation::includes(Mutation::AbortAfterEffects) {
            return false;
        }
        let precedes = self.precedes();
        let pieces = || self.known.pieces.iter().enumerate();
        for (abort, _) in pieces().filter(|(_, piece)| piece.may_abort) {
            for (effect, _) in pieces().filter(|(_, piece)| piece.has_effect()) {
                let (one, other) = (self.group[effect], self.group[abort]);
                // One of two that have effects comes first, and the other one may abort after it.
                let both_may = self.has(one, |piece| self.known.pieces[piece].may_abort)
                    && self.has(other, |piece| self.known.pieces[piece].has_effect());
                if one != other && (precedes[one][other] || both_may) {
                    self.merge(effect, abort, Why::Abort);
                    return true;
                }
            }
        }
        false
    }

    fn has(&self, group: usize, is: impl Fn(usize) -> bool) -> bool {
        (0..self.group.len()).any(|piece| self.group[piece] == group && is(piece))
    }

    /// Returns the merged pieces in an order that is allowed: what may abort first, with what it
    /// needs, and everything else as in the program.
    fn order(&self) -> Vec<Vec<usize>> {
        let count = self.group.len();
        let precedes = self.precedes();
        let may_abort = |group| self.has(group, |piece| self.known.pieces[piece].may_abort);
        let has_effect = |group| self.has(group, |piece| self.known.pieces[piece].has_effect());
        let is_early = |group: usize| may_abort(group) || (0..count).any(|to| precedes[group][to] && may_abort(to));
        let mut waiting: Vec<usize> = (0..count).filter(|&piece| self.group[piece] == piece).collect();
        let mut ordered = Vec::new();
        while !waiting.is_empty() {
            let is_ready = |group: &usize| waiting.iter().all(|&other| other == *group || !precedes[other][*group]);
            let ready = waiting.iter().copied().filter(is_ready);
            let Some(next) =
                ready.min_by_key(|&group| (!is_early(group), may_abort(group) && has_effect(group), group))
            else {
                unreachable!("merged pieces need each other only if they are one");
            };
            waiting.retain(|&group| group != next);
            ordered.push((0..count).filter(|&piece| self.group[piece] == next).collect());
        }
        ordered
    }
}
