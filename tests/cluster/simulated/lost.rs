//! Shards of which no replica is left: whatever a transaction does with them is refused by name, at
//! once; all others are served; and an operator gives the lost ones up.

use std::{sync::Arc, time::Duration};

use drtm_htm::NoHtm;
use drtm_membership::{Membership, Register, RegisterOptions};
use drtm_rdma::{Fault, NicProfile, NodeId, Remains, RunEnd, Sim, SimConfig, SimFabric};
use drtm_txn::{
    Error, Options, Transaction as _,
    cluster::{ClusterError, MemberState, Node, Protocol, ShardId, ShardState, View, Worker},
};

use crate::bed::{Rings, Tables, Tested, kept};

type Simulated = SimFabric<NoHtm>;

const OWNERS: u16 = 4;

/// How long a node may be silent.
const LEASE: Duration = Duration::from_millis(1);

/// Longer than anything takes, of virtual time.
const PATIENCE: Duration = Duration::from_secs(1);

/// A shard whose replicas are at nodes 1 and 2 alone, and a row of it.
const LOST: ShardId = ShardId(1);
const ROW: u64 = 1;

/// Four simulated owners, each of which has one backup.
struct Four {
    sim: Sim<NoHtm>,
    register: Register,
    protocol: Protocol,
    copy_rate: Option<u64>,
    /// Of each life that has begun.
    nodes: Vec<(Node<Simulated, Tested>, Tables)>,
}

impl Four {
    fn start(protocol: Protocol, seed: u64) -> Self {
        Self::paced(protocol, seed, None)
    }

    /// Starts nodes that copy so many bytes in a second, when they become backups.
    fn paced(protocol: Protocol, seed: u64, copy_rate: Option<u64>) -> Self {
        let sim = Sim::new(OWNERS, SimConfig::new(&NicProfile::CONNECTX_4).seed(seed));
        let mut options = RegisterOptions::default();
        options.seed = seed;
        let mut four = Self { sim, register: Register::new(options), protocol, copy_rate, nodes: Vec::new() };
        (0..OWNERS).for_each(|node| four.add(node));
        four.until(|view| view.number() > 1);
        four
    }

    /// Starts a life of a node, which serves until it dies.
    fn add(&mut self, node: u16) {
        let membership: Arc<dyn Membership> = Arc::new(self.register.client());
        let rings = Rings { backups: 1, bytes: 1 << 14, copy_rate: self.copy_rate, ..Rings::default() };
        let started = kept(self.sim.fabric(), node, OWNERS, self.protocol, (rings, Some((membership, LEASE))));
        self.nodes.push(started.clone());
        let register = self.register.clone();
        let served = self.sim.serve(NodeId(node), move |spawner| {
            let worker = started.0.worker(spawner.endpoint()).expect("few workers");
            worker.serve(&spawner);
            let advances = async move {
                let endpoint = worker.endpoint();
                let began = endpoint.now();
                loop {
                    register.advance(endpoint.now().since(began));
                    endpoint.sleep(Duration::from_micros(200)).await;
                }
            };
            spawner.serve(advances).expect("it runs");
        });
        served.expect("room for an endpoint");
    }

    /// Runs something on node 0 to its end.
    fn run(&self, what: impl AsyncFnOnce(&Worker<'_, Simulated, Tested>, Tables) + 'static) {
        self.run_at(NodeId(0), what);
    }

    /// Runs something on the last life of a node to its end.
    fn run_at(&self, node: NodeId, what: impl AsyncFnOnce(&Worker<'_, Simulated, Tested>, Tables) + 'static) {
        let (node, tables) = self.nodes.iter().rfind(|(other, _)| other.id() == node).expect("it is there").clone();
        let spawned = self.sim.spawn(node.id(), move |spawner| {
            let worker = node.worker(spawner.endpoint()).expect("few workers");
            let runs = async move { what(&worker, tables).await };
            spawner.spawn(runs).expect("it runs");
        });
        spawned.expect("room for an endpoint");
        let begun = self.sim.elapsed();
        // Nodes go on serving until the end of each run.
        while self.sim.run_for(Duration::from_micros(200)) != RunEnd::Done {
            assert!(self.sim.elapsed() < begun + PATIENCE, "{}: {}", self.protocol.name, self.view());
        }
    }

    fn view(&self) -> Arc<View> {
        self.nodes[0].0.view()
    }

    /// Waits for a view.
    fn until(&self, is_so: impl Fn(&View) -> bool) {
        let begun = self.sim.elapsed();
        while !is_so(&self.view()) {
            self.sim.run_for(Duration::from_micros(100));
            assert!(self.sim.elapsed() < begun + PATIENCE, "{}: {}", self.protocol.name, self.view());
        }
    }

    fn die(&self, nodes: impl IntoIterator<Item = u16>) {
        for node in nodes {
            self.sim.plan(Duration::ZERO, Fault::Crash { node: NodeId(node) });
        }
    }

    /// Starts a node again, with nothing.
    fn restart(&mut self, node: u16) {
        self.sim.restart(NodeId(node), Remains::Nothing).expect("it has died");
        self.add(node);
    }

    /// Waits until all shards have two replicas again, which have the same rows.
    fn until_whole(&self) {
        let is_whole = |view: &View| {
            let mut shards = view.placements().iter();
            shards.all(|at| at.lost.is_none() && at.backups.len() == 1 && at.learners.is_empty())
        };
        self.until(is_whole);
        // What was written is applied.
        self.run(async |worker, _| worker.endpoint().sleep(2 * LEASE).await);
        for owner in (0..OWNERS).map(NodeId) {
            let rows = self.nodes.iter().filter_map(|(node, _)| {
                let is_current = self
                    .view()
                    .members()
                    .iter()
                    .any(|member| (member.node, member.incarnation) == (node.id(), Some(node.incarnation())));
                is_current.then(|| node.rows_of(owner).expect("a store")).flatten()
            });
            let rows: Vec<_> = rows.collect();
            assert!(rows.len() == 2 && rows[0] == rows[1], "of the group of {owner}: {rows:?}");
        }
    }
}

type Runs<'w> = Worker<'w, Simulated, Tested>;

fn name(number: u64) -> Vec<u8> {
    format!("a name {number}").into_bytes()
}

/// What a transaction can do with a row of a table by its number. Gives what has become of each.
async fn all_kinds(worker: &Runs<'_>, tables: Tables, row: u64) -> Vec<(&'static str, Result<(), Error>)> {
    let words = tables.words;
    let value = || vec![7; 8];
    let mut ended = Vec::new();
    let mut of = |kind, outcome: Result<(), Error>| ended.push((kind, outcome));
    of("get", worker.transact(async |tx| tx.get(words, row).await.map(drop)).await);
    of("get of several", worker.transact(async |tx| tx.get_many(words, [0, row]).await.map(drop)).await);
    of("contains", worker.transact(async |tx| tx.contains(words, row).await.map(drop)).await);
    of("prefetch", worker.transact(async |tx| tx.prefetch(words, [row]).await).await);
    of("locate", worker.transact(async |tx| tx.locate(words, [row]).await).await);
    of("put", worker.transact(async |tx| tx.put(words, row, value()).await).await);
    of("remove", worker.transact(async |tx| tx.remove(words, row).await.map(drop)).await);
    of("insert", worker.transact(async |tx| tx.insert(words, row, value()).await).await);
    of(
        "put of two",
        worker
            .transact(async |tx| {
                tx.put(words, 0, value()).await?;
                tx.put(words, row, value()).await
            })
            .await,
    );
    let opaque = Options::new().opaque();
    of("opaque get", worker.transact_with(opaque, async |tx| tx.get(words, row).await.map(drop)).await);
    of("range", worker.transact(async |tx| tx.range(tables.sorted_words, ..).await.map(drop)).await);
    of("range of names", worker.transact(async |tx| tx.range(tables.sorted_names, ..).await.map(drop)).await);
    of("len", worker.transact(async |tx| tx.len(words).await.map(drop)).await);
    let read = worker.transact_on(|sets| sets.read(words, row), async |rows| rows.get(words, row).await.map(drop));
    of("get of what was fetched", read.await);
    let written = worker.transact_on(|sets| sets.write(words, row), async |rows| rows.put(words, row, value()).await);
    of("put of what was fetched", written.await);
    let found = worker.transact_on(|_| Ok(()), async |rows| rows.put(words, row, value()).await);
    of("put of what a run finds", found.await);
    let ranges = worker.transact_on(
        |sets| sets.range(tables.sorted_words, ..),
        async |rows| rows.range(tables.sorted_words, ..).await.map(drop),
    );
    of("range that was fetched", ranges.await);
    ended
}

/// Everything that needs the lost shard's row is refused.
async fn is_refused(worker: &Runs<'_>, tables: Tables) {
    for (kind, ended) in all_kinds(worker, tables, ROW).await {
        let Err(Error::Cluster(ClusterError::ShardLost { shard: LOST })) = ended else {
            panic!("{} at {}: {kind}: {ended:?}", worker.protocol().name, worker.id());
        };
    }
}

#[test]
fn whatever_needs_a_lost_shard_is_refused_by_name_at_once() {
    for (protocol, seed) in Protocol::with_names().zip(0..) {
        let mut four = Four::start(protocol, seed);
        four.run(async |worker, tables| {
            let filled = worker.transact(async |tx| {
                for number in 0..40 {
                    tx.put(tables.words, number, vec![1; 8]).await?;
                    tx.put(tables.sorted_words, number, vec![1; 8]).await?;
                    tx.put(tables.sorted_names, name(number), vec![1; 8]).await?;
                }
                Ok(())
            });
            filled.await.expect("all are here");
            let refused = worker.give_up(LOST).await;
            assert!(matches!(refused, Err(Error::Cluster(ClusterError::NotLost { shard: LOST }))), "{refused:?}");
        });
        four.die([1, 2]);
        four.until(|view| view.is_lost(LOST));
        four.run(async |worker, tables| {
            is_refused(worker, tables).await;
            // None has waited for anything.
            let begun = worker.endpoint().now();
            for _ in 0..100 {
                worker.transact(async |tx| tx.put(tables.words, ROW, vec![2; 8]).await).await.expect_err("it is lost");
            }
            let took = worker.endpoint().now().since(begun);
            assert!(took < LEASE, "{}: {took:?}", worker.protocol().name);
            for row in [0, 2, 3] {
                let read = worker.transact(async |tx| tx.get(tables.words, row).await).await;
                assert_eq!(read.expect("it has a replica"), Some(vec![1; 8]));
                let put = worker.transact(async |tx| tx.put(tables.words, row, vec![1; 8]).await).await;
                put.expect("it has a replica");
            }
            let status = worker.status(Duration::from_millis(1)).await.expect("it is a member");
            for shard in &status.shards {
                let is_lost = shard.shard.0 % OWNERS == LOST.0;
                let expected = if is_lost { ShardState::Lost } else { ShardState::Ok };
                let under = !is_lost && shard.state == ShardState::UnderReplicated;
                assert!(shard.state == expected || under, "{status}");
            }
            assert_eq!(status.members[2].state, MemberState::Out, "{status}");
        });
        // Its primary comes back with nothing: what is missing there is lost, and not absent.
        four.restart(1);
        four.until(|view| view.members().len() == usize::from(OWNERS) - 1);
        four.run_at(NodeId(1), async |worker, tables| is_refused(worker, tables).await);
        four.run(async |worker, tables| {
            worker.give_up(LOST).await.expect("it is lost");
            let read = worker.transact(async |tx| tx.get(tables.words, ROW).await).await;
            assert_eq!(read.expect("it is served"), None, "its rows are gone");
            for (kind, ended) in all_kinds(worker, tables, ROW).await {
                assert!(ended.is_ok(), "{}: {kind}: {ended:?}", worker.protocol().name);
            }
            let refused = worker.give_up(LOST).await;
            assert!(matches!(refused, Err(Error::Cluster(ClusterError::NotLost { .. }))), "{refused:?}");
        });
        // Nodes that come back get replicas, of this shard as of all.
        four.restart(2);
        four.until(|view| view.members().len() == usize::from(OWNERS) && view.primary(LOST) == Some(NodeId(1)));
        four.until_whole();
        four.run(async |worker, tables| {
            let rows = worker.transact(async |tx| tx.get_many(tables.words, 0..4).await).await;
            let expected = [7, 7, 1, 1].map(|byte| Some(vec![byte; 8]));
            assert_eq!(rows.expect("all are served"), expected);
        });
    }
}

#[test]
fn a_last_replica_that_is_silent_is_waited_for() {
    for (protocol, seed) in [Protocol::FASST, Protocol::DRTM_H].into_iter().zip(100..) {
        let four = Four::start(protocol, seed);
        let put = async |worker: &Runs<'_>, tables: Tables, byte: u8| {
            worker.transact(async |tx| tx.put(tables.words, ROW, vec![byte; 8]).await).await
        };
        four.run(async move |worker, tables| put(worker, tables, 1).await.expect("all are here"));
        let before = four.view();
        four.sim.plan(Duration::ZERO, Fault::Partition(vec![NodeId(1), NodeId(2)]));
        four.run(async move |worker, tables| {
            worker.endpoint().sleep(8 * LEASE).await;
            let refused = put(worker, tables, 2).await.expect_err("it cannot be asked");
            assert!(matches!(refused, Error::Cluster(ClusterError::Unreachable { .. })), "{refused:?}");
            assert!(!worker.node().view().is_lost(LOST));
        });
        four.sim.plan(Duration::ZERO, Fault::Heal);
        four.run(async move |worker, tables| {
            worker.endpoint().sleep(8 * LEASE).await;
            let read = worker.transact(async |tx| tx.get(tables.words, ROW).await).await;
            assert_eq!(read.expect("it is here again"), Some(vec![1; 8]));
        });
        assert_eq!(four.view().number(), before.number(), "{}", protocol.name);
    }
}

/// All tables fit one message each: what is copied last counts as what comes before.
#[test]
fn small_tables_are_copied_at_the_rate_that_is_chosen() {
    const ROWS: u64 = 40;
    const RATE: u64 = 10_000;
    let takes = |copy_rate| {
        let mut four = Four::paced(Protocol::FASST, 7, copy_rate);
        four.run(async |worker, tables| {
            let filled = worker.transact(async |tx| {
                for number in 0..ROWS {
                    tx.put(tables.words, number, vec![1; 8]).await?;
                }
                Ok(())
            });
            filled.await.expect("all are here");
        });
        four.die([1]);
        four.until(|view| !view.has(NodeId(1)));
        four.until_whole();
        let begun = four.sim.elapsed();
        four.restart(1);
        // It serves what it has served before, once it has all.
        four.until(|view| view.primary(LOST) == Some(NodeId(1)));
        four.until_whole();
        four.sim.elapsed() - begun
    };
    // Of virtual time. The node gets rows of two of four groups, of 16 bytes each.
    let least = Duration::from_secs(ROWS / 2 * 16) / RATE as u32;
    let (paced, unpaced) = (takes(Some(RATE)), takes(None));
    assert!(unpaced < least && least <= paced, "{unpaced:?}, {least:?}, {paced:?}");
}
