//! `drtm cluster status`, as an operator runs it: on a cluster of three processes, of which one is
//! killed, and where nothing answers.

use std::{
    env, fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use drtm_membership::Directory;
use drtm_testing::ports::free_addresses;
use drtm_txn::{
    Builder, Raw, TableDef, Transaction as _,
    cluster::{Cluster, Partition},
};
use serde_json::Value;

/// Tells a process that a test has started which node it is, and where the others are.
const NODE: &str = "DRTM_TEST_NODE";

const NODES: usize = 3;
const ROWS: u64 = 90;

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes of each value: rows of a group take several messages.
const VALUE: usize = 4_000;

const TEXTS: TableDef<u64, Raw> = TableDef::hash("texts");

/// Runs `drtm`: its exit status, stdout and stderr.
fn drtm(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_drtm")).args(arguments).output().expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// A directory with a key, which is removed at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("drtm-tool-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        fs::write(path.join("key"), [7; 32]).expect("a disk");
        Self(path)
    }

    fn key(&self) -> String {
        self.0.join("key").to_str().expect("plain").to_owned()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn addresses(count: usize) -> Vec<String> {
    free_addresses(count).iter().map(ToString::to_string).collect()
}

/// The process of a node, which serves until it is killed or its test ends.
#[test]
fn a_node_that_is_looked_at() {
    let Ok(told) = env::var(NODE) else { return };
    let (node, directory) = told.split_once('=').expect("two parts");
    let (node, directory): (u16, _) = (node.parse().expect("a number"), Path::new(directory));
    let addresses = fs::read_to_string(directory.join("addresses")).expect("they are chosen");
    let membership = Directory::open(&directory.join("view")).expect("a directory");
    let mut builder = Cluster::builder()
        .addresses(node, addresses.lines())
        .key_file(directory.join("key"))
        .database(Builder::new().memory(16 << 20))
        .membership(Arc::new(membership))
        // On a machine that does much else.
        .lease(Duration::from_secs(3))
        // Ten seconds for each group.
        .copies_at(12_000);
    let texts = builder.table(TEXTS, Partition::by("number", |number| *number));
    let cluster = builder.start().expect("a port");
    cluster.wait_for_nodes(PATIENCE).expect("all are started");
    if node == 0 {
        let fill = || {
            let rows = cluster.transact(async move |tx| {
                for number in 0..ROWS {
                    tx.put(texts, number, vec![7; VALUE]).await?;
                }
                Ok(())
            });
            rows.wait()
        };
        let begun = Instant::now();
        // It opens when all have met.
        while fill().is_err() {
            assert!(begun.elapsed() < PATIENCE, "it does not open");
            thread::sleep(Duration::from_millis(20));
        }
    }
    println!("begun");
    // Until the test ends.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

struct Node(Child);

impl Node {
    fn spawn(node: usize, directory: &Path) -> Self {
        let mut command = Command::new(env::current_exe().expect("this one"));
        command.args(["--exact", "a_node_that_is_looked_at", "--nocapture"]);
        command.env(NODE, format!("{node}={}", directory.to_str().expect("plain")));
        Self(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a process"))
    }

    fn signal(&self, name: &str) {
        let command = format!("kill -{name} {}", self.0.id());
        assert!(Command::new("sh").args(["-c", &command]).status().expect("a shell").success());
    }

    fn has_begun(&mut self) -> bool {
        let lines = BufReader::new(self.0.stdout.take().expect("piped")).lines();
        lines.map_while(Result::ok).any(|line| line.contains("begun"))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the states of shards, each once.
fn states(status: &Value) -> Vec<&str> {
    let shards = status["shards"].as_array().expect("a list").iter();
    let mut states: Vec<_> = shards.map(|shard| shard["state"].as_str().expect("a name")).collect();
    states.sort_unstable();
    states.dedup();
    states
}

/// Asks again and again until a status is as it is expected.
fn until(key: &str, at: &str, is_expected: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let (status, json, said) = drtm(&["cluster", "status", "--key", key, "--at", at, "--json"]);
        assert_eq!(status, Some(0), "{said}");
        let found: Value = serde_json::from_str(&json).expect("one value");
        if is_expected(&found) {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "{said}");
    }
}

/// Starts the nodes of a cluster: its key, their addresses and their processes.
fn begun(place: &Place) -> (String, Vec<String>, Vec<Node>) {
    let addresses = addresses(NODES);
    fs::write(place.0.join("addresses"), addresses.join("\n")).expect("a disk");
    let mut nodes: Vec<_> = (0..NODES).map(|node| Node::spawn(node, &place.0)).collect();
    assert!(nodes.iter_mut().all(Node::has_begun), "one ended by itself");
    (place.key(), addresses, nodes)
}

#[test]
fn a_node_that_was_stopped_is_seen_to_return() {
    let place = Place::new("stopped");
    let (key, addresses, nodes) = begun(&place);
    until(&key, &addresses[0], |status| states(status) == ["ok"]);
    nodes[1].signal("STOP");
    let asked = ["cluster", "status", "--key", &key, "--at", &addresses[1]];
    let (status, _, said) = drtm(&asked);
    assert!(status == Some(1) && said.contains("has not answered within"), "{said}");
    until(&key, &addresses[0], |status| status["members"][1]["state"] == "out" || status["members"][2]["node"] == 1);
    nodes[1].signal("CONT");
    let begun = Instant::now();
    // It finds out that it is no member when it asks, and joins again. Meanwhile nothing listens.
    loop {
        let (status, json, said) = drtm(&[&asked[..], &["--json"]].concat());
        let found: Option<Value> = serde_json::from_str(&json).ok();
        let is_whole = |found: Value| found["members"][1]["state"] == "here" && states(&found) == ["ok"];
        if status == Some(0) && found.is_some_and(is_whole) {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{said}");
    }
}

#[test]
fn a_cluster_of_three_that_loses_a_node_is_under_replicated() {
    let place = Place::new("status");
    let (key, addresses, mut nodes) = begun(&place);
    let sum = |status: &Value, name: &str| -> Option<u64> {
        status["shards"].as_array().expect("a list").iter().map(|shard| shard[name].as_u64()).sum()
    };
    let whole = until(&key, &addresses[1], |status| states(status) == ["ok"] && sum(status, "rows").is_some());
    let view = whole["view"].as_u64().expect("a number");
    assert!(view > 1, "the first view opens for nobody");
    for (node, member) in whole["members"].as_array().expect("a list").iter().enumerate() {
        assert_eq!((&member["node"], &member["state"]), (&node.into(), &"here".into()));
        assert_eq!(member["address"], addresses[node].as_str());
        assert!(member["incarnation"].as_u64().is_some_and(|incarnation| incarnation > 0));
    }
    let shards = whole["shards"].as_array().expect("a list");
    let bytes = ROWS * (8 + VALUE as u64);
    assert_eq!((shards.len(), sum(&whole, "rows"), sum(&whole, "bytes")), (24, Some(ROWS), Some(bytes)));
    // Row 7 is in shard 7, and so are 31, 55 and 79.
    let shard = &shards[7];
    assert_eq!((&shard["shard"], &shard["rows"], &shard["primary"]), (&7.into(), &4.into(), &1.into()));
    assert_eq!((&shard["backups"], &shard["learners"]), (&vec![2].into(), &Vec::<u64>::new().into()));

    nodes[2].0.kill().expect("it runs");
    // Until its lease has ended, no node serves what it has served.
    let dead = until(&key, &addresses[0], |status| states(status).contains(&"recovering"));
    assert_eq!(dead["members"][2]["state"], "died");
    let of = |shard: &Value| (shard["primary"].as_u64(), shard["rows"].as_u64());
    assert_eq!(of(&dead["shards"][2]), (Some(2), None), "it cannot be asked");
    // Then its backup does, and another one copies what it had.
    let served = until(&key, &addresses[0], |status| {
        states(status) == ["ok", "under-replicated"] && status["members"][2]["state"] == "out"
    });
    assert!(served["view"].as_u64() > Some(view));
    assert_eq!(of(&served["shards"][2]), (Some(0), Some(4)));
    assert_eq!(
        (&served["members"][2]["incarnation"], sum(&served, "rows")),
        (&whole["members"][2]["incarnation"], Some(ROWS))
    );
    let begun = Instant::now();
    loop {
        let (status, text, said) = drtm(&["cluster", "status", "--key", &key, "--at", &addresses[1]]);
        assert!(status == Some(0) && said.is_empty(), "{said}");
        let parts = ["3 members, 24 shards: ok ", "recovering 0, lost 0", "under-replicated  ", "     2  out  "];
        if parts.iter().all(|part| text.contains(part)) {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{text}");
    }
    // In the end each shard has two replicas again, at the two nodes that are left.
    let whole = until(&key, &addresses[0], |status| states(status) == ["ok"]);
    let shards = whole["shards"].as_array().expect("a list");
    assert!(shards.iter().all(|shard| shard["backups"].as_array().is_some_and(|backups| backups.len() == 1)));
}

#[test]
fn a_node_is_replaced_by_one_at_another_address() {
    let place = Place::new("replaced");
    let (key, mut addresses, mut nodes) = begun(&place);
    until(&key, &addresses[0], |status| states(status) == ["ok"]);
    let at = addresses[0].clone();
    let order = |arguments: &[&str]| drtm(&[&["cluster"], arguments, &["--key", &key, "--at", &at]].concat());
    let said = |arguments: &[&str], what: &str| {
        let (status, _, said) = order(arguments);
        assert!(status == Some(1) && said.contains(what), "{status:?}: {said}");
    };
    let there = self::addresses(1).remove(0);
    said(&["replace", "--node", "2", "--with", &there], "is here, and is not replaced");
    said(&["give-up", "--shard", "2"], "is not lost, and keeps its rows");
    nodes[2].0.kill().expect("it runs");
    until(&key, &at, |status| status["members"][2]["state"] == "out");
    said(&["replace", "--node", "2", "--with", &addresses[1]], "where another node is");
    said(&["replace", "--node", "7", "--with", &there], "is no owner");
    let (status, json, error) = order(&["replace", "--node", "2", "--with", &there, "--json"]);
    assert_eq!(status, Some(0), "{error}");
    let replaced: Value = serde_json::from_str(&json).expect("one value");
    assert_eq!(replaced["members"][2]["address"], there.as_str());
    assert_eq!(replaced["members"][2]["state"], "out");
    // The new machine is told all addresses.
    addresses[2] = there.clone();
    fs::write(place.0.join("addresses"), addresses.join("\n")).expect("a disk");
    nodes[2] = Node::spawn(2, &place.0);
    assert!(nodes[2].has_begun(), "it ended by itself");
    let whole =
        until(&key, &addresses[2], |status| states(status) == ["ok"] && status["members"][2]["state"] == "here");
    assert_eq!(whole["members"][2]["address"], there.as_str());
}

#[test]
fn what_is_wrong_is_said() {
    let place = Place::new("wrong");
    let (key, at) = (place.key(), addresses(1).remove(0));
    let said = |arguments: &[&str], status: i32, what: &str| {
        let (found, _, said) = drtm(&[&["cluster", "status"], arguments].concat());
        assert!(found == Some(status) && said.contains(what), "{found:?}: {said}");
    };
    let ask = |key: &str, at: &str, status, what: &str| said(&["--key", key, "--at", at], status, what);
    ask(&key, &at, 1, "nothing listens");
    ask(&key, "nowhere", 2, "no address of a node");
    ask("/nowhere/at/all", &at, 2, "cannot be read");
    let short = place.0.join("short");
    fs::write(&short, [7; 31]).expect("a disk");
    ask(short.to_str().expect("plain"), &at, 2, "31 bytes");
    said(&["--key", &key], 2, "--at");

    let node = Cluster::builder().addresses(0, [&at]).key([8; 32]).start().expect("a port");
    ask(&key, &at, 1, "its key is another one");
    node.close();
    // A node of before there were visitors says its version.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("an address").to_string();
    let older = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a visitor");
        stream.read_exact(&mut [0; 8]).expect("a preamble");
        stream.write_all(b"drtm\x03\0\0\0").expect("it is heard");
        let _ = stream.read_to_end(&mut Vec::new());
    });
    ask(&key, &at, 1, "speaks version 3");
    older.join().expect("no panic");
}
