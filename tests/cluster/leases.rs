//! Transactions that fetch their rows before they run, by locks and leases, among optimistic ones:
//! what they saw and left must be strictly serializable, whatever the fabric and the clocks do.

use std::{
    collections::BTreeMap,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use drtm_history::{Anomaly, Log, Recording};
use drtm_htm::NoHtm;
use drtm_rdma::{Atomicity, Fabric, NicProfile, NodeId, SimConfig};
use drtm_testing::rounds;
use drtm_txn::{
    Error, Mutation, Transaction as _,
    cluster::{ClusterTx, Protocol, Timing, Worker},
};
use fastrand::Rng;

use crate::{
    bed::{Bed, Rings, Script, Setup, Size, Tables, Tested},
    history::{Logs, SIZES, at, judged, name, number, value, version},
};

/// How far apart clocks are, in nanoseconds.
pub(crate) const SKEW: i64 = 700_000;

/// Random transactions.
#[derive(Clone)]
pub(crate) struct Fetched {
    pub(crate) keys: u64,
    /// Of each coroutine.
    pub(crate) transactions: u64,
    pub(crate) seed: u64,
    /// Whether the bodies do nothing but to change rows that are there.
    pub(crate) only_updates: bool,
    pub(crate) rings: Rings,
    pub(crate) logs: Logs,
}

/// A row that a transaction comes to, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    table: u32,
    key: u64,
    act: u8,
}

impl Step {
    fn writes(self) -> bool {
        (3..6).contains(&self.act)
    }

    /// Whether it reads a range, or the first or the last row of one.
    fn scans(self) -> bool {
        self.act >= 6
    }

    fn range(self) -> Range<u64> {
        self.key..self.key + 4
    }
}

/// The versions that a transaction has read, and those that it has written instead.
type Own = BTreeMap<(u32, u64), (Option<u64>, Option<u64>)>;

/// Keys of a range, and the rows in it, with their versions.
type Seen = (Range<u64>, Vec<(u64, u64)>);

/// Notes the rows that a transaction has seen in a range, of which it knows some.
fn note_range(table: u32, keys: Range<u64>, seen: Vec<(u64, u64)>, own: &Own, recording: &mut Recording<'_, u64>) {
    assert!(seen.is_sorted_by(|one, next| one.0 < next.0), "out of order: {seen:?}");
    let mut is_own = false;
    for ((_, key), (_, is)) in own.range((table, keys.start)..(table, keys.end)) {
        let now = seen.iter().find(|row| row.0 == *key).map(|row| row.1);
        assert_eq!(now, *is, "a transaction sees what it has written");
        is_own = true;
    }
    // What it has written itself is no part of the history.
    if !is_own {
        recording.scan(table, keys, seen);
    }
}

impl Fetched {
    pub(crate) fn steps(&self, random: &mut Rng) -> Vec<Step> {
        let reads = if random.u8(0..3) == 0 { 0..3 } else { 0..6 };
        let tables = if self.only_updates { 0..1 } else { 0..4 };
        let mut step = || {
            let (table, key) = (random.u32(tables.clone()), random.u64(0..self.keys));
            // What comes into a range is in the way of all transactions that read it.
            let scans = table >= 2 && random.u8(0..6) == 0;
            Step { table, key, act: if scans { random.u8(6..9) } else { random.u8(reads.clone()) } }
        };
        (0..4).map(|_| step()).collect()
    }

    /// Reads a range, or the first or last row of it. Returns which part of the range it has seen.
    async fn scan<F: Fabric<Engine = NoHtm>>(
        &self,
        rows: &mut ClusterTx<'_, F, Tested>,
        tables: Tables,
        step: Step,
    ) -> Result<Seen, Error> {
        let range = step.range();
        let seen: Vec<(u64, u64)> = if step.table == 2 {
            let table = tables.sorted_words;
            let found = match step.act {
                6 => rows.range(table, range.clone()).await?,
                7 => rows.first(table, range.clone()).await?.into_iter().collect(),
                _ => rows.last(table, range.clone()).await?.into_iter().collect(),
            };
            found.into_iter().map(|(key, bytes)| (key, self.version(&bytes))).collect()
        } else {
            let (table, names) = (tables.sorted_names, name(range.start)..name(range.end));
            let found = match step.act {
                6 => rows.range(table, names).await?,
                7 => rows.first(table, names).await?.into_iter().collect(),
                _ => rows.last(table, names).await?.into_iter().collect(),
            };
            found.into_iter().map(|(key, bytes)| (number(&key), self.version(&bytes))).collect()
        };
        Ok(match (step.act, &seen[..]) {
            (7, [(key, _)]) => (range.start..key + 1, seen),
            (8, [(key, _)]) => (*key..range.end, seen),
            _ => (range, seen),
        })
    }

    /// Does what the steps say.
    pub(crate) async fn run_fetched<F: Fabric<Engine = NoHtm>>(
        &self,
        rows: &mut ClusterTx<'_, F, Tested>,
        tables: Tables,
        steps: &[Step],
        recording: &mut Recording<'_, u64>,
    ) -> Result<(), Error> {
        recording.retry();
        let mut own = Own::new();
        for step @ Step { table, key: number, act } in steps.iter().copied() {
            if step.scans() {
                let (range, seen) = self.scan(rows, tables, step).await?;
                note_range(table, range, seen, &own, recording);
                continue;
            }
            let seen =
                at!(tables, table, number, |all, key| rows.get(all, key).await)?.map(|bytes| self.version(&bytes));
            match own.get(&(table, number)) {
                Some((_, is)) => assert_eq!(*is, seen, "a transaction sees what it has written"),
                None => recording.read(table, number, seen),
            }
            let next = match (seen, act) {
                (_, 0..3) => continue,
                (Some(_), 3) if !self.only_updates => {
                    assert!(at!(tables, table, number, |all, key| rows
                        .remove(all, key)
                        .await
                        .map(|row| row.is_some()))?);
                    None
                }
                (Some(before), 3 | 4) => {
                    let next = recording.version();
                    let bytes = self.value(next);
                    let change = |was: &mut Vec<u8>| assert_eq!(self.version(&std::mem::replace(was, bytes)), before);
                    at!(tables, table, number, |all, key| rows.update(all, key, change).await)?.expect("it was read");
                    Some(next)
                }
                (Some(_), _) => {
                    let next = recording.version();
                    at!(tables, table, number, |all, key| rows.put(all, key, self.value(next)).await)?;
                    Some(next)
                }
                (None, _) => {
                    let next = recording.version();
                    at!(tables, table, number, |all, key| rows.insert(all, key, self.value(next)).await)?;
                    Some(next)
                }
            };
            own.entry((table, number)).or_insert((seen, None)).1 = next;
        }
        for ((table, key), (was, is)) in own {
            match (was, is) {
                (None, None) => {}
                (_, Some(version)) => recording.write(table, key, version),
                (Some(_), None) => {
                    let version = recording.version();
                    recording.remove(table, key, version);
                }
            }
        }
        Ok(())
    }

    /// Of one length where rows are only updated, so that verbs write them.
    fn value(&self, version: u64) -> Vec<u8> {
        if self.only_updates { version.to_le_bytes().to_vec() } else { value(version) }
    }

    fn version(&self, bytes: &[u8]) -> u64 {
        if self.only_updates { u64::from_le_bytes(bytes.try_into().expect("eight bytes")) } else { version(bytes) }
    }

    /// Does the same as an optimistic transaction.
    async fn run_optimistic<F: Fabric<Engine = NoHtm>>(
        &self,
        tx: &mut ClusterTx<'_, F, Tested>,
        tables: Tables,
        steps: &[Step],
        recording: &mut Recording<'_, u64>,
    ) -> Result<(), Error> {
        recording.retry();
        let mut own = Own::new();
        for step @ Step { table, key: number, .. } in steps.iter().copied() {
            if step.scans() && table == 2 {
                let found = tx.range(tables.sorted_words, step.range()).await?;
                let seen = found.into_iter().map(|(key, bytes)| (key, self.version(&bytes))).collect();
                note_range(table, step.range(), seen, &own, recording);
                continue;
            }
            let seen = at!(tables, table, number, |all, key| tx.get(all, key).await)?.map(|bytes| self.version(&bytes));
            if !own.contains_key(&(table, number)) {
                recording.read(table, number, seen);
            }
            let is_written = steps.iter().any(|step| (step.table, step.key) == (table, number) && step.writes());
            if is_written && (seen.is_some() || !self.only_updates) {
                let next = recording.version();
                at!(tables, table, number, |all, key| tx.put(all, key, self.value(next)).await)?;
                own.insert((table, number), (seen, Some(next)));
            }
        }
        for ((table, key), (_, version)) in own {
            recording.write(table, key, version.expect("it writes no other"));
        }
        Ok(())
    }
}

impl Script for Fetched {
    fn rings(&self) -> Rings {
        self.rings
    }

    async fn run<'e, F: Fabric<Engine = NoHtm>>(self, worker: Worker<'e, F, Tested>, tables: Tables, number: u64) {
        let mut log: Log<u64> = self.logs.lock().expect("no thread panics")[number as usize].take().expect("one each");
        let mut random = Rng::with_seed(self.seed << 16 | number);
        for _ in 0..self.transactions {
            let (mut recording, is_given_up) = (log.begin(), random.u8(0..10) == 0);
            let steps = self.steps(&mut random);
            let declared: Vec<Step> = match random.u8(0..3) {
                0 => Vec::new(),
                1 => steps.clone(),
                _ => steps.iter().copied().filter(|_| random.bool()).collect(),
            };
            if random.u8(0..4) == 0 {
                let ended = worker.transact(async |tx| {
                    self.run_optimistic(tx, tables, &steps, &mut recording).await?;
                    if is_given_up { Err(Error::aborted("it was to be")) } else { Ok(()) }
                });
                match ended.await {
                    Ok(()) => recording.commit(),
                    Err(Error::Aborted { .. }) => recording.abort(),
                    Err(error) => panic!("{error}"),
                }
                continue;
            }
            let ended = worker.transact_on(
                |sets| {
                    for step in declared {
                        match step.table {
                            2 if step.scans() => {
                                sets.range(tables.sorted_words, step.range())?;
                                continue;
                            }
                            3 if step.scans() => {
                                sets.range(tables.sorted_names, name(step.key)..name(step.range().end))?;
                                continue;
                            }
                            _ => {}
                        }
                        at!(tables, step.table, step.key, |all, key| {
                            if step.writes() { sets.write(all, key) } else { sets.read(all, key) }
                        })?;
                    }
                    Ok(())
                },
                async |rows| {
                    self.run_fetched(rows, tables, &steps, &mut recording).await?;
                    if is_given_up { Err(Error::aborted("it was to be")) } else { Ok(()) }
                },
            );
            match ended.await {
                Ok(()) => recording.commit(),
                Err(Error::Aborted { .. }) => recording.abort(),
                Err(error) => panic!("{error}"),
            }
        }
        self.logs.lock().expect("no thread panics")[number as usize] = Some(log);
    }
}

fn anomalies(bed: &Bed, size: Size, keys: u64, seed: u64) -> Vec<Anomaly<u64>> {
    logged_anomalies(bed, size, keys, seed, Rings::default())
}

/// The same where owners have backups, which must be equal to them in the end.
fn logged_anomalies(bed: &Bed, size: Size, keys: u64, seed: u64, rings: Rings) -> Vec<Anomaly<u64>> {
    let (transactions, only_updates) = (25, seed % 2 == 1);
    judged(bed, size, transactions, |logs| Fetched { keys, transactions, seed, only_updates, rings, logs })
}

/// A simulated cluster whose clocks were set badly, and drift.
fn skewed(seed: u64, atomicity: Atomicity) -> Bed {
    let config = SimConfig::new(&NicProfile::CONNECTX_4).seed(seed).atomicity(atomicity);
    let config = config.clock(NodeId(1), SKEW, 300_000).clock(NodeId(2), -SKEW, -300_000);
    Bed::Sim(Box::new(config))
}

fn check_all(bed: impl Fn(u64) -> Bed, seeds: u64) {
    let without = Protocol { name: "drtm without leases", leases: false, ..Protocol::DRTM };
    for (protocol, seeds) in [(Protocol::DRTM, seeds), (without, seeds.div_ceil(4))] {
        check_protocol(protocol, &bed, seeds);
    }
}

fn check_protocol(protocol: Protocol, bed: impl Fn(u64) -> Bed, seeds: u64) {
    for seed in 0..rounds(seeds) {
        let (size, keys) = (Size { protocol, ..SIZES[seed as usize % 2] }, [2, 6, 40][seed as usize % 3]);
        let told: Vec<String> = anomalies(&bed(seed), size, keys, seed).iter().map(ToString::to_string).collect();
        assert!(told.is_empty(), "seed {seed}, {size:?}:\n{}", told.join("\n"));
    }
}

#[test]
fn histories_by_loopback() {
    Setup::SOUND.by_loopback().run(|| {
        check_protocol(Protocol::DRTM, Bed::harsh, 3);
        check_protocol(Protocol::DRTM, |seed| skewed(seed, Atomicity::Hca), 10);
        check_protocol(Protocol::DRTM, Bed::swapped_by_nics, 5);
    });
}

#[test]
fn histories_of_a_perfect_fabric() {
    check_all(|_| Bed::perfect(), 3);
}

#[test]
fn histories_of_a_harsh_fabric() {
    check_all(Bed::harsh, 3);
}

#[test]
fn histories_of_a_harsh_fabric_with_atomic_swaps() {
    check_all(Bed::harsh_and_atomic, 3);
}

#[test]
fn histories_of_simulated_clusters_with_skewed_clocks() {
    check_all(|seed| skewed(seed, Atomicity::Hca), 10);
}

#[test]
fn histories_of_simulated_clusters_with_atomic_swaps_and_skewed_clocks() {
    check_all(|seed| skewed(seed, Atomicity::Global), 10);
}

#[test]
fn histories_where_owners_have_backups() {
    let rings = Rings { backups: 2, bytes: 4 << 10, ..Rings::default() };
    for seed in 0..rounds(6) {
        let bed = [Bed::perfect(), Bed::harsh(seed), skewed(seed, Atomicity::Global)][seed as usize % 3].clone();
        let size = Size { protocol: Protocol::DRTM, ..SIZES[0] };
        let told: Vec<String> = logged_anomalies(&bed, size, 6, seed, rings).iter().map(ToString::to_string).collect();
        assert!(told.is_empty(), "seed {seed}:\n{}", told.join("\n"));
    }
}

/// Runs random transactions until something is wrong: those that only update rows, which verbs
/// write then, or all kinds.
fn finds(setup: Setup, bed: impl Fn(u64) -> Bed, only_updates: bool) {
    let protocol = Protocol::DRTM;
    let found = (0..rounds(60)).any(|seed| {
        let size = Size { protocol, ..SIZES[0] };
        let run = || setup.run(|| anomalies(&bed(seed), size, 2 + seed % 3, 2 * seed + u64::from(only_updates)));
        // An owner may notice before the checker does, and refuse what cannot be.
        catch_unwind(AssertUnwindSafe(run)).map_or(true, |all| !all.is_empty())
    });
    assert!(found, "nothing is found of {setup:?}");
}

/// Leases are about as long as it takes to lock other rows.
const SHORT: Timing =
    Timing { lease: Duration::from_micros(3), read_only_lease: Duration::from_micros(3), ..Setup::SOUND.timing };

#[test]
fn leases_that_are_not_confirmed_are_found() {
    finds(Setup::faulty(Mutation::LeasesNotConfirmed).timed(SHORT), Bed::atomic, true);
}

#[test]
fn leases_that_hardly_last_are_confirmed_or_tried_again() {
    for seed in 0..rounds(2) {
        let size = Size { protocol: Protocol::DRTM, ..SIZES[0] };
        let run = || anomalies(&Bed::atomic(seed), size, 3, seed);
        let told: Vec<String> = Setup::SOUND.timed(SHORT).run(run).iter().map(ToString::to_string).collect();
        assert!(told.is_empty(), "seed {seed}:\n{}", told.join("\n"));
    }
}

#[test]
fn clocks_that_are_further_apart_than_is_known_are_found() {
    finds(Setup::faulty(Mutation::ClockNotMeasured), |seed| skewed(seed, Atomicity::Global), true);
}

#[test]
fn rows_that_are_unlocked_before_they_are_written_are_found() {
    finds(Setup::faulty(Mutation::UnlockBeforeWriteBack), Bed::atomic, true);
}

#[test]
fn versions_that_are_not_written_are_found() {
    finds(Setup::faulty(Mutation::VersionNotWritten), Bed::atomic, true);
}

#[test]
fn rows_that_are_neither_leased_nor_validated_are_found() {
    finds(Setup::faulty(Mutation::CommitWithoutValidation), Bed::atomic, true);
}

#[test]
fn keys_that_come_into_fetched_ranges_are_found() {
    finds(Setup::faulty(Mutation::CommitDespitePhantoms), Bed::atomic, false);
}

/// Moves money between few accounts.
#[derive(Clone)]
struct Moves {
    accounts: u64,
    /// Of each coroutine.
    moves: u64,
    begun: Arc<AtomicU64>,
    left: Arc<AtomicU64>,
}

const START: u64 = 1_000_000;

impl Script for Moves {
    async fn run<'e, F: Fabric<Engine = NoHtm>>(self, worker: Worker<'e, F, Tested>, tables: Tables, number: u64) {
        let money = |bytes: Option<Vec<u8>>| u64::from_le_bytes(bytes.expect("opened")[..].try_into().expect("a word"));
        if number == 0 {
            let opened = worker.transact_on(
                |_| Ok(()),
                async |rows| {
                    for account in 0..self.accounts {
                        rows.put(tables.words, account, START.to_le_bytes().to_vec()).await?;
                    }
                    Ok(())
                },
            );
            opened.await.expect("room");
            self.begun.store(1, Relaxed);
        }
        worker.endpoint().until(|| self.begun.load(Relaxed) == 1).await;
        let (from, to) = if number.is_multiple_of(2) { (0, self.accounts - 1) } else { (self.accounts - 1, 0) };
        for turn in 0..self.moves {
            let moved = worker.transact_on(
                |sets| {
                    sets.write(tables.words, from)?;
                    sets.write(tables.words, to)
                },
                async |rows| {
                    let left = money(rows.get(tables.words, from).await?) - 1;
                    rows.put(tables.words, from, left.to_le_bytes().to_vec()).await?;
                    let has = money(rows.get(tables.words, to).await?) + 1;
                    rows.put(tables.words, to, has.to_le_bytes().to_vec()).await
                },
            );
            moved.await.expect("all nodes are here");
            // Readers whose leases keep writers out.
            if turn == 1 && number.is_multiple_of(4) {
                self.look(&worker, tables).await;
            }
        }
        if self.left.fetch_sub(1, Relaxed) == 1 {
            self.look(&worker, tables).await;
        }
    }
}

impl Moves {
    async fn look<F: Fabric<Engine = NoHtm>>(&self, worker: &Worker<'_, F, Tested>, tables: Tables) {
        let looked = worker.transact_on(
            |sets| (0..self.accounts).try_for_each(|account| sets.read(tables.words, account)),
            async |rows| {
                let mut sum = 0;
                for account in 0..self.accounts {
                    let bytes = rows.get(tables.words, account).await?.expect("opened");
                    sum += u64::from_le_bytes(bytes[..].try_into().expect("a word"));
                }
                Ok(sum)
            },
        );
        assert_eq!(looked.await.expect("all nodes are here"), self.accounts * START);
    }
}

/// 16 coroutines of one thread, and as many of another node, on one row, or on two in opposite
/// orders.
fn serve_all(bed: &Bed, accounts: u64) {
    let crowd = Size { nodes: 2, owners: 2, coroutines: 16, protocol: Protocol::DRTM };
    let left = Arc::new(AtomicU64::new(crowd.coroutines * u64::from(crowd.nodes)));
    bed.run(crowd, &Moves { accounts, moves: rounds(4), begun: Arc::default(), left });
}

#[test]
fn a_hot_row_is_served_to_all() {
    [Bed::perfect(), Bed::simulated(6), Bed::atomic(6), Bed::rough(7)].iter().for_each(|bed| serve_all(bed, 1));
}

#[test]
fn two_hot_rows_are_taken_in_opposite_orders() {
    let beds = [Bed::harsh_and_atomic(6), Bed::simulated(6), Bed::atomic(6), Bed::rough(7)];
    beds.iter().for_each(|bed| serve_all(bed, 2));
}
