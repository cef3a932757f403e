//! A bank whose owners, on machines, agree on the view by themselves: processes that a test starts,
//! kills, stops and starts again, and one owner in the test's own process.

use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    thread,
    time::Duration,
};

use drtm_htm::Native;
use drtm_membership::Directory;
use drtm_rdma::{Incarnation, NodeId, TcpFabric};
use drtm_testing::ports::free_addresses;
use drtm_txn::{
    Builder, Durability, Error, Options, Pod, Table, TableDef, Transaction as _,
    cluster::{Cluster, ClusterError, ClusterEvent, Partition, View},
};
use fastrand::Rng;

use crate::process::Owner;

pub(crate) const OWNERS: u16 = 3;
/// A node that owns nothing, which a test may start.
pub(crate) const CLIENT: u16 = OWNERS;
/// The owner that is this process. The others are processes of their own.
pub(crate) const OWN: u16 = 2;
const ACCOUNTS: u64 = 40;
const BALANCE: u64 = 1_000;
/// A row that counts what this process was told of.
const MARK: u64 = ACCOUNTS;

pub(crate) const MONEY: TableDef<u64, Pod<u64>> = TableDef::hash("money");

/// On a machine that does much else.
pub(crate) const LEASE: Duration = Duration::from_secs(3);
/// Long enough for a change of the view.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Tells a process that a test has started which node it is, and where its test keeps things.
const OWNER: &str = "DRTM_TEST_AGREED";

/// A register that owners agree by, if it is there.
const REGISTER: &str = "register";

/// The file that says that money may stand still.
const LOST: &str = "lost";

/// The file that says that owners are to move no more money, and not to end.
const REST: &str = "rest";

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
        let addresses = free_addresses(usize::from(CLIENT) + 1).into_iter().map(|at| format!("{at}\n"));
        fs::write(path.join("addresses"), addresses.collect::<String>()).expect("it is there");
        if are_durable {
            fs::write(path.join("durable"), "").expect("it is there");
        }
        Self { path, are_durable }
    }

    /// Lets owners agree by a register of files.
    pub(crate) fn with_register(self) -> Self {
        fs::create_dir(self.path.join(REGISTER)).expect("a disk");
        self
    }

    /// Closes an owner so many milliseconds after it was evicted.
    pub(crate) fn closes(&self, node: u16, after: u64) {
        fs::write(self.path.join(format!("closes-{node}")), after.to_string()).expect("a disk");
    }

    /// Has owners move no more money, and waits until they do not.
    pub(crate) fn rests(&self, owners: &mut [Owner]) {
        fs::write(self.path.join(REST), "").expect("a disk");
        assert!(owners.iter_mut().all(|owner| owner.says("rests")), "one ended by itself");
        fs::remove_file(self.path.join(REST)).expect("a disk");
    }

    /// Forgets what an owner has kept.
    pub(crate) fn forget(&self, node: u16) {
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
    let mut builder = builder.owners(OWNERS).database(database).lease(LEASE);
    if bootstraps {
        builder = builder.bootstrap();
    }
    if path.join(REGISTER).exists() {
        let register = Directory::open(&path.join(REGISTER)).expect("a directory");
        builder = builder.membership(Arc::new(register));
    }
    #[cfg(feature = "etcd")]
    if let Some(membership) = crate::by_etcd::membership(path) {
        builder = builder.membership(membership);
    }
    let money = builder.table(MONEY, Partition::by("number", |number| *number));
    (builder.start().expect("a port"), money)
}

/// Moves money between two accounts, and counts that in the row of a mark.
pub(crate) fn transfer(bank: &Bank, money: Money, random: &mut Rng, mark: Option<u64>) -> Result<(), Error> {
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
    let has_returned = &AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| tell_events(&bank, node, path, has_returned));
        let mut random = Rng::with_seed(node.into());
        let is_filled = || matches!(bank.transact(async move |tx| tx.get(money, MARK).await).wait(), Ok(Some(_)));
        while !is_filled() {
            thread::sleep(Duration::from_millis(10));
        }
        println!("moves");
        loop {
            if path.join(REST).exists() {
                println!("rests");
                loop {
                    thread::park();
                }
            }
            match transfer(&bank, money, &mut random, None) {
                Ok(()) if has_returned.swap(false, SeqCst) => println!("moves again"),
                // What is given to it before it has joined again waits.
                Ok(()) | Err(Error::Cluster(ClusterError::Evicted { .. })) => {}
                Err(Error::Cluster(ClusterError::StaysOut { why })) => {
                    println!("stays out: {why}");
                    break;
                }
                Err(Error::Closed) => break,
                Err(_) if path.join(LOST).exists() => {}
                Err(error) => {
                    // The test sees that it has ended.
                    eprintln!("node {node}, in {}: {error:?}", bank.node().view());
                    std::process::exit(1);
                }
            }
        }
        bank.close();
    });
    println!("closed");
}

/// Says what happens to an owner, and closes it so long after it was evicted as its test says.
fn tell_events(bank: &Bank, node: u16, path: &Path, has_returned: &AtomicBool) {
    let mut events = bank.events();
    while let Some(event) = events.wait() {
        match event {
            ClusterEvent::Evicted { .. } => {
                println!("evicted");
                if let Ok(after) = fs::read_to_string(path.join(format!("closes-{node}"))) {
                    thread::sleep(Duration::from_millis(after.parse().expect("a number")));
                    bank.close();
                }
            }
            ClusterEvent::Returned { incarnation } => {
                assert_eq!(bank.node().incarnation(), incarnation);
                has_returned.store(true, SeqCst);
                println!("returned");
            }
            ClusterEvent::StaysOut => println!("no return"),
            _ => {}
        }
    }
}

impl Owner {
    pub(crate) fn that_agrees(node: u16, path: &Path, bootstraps: bool) -> Self {
        let what = if bootstraps { "bootstraps" } else { "joins" };
        let told = format!("{node}={what}={}", path.to_str().expect("plain"));
        let mut owner = Self::that_runs("agreeing::an_owner_that_agrees", OWNER, &told);
        assert!(owner.says("begun"), "it ended by itself");
        owner
    }
}

/// Ends what moves money, also when a test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Returns whether all owners are members, and each shard has two replicas.
pub(crate) fn is_whole(view: &View) -> bool {
    let mut shards = view.placements().iter();
    let is_replicated = shards.all(|at| at.backups.len() == 1 && at.learners.is_empty());
    view.members().len() == usize::from(OWNERS) && is_replicated
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
    pub(crate) fn view(&self) -> Arc<View> {
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
        self.until(|scene| is_whole(&scene.view()));
    }

    /// Kills an owner, and waits until the others go on without it.
    pub(crate) fn kill(&mut self, node: u16) {
        let life = self.life_of(node);
        self.owners[usize::from(node)].kill();
        self.until_out(node, life);
        self.goes_on();
    }

    /// Stops the process of an owner until the others go on without it, and lets it go on. It finds
    /// itself out.
    pub(crate) fn stop_for_a_while(&mut self, node: u16) {
        let life = self.life_of(node);
        self.owners[usize::from(node)].signal("STOP");
        self.until_out(node, life);
        self.goes_on();
        self.owners[usize::from(node)].signal("CONT");
        assert!(self.owners[usize::from(node)].says("evicted"), "it does not find itself out");
    }

    /// Stops the process of an owner, which joins again by itself, and waits until it has what it
    /// had.
    pub(crate) fn stop_until_it_returns(&mut self, node: u16) {
        let life = self.life_of(node);
        self.stop_for_a_while(node);
        let owner = &mut self.owners[usize::from(node)];
        assert!(owner.says("returned") && owner.says("moves again"), "it has ended");
        self.until_whole();
        assert!(self.life_of(node) > life, "it is a member as a later life");
        self.goes_on();
    }

    /// Starts an owner again, and waits until it has what it had.
    pub(crate) fn start_again(&mut self, node: u16, bootstraps: bool) {
        self.start_again_in(node, &self.place.path, bootstraps);
    }

    pub(crate) fn start_again_in(&mut self, node: u16, path: &Path, bootstraps: bool) {
        self.owners[usize::from(node)] = Owner::that_agrees(node, path, bootstraps);
        self.until_whole();
        self.goes_on();
    }
}

pub(crate) fn fill(bank: &Bank, money: Money) {
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
pub(crate) fn judge(bank: &Bank, money: Money) -> u64 {
    let soon = Options::new().within(PATIENCE);
    let all = bank.transact_with(soon, async move |tx| tx.get_many(money, 0..=MARK).await);
    let all: Vec<u64> = all.wait().expect("it has replicas").into_iter().map(|row| row.expect("filled")).collect();
    let sum = all[..ACCOUNTS as usize].iter().fold(0, |sum: u64, one| sum.wrapping_add(*one));
    assert_eq!(sum, ACCOUNTS * BALANCE, "{all:?}");
    all[MARK as usize]
}

/// Runs a cluster of three under load, of which this process is the last, and judges the money.
pub(crate) fn run(place: &Place, story: impl FnOnce(&mut Scene<'_>)) {
    let owners = (0..OWN).map(|node| Owner::that_agrees(node, &place.path, node == 0)).collect();
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
