//! The size of a run on a cluster.

use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use drtm_txn::cluster::Protocol;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use super::workload::Place;

/// When workers stop.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Length {
    /// After a time, of which the first part is not counted: virtual time in a simulation.
    Window {
        /// Before counting.
        warm: Duration,
        /// While counting.
        counted: Duration,
    },
    /// When each worker has run this many transactions, all of which count.
    Transactions(u64),
}

/// A protocol, and how a workload reads rows by it. It is sent to another process by its name.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProtocolOf {
    /// The protocol of the nodes.
    pub protocol: Protocol,
    /// Whether rows that a transaction names together are read one after the other.
    pub in_turn: bool,
}

impl From<Protocol> for ProtocolOf {
    fn from(protocol: Protocol) -> Self {
        Self { protocol, in_turn: false }
    }
}

impl ProtocolOf {
    /// The name of the default.
    pub const AUTO: &'static str = Protocol::AUTO.name;

    /// As [`Protocol::DRTM_OCC`], with one row read after the other, as in DrTM+R.
    pub const DRTM_R: Self = Self::in_turn("drtm+r", Protocol::DRTM_OCC);

    /// Returns a protocol under another name, whose rows are read in turn.
    pub const fn in_turn(name: &'static str, protocol: Protocol) -> Self {
        Self { protocol: Protocol { name, ..protocol }, in_turn: true }
    }

    /// Returns all that have names.
    pub fn with_names() -> impl Iterator<Item = Self> {
        Protocol::with_names().map(Self::from).chain([Self::DRTM_R])
    }

    fn named(name: &str) -> Option<Self> {
        Self::with_names().find(|of| of.protocol.name == name)
    }

    /// Returns a parser of the option's value.
    pub fn parser() -> impl TypedValueParser<Value = Self> {
        let names = Self::with_names().map(|of| of.protocol.name);
        PossibleValuesParser::new(names).map(|name| Self::named(&name).unwrap_or_default())
    }
}

impl Serialize for ProtocolOf {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.protocol.name)
    }
}

impl<'de> Deserialize<'de> for ProtocolOf {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::named(&name).ok_or_else(|| D::Error::custom("no protocol has this name"))
    }
}

/// Nodes, workers, and how long they run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Nodes of the cluster.
    pub nodes: u16,
    /// Workers of each node.
    pub threads: u16,
    /// Coroutines of each worker.
    pub coroutines: u16,
    /// The commit protocol.
    pub protocol: ProtocolOf,
    /// Backups of each node.
    pub backups: u16,
    /// When workers stop.
    pub length: Length,
    /// The seed of all inputs.
    pub seed: u64,
    /// Bytes that each node may use.
    pub memory: u64,
    /// Whether workers that read one-sidedly look up other nodes' rows before the run, so that
    /// caches, and the places of tables, are known as after a long one. Only where all nodes
    /// are loaded before any worker runs: in a simulation.
    pub warms: bool,
}

impl Plan {
    /// Returns a node's place.
    pub(super) fn place(&self, node: u16) -> Place {
        Place { node, nodes: self.nodes, clients: usize::from(self.threads) * usize::from(self.coroutines) }
    }

    /// Returns the number of workers of all nodes.
    pub(super) fn workers(&self) -> usize {
        usize::from(self.nodes) * usize::from(self.threads)
    }

    /// Returns how many messages can be in flight to one node. A transaction has one request to a
    /// node in flight, and possibly one more that gives up its locks.
    pub(super) fn messages(&self) -> usize {
        (2 * self.workers() * usize::from(self.coroutines)).next_power_of_two().max(256)
    }
}
