//! Strongly connected components by Tarjan's algorithm. The stack is explicit, because a history
//! may be a path of a million nodes.

use super::graph::{Graph, Node};

/// Not reached yet.
const UNSEEN: u32 = u32::MAX;

/// Returns all components of more than one node. These are all with a cycle: no edge leads from a
/// node to itself.
pub(super) fn cyclic(graph: &Graph) -> Vec<Vec<Node>> {
    let mut groups = Vec::new();
    // For each node its visit number, and the earliest open node reachable from it.
    let mut reached = vec![UNSEEN; graph.nodes()];
    let mut lowest = vec![UNSEEN; graph.nodes()];
    let mut is_open = vec![false; graph.nodes()];
    let mut open = Vec::new();
    let mut path: Vec<(Node, usize)> = Vec::new();
    let mut clock = 0;

    for root in 0..graph.nodes() as Node {
        if reached[root as usize] != UNSEEN {
            continue;
        }
        path.push((root, 0));
        while let Some((node, tried)) = path.last_mut() {
            let at = *node as usize;
            if *tried == 0 && reached[at] == UNSEEN {
                (reached[at], lowest[at]) = (clock, clock);
                clock += 1;
                open.push(*node);
                is_open[at] = true;
            }
            if let Some(edge) = graph.from(*node).get(*tried) {
                *tried += 1;
                let to = edge.to as usize;
                if reached[to] == UNSEEN {
                    path.push((edge.to, 0));
                } else if is_open[to] {
                    lowest[at] = lowest[at].min(reached[to]);
                }
                continue;
            }
            path.pop();
            if let Some(&(parent, _)) = path.last() {
                lowest[parent as usize] = lowest[parent as usize].min(lowest[at]);
            }
            if lowest[at] == reached[at] {
                let begin = open.iter().rposition(|&other| other as usize == at).unwrap_or(0);
                let group = open.split_off(begin);
                group.iter().for_each(|&member| is_open[member as usize] = false);
                if group.len() > 1 {
                    groups.push(group);
                }
            }
        }
    }
    groups
}
