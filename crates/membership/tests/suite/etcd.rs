//! A real etcd on the loopback interface.

use std::{
    env, fs,
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use drtm_membership::{Configuration, Error, Etcd, EtcdOptions, Membership, mutation::Mutation};
use rustix::process::{Pid, Signal, kill_process};

use crate::{directory::Folder, driver};

/// An etcd of one member, which is killed when this is dropped.
struct Server {
    child: Option<Child>,
    folder: Folder,
    client_port: u16,
    peer_port: u16,
    /// No other test's etcd may listen where this one did.
    _alone: MutexGuard<'static, ()>,
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port()
}

impl Server {
    /// Starts an etcd. `None` where there is none, with a word of it: `scripts/etcd/install`
    /// brings it, and where `DRTM_ETCD` is set, it must be there.
    fn start() -> Option<Self> {
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        static ALONE: Mutex<()> = Mutex::new(());
        let is_here = Command::new("etcd").arg("--version").stdout(Stdio::null()).status().is_ok();
        if !is_here {
            assert!(env::var_os("DRTM_ETCD").is_none(), "there is no etcd: scripts/etcd/install brings it");
            eprintln!("skipped: there is no etcd, and scripts/etcd/install brings it");
            return None;
        }
        let folder = Folder::new(&format!("etcd-{}", STARTED.fetch_add(1, Relaxed)));
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let (client_port, peer_port) = (free_port(), free_port());
        let mut server = Self { child: None, folder, client_port, peer_port, _alone };
        server.run();
        Some(server)
    }

    /// Starts the process, again if it was killed, and waits until it listens.
    fn run(&mut self) {
        let client = self.endpoint();
        let peer = format!("http://127.0.0.1:{}", self.peer_port);
        let mut command = Command::new("etcd");
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.arg("--initial-cluster").arg(format!("default={peer}"));
        command.arg("--data-dir").arg(&self.folder.0).stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(command.spawn().expect("etcd starts"));
        let deadline = Instant::now() + Duration::from_secs(60);
        let membership = self.membership(|options| options.patience = Duration::from_secs(1));
        while matches!(membership.read().wait(), Err(Error::Unavailable { .. })) {
            assert!(Instant::now() < deadline, "etcd does not serve");
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.client_port)
    }

    fn membership(&self, change: impl FnOnce(&mut EtcdOptions)) -> Arc<dyn Membership> {
        let mut options = EtcdOptions::default();
        // The first endpoint is none: the next is asked.
        options.endpoints = vec!["http://127.0.0.1:1".into(), self.endpoint()];
        change(&mut options);
        Arc::new(Etcd::start(options).expect("a handle"))
    }

    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("it runs");
        kill_process(Pid::from_raw(child.id() as i32).expect("a number"), signal).expect("it is a child");
    }

    /// Stops all its threads, which takes a moment.
    fn stop(&self) {
        self.signal(Signal::STOP);
        let threads = format!("/proc/{}/task", self.child.as_ref().expect("it runs").id());
        let is_stopped = |thread: fs::DirEntry| {
            let state = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            // A thread that has ended meanwhile has none.
            state.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with('T'))
        };
        while !fs::read_dir(&threads).expect("it runs").flatten().all(is_stopped) {
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().and_then(|()| child.wait()).expect("it is a child");
    }

    /// Writes the key as nobody should.
    fn put(&self, key: &str, body: &str) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.client_port)).expect("it listens");
        let head =
            format!("POST {key} HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
        std::io::Write::write_all(&mut stream, [head.as_bytes(), body.as_bytes()].concat().as_slice())
            .expect("it reads");
        let answer = std::io::read_to_string(stream).expect("it answers");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
        }
        // Nothing writes there now.
        assert!(Path::new(&self.folder.0).exists());
    }
}

#[test]
fn histories_are_linearizable() {
    let Some(server) = Server::start() else { return };
    let members = (0..3).map(|_| server.membership(|_| {})).collect();
    let history = driver::run(members, &mut driver::RealTime::new(), 40 * drtm_testing::rounds(1) as usize, 1);
    let summary = history.and_then(|history| history.judge()).unwrap_or_else(|why| panic!("{why}"));
    assert!(summary.replaced > 10 && summary.outdated > 5 && summary.reads > 10, "{summary:?}");
}

#[test]
fn limits_hold() {
    let Some(server) = Server::start() else { return };
    crate::limits(&*server.membership(|options| options.key = "limits".into()), |answer| answer.wait());
}

#[test]
fn a_missing_comparison_is_found() {
    let Some(server) = Server::start() else { return };
    let faulty = |options: &mut EtcdOptions| options.fault = Some(Mutation::ComparisonLeftOut);
    let members = (0..3).map(|_| server.membership(faulty)).collect();
    let history = driver::run(members, &mut driver::RealTime::new(), 30, 2);
    assert!(history.and_then(|history| history.judge()).is_err());
}

#[test]
fn losing_etcd_changes_nothing() {
    let Some(mut server) = Server::start() else { return };
    let membership = server.membership(|options| options.patience = Duration::from_millis(300));
    let first = membership.replace(0, b"one").wait().expect("the first");
    // It is stopped: a request may be carried out when it goes on.
    server.stop();
    assert!(matches!(membership.read().wait(), Err(Error::Unavailable { .. })));
    let unknown = membership.replace(1, b"maybe").wait().expect_err("it is stopped");
    assert!(unknown.may_have_happened(), "{unknown}");
    assert_eq!(membership.known(), first);
    let mut watch = membership.watch(1);
    server.signal(Signal::CONT);
    // It is gone: nothing happens.
    server.kill();
    for _ in 0..2 {
        assert!(matches!(membership.read().wait(), Err(Error::Unavailable { .. })));
        let refused = membership.replace(1, b"never").wait().expect_err("it is gone");
        assert!(!refused.may_have_happened(), "{refused}");
    }
    assert_eq!(membership.known(), first);
    // It comes back, and is watched again.
    server.run();
    let current = membership.read().wait().expect("it is back");
    assert!(current.number() == 1 || current.content() == b"maybe", "{current:?}");
    let next = membership.replace(current.number(), b"next").wait().expect("it is back");
    let patience = Duration::from_secs(30);
    let mut told = watch.wait_for(patience).expect("it is watched").expect("it is open");
    while told != next {
        told = membership.watch(told.number()).wait_for(patience).expect("it is watched").expect("it is open");
    }
}

#[test]
fn a_key_that_something_else_writes_is_damaged() {
    let Some(server) = Server::start() else { return };
    let membership = server.membership(|options| options.key = "k".into());
    let first = membership.replace(0, b"one").wait().expect("the first");
    let is_damaged = |outcome: Result<Configuration, Error>| matches!(outcome, Err(Error::Damaged { .. }));
    // "k" and "x", as base64 has them.
    server.put("/v3/kv/put", r#"{"key":"aw==","value":"eA=="}"#);
    assert!(is_damaged(membership.read().wait()));
    assert!(is_damaged(membership.replace(1, b"two").wait()));
    // It was removed: an older state is not believed either.
    server.put("/v3/kv/deleterange", r#"{"key":"aw=="}"#);
    assert!(is_damaged(membership.read().wait()));
    assert!(is_damaged(membership.watch(1).wait()));
    assert_eq!(membership.known(), first);
}
