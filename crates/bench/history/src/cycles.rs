//! Finds the cycle that represents a group of transactions: a short one of the worst kind in it.
//!
//! A kind is defined by one edge that the cycle must have, and by the edges that the way back may
//! use.

use std::collections::{HashMap, VecDeque};

use super::{
    anomaly::{Cycle, CycleKind, Dependency, Step},
    graph::{Edge, Graph, Node},
    record::History,
    versions::{RowId, Rows},
};

/// The edges searched for one kind of cycle in one group. A search that is cut short misses at most
/// a worse kind or a shorter cycle.
const EFFORT: usize = 20_000_000;

/// The kinds that need no clock, the worst first. The last one covers all remaining cycles.
const KINDS: [CycleKind; 6] =
    [CycleKind::G0, CycleKind::G1c, CycleKind::LostUpdate, CycleKind::GSingle, CycleKind::G2Item, CycleKind::G2];

impl CycleKind {
    /// Returns whether a cycle of this kind can start with `edge`.
    fn begins_with(self, edge: &Edge) -> bool {
        use Dependency::{Phantom, ReadWrite, RealTime, WriteRead, WriteWrite};
        match self {
            Self::G0 => matches!(edge.why, WriteWrite { .. }),
            Self::G1c => matches!(edge.why, WriteRead { .. }),
            Self::LostUpdate | Self::G2Item => matches!(edge.why, ReadWrite { .. }),
            Self::GSingle => matches!(edge.why, ReadWrite { .. } | Phantom { .. }),
            Self::G2 => matches!(edge.why, Phantom { .. }),
            Self::RealTime => !matches!(edge.why, RealTime { .. }),
        }
    }

    /// Returns whether a cycle that starts with `first` may continue with `edge`.
    fn goes_on_with(self, first: &Edge, edge: &Edge) -> bool {
        use Dependency::{Phantom, ReadWrite, WriteRead, WriteWrite};
        match (self, edge.why) {
            (Self::G0, why) => matches!(why, WriteWrite { .. }),
            (Self::G1c | Self::GSingle, why) => matches!(why, WriteWrite { .. } | WriteRead { .. }),
            (Self::LostUpdate, WriteWrite { row, .. }) => {
                matches!(first.why, ReadWrite { row: read, .. } if read == row)
            }
            (Self::LostUpdate, _) => false,
            (Self::G2Item, why) => !matches!(why, Phantom { .. }),
            (Self::G2 | Self::RealTime, _) => true,
        }
    }
}

/// Returns the worst cycle of a group of transactions.
pub(super) fn worst<K: Ord + Clone>(
    history: &History<K>,
    rows: &Rows<'_, K>,
    graph: &Graph,
    group: &[Node],
) -> Cycle<K> {
    let group = Group::new(graph, group);
    for kind in KINDS {
        if let Some(cycle) = group.shortest(kind, |_| false) {
            return cycle_of(history, rows, graph, kind, &cycle);
        }
    }
    unreachable!("a strongly connected component has a cycle, and one of the kinds covers it")
}

/// Returns a cycle of a group that has none without the clock.
pub(super) fn against_time<K: Ord + Clone>(
    history: &History<K>,
    rows: &Rows<'_, K>,
    graph: &Graph,
    group: &[Node],
) -> Cycle<K> {
    let time = |node: Node| &history.transactions[node as usize];
    // An edge that leads straight into the past makes the shortest cycle.
    let into_the_past = |edge: &Edge| time(edge.to).end() < time(edge.from).invoked;
    match Group::new(graph, group).shortest(CycleKind::RealTime, into_the_past) {
        Some(cycle) => cycle_of(history, rows, graph, CycleKind::RealTime, &cycle),
        None => unreachable!("time alone has no cycle, so an edge of a transaction is on one"),
    }
}

/// A strongly connected component as a graph of its own: its nodes are renumbered.
struct Group<'g> {
    edges: Vec<Inner<'g>>,
    /// The index in `edges` of each node's first edge, and the end behind the last node.
    begins: Vec<usize>,
}

/// An edge between two nodes of a group.
struct Inner<'g> {
    from: usize,
    to: usize,
    /// The steps it counts: an edge to the next moment counts none.
    steps: usize,
    edge: &'g Edge,
}

impl<'g> Group<'g> {
    fn new(graph: &'g Graph, nodes: &[Node]) -> Self {
        let numbers: HashMap<Node, usize> = nodes.iter().enumerate().map(|(number, &node)| (node, number)).collect();
        let (mut edges, mut begins) = (Vec::new(), vec![0]);
        for (from, &node) in nodes.iter().enumerate() {
            for edge in graph.from(node) {
                if let Some(&to) = numbers.get(&edge.to) {
                    edges.push(Inner { from, to, steps: usize::from(!graph.is_moment(edge.to)), edge });
                }
            }
            begins.push(edges.len());
        }
        Self { edges, begins }
    }

    /// Returns the shortest cycle of a kind; among equals, one that starts with a `preferred` edge.
    fn shortest(&self, kind: CycleKind, preferred: impl Fn(&Edge) -> bool) -> Option<Vec<&'g Edge>> {
        let mut firsts: Vec<&Inner<'_>> = self.edges.iter().filter(|inner| kind.begins_with(inner.edge)).collect();
        firsts.sort_by_key(|first| !preferred(first.edge));

        let mut search = Search::new(self.begins.len() - 1);
        let mut best = None;
        let mut steps = usize::MAX;
        for first in firsts {
            // No transaction depends on itself, so no cycle is shorter than two.
            if steps == 2 || search.effort > EFFORT {
                break;
            }
            if let Some(back) = search.way(self, first, steps, |edge| kind.goes_on_with(first.edge, edge)) {
                steps = first.steps + back.iter().map(|inner| inner.steps).sum::<usize>();
                best = Some([first].into_iter().chain(back).map(|inner| inner.edge).collect());
            }
        }
        best
    }
}

/// A breadth-first search that can be repeated without clearing its marks.
struct Search {
    /// For each node: the search that reached it last, the number of steps, and the edge.
    marks: Vec<(usize, usize, usize)>,
    searches: usize,
    /// Edges searched.
    effort: usize,
}

impl Search {
    fn new(nodes: usize) -> Self {
        Self { marks: vec![(0, 0, 0); nodes], searches: 0, effort: 0 }
    }

    /// Returns the shortest path from the end of `first` back to its start by `allowed` edges, if
    /// the cycle has fewer than `limit` steps.
    fn way<'a, 'g>(
        &mut self,
        group: &'a Group<'g>,
        first: &Inner<'g>,
        limit: usize,
        allowed: impl Fn(&Edge) -> bool,
    ) -> Option<Vec<&'a Inner<'g>>> {
        self.searches += 1;
        self.marks[first.to] = (self.searches, first.steps, usize::MAX);
        let mut waiting = VecDeque::from([(first.to, first.steps)]);
        while let Some((node, steps)) = waiting.pop_front() {
            if node == first.from {
                return Some(self.trace(group, first));
            }
            if steps > self.marks[node].1 {
                // Reached by a shorter path since it was queued.
                continue;
            }
            for at in group.begins[node]..group.begins[node + 1] {
                self.effort += 1;
                let inner = &group.edges[at];
                let steps = steps + inner.steps;
                let (search, before, _) = self.marks[inner.to];
                if steps >= limit || (search == self.searches && before <= steps) || !allowed(inner.edge) {
                    continue;
                }
                self.marks[inner.to] = (self.searches, steps, at);
                if inner.steps == 0 {
                    waiting.push_front((inner.to, steps));
                } else {
                    waiting.push_back((inner.to, steps));
                }
            }
        }
        None
    }

    fn trace<'a, 'g>(&self, group: &'a Group<'g>, first: &Inner<'g>) -> Vec<&'a Inner<'g>> {
        let mut way = Vec::new();
        let mut node = first.from;
        while node != first.to {
            let inner = &group.edges[self.marks[node].2];
            way.push(inner);
            node = inner.from;
        }
        way.reverse();
        way
    }
}

/// Converts a cycle into steps with the rows' names, without the moments in between.
fn cycle_of<K: Ord + Clone>(
    history: &History<K>,
    rows: &Rows<'_, K>,
    graph: &Graph,
    kind: CycleKind,
    cycle: &[&Edge],
) -> Cycle<K> {
    let mut steps = Vec::new();
    let mut waiting = None;
    for edge in cycle {
        if graph.is_moment(edge.to) {
            waiting.get_or_insert(edge.from);
            continue;
        }
        let to = edge.to as usize;
        let (from, why) = match waiting.take() {
            None => (edge.from as usize, edge.why.named(|row: RowId| rows.name(row))),
            Some(from) => {
                let (earlier, later) = (&history.transactions[from as usize], &history.transactions[to]);
                let why = Dependency::RealTime { responded: earlier.responded, invoked: later.invoked };
                (from as usize, why)
            }
        };
        steps.push(Step { from, to, why });
    }
    Cycle { kind, steps }
}
