//! Owners on machines agree on the view among themselves, by Raft, and no test does anything for
//! that: their processes are killed under load, stopped, and started again, with their directories
//! and without; and no majority of them is left.

use std::{
    env, fs,
    io::{BufRead as _, BufReader, Lines},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
    thread,
    time::Duration,
};

use drtm_htm::Native;
use drtm_rdma::{Incarnation, NodeId, TcpFabric};
use drtm_testing::ports::free_addresses;
use drtm_txn::{
    Builder, Durability, Error, Options, Pod, Table, TableDef, Transaction as _,
    cluster::{Cluster, ClusterError, Partition, View},
};
use fastrand::Rng;

pub(crate) const OWNERS: u16 = 3;
/// The owner that is this process. The others are processes of their own.
pub(crate) const OWN: u16 = 2;
const ACCOUNTS: u64 = 40;
const BALANCE: u64 = 1_000;
/// A row that counts what this process was told of.
const MARK: u64 = ACCOUNTS;

const MONEY: TableDef<u64, Pod<u64>> = TableDef::hash("money");

/// On a machine that does much else.
const LEASE: Duration = Duration::from_secs(3);
/// Long enough for a change of the view.
const PATIENCE: Duration = Duration::from_secs(60);

/// Tells a process that a test has started which node it is, and where its test keeps things.
const OWNER: &str = "DRTM_TEST_AGREED";

/// The file that says that money may stand still.
const LOST: &str = "lost";

pub(crate) type Money = Table<u64, Pod<u64>>;
pub(crate) type Bank = Cluster<TcpFabric<Native>>;

/// How the nodes of a test are started, which is in files.
pub(crate) struct Place {
    pub(crate) path: PathBuf,
    /// Whether owners have directories.
    are_durable: bool,
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

impl Place {
    pub(crate) fn new(name: &str, are_durable: bool) -> Self {
        let path = env::temp_dir().join(format!("drtm-agreed-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        let addresses = free_addresses(usize::from(OWNERS)).into_iter().map(|at| format!("{at}\n"));
        fs::write(path.join("addresses"), addresses.collect::<String>()).expect("it is there");
        if are_durable {
            fs::write(path.join("durable"), "").expect("it is there");
        }
        Self { path, are_durable }
    }

    /// Forgets what an owner has kept.
    fn forget(&self, node: u16) {
        if self.are_durable {
            fs::remove_dir_all(self.path.join(node.to_string())).expect("it was there");
        }
    }
}

/// Starts an owner in this process.
pub(crate) fn start(path: &Path, node: u16, bootstraps: bool) -> (Bank, Money) {
    let addresses = fs::read_to_string(path.join("addresses")).expect("they are chosen");
    let mut database = Builder::new().memory(16 << 20);
    if path.join("durable").exists() {
        database = database.path(path.join(node.to_string())).create(true).durability(Durability::Sync);
    }
    let builder = Cluster::builder().addresses(node, addresses.lines()).key([7; 32]);
    let mut builder = builder.database(database).lease(LEASE);
    if bootstraps {
        builder = builder.bootstrap();
    }
    #[cfg(feature = "etcd")]
    if let Some(membership) = crate::by_etcd::membership(path) {
        builder = builder.membership(membership);
    }
    let money = builder.table(MONEY, Partition::by("number", |number| *number));
    (builder.start().expect("a port"), money)
}

/// Moves money between two accounts, and counts that in the row of a mark.
fn transfer(bank: &Bank, money: Money, random: &mut Rng, mark: Option<u64>) -> Result<(), Error> {
    let (from, to) = (random.u64(0..ACCOUNTS), random.u64(0..ACCOUNTS));
    let moved = bank.transact_with(Options::new().within(PATIENCE), async move |tx| {
        for (account, by) in [(from, u64::MAX), (to, 1)] {
            let before = tx.get(money, account).await?.expect("it is filled");
            tx.put(money, account, &before.wrapping_add(by)).await?;
        }
        match mark {
            Some(count) => tx.put(money, MARK, &count).await,
            None => Ok(()),
        }
    });
    moved.wait()
}

/// The process of an owner, which moves money until it is killed.
#[test]
fn an_owner_that_agrees() {
    let Ok(told) = env::var(OWNER) else { return };
    let mut words = told.splitn(3, '=');
    let mut word = || words.next().expect("three words");
    let (node, bootstraps, path) = (word().parse().expect("a number"), word() == "bootstraps", Path::new(word()));
    let (bank, money) = start(path, node, bootstraps);
    println!("begun");
    let mut random = Rng::with_seed(node.into());
    let is_filled = || matches!(bank.transact(async move |tx| tx.get(money, MARK).await).wait(), Ok(Some(_)));
    while !is_filled() {
        thread::sleep(Duration::from_millis(10));
    }
    println!("moves");
    loop {
        match transfer(&bank, money, &mut random, None) {
            Ok(()) => {}
            Err(Error::Cluster(ClusterError::Evicted { .. })) => {
                println!("out");
                return;
            }
            Err(_) if path.join(LOST).exists() => {}
            Err(error) => panic!("node {node}, in {}: {error:?}", bank.node().view()),
        }
    }
}

/// A process that is killed at the end.
pub(crate) struct Owner {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Owner {
    pub(crate) fn spawn(node: u16, path: &Path, bootstraps: bool) -> Self {
        let mut command = Command::new(env::current_exe().expect("this one"));
        command.args(["--exact", "agreed::an_owner_that_agrees", "--nocapture"]);
        let what = if bootstraps { "bootstraps" } else { "joins" };
        let told = format!("{node}={what}={}", path.to_str().expect("plain"));
        let mut process = command.env(OWNER, told).stdout(Stdio::piped()).spawn().expect("a process");
        let lines = BufReader::new(process.stdout.take().expect("piped")).lines();
        let mut owner = Self { process, lines };
        assert!(owner.says("begun"), "it ended by itself");
        owner
    }

    /// Waits until it has said something. Returns false if it has ended before.
    pub(crate) fn says(&mut self, what: &str) -> bool {
        self.lines.by_ref().map_while(Result::ok).any(|line| line.contains(what))
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("it runs");
        let _ = self.process.wait();
    }

    fn signal(&self, name: &str) {
        let command = format!("kill -{name} {}", self.process.id());
        assert!(Command::new("sh").args(["-c", &command]).status().expect("a shell").success());
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Ends what moves money, also when a test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// A cluster under load, as a test sees it.
pub(crate) struct Scene<'a> {
    pub(crate) place: &'a Place,
    pub(crate) bank: &'a Bank,
    pub(crate) owners: Vec<Owner>,
    /// How often this process was told that it has moved money.
    counted: &'a AtomicU64,
    /// Whether money may stand still: no majority is left.
    is_lost: &'a AtomicBool,
    has_failed: &'a dyn Fn() -> bool,
}

impl Scene<'_> {
    pub(crate) fn view(&self) -> std::sync::Arc<View> {
        self.bank.node().view()
    }

    pub(crate) fn until(&self, mut is_so: impl FnMut(&Self) -> bool) {
        while !is_so(self) {
            assert!(!(self.has_failed)(), "money is not moved any more, in {}", self.view());
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until money was moved some times more.
    pub(crate) fn goes_on(&self) {
        let so_far = self.counted.load(SeqCst);
        self.until(|scene| scene.counted.load(SeqCst) >= so_far + 40);
    }

    /// Lets money stand still from now on, or no more.
    pub(crate) fn lose(&self, is_lost: bool) {
        let file = self.place.path.join(LOST);
        if is_lost {
            fs::write(file, "").expect("a disk");
        } else {
            fs::remove_file(file).expect("a disk");
        }
        self.is_lost.store(is_lost, SeqCst);
    }

    pub(crate) fn life_of(&self, node: u16) -> Option<Incarnation> {
        self.view().members().iter().find(|member| member.node == NodeId(node))?.incarnation
    }

    /// Waits until an owner is out, or another life of it is in.
    pub(crate) fn until_out(&self, node: u16, life: Option<Incarnation>) {
        self.until(|scene| scene.life_of(node) != life);
    }

    /// Waits until all owners are members, and each shard has two replicas.
    pub(crate) fn until_whole(&self) {
        self.until(|scene| {
            let view = scene.view();
            let mut shards = view.placements().iter();
            let is_replicated = shards.all(|at| at.backups.len() == 1 && at.learners.is_empty());
            view.members().len() == usize::from(OWNERS) && is_replicated
        });
    }

    /// Kills an owner, and waits until the others go on without it.
    pub(crate) fn kill(&mut self, node: u16) {
        let life = self.life_of(node);
        self.owners[usize::from(node)].kill();
        self.until_out(node, life);
        self.goes_on();
    }

    /// Starts an owner again, and waits until it has what it had.
    pub(crate) fn start_again(&mut self, node: u16, bootstraps: bool) {
        self.start_again_in(node, &self.place.path, bootstraps);
    }

    fn start_again_in(&mut self, node: u16, path: &Path, bootstraps: bool) {
        self.owners[usize::from(node)] = Owner::spawn(node, path, bootstraps);
        self.until_whole();
        self.goes_on();
    }
}

fn fill(bank: &Bank, money: Money) {
    bank.wait_for_nodes(PATIENCE).expect("all are started");
    let fill = bank.transact_with(Options::new().within(PATIENCE), async move |tx| {
        for account in 0..ACCOUNTS {
            tx.put(money, account, &BALANCE).await?;
        }
        tx.put(money, MARK, &0).await
    });
    fill.wait().expect("they agree on a view");
}

/// Checks that no money is lost. Returns the mark.
fn judge(bank: &Bank, money: Money) -> u64 {
    let soon = Options::new().within(PATIENCE);
    let all = bank.transact_with(soon, async move |tx| tx.get_many(money, 0..=MARK).await);
    let all: Vec<u64> = all.wait().expect("it has replicas").into_iter().map(|row| row.expect("filled")).collect();
    let sum = all[..ACCOUNTS as usize].iter().fold(0, |sum: u64, one| sum.wrapping_add(*one));
    assert_eq!(sum, ACCOUNTS * BALANCE, "{all:?}");
    all[MARK as usize]
}

/// Runs a cluster of three under load, of which this process is the last, and judges the money.
pub(crate) fn run(place: &Place, story: impl FnOnce(&mut Scene<'_>)) {
    let owners = (0..OWN).map(|node| Owner::spawn(node, &place.path, node == 0)).collect();
    let (bank, money) = start(&place.path, OWN, false);
    fill(&bank, money);
    let (is_over, is_lost, counted) = (&AtomicBool::new(false), &AtomicBool::new(false), &AtomicU64::new(0));
    let bank = &bank;
    thread::scope(|scope| {
        let moves = scope.spawn(move || {
            let mut random = Rng::with_seed(99);
            for count in 1.. {
                if is_over.load(Relaxed) {
                    break;
                }
                while let Err(error) = transfer(bank, money, &mut random, Some(count)) {
                    // It may have moved some: it is counted once.
                    assert!(is_lost.load(SeqCst), "a majority is left: {error:?}");
                }
                counted.store(count, SeqCst);
            }
        });
        let _over = Over(is_over);
        let has_failed = || moves.is_finished();
        let mut scene = Scene { place, bank, owners, counted, is_lost, has_failed: &has_failed };
        scene.goes_on();
        story(&mut scene);
        is_over.store(true, SeqCst);
        while !moves.is_finished() {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(judge(bank, money), counted.load(SeqCst), "nothing that was acknowledged is lost");
    });
}

/// The first owner leads the view, and the voters, too, since it has made their cluster.
#[test]
fn owners_that_are_killed_are_done_without_and_come_back_as_other_voters() {
    let place = Place::new("killed", false);
    run(&place, |scene| {
        scene.kill(0);
        // It is told to make a cluster each time, and there is one.
        scene.start_again(0, true);
        scene.kill(1);
        scene.start_again(1, false);
    });
}

#[test]
fn owners_with_directories_are_the_same_voters_and_others_without() {
    let place = Place::new("durable", true);
    run(&place, |scene| {
        scene.kill(0);
        scene.start_again(0, false);
        scene.kill(1);
        place.forget(1);
        scene.start_again(1, true);
    });
}

#[test]
fn an_owner_that_is_stopped_finds_itself_out_and_comes_back() {
    let place = Place::new("stopped", false);
    run(&place, |scene| {
        let life = scene.life_of(0);
        scene.owners[0].signal("STOP");
        scene.until_out(0, life);
        scene.goes_on();
        scene.owners[0].signal("CONT");
        assert!(scene.owners[0].says("out"), "it does not find itself out");
        scene.owners[0].kill();
        scene.start_again(0, false);
    });
}

#[test]
fn an_owner_that_is_left_alone_changes_nothing_and_all_begin_anew() {
    let place = Place::new("minority", true);
    let spawn = || (0..OWN).map(|node| Owner::spawn(node, &place.path, node == 0)).collect::<Vec<_>>();
    let mut owners = spawn();
    let (bank, money) = start(&place.path, OWN, false);
    fill(&bank, money);
    let mut random = Rng::with_seed(7);
    for count in 1..=40 {
        transfer(&bank, money, &mut random, Some(count)).expect("all are here");
    }
    let before = bank.node().view().number();
    owners.iter_mut().for_each(Owner::kill);
    let soon = Options::new().within(Duration::from_millis(500));
    // When its lease has ended, it returns nothing that it has.
    while bank.transact_with(soon, async move |tx| tx.get(money, u64::from(OWN)).await).wait().is_ok() {
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(bank.node().view().number(), before);
    drop(bank);
    // All have ended, and each has its directory, and its vote.
    let owners = spawn();
    let (bank, money) = start(&place.path, OWN, true);
    assert_eq!(judge(&bank, money), 40);
    assert!(bank.node().view().number() > before);
    drop(owners);
}

#[test]
fn a_voter_at_another_address_takes_the_place_of_a_dead_one() {
    let place = Place::new("replaced", false);
    run(&place, |scene| {
        scene.kill(1);
        let stale = place.path.join("stale");
        fs::create_dir(&stale).expect("a disk");
        let file = place.path.join("addresses");
        fs::copy(&file, stale.join("addresses")).expect("a disk");
        let mut addresses: Vec<String> = {
            let lines = fs::read_to_string(&file).expect("they are chosen");
            lines.lines().map(ToOwned::to_owned).collect()
        };
        let address = free_addresses(1)[0];
        scene.bank.replace(NodeId(1), address).wait().expect("it is gone");
        addresses[1] = address.to_string();
        fs::write(&file, addresses.join("\n")).expect("it is there");
        scene.start_again(1, false);
        // One that is told the old address learns the new one.
        scene.kill(0);
        scene.start_again_in(0, &stale, false);
    });
}
