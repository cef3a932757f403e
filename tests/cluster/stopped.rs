//! A process that the system stops: what waits for it is interrupted at its deadline, says whether
//! it can have happened, and goes on when the process does.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    net::{SocketAddr, TcpListener},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use drtm_htm::NoHtm;
use drtm_rdma::{Fabric, NodeId, ShmConfig, ShmFabric, TcpConfig, TcpFabric};
use drtm_txn::{
    Error, Options, Transaction as _,
    cluster::{Cluster, ClusterError, Protocol},
};

use crate::bed::node;

/// Tells a process of a test its fabric, its protocol, and where the others are.
const OWNER: &str = "DRTM_TEST_STOPPED";

/// What a transaction waits for a stopped process.
const PATIENCE: Duration = Duration::from_millis(40);
/// Transactions that wait for one.
const WAITING: u8 = 3;

/// Where two nodes find each other.
enum Places {
    Shm(String),
    Tcp([SocketAddr; 2]),
}

impl Places {
    fn join_shm(directory: &str, node: u16) -> ShmFabric<NoHtm> {
        ShmFabric::join(NoHtm, ShmConfig::new("stopped", NodeId(node)).directory(Path::new(directory)))
            .expect("a group")
    }

    fn join_tcp(addresses: [SocketAddr; 2], node: u16) -> TcpFabric<NoHtm> {
        let other = 1 - node;
        let config = TcpConfig::new(NodeId(node), addresses[usize::from(node)], [7; 32])
            .peer(NodeId(other), addresses[usize::from(other)]);
        TcpFabric::join(NoHtm, config).expect("a cluster")
    }

    fn to_text(&self) -> String {
        match self {
            Self::Shm(directory) => format!("shm {directory}"),
            Self::Tcp([one, two]) => format!("tcp {one} {two}"),
        }
    }
}

/// The process of an owner, which serves until it is killed.
#[test]
fn an_owner_that_is_stopped() {
    let Ok(told) = env::var(OWNER) else { return };
    let words: Vec<&str> = told.split(' ').collect();
    let protocol = Protocol::with_names().find(|protocol| protocol.name == words[0]).expect("its name");
    let address = |text: &str| text.parse().expect("an address");
    match words[1] {
        "shm" => serve(&Places::join_shm(words[2], 1), protocol),
        _ => serve(&Places::join_tcp([address(words[2]), address(words[3])], 1), protocol),
    }
}

fn serve<F: Fabric<Engine = NoHtm>>(fabric: &F, protocol: Protocol) {
    let (node, _) = node(fabric, 1, 2, protocol);
    let _cluster = Cluster::start(node, 1).expect("threads");
    println!("serves");
    loop {
        std::thread::park();
    }
}

/// A process that is killed at the end.
struct Owner(Child);

impl Owner {
    fn start(protocol: Protocol, places: &Places) -> Self {
        let mut command = Command::new(env::current_exe().expect("this one"));
        command.args(["--exact", "stopped::an_owner_that_is_stopped", "--nocapture"]);
        command.env(OWNER, format!("{} {}", protocol.name, places.to_text())).stdout(Stdio::piped());
        let mut owner = Self(command.spawn().expect("a process"));
        let lines = BufReader::new(owner.0.stdout.take().expect("piped")).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.contains("serves")), "it ended by itself");
        owner
    }

    /// Sends it a signal.
    fn signal(&self, name: &str) {
        let command = format!("kill -{name} {}", self.0.id());
        assert!(Command::new("sh").args(["-c", &command]).status().expect("a shell").success());
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Stops an owner while another node writes rows of both. Returns how late it was told, at
/// most, and how many transactions were interrupted.
fn latest<F: Fabric<Engine = NoHtm>>(fabric: &F, protocol: Protocol, places: &Places) -> (Duration, u32) {
    let (node, tables) = node(fabric, 0, 2, protocol);
    let cluster = Cluster::start(node, 1).expect("threads");
    let owner = Owner::start(protocol, places);
    cluster.wait_for_nodes(Duration::from_secs(60)).expect("it serves");
    let put = |value: u8, patience| {
        let put = cluster.transact_with(Options::new().within(patience), async move |tx| {
            tx.put(tables.words, 0, vec![value; 8]).await?;
            tx.put(tables.words, 1, vec![value; 8]).await
        });
        put.wait()
    };
    let get = || cluster.transact(async move |tx| tx.get_many(tables.words, [0, 1]).await).wait();
    put(0, Duration::from_secs(60)).expect("both are here");
    owner.signal("STOP");
    let (mut late, mut interrupted, mut possible) = (Duration::ZERO, 0, vec![0]);
    for value in 1..=WAITING {
        let began = Instant::now();
        let ended = put(value, PATIENCE);
        late = late.max(began.elapsed().saturating_sub(PATIENCE));
        match ended {
            // All its threads stop a moment later.
            Ok(()) => possible = vec![value],
            Err(Error::Cluster(ClusterError::Interrupted { may_have_happened, .. })) => {
                possible.extend(may_have_happened.then_some(value));
                interrupted += 1;
            }
            // The one before holds what it waits for.
            Err(Error::Contended { .. }) => {}
            other => panic!("{}: {other:?}", protocol.name),
        }
    }
    owner.signal("CONT");
    let rows: Vec<u8> = get().expect("it goes on").into_iter().map(|row| row.expect("it was put")[0]).collect();
    assert!(rows[0] == rows[1] && possible.contains(&rows[0]), "{}: {rows:?} of {possible:?}", protocol.name);
    put(9, Duration::from_secs(60)).expect("nothing is in its way");
    (late, interrupted)
}

#[test]
fn what_waits_for_a_stopped_process_ends_on_shared_memory() {
    let mut all = 0;
    for protocol in Protocol::with_names() {
        let directory = env::temp_dir().join(format!("drtm-stopped-{}-{}", std::process::id(), protocol.name));
        let path = directory.to_str().expect("plain");
        let (late, interrupted) = latest(&Places::join_shm(path, 0), protocol, &Places::Shm(path.to_owned()));
        eprintln!("shm, {}: at most {late:?} late", protocol.name);
        all += interrupted;
        fs::remove_dir_all(&directory).expect("it is there");
    }
    assert!(all > 0, "none has waited");
}

#[test]
fn what_waits_for_a_stopped_process_ends_on_tcp() {
    let mut all = 0;
    for protocol in Protocol::with_names() {
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
        let addresses = listeners.each_ref().map(|at| at.local_addr().expect("an address"));
        drop(listeners);
        let (late, interrupted) = latest(&Places::join_tcp(addresses, 0), protocol, &Places::Tcp(addresses));
        eprintln!("tcp, {}: at most {late:?} late", protocol.name);
        all += interrupted;
    }
    assert!(all > 0, "none has waited");
}
