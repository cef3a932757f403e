//! Nodes with disks come back. What is there is worth nothing where others have served the shards
//! since: then it is taken out, and the node begins anew from their rows. Where no replica is left,
//! it is what brings a shard back.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use drtm_htm::NoHtm;
use drtm_membership::{Register, RegisterOptions};
use drtm_rdma::{Executor, LocalConfig, LocalFabric, NodeId, block_on};
use drtm_testing::rounds;
use drtm_txn::{
    Error, Mutation, Options, Transaction as _,
    cluster::{ClusterError, Node, Protocol, ShardId, View},
    durability::storage::Image,
};
use fastrand::Rng;

use crate::bed::{Rings, Setup, Tables, Tested, kept};

type Local = LocalFabric<NoHtm>;

const OWNERS: u16 = 3;

/// A node that only runs transactions.
const CLIENT: u16 = OWNERS;

/// Where deaths are certain, leases are not waited for.
const LEASE: Duration = Duration::from_secs(3);

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(40);

const ROWS: u64 = 24;

/// A life of an owner, which serves until it is dropped.
struct Owner {
    node: Node<Local, Tested>,
    thread: Option<thread::JoinHandle<()>>,
    is_over: Arc<std::sync::atomic::AtomicBool>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.is_over.store(true, std::sync::atomic::Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // It has told of a panic.
            let _ = thread.join();
        }
    }
}

/// Three owners with disks and one backup each, and a client that writes rows.
struct Three {
    fabric: Local,
    register: Register,
    began: Instant,
    protocol: Protocol,
    disks: Vec<Image>,
    owners: Vec<Option<Owner>>,
    client: Option<(Owner, Tables)>,
    /// What was acknowledged.
    rows: BTreeMap<u64, u8>,
    random: Rng,
}

impl Three {
    fn start(protocol: Protocol, seed: u64) -> Self {
        let mut options = RegisterOptions::default();
        options.seed = seed;
        let mut three = Self {
            fabric: Local::new(OWNERS + 1, LocalConfig::perfect()),
            register: Register::new(options),
            began: Instant::now(),
            protocol,
            disks: (0..OWNERS).map(|_| Image::recycling()).collect(),
            owners: (0..OWNERS).map(|_| None).collect(),
            client: None,
            rows: BTreeMap::new(),
            random: Rng::with_seed(seed),
        };
        (0..OWNERS).for_each(|owner| three.begin(owner));
        let (client, tables) = three.serve(CLIENT);
        three.client = Some((client, tables));
        three.until(|view| view.number() > 1);
        three
    }

    fn serve(&self, node: u16) -> (Owner, Tables) {
        let disks = Vec::leak(self.disks.clone());
        let rings = Rings { backups: 1, bytes: 1 << 16, disks, ..Rings::default() };
        let membership = Arc::new(self.register.client());
        let (node, tables) = kept(&self.fabric, node, OWNERS, self.protocol, (rings, Some((membership, LEASE))));
        let is_over = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let (served, over) = (node.clone(), Arc::clone(&is_over));
        let thread = thread::spawn(Setup::inherited(move || {
            let endpoint = served.endpoint().expect("room");
            let mut executor = Executor::new(&endpoint);
            served.worker(&endpoint).expect("few").serve(&executor.spawner());
            executor.spawn(endpoint.until(|| over.load(std::sync::atomic::Ordering::SeqCst)));
            executor.run();
        }));
        (Owner { node, thread: Some(thread), is_over }, tables)
    }

    fn begin(&mut self, owner: u16) {
        let (begun, _) = self.serve(owner);
        self.owners[usize::from(owner)] = Some(begun);
    }

    /// Crashes owners at once: their disks have what was synced, and perhaps more.
    fn crash(&mut self, owners: &[u16]) {
        owners.iter().for_each(|owner| self.fabric.kill(NodeId(*owner)).expect("it is here"));
        for owner in owners {
            let (disk, random) = (&mut self.disks[usize::from(*owner)], &mut self.random);
            *disk = disk.after_crash(&mut |choices| random.u64(0..choices));
            self.owners[usize::from(*owner)] = None;
        }
    }

    fn restart(&mut self, owner: u16) {
        self.fabric.revive(NodeId(owner)).expect("it is gone");
        self.begin(owner);
    }

    fn client(&self) -> (&Node<Local, Tested>, Tables) {
        let (client, tables) = self.client.as_ref().expect("it runs");
        (&client.node, *tables)
    }

    fn view(&self) -> Arc<View> {
        self.client().0.view()
    }

    /// Waits for a view.
    fn until(&self, is_so: impl Fn(&View) -> bool) {
        let begun = Instant::now();
        while !is_so(&self.view()) {
            self.register.advance(self.began.elapsed());
            assert!(begun.elapsed() < PATIENCE, "{:?}", self.view());
            thread::sleep(Duration::from_micros(200));
        }
    }

    fn until_whole(&self) {
        self.until(|view| {
            let mut shards = view.placements().iter();
            shards.all(|at| at.lost.is_none() && at.backups.len() == 1 && at.learners.is_empty())
        });
    }

    /// Runs something of the client's, while the register's time passes.
    fn run<T>(
        &self,
        what: impl AsyncFn(&drtm_txn::cluster::Worker<'_, Local, Tested>, Tables) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let (node, tables) = self.client();
        let endpoint = node.endpoint().expect("room");
        let worker = node.worker(&endpoint).expect("few");
        let is_over = &std::sync::atomic::AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(move || {
                while !is_over.load(std::sync::atomic::Ordering::SeqCst) {
                    self.register.advance(self.began.elapsed());
                    thread::sleep(Duration::from_micros(200));
                }
            });
            let _over = crate::bed::SetAtEnd(is_over);
            block_on(&endpoint, what(&worker, tables))
        })
    }

    /// Writes rows, or removes them, each in a transaction of its own, and notes what was
    /// acknowledged.
    fn write(&mut self, rows: impl IntoIterator<Item = u64>, byte: Option<u8>) {
        for row in rows {
            let within = Options::new().within(PATIENCE);
            let written = self.run(async |worker, tables| {
                let written = worker.transact_with(within, async |tx| match byte {
                    Some(byte) => tx.put(tables.words, row, vec![byte; 8]).await,
                    None => tx.remove(tables.words, row).await.map(drop),
                });
                written.await
            });
            written.unwrap_or_else(|error| panic!("row {row}: {error}, in {}", self.view()));
            match byte {
                Some(byte) => self.rows.insert(row, byte),
                None => self.rows.remove(&row),
            };
        }
    }

    /// Looks at all rows. Returns what is wrong with the first that is.
    fn damage(&self) -> Option<String> {
        (0..ROWS).find_map(|row| {
            let within = Options::new().within(PATIENCE);
            let read = self.run(async |worker, tables| {
                worker.transact_with(within, async |tx| tx.get(tables.words, row).await).await
            });
            let expected = self.rows.get(&row).map(|byte| vec![*byte; 8]);
            match read {
                Ok(read) if read == expected => None,
                other => Some(format!("row {row}: {other:?}, and not {expected:?}")),
            }
        })
    }

    /// The error with which a row of a shard is refused.
    fn refused(&self, row: u64) -> Option<ShardId> {
        match self.run(async |worker, tables| worker.transact(async |tx| tx.get(tables.words, row).await).await) {
            Err(Error::Cluster(ClusterError::ShardLost { shard })) => Some(shard),
            _ => None,
        }
    }

    fn is_member(&self, view: &View, owner: u16) -> bool {
        let life = self.owners[usize::from(owner)].as_ref().map(|owner| owner.node.incarnation());
        view.members().iter().any(|member| member.node == NodeId(owner) && member.incarnation == life)
    }
}

const PROTOCOLS: [Protocol; 3] = [Protocol::FASST, Protocol::FARM, Protocol::DRTM_H];

/// An owner comes back beside others that have served its shards. Then all crash.
fn beside_others(protocol: Protocol, seed: u64) -> Option<String> {
    let mut three = Three::start(protocol, seed);
    three.write(0..ROWS, Some(1));
    three.crash(&[1]);
    three.until(|view| !view.has(NodeId(1)));
    // Of each shard a row stays, one is overwritten, and one is removed.
    three.write((0..ROWS).filter(|row| row % 9 < 3), Some(2));
    three.write((0..ROWS).filter(|row| row % 9 >= 6), None);
    three.restart(1);
    three.until(|view| three.is_member(view, 1));
    three.until_whole();
    if let Some(what) = three.damage() {
        return Some(format!("when it is back: {what}"));
    }
    // Its directory has what is so now, and nothing of before.
    three.crash(&[0, 1, 2]);
    (0..OWNERS).for_each(|owner| three.restart(owner));
    three.until(|view| (0..OWNERS).all(|owner| three.is_member(view, owner)));
    three.until_whole();
    three.damage().map(|what| format!("after all have crashed: {what}"))
}

/// All replicas of a shard end, one after the other. The first one has an old directory.
fn last_of_all(protocol: Protocol, seed: u64) -> Option<String> {
    let mut three = Three::start(protocol, seed);
    three.write(0..ROWS, Some(1));
    three.crash(&[1]);
    // All shards have two replicas again, at the two that are left.
    three.until(|view| !view.has(NodeId(1)));
    three.until_whole();
    three.write(0..ROWS, Some(2));
    three.crash(&[0, 2]);
    three.restart(1);
    // Which of the others were last is known to the register alone, and none has all.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(50) {
        three.register.advance(three.began.elapsed());
        thread::sleep(Duration::from_micros(200));
    }
    three.restart(0);
    three.restart(2);
    three.until(|view| (0..OWNERS).all(|owner| three.is_member(view, owner)));
    three.until_whole();
    three.damage()
}

#[test]
fn a_directory_is_worth_nothing_beside_replicas_and_all_where_there_are_none() {
    for (protocol, seed) in PROTOCOLS.into_iter().zip(0..) {
        for round in 0..rounds(1) {
            assert_eq!(beside_others(protocol, seed + 10 * round), None, "{}", protocol.name);
            assert_eq!(last_of_all(protocol, seed + 10 * round), None, "{}", protocol.name);
        }
    }
}

/// One owner is left. A shard that both others had is lost, and comes back with the last of them.
#[test]
fn a_lost_shard_comes_back_with_the_directory_of_its_last_primary() {
    for (protocol, seed) in PROTOCOLS.into_iter().zip(100..) {
        let mut three = Three::start(protocol, seed);
        three.write(0..ROWS, Some(1));
        // Shard 1 is at nodes 1 and 2.
        three.crash(&[1, 2]);
        three.until(|view| view.is_lost(ShardId(1)));
        assert_eq!(three.refused(1), Some(ShardId(1)));
        three.write((0..ROWS).filter(|row| row % 3 != 1), Some(2));
        three.restart(2);
        three.until(|view| three.is_member(view, 2));
        assert_eq!(three.refused(1), Some(ShardId(1)), "it was a backup, and may lack the end");
        three.restart(1);
        three.until_whole();
        assert_eq!(three.damage(), None, "{}", protocol.name);
    }
}

/// Returns whether a fault is found: by a row that is wrong, or since a run panics.
fn is_found(fault: Mutation, run: fn(Protocol, u64) -> Option<String>) -> bool {
    let fails = |seed| {
        let run = AssertUnwindSafe(|| Setup::faulty(fault).run(|| run(Protocol::FASST, seed)));
        catch_unwind(run).map_or(true, |damage| damage.is_some())
    };
    (0..rounds(4)).any(fails)
}

#[test]
fn rows_that_stay_in_a_log_are_found() {
    assert!(is_found(Mutation::OldRowsLeft, beside_others));
}

#[test]
fn a_shard_that_is_served_from_an_old_directory_is_found() {
    assert!(is_found(Mutation::StaleServed, last_of_all));
}
