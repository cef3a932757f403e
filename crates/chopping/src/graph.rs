//! The graph: which pieces conflict, and which are connected by paths of conflicts.

use std::collections::VecDeque;

use crate::{
    cycle::{Step, Through},
    footprint::Touch,
    mutation::{self, Mutation},
    program::{PieceId, Program},
};

/// A C-edge, as its first piece has it.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    /// The other piece. If it is of the same transaction, it is of the other instance.
    pub(crate) to: PieceId,
    /// The tables on which the two conflict.
    pub(crate) tables: Vec<usize>,
}

/// A moment at which something happens at once, while none of its transactions is under way: a
/// two-round read, or a publication.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    pub(crate) through: Through,
    /// For each transaction, whether the moment waits for it.
    pub(crate) waits_for: Vec<bool>,
}

/// The pieces of all transactions, and their C-edges over any two instances.
///
/// The graph is always that of the smallest pieces. Merging them changes no path between pieces of
/// different transactions, as a path goes through a transaction however it is chopped.
#[derive(Clone, Debug)]
pub(crate) struct Graph {
    /// The C-edges of each piece, by transaction and piece.
    links: Vec<Vec<Vec<Link>>>,
    /// For each transaction, whether it has one instance.
    is_single: Vec<bool>,
    pub(crate) moments: Vec<Moment>,
}

/// A transaction as a whole, its other instance where the search began in it, or a moment.
type Node = usize;

impl Graph {
    /// Builds the graph of pieces that touch `touches`.
    pub(crate) fn new(program: &Program, touches: &[Vec<Vec<Touch>>], moments: Vec<Moment>) -> Self {
        let transactions = &program.transactions;
        let only_one = mutation::includes(Mutation::OneInstance);
        let is_single: Vec<bool> = transactions.iter().map(|transaction| transaction.alone || only_one).collect();
        let mut links: Vec<Vec<Vec<Link>>> =
            transactions.iter().map(|transaction| vec![Vec::new(); transaction.pieces.len()]).collect();
        for (one, pieces) in touches.iter().enumerate() {
            for (other, others) in touches.iter().enumerate() {
                if one == other && is_single[one] {
                    continue;
                }
                for (piece, touched) in pieces.iter().enumerate() {
                    for (to, others) in others.iter().enumerate() {
                        let tables = conflicts(touched, others);
                        if !tables.is_empty() {
                            links[one][piece].push(Link { to: PieceId { transaction: other, piece: to }, tables });
                        }
                    }
                }
            }
        }
        Self { links, is_single, moments }
    }

    /// Returns the number of transactions.
    pub(crate) fn transactions(&self) -> usize {
        self.links.len()
    }

    /// Returns the C-edges of a piece.
    pub(crate) fn links(&self, piece: PieceId) -> &[Link] {
        &self.links[piece.transaction][piece.piece]
    }

    /// Returns the transactions that a moment waits for: none if there is no such moment.
    pub(crate) fn waits_for(&self, through: Through) -> Vec<usize> {
        let moments = self.moments.iter().filter(|moment| moment.through == through);
        let waits_for = moments.flat_map(|moment| (0..).zip(&moment.waits_for));
        waits_for.filter(|(_, waits)| **waits).map(|(place, _)| place).collect()
    }

    /// Returns the shortest path of conflicts from `from` to another piece of the same instance,
    /// for each piece that there is a path to. It leaves the instance at once.
    pub(crate) fn paths(&self, from: PieceId) -> Vec<Option<Vec<Step>>> {
        let count = self.links.len();
        let mut search = Search::new(count + self.moments.len());
        if self.is_single[from.transaction] {
            search.close(from.transaction);
        }
        for link in self.links(from) {
            search.arrive(None, link.to.transaction, Hop::Edge { from, to: link.to, tables: link.tables.clone() });
        }
        // Moments do not count that wait for this transaction: it is wholly before or after them.
        let is_open = |moment: &Moment| !moment.waits_for[from.transaction];
        search.spread(self, is_open);
        let mut found = vec![None; self.links[from.transaction].len()];
        for (piece, found) in found.iter_mut().enumerate() {
            let to = PieceId { piece, ..from };
            if to == from {
                continue;
            }
            let ends = self.links(to).iter().filter(|link| search.depth(link.to.transaction).is_some());
            // The nearest, and of these one that needs no S-edge.
            let cost = |link: &&Link| {
                let node = link.to.transaction;
                (search.depth(node), search.entry(node) != Some(link.to))
            };
            let Some(end) = ends.min_by_key(cost) else { continue };
            if mutation::includes(Mutation::LongCyclesOverlooked)
                && search.depth(end.to.transaction).is_some_and(|depth| depth > 0)
            {
                continue;
            }
            let mut steps = search.steps(end.to.transaction);
            steps.push(Hop::Edge { from: end.to, to, tables: end.tables.clone() }.step());
            *found = Some(steps);
        }
        found
    }

    /// Returns a path of conflicts from one transaction to another, through transactions and the
    /// moments that are `open`, if there is one.
    pub(crate) fn path(&self, from: usize, to: usize, open: impl Fn(&Moment) -> bool) -> Option<Vec<Step>> {
        let mut search = Search::new(self.links.len() + self.moments.len());
        search.begin(from);
        search.spread(self, open);
        search.depth(to)?;
        Some(search.steps(to))
    }
}

/// Returns the tables on which two pieces conflict.
fn conflicts(one: &[Touch], other: &[Touch]) -> Vec<usize> {
    let mut tables: Vec<usize> = Vec::new();
    for touch in one {
        if other.iter().any(|other| touch.conflicts(other)) && !tables.contains(&touch.table) {
            tables.push(touch.table);
        }
    }
    tables.sort_unstable();
    tables
}

/// How a search went from one node to another.
#[derive(Clone, Debug)]
enum Hop {
    /// By a C-edge.
    Edge { from: PieceId, to: PieceId, tables: Vec<usize> },
    /// Into or out of a moment.
    Moment { transaction: usize, through: Through },
}

impl Hop {
    fn step(self) -> Step {
        match self {
            Self::Edge { from, to, tables } => Step::Conflict { from, to, tables },
            Self::Moment { transaction, through } => Step::Moment { transaction, through },
        }
    }
}

/// How a search reached a node.
#[derive(Clone, Debug)]
struct Arrival {
    from: Option<Node>,
    /// `None` where the search began.
    hop: Option<Hop>,
    /// The number of hops after the first.
    depth: usize,
}

/// A breadth-first search over transactions as a whole, and moments.
struct Search {
    reached: Vec<Option<Arrival>>,
    /// Nodes that were reached and not left yet.
    open: VecDeque<Node>,
    /// The node that is not to be entered.
    closed: Option<Node>,
}

impl Search {
    fn new(nodes: usize) -> Self {
        Self { reached: vec![None; nodes], open: VecDeque::new(), closed: None }
    }

    fn close(&mut self, node: Node) {
        self.closed = Some(node);
    }

    fn begin(&mut self, at: Node) {
        self.reached[at] = Some(Arrival { from: None, hop: None, depth: 0 });
        self.open.push_back(at);
    }

    fn arrive(&mut self, from: Option<Node>, at: Node, hop: Hop) {
        if self.reached[at].is_none() && self.closed != Some(at) {
            let depth = from.and_then(|from| self.depth(from)).map_or(0, |depth| depth + 1);
            self.reached[at] = Some(Arrival { from, hop: Some(hop), depth });
            self.open.push_back(at);
        }
    }

    fn depth(&self, node: Node) -> Option<usize> {
        self.reached[node].as_ref().map(|arrival| arrival.depth)
    }

    /// Returns the piece in which a transaction was entered, if that was by a C-edge.
    fn entry(&self, node: Node) -> Option<PieceId> {
        match self.reached[node].as_ref()?.hop {
            Some(Hop::Edge { to, .. }) => Some(to),
            _ => None,
        }
    }

    fn spread(&mut self, graph: &Graph, is_open: impl Fn(&Moment) -> bool) {
        let count = graph.links.len();
        while let Some(node) = self.open.pop_front() {
            if let Some(moment) = node.checked_sub(count).map(|place| &graph.moments[place]) {
                for transaction in (0..count).filter(|&transaction| moment.waits_for[transaction]) {
                    let hop = Hop::Moment { transaction, through: moment.through };
                    self.arrive(Some(node), transaction, hop);
                }
                continue;
            }
            // First from the piece in which it was entered: that needs no S-edge.
            let entry = self.entry(node).map(|entry| entry.piece);
            let others = (0..graph.links[node].len()).filter(|piece| Some(*piece) != entry);
            for piece in entry.into_iter().chain(others) {
                for link in &graph.links[node][piece] {
                    let from = PieceId { transaction: node, piece };
                    let hop = Hop::Edge { from, to: link.to, tables: link.tables.clone() };
                    self.arrive(Some(node), link.to.transaction, hop);
                }
            }
            for (place, moment) in graph.moments.iter().enumerate() {
                if moment.waits_for[node] && is_open(moment) {
                    let hop = Hop::Moment { transaction: node, through: moment.through };
                    self.arrive(Some(node), count + place, hop);
                }
            }
        }
    }

    /// Returns the steps to a node that was reached.
    fn steps(&self, to: Node) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut at = Some(to);
        while let Some(Arrival { from, hop, .. }) = at.and_then(|node| self.reached[node].clone()) {
            steps.extend(hop.map(Hop::step));
            at = from;
        }
        steps.reverse();
        steps
    }
}
