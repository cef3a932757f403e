//! Nodes with disks come back. What is there is worth nothing where others have served the shards
//! since: then it is taken out, and the node begins anew from their rows. Where no replica is left,
//! it is what brings a shard back.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use drtm_htm::NoHtm;
use drtm_membership::{Answer, Client, Configuration, Membership, Register, RegisterOptions};
use drtm_rdma::{Executor, LocalConfig, LocalFabric, NodeId, block_on};
use drtm_testing::rounds;
use drtm_txn::{
    Builder, Durability, Error, Mutation, Options, Transaction as _,
    cluster::{ClusterError, Node, Partition, Protocol, ShardId, View},
    durability::storage::{Fault, Image},
};
use fastrand::Rng;

use crate::bed::{Rings, Setup, Tables, Tested, WORDS, disks, kept};

type Local = LocalFabric<NoHtm>;

const OWNERS: u16 = 3;

/// A node that only runs transactions.
const CLIENT: u16 = OWNERS;

/// Where deaths are certain, leases are not waited for.
const LEASE: Duration = Duration::from_secs(3);

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(40);

const ROWS: u64 = 24;

/// A handle of a register. While it `is_held`, what replaces the configuration is not answered,
/// though it is replaced: what its node does next, it does not come to.
#[derive(Debug)]
struct Held {
    client: Client,
    is_held: Arc<AtomicBool>,
}

impl Membership for Held {
    fn read(&self) -> Answer<Configuration> {
        self.client.read()
    }

    fn replace(&self, expected: u32, content: &[u8]) -> Answer<Configuration> {
        let answer = self.client.replace(expected, content);
        // No configuration has a higher number.
        if self.is_held.load(SeqCst) { self.client.watch(u32::MAX) } else { answer }
    }

    fn watch(&self, after: u32) -> Answer<Configuration> {
        self.client.watch(after)
    }

    fn known(&self) -> Configuration {
        self.client.known()
    }
}

/// A life of an owner, which serves until it is dropped.
struct Owner {
    node: Node<Local, Tested>,
    thread: Option<thread::JoinHandle<()>>,
    is_over: Arc<AtomicBool>,
}

impl Owner {
    fn serve(node: Node<Local, Tested>) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let (served, over) = (node.clone(), Arc::clone(&is_over));
        let thread = thread::spawn(Setup::inherited(move || {
            let endpoint = served.endpoint().expect("room");
            let mut executor = Executor::new(&endpoint);
            served.worker(&endpoint).expect("few").serve(&executor.spawner());
            executor.spawn(endpoint.until(|| over.load(SeqCst)));
            executor.run();
        }));
        Self { node, thread: Some(thread), is_over }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.is_over.store(true, SeqCst);
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
    /// Whether its answers to those that replace the configuration are held back.
    is_held: Arc<AtomicBool>,
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
            is_held: Arc::default(),
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
        let membership = Arc::new(Held { client: self.register.client(), is_held: Arc::clone(&self.is_held) });
        let (node, tables) = kept(&self.fabric, node, OWNERS, self.protocol, (rings, Some((membership, LEASE))));
        (Owner::serve(node), tables)
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
        self.pass_until(|| is_so(&self.view()));
    }

    /// Lets the register's time pass until something is so.
    fn pass_until(&self, is_so: impl Fn() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            self.register.advance(self.began.elapsed());
            assert!(begun.elapsed() < PATIENCE, "{:?}", self.view());
            thread::sleep(Duration::from_micros(200));
        }
    }

    /// Lets some time pass.
    fn pass(&self, time: Duration) {
        let begun = Instant::now();
        self.pass_until(|| begun.elapsed() >= time);
    }

    /// Waits until the view after this one is configured, and the node that has done that does not
    /// hear of it.
    fn until_configured(&self, after: u32) {
        let register = self.register.client();
        self.pass_until(|| register.known().number() > after);
        let nodes = self.owners.iter().flatten().map(|owner| owner.node.view().number());
        assert!(nodes.chain([self.view().number()]).all(|number| number == after), "it has begun");
    }

    /// Writes all rows, so that backups have them, too. Returns the disks as they are after a crash
    /// that has kept what was synced, which is all of that.
    fn write_everywhere(&mut self, byte: u8) -> Vec<Image> {
        let written = self.run(async |worker, tables| {
            for row in 0..ROWS {
                worker.transact(async |tx| tx.put(tables.words, row, vec![byte; 8]).await).await?;
            }
            worker.catch_up().await
        });
        written.expect("all are here");
        self.rows = (0..ROWS).map(|row| (row, byte)).collect();
        for owner in self.owners.iter().flatten() {
            owner.node.local().checkpoint().expect("the disk has room");
        }
        self.disks.iter().map(|disk| disk.after_crash(&mut |choices| choices - 1)).collect()
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
        let is_over = &AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(move || {
                while !is_over.load(SeqCst) {
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
    three.pass(Duration::from_millis(50));
    three.restart(0);
    three.restart(2);
    three.until(|view| (0..OWNERS).all(|owner| three.is_member(view, owner)));
    three.until_whole();
    three.damage()
}

/// All crash when a view is configured in which node 2 serves what node 1 has served, before it has
/// everything. Its directory lacks the end of what node 1 has acknowledged.
fn configured_and_not_begun(protocol: Protocol, seed: u64) -> Option<String> {
    let mut three = Three::start(protocol, seed);
    let before = three.write_everywhere(1);
    three.write((0..ROWS).filter(|row| row % 3 == 1), Some(2));
    let view = three.view().number();
    three.is_held.store(true, SeqCst);
    three.crash(&[1]);
    three.until_configured(view);
    three.crash(&[0, 2]);
    // Both have acknowledged nothing since.
    [0, 2].into_iter().for_each(|owner| three.disks[owner] = before[owner].clone());
    three.is_held.store(false, SeqCst);
    (0..OWNERS).for_each(|owner| three.restart(owner));
    three.until(|view| (0..OWNERS).all(|owner| three.is_member(view, owner)));
    three.until_whole();
    three.damage()
}

#[test]
fn what_a_view_that_never_began_lacks_is_in_the_directories_of_the_one_before() {
    for (protocol, seed) in PROTOCOLS.into_iter().zip(200..) {
        assert_eq!(configured_and_not_begun(protocol, seed), None, "{}", protocol.name);
    }
}

/// A node whose log has failed can note nothing, and holds no view up.
#[test]
fn a_log_that_has_failed_stops_no_change() {
    let mut three = Three::start(Protocol::FASST, 400);
    three.write_everywhere(1);
    let disk = &three.disks[2];
    disk.fail_at(disk.calls(), Fault::Device);
    three.crash(&[1]);
    three.until(|view| !view.has(NodeId(1)) && view.has(NodeId(2)));
    let node = &three.owners[2].as_ref().expect("it runs").node;
    assert!(matches!(node.local().checkpoint(), Err(Error::Poisoned { .. })), "the note was its next write");
}

/// Returns whether the directories of all owners have noted the first view that begins when it
/// does: what is synced of them, where commits wait for no flush.
fn is_on_disk(fault: Option<Mutation>) -> bool {
    let setup = fault.map_or(Setup::SOUND, Setup::faulty);
    setup.run(|| {
        let never = Duration::from_secs(3_600);
        let start = |disks: &[Image]| {
            let (fabric, register) = (Local::new(OWNERS, LocalConfig::perfect()), Register::new(<_>::default()));
            let start = |(node, disk): (u16, &Image)| {
                let builder = Builder::new().memory(16 << 20).storage(Arc::new(disk.clone()), 1 << 16);
                let builder = builder.durability(Durability::Async).flush_within(never);
                let node = Node::<_, Tested>::builder_for(NoHtm, &fabric, NodeId(node), builder, Protocol::FASST);
                let mut node = node.and_then(|node| node.owners((0..OWNERS).map(NodeId))?.backups(1)).expect("owners");
                node.table(WORDS, Partition::by("itself", |key| *key)).expect("memory");
                node.membership(Arc::new(register.client())).lease(LEASE).start().expect("owners")
            };
            ((0..).zip(disks).map(start).collect::<Vec<_>>(), register)
        };
        let disks = disks(OWNERS);
        let (nodes, register) = start(disks);
        let owners: Vec<_> = nodes.into_iter().map(Owner::serve).collect();
        let began = Instant::now();
        while !owners.iter().any(|owner| owner.node.view().number() > 1) {
            register.advance(began.elapsed());
            assert!(began.elapsed() < PATIENCE, "they meet");
            thread::sleep(Duration::from_micros(200));
        }
        let view = |owner: &Owner| (*owner.node.view()).clone();
        let begun = owners.iter().map(view).max_by_key(View::number);
        let disks: Vec<_> = disks.iter().map(|disk| disk.after_crash(&mut |choices| choices - 1)).collect();
        start(&disks).0.iter().all(|node| node.told_ready() == begun)
    })
}

#[test]
fn a_view_begins_when_all_directories_have_noted_it() {
    assert!(is_on_disk(None));
    assert!(!is_on_disk(Some(Mutation::NotesNotAwaited)), "nothing else flushes");
    assert!(!is_on_disk(Some(Mutation::ReadyNotNoted)));
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

#[test]
fn views_that_are_not_noted_or_not_asked_for_are_found() {
    for fault in [Mutation::ReadyNotNoted, Mutation::NotesIgnored] {
        let damage = Setup::faulty(fault).run(|| configured_and_not_begun(Protocol::FASST, 300));
        assert!(damage.is_some_and(|what| what.contains("row")), "{fault:?}");
    }
}
