//! SC-cycles by blocks of the explicit graph: an S-edge and a C-edge are on a common cycle where
//! they are in the same biconnected component.

use crate::{
    describe::Kind,
    options::Options,
    program::{KnownAccess, Program},
};

/// For each transaction, the members of its merged pieces.
pub(super) type Pieces = Vec<Vec<Vec<usize>>>;

struct Graph {
    /// The edges of each vertex: the other end, the edge's number.
    edges: Vec<Vec<(usize, usize)>>,
    /// Whether each edge is a C-edge.
    is_c: Vec<bool>,
}

/// Returns whether the graph of two instances of each transaction has an SC-cycle. Without claims,
/// two-round reads and deferral.
pub(super) fn has_cycle(program: &Program, options: Options, pieces: &Pieces) -> bool {
    let mut vertices = Vec::new();
    for (transaction, merged) in pieces.iter().enumerate() {
        for instance in 0..if program.transactions[transaction].alone { 1 } else { 2 } {
            vertices.extend(merged.iter().map(|members| (transaction, instance, members)));
        }
    }
    let mut graph = Graph { edges: vec![Vec::new(); vertices.len()], is_c: Vec::new() };
    for (one, &(transaction, instance, members)) in vertices.iter().enumerate() {
        for (other, &(of, at, others)) in vertices.iter().enumerate().skip(one + 1) {
            if (transaction, instance) == (of, at) {
                graph.join(one, other, false);
                continue;
            }
            let accesses = |transaction: usize, members: &Vec<usize>| {
                let pieces = members.iter().map(|&member| &program.transactions[transaction].pieces[member]);
                pieces.flat_map(|piece| piece.accesses.clone()).collect::<Vec<_>>()
            };
            let (mine, theirs) = (accesses(transaction, members), accesses(of, others));
            if mine.iter().any(|one| theirs.iter().any(|other| conflict(options, one, other))) {
                graph.join(one, other, true);
            }
        }
    }
    graph.has_mixed_block()
}

/// Returns whether two accesses do not commute, by what they are.
pub(super) fn conflict(options: Options, one: &KnownAccess, other: &KnownAccess) -> bool {
    use Kind::{Add, Append, Insert, Read, Remove, Search, Update};
    let kind = |access: &KnownAccess| match access.kind {
        Add if !options.commutativity => Update,
        Append if !options.commutativity => Insert,
        kind => kind,
    };
    let shares = one.columns & other.columns != 0;
    one.table == other.table
        && match (kind(one), kind(other)) {
            (Read | Search, Read | Search) | (Add, Add) | (Append, Append) => false,
            (Search, Update | Add) | (Update | Add, Search) => !options.split_search,
            (Insert | Append | Remove, _) | (_, Insert | Append | Remove) => true,
            _ => shares,
        }
}

impl Graph {
    fn join(&mut self, one: usize, other: usize, is_c: bool) {
        let number = self.is_c.len();
        self.is_c.push(is_c);
        self.edges[one].push((other, number));
        self.edges[other].push((one, number));
    }

    /// Returns whether a biconnected component has both kinds of edges.
    fn has_mixed_block(&self) -> bool {
        let mut walk =
            Walk { graph: self, depth: vec![None; self.edges.len()], low: vec![0; self.edges.len()], open: Vec::new() };
        (0..self.edges.len()).any(|vertex| walk.depth[vertex].is_none() && walk.visit(vertex, None, 0))
    }
}

struct Walk<'g> {
    graph: &'g Graph,
    depth: Vec<Option<usize>>,
    low: Vec<usize>,
    /// Edges whose block is not complete.
    open: Vec<usize>,
}

impl Walk<'_> {
    fn visit(&mut self, vertex: usize, by: Option<usize>, depth: usize) -> bool {
        self.depth[vertex] = Some(depth);
        self.low[vertex] = depth;
        for &(to, edge) in &self.graph.edges[vertex] {
            if Some(edge) == by {
                continue;
            }
            match self.depth[to] {
                Some(other) => {
                    if other < depth {
                        self.open.push(edge);
                        self.low[vertex] = self.low[vertex].min(other);
                    }
                }
                None => {
                    let first = self.open.len();
                    self.open.push(edge);
                    if self.visit(to, Some(edge), depth + 1) {
                        return true;
                    }
                    self.low[vertex] = self.low[vertex].min(self.low[to]);
                    if self.low[to] >= depth {
                        let block = self.open.split_off(first);
                        let is_c = |edge: &usize| self.graph.is_c[*edge];
                        if block.iter().any(is_c) && !block.iter().all(is_c) {
                            return true;
                        }
                    }
                }
            }
        }
        false
    }
}
