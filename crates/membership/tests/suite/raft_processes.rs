//! Voters that are processes, killed and stopped under load.

use std::{
    collections::BTreeMap,
    fs,
    io::stdin,
    net::TcpListener,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use drtm_membership::{Configuration, Error, Membership as _, Raft};
use rustix::process::Signal;

use crate::{
    directory::Folder,
    history::{History, Operation, Proposal},
    processes::{Process, say},
    raft::options,
    transport::Tcp,
};

/// A process with one voter. It does what its input says, a line for each request, and says the
/// outcome.
pub(crate) fn process(arguments: &[&str]) {
    let [directory, node, address] = arguments else { panic!("{arguments:?}") };
    let transport = Tcp::listen(address);
    let raft = Raft::start(
        Some(Path::new(directory)),
        node.parse().expect("a number"),
        address,
        transport.clone(),
        options(None),
    );
    let raft = Arc::new(raft.expect("it starts"));
    transport.attach(&raft);
    say("ready");
    for line in stdin().lines() {
        let line = line.expect("the parent's");
        let words: Vec<&str> = line.split(' ').collect();
        let outcome = match words[..] {
            ["bootstrap"] => raft.bootstrap().wait().map(|()| Configuration::none()),
            ["join", address] => raft.join(address).wait().map(|()| Configuration::none()),
            ["read"] => raft.read().wait(),
            ["replace", expected, content] => {
                raft.replace(expected.parse().expect("a number"), content.as_bytes()).wait()
            }
            ["leads"] => match raft.leader() {
                Some(leader) if leader == raft.own().id => Ok(Configuration::new(1, [])),
                _ => Ok(Configuration::none()),
            },
            _ => panic!("{line}"),
        };
        let text = |of: &Configuration| format!("{} {}", of.number(), String::from_utf8_lossy(of.content()));
        say(&match outcome {
            Ok(configuration) => format!("ok {}", text(&configuration)),
            Err(Error::Outdated { current }) => format!("outdated {}", text(&current)),
            Err(error) if error.may_have_happened() => "unknown".into(),
            Err(_) => "unavailable".into(),
        });
    }
}

struct Node {
    directory: String,
    address: String,
    number: usize,
    process: Option<Process>,
    /// Until when it is stopped or dead.
    until: Option<Instant>,
    doing: Option<(u64, Proposal)>,
    known: u32,
    /// Whether it has lost its directory, and has not been admitted since.
    has_to_join: bool,
}

fn outcome(line: &str) -> Result<Configuration, Error> {
    let mut words = line.splitn(3, ' ');
    let kind = words.next().unwrap_or_default();
    let mut configuration = || {
        let number = words.next().and_then(|number| number.parse().ok()).expect("a number");
        Configuration::new(number, words.next().unwrap_or_default().as_bytes())
    };
    match kind {
        "ok" => Ok(configuration()),
        "outdated" => Err(Error::Outdated { current: configuration() }),
        "unavailable" => Err(Error::Unavailable { why: String::new() }),
        _ => Err(Error::Unknown { why: line.into() }),
    }
}

impl Node {
    fn run(&mut self) {
        let process = Process::start("raft", &[&self.directory, &self.number.to_string(), &self.address]);
        assert_eq!(process.line(Duration::from_secs(60)).as_deref(), Some("ready"));
        self.process = Some(process);
    }

    /// Tells it something, and waits for the outcome.
    fn ask(&mut self, line: &str) -> Result<Configuration, Error> {
        let process = self.process.as_mut().expect("it runs");
        assert!(process.tell(line));
        outcome(&process.line(Duration::from_secs(60)).expect("every request ends"))
    }

    /// Returns whether it runs, and votes.
    fn is_up(&self) -> bool {
        self.until.is_none() && !self.has_to_join
    }

    /// Takes the outcome of a request, or gives it up with its process.
    fn ends(&mut self, now: u64, outcome: Result<Configuration, Error>, history: &mut History) {
        if self.has_to_join {
            self.has_to_join = outcome.is_err();
            self.doing = None;
            return;
        }
        if let Some((start, proposal)) = self.doing.take() {
            if let Ok(seen) | Err(Error::Outdated { current: seen }) = &outcome {
                self.known = self.known.max(seen.number());
            }
            let outcome = match outcome {
                Err(error) if proposal.is_none() && error.may_have_happened() => {
                    Err(Error::Unavailable { why: String::new() })
                }
                outcome => outcome,
            };
            history.operations.push(Operation { client: self.number, start, end: now, proposal, outcome });
        }
    }
}

/// Runs voters under kills and stops for some rounds, and returns what happened. Some that are
/// killed lose their directories, and come back as other voters.
fn torment(nodes: usize, rounds: u64, seed: u64) -> (History, BTreeMap<&'static str, usize>) {
    let folder = Folder::new(&format!("torment-{nodes}"));
    let ports = (0..nodes).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect::<Vec<_>>();
    let address = |number: usize| ports[number].local_addr().expect("a port").to_string();
    let node = |number: usize| Node {
        directory: folder.0.join(number.to_string()).to_str().expect("letters").to_owned(),
        address: address(number),
        number,
        process: None,
        until: None,
        doing: None,
        known: 0,
        has_to_join: false,
    };
    let mut all: Vec<Node> = (0..nodes).map(node).collect();
    drop(ports);
    all.iter_mut().for_each(Node::run);
    all[0].ask("bootstrap").expect("the first");
    let contact = all[0].address.clone();
    for node in &mut all[1..] {
        let deadline = Instant::now() + Duration::from_secs(60);
        while node.ask(&format!("join {contact}")).is_err() {
            assert!(Instant::now() < deadline, "it joins");
        }
    }
    let start = Instant::now();
    let now = || start.elapsed().as_nanos() as u64;
    let (mut history, mut counts) = (History::default(), BTreeMap::new());
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut fault_at, mut faults, mut requests) = (Instant::now(), 0, 0);
    while faults < rounds || all.iter().any(|node| !node.is_up()) {
        let contacts: Vec<String> = all.iter().filter(|node| node.is_up()).map(|node| node.address.clone()).collect();
        for node in &mut all {
            if node.until.is_some_and(|until| Instant::now() < until) {
                continue;
            }
            if node.until.take().is_some() {
                match &node.process {
                    Some(process) => process.signal(Signal::CONT),
                    None => node.run(),
                }
            }
            let process = node.process.as_mut().expect("it runs");
            if node.doing.is_some() {
                if let Some(line) = process.line(Duration::ZERO) {
                    node.ends(now(), outcome(&line), &mut history);
                }
            } else if node.has_to_join {
                node.doing = Some((now(), None));
                assert!(process.tell(&format!("join {}", random.choice(&contacts).expect("a majority is up"))));
            } else {
                requests += 1;
                let proposal = random.bool().then(|| (node.known, format!("{}-{requests}", node.number).into_bytes()));
                let line = match &proposal {
                    None => "read".to_owned(),
                    Some((expected, content)) => format!("replace {expected} {}", String::from_utf8_lossy(content)),
                };
                node.doing = Some((now(), proposal));
                assert!(process.tell(&line));
            }
        }
        std::thread::sleep(Duration::from_micros(500));
        let up = all.iter().filter(|node| node.is_up()).count();
        // A majority stays, so that there is progress.
        if faults < rounds && fault_at.elapsed() > Duration::from_millis(250) && up > nodes / 2 + 1 {
            (fault_at, faults) = (Instant::now(), faults + 1);
            let mut victims: Vec<usize> = (0..nodes).filter(|node| all[*node].is_up()).collect();
            random.shuffle(&mut victims);
            let victim = &mut all[victims[0]];
            victim.until = Some(Instant::now() + Duration::from_millis(random.u64(50..600)));
            if faults % 3 == 0 {
                victim.process.as_ref().expect("it runs").signal(Signal::STOP);
                *counts.entry("stops").or_insert(0) += 1;
            } else {
                // What it had said before counts.
                let said = victim.process.take().expect("it runs").kill();
                let outcome = said.first().map_or(Err(Error::Unknown { why: "killed".into() }), |line| outcome(line));
                victim.ends(now(), outcome, &mut history);
                *counts.entry("kills").or_insert(0) += 1;
                if faults % 3 == 1 {
                    fs::remove_dir_all(&victim.directory).expect("it has one");
                    victim.has_to_join = true;
                    *counts.entry("lost directories").or_insert(0) += 1;
                }
            }
        }
    }
    // All come to rest, and agree.
    for node in &mut all {
        if node.doing.is_some() {
            let line =
                node.process.as_ref().expect("it runs").line(Duration::from_secs(60)).expect("every request ends");
            node.ends(now(), outcome(&line), &mut history);
        }
    }
    for node in &mut all {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            node.doing = Some((now(), None));
            let read = node.ask("read");
            let is_read = read.is_ok();
            node.ends(now(), read, &mut history);
            if is_read {
                break;
            }
            assert!(Instant::now() < deadline, "all are there, and none can read");
        }
    }
    (history, counts)
}

fn survives(nodes: usize, seed: u64) {
    let (history, counts) = torment(nodes, drtm_testing::rounds(12), seed);
    let summary = history.judge().unwrap_or_else(|why| panic!("{nodes} voters: {why}"));
    println!("{nodes} voters: {counts:?}, {summary:?}");
    assert!(summary.replaced > 5 && summary.reads > 5, "{summary:?}");
    assert!(counts["kills"] > 4 && counts["stops"] > 2 && counts["lost directories"] > 2);
}

#[test]
fn three_voters_survive_kills_stops_and_lost_directories() {
    survives(3, 3);
}

#[test]
fn five_voters_survive_kills_stops_and_lost_directories() {
    survives(5, 5);
}
