//! What an operator sees of a cluster: its members, and what each shard has.

use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use drtm_htm::Native;
use drtm_membership::Directory;
use drtm_rdma::{Fabric, LocalConfig, LocalFabric, NodeId, TcpConfig, TcpFabric};
use drtm_testing::ports::free_addresses;
use drtm_txn::{
    Builder, Error, IndexDef, Multi, Options, Ordered, Pod, Raw, Table, TableDef, Transaction as _,
    cluster::{
        Cluster, ClusterBuilder, ClusterError, ClusterEvent, ClusterStatus, InProcess, MemberState, Partition,
        Place as At, ShardId, ShardState,
    },
};

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

const TEXTS: TableDef<u64, Raw> = TableDef::hash("texts");
const NAMES: TableDef<Vec<u8>, Raw, Ordered> = TableDef::ordered("names");
const PRICES: TableDef<u64, Pod<u64>> = TableDef::hash("prices");
const BY_LENGTH: IndexDef<u64, Raw, u64, Multi> = IndexDef::multi("by length", |_, text| Some(text.len() as u64));

/// A directory of a test, which is removed at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("drtm-status-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    fn membership(&self) -> Arc<Directory> {
        Arc::new(Directory::open(&self.0.join("view")).expect("a directory"))
    }
}

impl AsRef<Path> for Place {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn of(nodes: u16) -> ClusterBuilder<InProcess> {
    Cluster::builder().nodes(nodes).database(Builder::new().memory(16 << 20))
}

#[test]
fn three_nodes_that_agree_on_the_view_have_a_backup_each() {
    let backups = |builder: ClusterBuilder<InProcess>| {
        let nodes: Vec<Cluster<Local>> = builder.start().expect("memory");
        let view = nodes[0].node().view();
        let mut backups: Vec<usize> = view.placements().iter().map(|at| at.backups.len()).collect();
        backups.dedup();
        backups
    };
    let agreeing = |name: &str, nodes| {
        let place = Place::new(name);
        let membership = place.membership();
        (place, of(nodes).membership(membership))
    };
    let (_place, three) = agreeing("three", 3);
    assert_eq!(backups(three), [1]);
    let (_place, none) = agreeing("none", 3);
    assert_eq!(backups(none.backups(0)), [0]);
    let (_place, two) = agreeing("two", 2);
    assert_eq!(backups(two), [0], "no majority is left of two that have lost one");
    assert_eq!(backups(of(3)), [0], "none takes over where nothing agrees on it");
}

fn look<F: Fabric<Engine = Native>>(cluster: &Cluster<F>) -> ClusterStatus {
    cluster.status(PATIENCE).wait().expect("it is a member")
}

/// Looks again and again until a status is as it is expected.
fn until<F: Fabric<Engine = Native>>(
    cluster: &Cluster<F>,
    is_expected: impl Fn(&ClusterStatus) -> bool,
) -> ClusterStatus {
    let begun = Instant::now();
    loop {
        let status = cluster.status(Duration::from_millis(200)).wait().expect("it is a member");
        if is_expected(&status) {
            return status;
        }
        assert!(begun.elapsed() < PATIENCE, "{status}");
        thread::sleep(Duration::from_millis(1));
    }
}

fn is_ok(status: &ClusterStatus) -> bool {
    status.shards.iter().all(|shard| shard.state == ShardState::Ok)
}

/// Returns the states of the shards of each of three groups, or what they are not alike in.
fn states(status: &ClusterStatus) -> [ShardState; 3] {
    for (number, shard) in status.shards.iter().enumerate() {
        assert_eq!(shard.state, status.shards[number % 3].state, "{status}");
    }
    [0, 1, 2].map(|group| status.shards[group].state)
}

#[test]
fn rows_and_bytes_are_those_of_each_shard() {
    let mut builder = of(3).shards(7);
    let texts = builder.table(TEXTS, Partition::by("number", |number| *number));
    let _by_length = builder.index(texts, BY_LENGTH, Partition::by("length", |length| *length));
    let names = builder.table(NAMES, Partition::by("length", |name: &Vec<u8>| name.len() as u64));
    builder.table(PRICES, Partition::replicated());
    builder.load(|db| {
        let prices = db.table(PRICES)?;
        db.transact(|tx| tx.put(prices, 1, &100))
    });
    let nodes = builder.start().expect("memory");
    // More than a message of counts looks at, of each kind of table.
    let name = |number: u64| vec![b'a' + (number % 26) as u8; 3 + number as usize % 50];
    let name = move |number: u64| [&name(number)[..], &number.to_be_bytes()].concat();
    let mut expected = [(0, 0); 7];
    for first in (0..6_000).step_by(500) {
        let filled = nodes[first as usize % 3].transact(async move |tx| {
            for number in first..first + 500 {
                tx.put(texts, number, vec![1; 5]).await?;
                tx.put(names, name(number), vec![2; 9]).await?;
            }
            Ok(())
        });
        filled.wait().expect("all are here");
    }
    for number in 0..6_000 {
        let name = name(number).len() as u64;
        for (shard, bytes) in [(number % 7, 8 + 5), (name % 7, name + 9)] {
            let (rows, all) = &mut expected[shard as usize];
            (*rows, *all) = (*rows + 1, *all + bytes);
        }
    }
    // All entries of the index are in the shard of five.
    let entries: u64 = 6_000 * (8 + 8);
    for node in &nodes {
        let status = look(node);
        for (shard, (rows, bytes)) in status.shards.iter().zip(expected) {
            let bytes = if shard.shard.0 == 5 { bytes + entries } else { bytes };
            assert_eq!((shard.rows, shard.bytes), (Some(rows), Some(bytes)), "{status}");
        }
        assert!(is_ok(&status) && status.members.iter().all(|member| member.state == MemberState::Here), "{status}");
    }
    // What is removed is not counted.
    let removed = nodes[0].transact(async move |tx| tx.remove(texts, 13).await);
    assert!(removed.wait().expect("all are here").is_some());
    let (rows, _) = expected[6];
    assert_eq!(look(&nodes[0]).shards[6].rows, Some(rows - 1));
}

#[test]
fn shards_without_backups_are_lost_with_their_node() {
    let nodes = of(2).start().expect("memory");
    assert!(is_ok(&look(&nodes[0])));
    nodes[1].close();
    let status = until(&nodes[0], |status| status.members[1].state == MemberState::Left);
    for shard in &status.shards {
        let is_lost = shard.primary == NodeId(1);
        assert_eq!(shard.state, if is_lost { ShardState::Lost } else { ShardState::Ok });
        assert_eq!(shard.rows, (!is_lost).then_some(0));
    }
}

type Local = LocalFabric<Native>;

/// Three nodes in one process that agree on the view, of which any can be killed.
fn three(place: &Place) -> (Local, Vec<Cluster<Local>>, Table<u64, Raw>) {
    let fabric = LocalFabric::new(3, LocalConfig::perfect());
    let start = |node: u16| {
        let builder = Cluster::builder().on(fabric.clone(), NodeId(node), 3).membership(place.membership());
        started(builder)
    };
    let (nodes, tables): (Vec<_>, Vec<_>) = (0..3).map(start).unzip();
    until(&nodes[0], is_ok);
    (fabric, nodes, tables[0])
}

fn started<P: At>(builder: ClusterBuilder<P>) -> (P::Started, Table<u64, Raw>) {
    let mut builder = builder.database(Builder::new().memory(16 << 20));
    let texts = builder.table(TEXTS, Partition::by("number", |number| *number));
    (builder.start().expect("a free address"), texts)
}

fn put<F: Fabric<Engine = Native>>(
    cluster: &Cluster<F>,
    texts: Table<u64, Raw>,
    number: u64,
    within: Duration,
) -> Result<(), Error> {
    let within = Options::new().within(within);
    cluster.transact_with(within, async move |tx| tx.put(texts, number, vec![7; 5]).await).wait()
}

#[test]
fn a_shard_whose_replicas_have_all_ended_is_lost() {
    let place = Place::new("lost");
    let (fabric, nodes, texts) = three(&place);
    for number in 0..3 {
        put(&nodes[0], texts, number, PATIENCE).expect("all are here");
    }
    // Shard 1 was at both.
    fabric.kill(NodeId(1)).expect("it is here");
    fabric.kill(NodeId(2)).expect("it is here");
    let is_changed = |status: &ClusterStatus| {
        let mut out = status.members[1..].iter();
        out.all(|member| member.state == MemberState::Out) && states(status)[0] == ShardState::UnderReplicated
    };
    let status = until(&nodes[0], is_changed);
    assert_eq!(states(&status)[1..], [ShardState::Lost, ShardState::UnderReplicated], "{status}");
    assert!(status.shards[1].rows.is_none() && status.members[0].state == MemberState::Here, "{status}");
    let refused = put(&nodes[0], texts, 1, PATIENCE).expect_err("no node has it");
    assert!(matches!(refused, Error::Cluster(ClusterError::ShardLost { shard: ShardId(1) })), "{refused}");
    for number in [0, 2] {
        put(&nodes[0], texts, number, PATIENCE).expect("its other replica is here");
    }
    let refused = nodes[0].give_up(ShardId(0)).wait().expect_err("it is served");
    assert!(matches!(refused, Error::Cluster(ClusterError::NotLost { shard: ShardId(0) })), "{refused}");
    nodes[0].give_up(ShardId(1)).wait().expect("it is lost");
    put(&nodes[0], texts, 25, PATIENCE).expect("it is served");
    let status = look(&nodes[0]);
    assert_eq!((states(&status), status.shards[1].rows), ([ShardState::UnderReplicated; 3], Some(1)), "{status}");
}

#[test]
fn nodes_that_lose_the_membership_go_on_and_change_nothing() {
    let place = Place::new("gone");
    let (fabric, nodes, texts) = three(&place);
    let (here, away) = (place.0.join("view"), place.0.join("away"));
    fs::rename(&here, &away).expect("a disk");
    for number in 0..30 {
        put(&nodes[0], texts, number, PATIENCE).expect("none is asked for that");
    }
    let before = look(&nodes[0]);
    let mut events = nodes[0].events();
    fabric.kill(NodeId(2)).expect("it is here");
    // It cannot be agreed on.
    let begun = Instant::now();
    while !matches!(events.try_next(), Some(ClusterEvent::ViewKept { waits_for: None, .. })) {
        assert!(begun.elapsed() < PATIENCE, "it is not told that the view stays");
        thread::sleep(Duration::from_millis(1));
    }
    let status = look(&nodes[0]);
    assert_eq!((status.view, states(&status)[2]), (before.view, ShardState::Recovering), "{status}");
    put(&nodes[0], texts, 0, PATIENCE).expect("its nodes are here");
    for number in [1, 2] {
        put(&nodes[0], texts, number, Duration::from_millis(100)).expect_err("a node is gone that has it");
    }
    fs::rename(&away, &here).expect("a disk");
    let status = until(&nodes[0], |status| status.members[2].state == MemberState::Out && is_ok(status));
    assert!(status.view > before.view);
    for number in [1, 2] {
        put(&nodes[0], texts, number, PATIENCE).expect("it has two replicas");
    }
    assert_eq!(look(&nodes[1]).shards.iter().filter_map(|shard| shard.rows).sum::<u64>(), 30);
}

fn addresses() -> Vec<String> {
    free_addresses(3).iter().map(ToString::to_string).collect()
}

#[test]
fn a_cluster_opens_when_the_last_owner_has_started() {
    let (place, addresses) = (Place::new("late"), addresses());
    let start = |node| {
        let builder = Cluster::builder().addresses(node, &addresses).key([7; 32]).membership(place.membership());
        started(builder.lease(Duration::from_secs(3)))
    };
    let (one, texts) = start(0);
    let (_two, _) = start(1);
    let status = until(&one, |status| status.members[1].state == MemberState::Here);
    assert_eq!((status.view, status.members[2].state), (1, MemberState::Absent), "{status}");
    assert_eq!(states(&status), [ShardState::Recovering; 3]);
    put(&one, texts, 1, Duration::from_millis(100)).expect_err("no view is open");
    let (_three, _) = start(2);
    let status = until(&one, is_ok);
    assert!(status.view > 1 && status.members.iter().all(|member| member.state == MemberState::Here), "{status}");
    assert_eq!(status.members[2].address.as_deref(), Some(&*addresses[2]));
    put(&one, texts, 1, PATIENCE).expect("all are here");
}

#[test]
fn a_node_that_is_left_of_three_machines_serves_nothing() {
    let (place, addresses) = (Place::new("minority"), addresses());
    let start = |node: u16| {
        let at = |node: usize| addresses[node].parse().expect("an address");
        let config = TcpConfig::new(NodeId(node), at(node.into()), [7; 32]);
        let config = (0..3).fold(config, |config, peer| config.peer(NodeId(peer), at(peer.into())));
        let fabric = TcpFabric::join(Native::chosen().expect("an engine"), config).expect("a port");
        let builder = Cluster::builder().on(fabric.clone(), NodeId(node), 3).membership(place.membership());
        (fabric, started(builder.lease(Duration::from_secs(3))))
    };
    let mut nodes: Vec<_> = (0..3).map(start).collect();
    let before = until(&nodes[0].1.0, is_ok);
    for (fabric, _) in &nodes[1..] {
        fabric.break_off();
    }
    let (one, texts) = &nodes[0].1;
    // When its lease has ended.
    let status = until(one, |status| states(status)[0] == ShardState::Recovering);
    assert_eq!((status.view, states(&status)[1]), (before.view, ShardState::Lost), "{status}");
    let refused = put(one, *texts, 0, Duration::from_millis(500)).expect_err("it is in no majority");
    assert!(matches!(refused, Error::Cluster(_)), "{refused}");
    let status = look(one);
    assert_eq!((status.view, states(&status)[0]), (before.view, ShardState::Recovering), "{status}");
    nodes.truncate(1);
}
