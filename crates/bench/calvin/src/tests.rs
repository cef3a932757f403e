//! Random programs on small clusters: each run is as a serial one, however messages are delayed.

mod fabrics;
mod faults;
mod random;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use drtm_rdma::{Chances, NicProfile, NodeId, SimConfig};
use fastrand::Rng;

use crate::{
    Aborted, Error, Key, NodeRows, Outcome, Plan, Program, Rows, Sets, Source, Store, mutation::Mutation, plan::Fault,
    replay, simulate, wire::Reader,
};

/// Rows are numbers. A transaction makes new ones of all that it reads, so that each order of two
/// transactions that conflict leads to other rows.
#[derive(Debug)]
struct Mixing {
    nodes: u16,
}

#[derive(Debug)]
struct Mix {
    number: u64,
    reads: Vec<u8>,
    writes: Vec<u8>,
}

fn key(word: u8) -> Key {
    Key { table: 0, word: word.into() }
}

impl Program for Mixing {
    type Txn = Mix;

    fn encode(&self, txn: &Mix, bytes: &mut Vec<u8>) {
        bytes.extend(txn.number.to_le_bytes());
        bytes.push(txn.reads.len() as u8);
        bytes.extend(txn.reads.iter().chain(&txn.writes));
    }

    fn decode(&self, bytes: &[u8]) -> Option<Mix> {
        let mut reader = Reader::new(bytes);
        let (number, reads) = (reader.u64()?, reader.u8()?);
        let reads = reader.take(reads.into())?.to_vec();
        let mut writes = Vec::new();
        while !reader.is_empty() {
            writes.push(reader.u8()?);
        }
        Some(Mix { number, reads, writes })
    }

    fn owner(&self, key: Key) -> NodeId {
        NodeId((key.word % u64::from(self.nodes)) as u16)
    }

    fn declare(&self, txn: &Mix, sets: &mut Sets) {
        txn.reads.iter().for_each(|word| sets.read(key(*word)));
        txn.writes.iter().for_each(|word| sets.write(key(*word)));
    }

    /// One of five transactions aborts, after it has written.
    fn run(&self, txn: &Mix, rows: &mut Rows<'_>) -> Result<(), Aborted> {
        let mut mixed = txn.number;
        for word in txn.reads.iter().chain(&txn.writes) {
            let row = rows.get(key(*word));
            let number = row.and_then(|row| Some(u64::from_le_bytes(row[..].try_into().ok()?))).unwrap_or(1);
            mixed = (mixed.rotate_left(5) ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
        for word in &txn.writes {
            if (mixed >> 20).is_multiple_of(7) && word.is_multiple_of(2) {
                rows.remove(key(*word));
            } else {
                rows.put(key(*word), (mixed ^ u64::from(*word)).to_le_bytes().into());
            }
        }
        if (mixed >> 32).is_multiple_of(5) { Err(Aborted("one of five")) } else { Ok(()) }
    }
}

/// A cluster and its inputs.
#[derive(Clone, Copy, Debug)]
struct Case {
    nodes: u16,
    workers: u16,
    batch: u32,
    epochs: u64,
    keys: u8,
    inputs: u64,
}

impl Case {
    fn plan(&self, fault: Option<Mutation>) -> Plan {
        let Self { nodes, workers, batch, epochs, .. } = *self;
        let (epoch, fault) = (Duration::from_micros(500), Fault(fault));
        Plan { nodes, workers, epoch, batch, epochs, warm: 0, records: true, fault, ..Plan::DEFAULT }
    }

    fn inputs(&self) -> Vec<(Store, Source<Mixing>)> {
        let source = |node: u16| -> Source<Mixing> {
            let (mut rng, keys) = (Rng::with_seed(self.inputs ^ u64::from(node) << 32), self.keys);
            let mut number = u64::from(node) << 32;
            Box::new(move |_, _| {
                number += 1;
                let mut some = |most: usize| (0..rng.usize(0..=most)).map(|_| rng.u8(0..keys)).collect::<Vec<_>>();
                let (reads, mut writes) = (some(3), some(2));
                if reads.is_empty() && writes.is_empty() {
                    writes.push(rng.u8(0..keys));
                }
                Some(Mix { number, reads, writes })
            })
        };
        (0..self.nodes).map(|node| (Store::default(), source(node))).collect()
    }

    /// Runs it where messages are delayed by this seed.
    fn run(&self, delays: u64, fault: Option<Mutation>) -> Result<Outcome, Error> {
        let chances = Chances { delay: 0.2, at_most: Duration::from_micros(900), ..Chances::NONE };
        let config = SimConfig::new(&NicProfile::CONNECTX_3).seed(delays).chances(chances);
        let config = config.jitter(Duration::from_micros(20));
        simulate(Arc::new(Mixing { nodes: self.nodes }), &self.plan(fault), config, self.inputs())
    }

    /// Returns what differs from a serial run, in words.
    fn differs(&self, outcome: &Outcome) -> Option<String> {
        let expected = u64::from(self.nodes) * u64::from(self.batch) * self.epochs;
        if outcome.history.len() as u64 != expected {
            return Some(format!("{} transactions of {expected}", outcome.history.len()));
        }
        let program = Mixing { nodes: self.nodes };
        let (rows, committed) = replay(&program, &Store::default(), &outcome.history).expect("they were sent");
        for (node, own) in (0..).map(NodeId).zip(&outcome.rows) {
            if let Some(key) = own.keys().find(|key| program.owner(**key) != node) {
                return Some(format!("{node:?} has {key:?}"));
            }
        }
        let all = together(&outcome.rows);
        (all != rows || outcome.all_committed != committed)
            .then(|| format!("rows {all:?}, {} committed; serially {rows:?}, {committed}", outcome.all_committed))
    }
}

/// Returns the rows of all nodes.
fn together(nodes: &[NodeRows]) -> NodeRows {
    nodes.iter().flatten().map(|(key, row)| (*key, row.clone())).collect::<BTreeMap<_, _>>()
}
