//! Owners that restart while a transaction runs, after each of its steps: what it had read before
//! is worth nothing afterwards, and what it remembers of the owner's memory is not used.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    ops::Range,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use drtm_htm::NoHtm;
use drtm_rdma::{Executor, LocalConfig, LocalFabric, NodeId};
use drtm_txn::{
    Db, Error, Mutation, Transaction as _,
    cluster::{Node, Protocol, Worker},
    durability::storage::Image,
};

use crate::{
    bed::{Rings, Setup, Tables, Tested, WORDS, backed_up, disks},
    drops::polled,
};

type Local = LocalFabric<NoHtm>;

/// What the transaction reads.
const READ: u64 = 0;
/// A row that is absent until the owner restarts.
const ABSENT: u64 = 90;
/// What it writes, if that is another row.
const WRITTEN: u64 = 39;
/// All rows that are there from the beginning.
const ROWS: u64 = 40;

/// What the transaction does.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Writes the row that it has read.
    Write,
    /// Writes another row.
    Skew,
    /// Writes a row because another is absent.
    Phantom,
    /// Writes another row, and fetches both before it runs.
    Fetched,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Write, Self::Skew, Self::Phantom, Self::Fetched];

    fn read(self) -> u64 {
        if let Self::Phantom = self { ABSENT } else { READ }
    }

    fn written(self) -> u64 {
        if let Self::Write = self { READ } else { WRITTEN }
    }

    /// Runs the transaction: what it writes says what it has read.
    async fn run(self, worker: &Worker<'_, Local, Tested>, tables: Tables) -> Result<(), Error> {
        let (read, written, words) = (self.read(), self.written(), tables.words);
        if let Self::Fetched = self {
            return worker
                .transact_on(
                    |sets| sets.read(words, read).and_then(|()| sets.write(words, written)),
                    async |rows| {
                        let seen = rows.get(words, read).await?.map_or(0, |bytes| number(&bytes));
                        rows.put(words, written, &bytes(1_000 + seen)[..]).await
                    },
                )
                .await;
        }
        worker
            .transact(async |tx| {
                let seen = tx.get(words, read).await?.map_or(0, |bytes| number(&bytes));
                // Nothing is under way if the owner restarts here.
                worker.endpoint().yield_now().await;
                tx.put(words, written, &bytes(1_000 + seen)[..]).await
            })
            .await
    }
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

fn bytes(number: u64) -> Vec<u8> {
    number.to_le_bytes().to_vec()
}

/// A node that owns rows, and its thread.
pub(crate) struct Owner {
    pub(crate) node: Node<Local, Tested>,
    ends: Arc<AtomicBool>,
    /// Whether it closes when it ends.
    closes: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Owner {
    /// Starts a node that owns all rows.
    pub(crate) fn start(fabric: &Local, protocol: Protocol, disks: &'static [Image]) -> Self {
        Self::start_as(fabric, (0, 1), protocol, disks)
    }

    /// Starts one of so many nodes that own rows.
    pub(crate) fn start_as(
        fabric: &Local,
        (number, owners): (u16, u16),
        protocol: Protocol,
        disks: &'static [Image],
    ) -> Self {
        let (node, _) = backed_up(fabric, number, owners, protocol, Rings { disks, ..Rings::default() });
        let [ends, closes, serves] = [(); 3].map(|()| Arc::new(AtomicBool::new(false)));
        let (serving, until, closing) = (node.clone(), Arc::clone(&ends), Arc::clone(&closes));
        let begun = Arc::clone(&serves);
        let thread = thread::spawn(Setup::inherited(move || {
            let endpoint = serving.endpoint().expect("room");
            let mut executor = Executor::new(&endpoint);
            let worker = serving.worker(&endpoint).expect("few");
            worker.serve(&executor.spawner());
            begun.store(true, SeqCst);
            executor.spawn(async move {
                worker.endpoint().until(|| until.load(SeqCst)).await;
                if closing.load(SeqCst) {
                    worker.close(Duration::from_secs(60)).await.expect("nobody keeps it");
                }
            });
            executor.run();
        }));
        // What is killed has served.
        while !serves.load(SeqCst) && !thread.is_finished() {
            thread::yield_now();
        }
        Self { node, ends, closes, thread }
    }

    fn db(&self) -> &Db<Tested> {
        self.node.local()
    }

    fn rows(&self) -> BTreeMap<u64, u64> {
        let words = self.db().table(WORDS).expect("it is there");
        let keys: Vec<u64> = (0..100).collect();
        let rows = self.db().transact(|tx| tx.get_many(words, &keys)).expect("they are free");
        let rows = keys.into_iter().zip(rows);
        rows.filter_map(|(key, value)| Some((key, number(&value?)))).collect()
    }

    /// Writes rows in one transaction: all of them have one version.
    fn put(&self, rows: impl Iterator<Item = u64> + Clone, value: impl Fn(u64) -> u64) {
        let words = self.db().table(WORDS).expect("it is there");
        let written =
            self.db().transact(|tx| rows.clone().try_for_each(|row| tx.put(words, row, &bytes(value(row))[..])));
        written.expect("room");
    }

    /// Removes rows, each in a transaction of its own.
    fn remove(&self, rows: Range<u64>) {
        let words = self.db().table(WORDS).expect("it is there");
        for row in rows {
            self.db().transact(|tx| tx.remove(words, row)).expect("it is there");
        }
    }

    /// Writes all rows, in this order. Rows that are going to be removed come first, so that the
    /// others are elsewhere once they are recovered.
    fn fill(&self, rows: impl Iterator<Item = u64> + Clone) {
        self.put(1_000..1_008, |row| row);
        self.put(rows, |row| 100 + row);
        self.remove(1_000..1_008);
    }

    pub(crate) fn end(self) {
        self.ends.store(true, SeqCst);
        self.thread.join().expect("it serves");
    }

    /// Closes it, and ends it.
    pub(crate) fn close(self) {
        self.closes.store(true, SeqCst);
        self.end();
    }

    /// Ends it, as a crash does, and starts it again as another incarnation.
    fn restarted(self, fabric: &Local, protocol: Protocol, disks: &'static [Image]) -> Self {
        self.end();
        fabric.kill(NodeId(0)).expect("it is here");
        let images: Vec<_> = disks.iter().map(|disk| disk.after_crash(&mut |choices| choices - 1)).collect();
        fabric.revive(NodeId(0)).expect("it is gone");
        let again = Self::start(fabric, protocol, Vec::leak(images));
        if disks.is_empty() {
            // Where rows were, others are, of the same versions.
            again.fill((0..ROWS).rev());
        }
        again
    }
}

/// Restarts the owner after this many polls of a transaction. Returns whether it had ended, or what
/// is wrong.
fn after_restart(protocol: Protocol, kind: Kind, polls: u32, has_disk: bool) -> Result<bool, String> {
    let fabric = Local::new(2, LocalConfig::perfect());
    let disks = if has_disk { disks(1) } else { &[] };
    let owner = Owner::start(&fabric, protocol, disks);
    owner.fill(0..ROWS);
    let result = Rc::new(RefCell::new(None));
    let (client, tables) = backed_up(&fabric, 1, 1, protocol, Rings::default());
    let endpoint = client.endpoint().expect("room");
    let worker = client.worker(&endpoint).expect("few");
    let mut executor = Executor::new(&endpoint).patience(Duration::from_secs(20));
    worker.serve(&executor.spawner());
    let told = Rc::clone(&result);
    let again = fabric.clone();
    executor.spawn(async move {
        // It has met the owner, and remembers where rows are.
        worker.transact(async |tx| tx.get_many(tables.words, [READ, WRITTEN]).await).await.expect("it is here");
        let mut going_on = Box::pin(kind.run(&worker, tables));
        let has_ended = polled(going_on.as_mut(), polls).await.is_some();
        let owner = owner.restarted(&again, protocol, disks);
        owner.put([kind.read()].into_iter(), |_| 2);
        let before = owner.rows();
        let outcome = if has_ended { Ok(()) } else { going_on.await };
        worker.settle().await;
        let mut after = owner.rows();
        let case = format!("{}, {kind:?}, disk {has_disk}, {polls} polls: {outcome:?}", protocol.name);
        // It has happened before the restart, or has seen what was written since.
        let written = kind.written();
        let is_seen = after.get(&written) == Some(&1_002);
        if is_seen {
            after.insert(written, before.get(&written).copied().unwrap_or_default());
        }
        let mut verdict = if before == after { Ok(has_ended) } else { Err(format!("{case}: {before:?} {after:?}")) };
        if has_disk && outcome.is_ok() && !is_seen && written != READ && before[&written] < 1_000 {
            verdict = Err(format!("{case}: a commit is lost"));
        }
        // Nothing is in its way afterwards.
        // Its unlocks are under way when it ends, if the protocol is passive.
        let later = worker.transact(async |tx| tx.put(tables.words, WRITTEN, &bytes(7)[..]).await).await;
        worker.settle().await;
        if later.is_err() || owner.rows().get(&WRITTEN) != Some(&7) {
            verdict = Err(format!("{case}: and then {later:?}"));
        }
        owner.end();
        told.replace(Some(verdict));
    });
    executor.run();
    result.take().expect("it has ended")
}

/// Restarts the owner after each step of a transaction. Returns what was wrong.
fn anomalies(protocol: Protocol, kind: Kind, has_disk: bool) -> Vec<String> {
    let mut found = Vec::new();
    for polls in 1..200 {
        match after_restart(protocol, kind, polls, has_disk) {
            Ok(true) => return found,
            Ok(false) => {}
            Err(told) => found.push(told),
        }
    }
    panic!("{}, {kind:?}: it never ends", protocol.name);
}

fn check(protocols: impl Iterator<Item = Protocol>, kinds: &[Kind], disks: &[bool]) {
    for protocol in protocols {
        for kind in kinds {
            for has_disk in disks {
                let found = anomalies(protocol, *kind, *has_disk);
                assert!(found.is_empty(), "{}", found.join("\n"));
            }
        }
    }
}

#[test]
fn rows_that_are_lost_are_not_committed_on() {
    check(Protocol::with_names(), &Kind::ALL, &[false]);
}

#[test]
fn rows_that_are_recovered_are_not_committed_on() {
    check(Protocol::with_names(), &Kind::ALL, &[true]);
}

#[test]
fn places_of_another_incarnation_that_are_used_are_found() {
    let found = Setup::faulty(Mutation::IncarnationsMixed).run(|| {
        let all = Protocol::with_names().flat_map(|protocol| Kind::ALL.map(|kind| (protocol, kind)));
        all.map(|(protocol, kind)| anomalies(protocol, kind, false).len()).sum::<usize>()
    });
    assert!(found > 0);
}
