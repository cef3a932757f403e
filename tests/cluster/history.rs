//! What random transactions saw and left must be strictly serializable, whatever the fabric does.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use drtm_history::{Anomaly, History, Log, Order, Recording, check};
use drtm_htm::NoHtm;
use drtm_rdma::Fabric;
#[cfg(feature = "verbs")]
use drtm_rdma::Transport;
use drtm_testing::rounds;
use drtm_txn::{
    Error, Transaction as _,
    cluster::{ClusterTx, Protocol, Worker},
};
use fastrand::Rng;

use crate::bed::{Bed, Rings, Script, Setup, Size, Tables, Tested};

/// Each coroutine's log.
pub(crate) type Logs = Arc<Mutex<Vec<Option<Log<u64>>>>>;

/// A log that is given back, also when its coroutine dies.
pub(crate) struct Kept {
    logs: Logs,
    number: usize,
    log: Option<Log<u64>>,
}

impl Kept {
    pub(crate) fn take(logs: &Logs, number: usize) -> Self {
        let log = logs.lock().expect("no thread panics")[number].take();
        Self { logs: Logs::clone(logs), number, log }
    }

    pub(crate) fn log(&mut self) -> &mut Log<u64> {
        self.log.as_mut().expect("one for each")
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.logs.lock().expect("no thread panics")[self.number] = self.log.take();
    }
}

#[derive(Clone)]
pub(crate) struct Random {
    pub(crate) keys: u64,
    /// Of each coroutine.
    pub(crate) transactions: u64,
    pub(crate) seed: u64,
    /// The most nanoseconds for which a transaction sleeps before each step. Where rows are of its
    /// own node, it would not let another one run meanwhile.
    pub(crate) pause: u64,
    pub(crate) rings: Rings,
    pub(crate) logs: Logs,
}

/// A row that a transaction has written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    /// The version before.
    pub(crate) was: Option<u64>,
    /// And now.
    pub(crate) is: Option<u64>,
}

/// The value of a version: of many lengths, so that rows move.
pub(crate) fn value(version: u64) -> Vec<u8> {
    let mut value = version.to_le_bytes().to_vec();
    value.resize(8 + [0, 1, 5, 12, 90, 97][(version >> 12) as usize % 6], version as u8);
    value
}

pub(crate) fn version(bytes: &[u8]) -> u64 {
    let version = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    assert_eq!(bytes, value(version), "a torn value");
    version
}

pub(crate) fn name(key: u64) -> Vec<u8> {
    format!("a name that is longer than a word, {key:03}").into_bytes()
}

/// Runs an expression with a table of this number and its key.
macro_rules! at {
    ($tables:expr, $table:expr, $number:expr, |$rows:ident, $key:ident| $body:expr) => {
        match $table {
            0 => {
                let ($rows, $key) = ($tables.words, &$number);
                $body
            }
            1 => {
                let ($rows, $key) = ($tables.names, &name($number));
                $body
            }
            2 => {
                let ($rows, $key) = ($tables.sorted_words, &$number);
                $body
            }
            _ => {
                let ($rows, $key) = ($tables.sorted_names, &name($number));
                $body
            }
        }
    };
}
pub(crate) use at;

/// The key of a name.
pub(crate) fn number(name: &[u8]) -> u64 {
    std::str::from_utf8(&name[name.len() - 3..]).expect("digits").parse().expect("digits")
}

impl Random {
    /// Reads a range, and what comes into it must not be missed.
    async fn scan<F: Fabric<Engine = NoHtm>>(
        &self,
        tx: &mut ClusterTx<'_, F, Tested>,
        tables: Tables,
        (table, low, high): (u32, u64, u64),
        recording: &mut Recording<'_, u64>,
        own: &BTreeMap<(u32, u64), Own>,
    ) -> Result<(), Error> {
        let rows: Vec<(u64, u64)> = if table == 2 {
            let rows = tx.range(tables.sorted_words, low..high).await?;
            rows.into_iter().map(|(key, value)| (key, version(&value))).collect()
        } else {
            let rows = tx.range(tables.sorted_names, name(low)..name(high)).await?;
            rows.into_iter().map(|(key, value)| (number(&key), version(&value))).collect()
        };
        assert!(rows.is_sorted_by(|one, next| one.0 < next.0), "out of order: {rows:?}");
        let mut is_own = false;
        for (_, key) in own.range((table, low)..(table, high)).map(|(place, _)| *place) {
            let seen = rows.iter().find(|row| row.0 == key).map(|row| row.1);
            assert_eq!(seen, own[&(table, key)].is, "a transaction sees what it has written");
            is_own = true;
        }
        // What it has written itself is no part of the history.
        if !is_own {
            recording.scan(table, low..high, rows);
        }
        Ok(())
    }

    pub(crate) async fn step<F: Fabric<Engine = NoHtm>>(
        &self,
        tx: &mut ClusterTx<'_, F, Tested>,
        tables: Tables,
        random: &mut Rng,
        recording: &mut Recording<'_, u64>,
        own: &mut BTreeMap<(u32, u64), Own>,
    ) -> Result<(), Error> {
        let (table, key) = (random.u32(0..4), random.u64(0..self.keys));
        if table >= 2 && random.u8(0..3) == 0 {
            return self.scan(tx, tables, (table, key, key + random.u64(0..5)), recording, own).await;
        }
        let seen = at!(tables, table, key, |rows, key| tx.get(rows, key).await)?.map(|bytes| version(&bytes));
        match own.get(&(table, key)) {
            Some(own) => assert_eq!(own.is, seen, "a transaction sees what it has written"),
            None => recording.read(table, key, seen),
        }
        let next = match (seen, random.u8(0..6)) {
            (_, 0..3) => return Ok(()),
            (Some(_), 3) => {
                assert!(at!(tables, table, key, |rows, key| tx.remove(rows, key).await.map(|row| row.is_some()))?);
                None
            }
            (Some(before), 4) => {
                let next = recording.version();
                let change = |bytes: &mut Vec<u8>| assert_eq!(version(&std::mem::replace(bytes, value(next))), before);
                at!(tables, table, key, |rows, key| tx.update(rows, key, change).await)?.expect("it was read");
                Some(next)
            }
            (Some(_), _) => {
                let next = recording.version();
                at!(tables, table, key, |rows, key| tx.put(rows, key, value(next)).await)?;
                Some(next)
            }
            (None, _) => {
                let next = recording.version();
                at!(tables, table, key, |rows, key| tx.insert(rows, key, value(next)).await)?;
                Some(next)
            }
        };
        own.entry((table, key)).or_insert(Own { was: seen, is: None }).is = next;
        Ok(())
    }
}

impl Random {
    /// Notes what has become of rows.
    pub(crate) fn note(recording: &mut Recording<'_, u64>, own: BTreeMap<(u32, u64), Own>) {
        for ((table, key), Own { was, is }) in own {
            match (was, is) {
                // Nothing has come of it.
                (None, None) => {}
                (_, Some(version)) => recording.write(table, key, version),
                (Some(_), None) => {
                    let version = recording.version();
                    recording.remove(table, key, version);
                }
            }
        }
    }
}

impl Script for Random {
    fn rings(&self) -> Rings {
        self.rings
    }

    /// Where transactions pause, they run on two processors of a node.
    fn workers(&self) -> u64 {
        if self.pause > 0 { 2 } else { 1 }
    }

    async fn run<'e, F: Fabric<Engine = NoHtm>>(self, worker: Worker<'e, F, Tested>, tables: Tables, number: u64) {
        let mut log = self.logs.lock().expect("no thread panics")[number as usize].take().expect("one for each");
        let mut random = Rng::with_seed(self.seed << 16 | number);
        for _ in 0..self.transactions {
            let (mut recording, is_given_up) = (log.begin(), random.u8(0..10) == 0);
            let steps = random.u8(1..5);
            let ended = worker.transact(async |tx| {
                recording.retry();
                let mut own = BTreeMap::new();
                for _ in 0..steps {
                    if self.pause > 0 {
                        worker.endpoint().sleep(Duration::from_nanos(random.u64(..self.pause))).await;
                    }
                    self.step(tx, tables, &mut random, &mut recording, &mut own).await?;
                }
                Self::note(&mut recording, own);
                if is_given_up { Err(Error::aborted("it was to be")) } else { Ok(()) }
            });
            match ended.await {
                Ok(()) => recording.commit(),
                Err(Error::Aborted { .. }) => recording.abort(),
                Err(error) => panic!("{error}"),
            }
        }
        self.logs.lock().expect("no thread panics")[number as usize] = Some(log);
    }
}

/// Runs random transactions, and gives what was wrong with them.
pub(crate) fn anomalies(bed: &Bed, size: Size, keys: u64, transactions: u64, seed: u64) -> Vec<Anomaly<u64>> {
    logged_anomalies(bed, size, (keys, transactions), seed, Rings::default())
}

/// The same where owners have backups, which must be equal to them in the end.
pub(crate) fn logged_anomalies(
    bed: &Bed,
    size: Size,
    (keys, transactions): (u64, u64),
    seed: u64,
    rings: Rings,
) -> Vec<Anomaly<u64>> {
    judged(bed, size, transactions, |logs| Random { keys, transactions, seed, pause: 0, rings, logs })
}

/// The same with pauses of transactions, in nanoseconds at most.
pub(crate) fn slow_anomalies(
    bed: &Bed,
    size: Size,
    (keys, transactions): (u64, u64),
    seed: u64,
    pause: u64,
) -> Vec<Anomaly<u64>> {
    let rings = Rings::default();
    judged(bed, size, transactions, |logs| Random { keys, transactions, seed, pause, rings, logs })
}

/// Runs a script that logs so many transactions of each coroutine, and gives what was wrong.
pub(crate) fn judged<R: Script>(
    bed: &Bed,
    size: Size,
    transactions: u64,
    script: impl FnOnce(Logs) -> R,
) -> Vec<Anomaly<u64>> {
    let mut recorder = bed.recorder();
    let coroutines = size.coroutines * u64::from(size.nodes);
    let logs: Vec<_> = (0..coroutines).map(|_| Some(recorder.log().expect("a few logs"))).collect();
    let logs = Arc::new(Mutex::new(logs));
    bed.run(size, &script(Arc::clone(&logs)));
    let logs = std::mem::take(&mut *logs.lock().expect("no thread panics"));
    let history = History::of(logs.into_iter().flatten()).with_insertions_in_order();
    assert!(history.transactions.len() as u64 >= coroutines * transactions);
    check(&history, Order::RealTime).expect("a history")
}

/// The sizes of clusters: all own rows, or one owner and clients.
pub(crate) const SIZES: [Size; 2] = [
    Size { nodes: 3, owners: 3, coroutines: 4, protocol: Protocol::FASST },
    Size { nodes: 3, owners: 1, coroutines: 4, protocol: Protocol::FASST },
];

fn check_all(bed: impl Fn(u64) -> Bed, seeds: u64) {
    Protocol::ALL.into_iter().for_each(|protocol| check_protocol(protocol, &bed, seeds));
}

fn check_protocol(protocol: Protocol, bed: impl Fn(u64) -> Bed, seeds: u64) {
    for seed in 0..rounds(seeds) {
        let (size, keys) = (Size { protocol, ..SIZES[seed as usize % 2] }, [2, 6, 40][seed as usize % 3]);
        let anomalies = anomalies(&bed(seed), size, keys, 25, seed);
        let told: Vec<String> = anomalies.iter().map(ToString::to_string).collect();
        assert!(told.is_empty(), "seed {seed}, {size:?}:\n{}", told.join("\n"));
    }
}

#[test]
fn of_a_perfect_fabric() {
    check_all(|_| Bed::perfect(), 3);
}

#[test]
fn of_a_harsh_fabric() {
    check_all(Bed::harsh, 3);
}

#[test]
fn of_a_harsh_fabric_with_atomic_swaps() {
    check_all(Bed::harsh_and_atomic, 3);
}

#[test]
fn of_simulated_clusters_with_atomic_swaps() {
    check_all(Bed::atomic, 10);
}

#[test]
fn of_shared_memory() {
    check_all(|_| Bed::Shm, 4);
}

#[test]
fn of_sockets() {
    check_all(|_| Bed::Tcp, 2);
}

#[cfg(feature = "verbs")]
#[test]
fn of_rdma_nics_by_messages() {
    check_protocol(Protocol::FASST, |_| Bed::Verbs(Transport::Connection), 2);
}

#[cfg(feature = "verbs")]
#[test]
fn of_rdma_nics_by_datagrams() {
    check_protocol(Protocol::FASST, |_| Bed::Verbs(Transport::Datagrams), 1);
}

#[cfg(feature = "verbs")]
#[test]
fn of_rdma_nics_one_sided() {
    check_protocol(Protocol::DRTM_H, |_| Bed::Verbs(Transport::Connection), 2);
}

/// Processors lock their own rows by their NICs, and peers lock them by verbs.
#[cfg(feature = "verbs")]
#[test]
fn of_rdma_nics_by_loopback() {
    Setup::SOUND.by_loopback().run(|| {
        check_protocol(Protocol::DRTM_H, |_| Bed::Verbs(Transport::Connection), 2);
    });
}

#[test]
fn of_simulated_clusters() {
    check_all(Bed::simulated, 10);
}

/// Protocols whose locks are swaps. Where those of NICs and of processors are not atomic with each
/// other, processors swap by their NICs.
pub(crate) const BY_SWAPS: [Protocol; 3] = [Protocol::DRTM_OCC, Protocol::DRTM_H, Protocol::AUTO];

#[test]
fn of_a_harsh_fabric_by_loopback() {
    let check = |protocol| check_protocol(protocol, Bed::harsh, 3);
    Setup::SOUND.by_loopback().run(|| BY_SWAPS.into_iter().for_each(check));
}

#[test]
fn of_simulated_clusters_by_loopback() {
    let check = |protocol| check_protocol(protocol, Bed::swapped_by_nics, 10);
    Setup::SOUND.by_loopback().run(|| BY_SWAPS.into_iter().for_each(check));
}

#[test]
fn of_simulated_clusters_of_datagrams() {
    check_all(Bed::of_datagrams, 5);
}

#[test]
fn of_simulated_clusters_that_lose_messages() {
    check_all(Bed::rough, 10);
}
