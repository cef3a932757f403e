//! Owners on machines agree on the view by a real etcd. Where it is gone, they go on in their view
//! and change nothing, until it is back.

use std::{
    env, fs,
    net::{Ipv4Addr, TcpListener},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use drtm_membership::{Error, Etcd, EtcdOptions, Membership};
use drtm_txn::cluster::ClusterEvent;

use crate::{
    agreeing::{Place, run},
    process::Owner,
};

/// The file of a test with etcd's address.
const ENDPOINT: &str = "etcd";

/// Returns a handle of a test's etcd, if it has one.
pub(crate) fn membership(path: &Path) -> Option<Arc<dyn Membership>> {
    let endpoint = fs::read_to_string(path.join(ENDPOINT)).ok()?;
    let mut options = EtcdOptions::default();
    options.endpoints = vec![endpoint];
    Some(Arc::new(Etcd::start(options).expect("a thread")))
}

/// An etcd of one member, which is killed at the end.
struct Server<'p> {
    place: &'p Place,
    ports: [u16; 2],
    process: Option<Child>,
}

impl<'p> Server<'p> {
    /// Starts an etcd for a test. `None` where there is none: `scripts/etcd/install` brings it, and
    /// where `DRTM_ETCD` is set, it must be there.
    fn start(place: &'p Place) -> Option<Self> {
        if Command::new("etcd").arg("--version").stdout(Stdio::null()).status().is_err() {
            assert!(env::var_os("DRTM_ETCD").is_none(), "there is no etcd: scripts/etcd/install brings it");
            eprintln!("skipped: there is no etcd, and scripts/etcd/install brings it");
            return None;
        }
        let free = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port"));
        let ports = free.each_ref().map(|listener| listener.local_addr().expect("an address").port());
        drop(free);
        fs::write(place.path.join(ENDPOINT), format!("http://127.0.0.1:{}", ports[0])).expect("a disk");
        let mut server = Self { place, ports, process: None };
        server.run();
        Some(server)
    }

    /// Starts its process, and waits until it answers.
    fn run(&mut self) {
        let [client, peer] = self.ports.map(|port| format!("http://127.0.0.1:{port}"));
        let mut command = Command::new("etcd");
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.arg("--initial-cluster").arg(format!("default={peer}"));
        command.arg("--data-dir").arg(self.place.path.join("data")).stdout(Stdio::null()).stderr(Stdio::null());
        self.process = Some(command.spawn().expect("etcd starts"));
        let handle = membership(&self.place.path).expect("its address is known");
        while matches!(handle.read().wait(), Err(Error::Unavailable { .. })) {
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn kill(&mut self) {
        let mut process = self.process.take().expect("it runs");
        process.kill().and_then(|()| process.wait()).expect("it is a child");
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

#[test]
fn owners_that_lose_etcd_go_on_and_change_nothing_until_it_is_back() {
    let place = Place::new("etcd", false);
    let Some(mut server) = Server::start(&place) else { return };
    run(&place, |scene| {
        scene.kill(0);
        scene.start_again(0, false);
        let before = scene.view().number();
        server.kill();
        scene.goes_on();
        // What the dead one has served is not served, and no other node takes its place.
        let mut events = scene.bank.events();
        scene.lose(true);
        let life = scene.life_of(1);
        scene.owners[1].kill();
        scene.until(|_| matches!(events.try_next(), Some(ClusterEvent::ViewKept { .. })));
        assert_eq!(scene.view().number(), before);
        server.run();
        scene.until_out(1, life);
        scene.goes_on();
        scene.owners[1] = Owner::that_agrees(1, &place.path, false);
        scene.until_whole();
        scene.lose(false);
        scene.goes_on();
    });
}
