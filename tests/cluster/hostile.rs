//! Nodes that answer nonsense, or ask for it: typed errors, no lock that stays, and no harm to
//! others.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use drtm_htm::NoHtm;
use drtm_kv::{Holder, Version};
use drtm_rdma::{
    Executor, LocalConfig, LocalFabric, NodeId, Phase,
    rpc::{self, Decode, DecodeError, Encode, Incoming, Procedure, Reader, Refused, Rpc, RpcError},
};
use drtm_testing::rounds;
use drtm_txn::{
    Error, Options, Transaction as _,
    cluster::{ClusterError, Node, Protocol, View, Worker},
};
use fastrand::Rng;

use crate::bed::{SetAtEnd, Tables, Tested, node};

type Local = LocalFabric<NoHtm>;

/// Bytes, whatever they are.
pub(crate) struct Noise(pub(crate) Vec<u8>);

impl Encode for Noise {
    fn encode(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.0);
    }
}

impl Decode<'_> for Noise {
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut bytes = Vec::new();
        while from.finish().is_err() {
            bytes.extend_from_slice(from.take(1)?);
        }
        Ok(Self(bytes))
    }
}

/// Requests, by their numbers, with any bytes.
macro_rules! requests {
    ($($name:ident = $number:literal),+) => {
        $(
            enum $name {}

            impl Procedure for $name {
                const NUMBER: u16 = $number;
                type Request<'a> = Noise;
                type Reply<'a> = Noise;
            }
        )+

        const REQUESTS: &[(u16, &str)] = &[$(($number, stringify!($name))),+];

        /// Answers a call by what is made of its number.
        fn answer(call: Incoming<'_>, made: impl FnOnce(u16) -> Made) -> rpc::Answered {
            match call.procedure() {
                $($number => match made($number) {
                    Made::Bytes(bytes) => call.answer::<$name>(|_| Ok(Noise(bytes))),
                    Made::Refusal(reason) => call.answer::<$name>(|_| Err(Refused(reason))),
                    Made::Unknown => call.unknown(),
                })+
                _ => call.unknown(),
            }
        }

        /// Asks with these bytes. Returns those of the reply.
        async fn ask<P: drtm_rdma::Port>(
            rpc: &Rpc<'_, P>,
            node: NodeId,
            number: u16,
            bytes: Vec<u8>,
        ) -> Result<Vec<u8>, RpcError> {
            match number {
                $($number => rpc.call::<$name>(node, &Noise(bytes), None).await?.get().map(|reply| reply.0),)+
                procedure => Err(RpcError::UnknownProcedure { procedure }),
            }
        }
    };
}

requests! {
    Introduce = 1, Read = 2, Place = 3, Lock = 4, Line = 5, Check = 6, Guard = 7, Apply = 8, Unlock = 9, Reap = 10,
    Scan = 11, Durable = 25
}

/// The number of the view that all nodes are in.
const FIRST_VIEW: u64 = 1;

/// What a hostile node answers.
#[derive(Clone, Debug)]
enum Made {
    Bytes(Vec<u8>),
    Refusal(u32),
    Unknown,
}

fn encoded(value: impl Encode) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.encode(&mut bytes);
    bytes
}

/// What makes sense, of an owner that has nothing and does nothing.
fn sense(request: u16) -> Made {
    let (removed, no_rows): (_, &[u8]) = (Version::new(4).as_removed().to_word(), &[]);
    Made::Bytes(match request {
        // No tables that verbs reach.
        1 => welcome((0_u16, 0_u64, (0_u8, 0_u16))),
        // Nothing, as a bucket says.
        2 => encoded((0_u64, 1_u8, 0_u8, (64_u64, 0_u64))),
        // A new record.
        3 => encoded((0_u64, 0x7_0001_u64, removed, true, 0_u32)),
        4 => encoded(removed),
        5 => encoded((1_u64, 0_u64)),
        6 | 7 => encoded(true),
        11 => encoded(((0_u64, true), (0_u64, 0_u64), 0_u32, no_rows)),
        _ => Vec::new(),
    })
}

/// What a node says that it is asked to introduce itself: its incarnation, the view, and where its
/// tables are.
fn welcome(tables: impl Encode) -> Vec<u8> {
    let view = View::fixed(&[NodeId(0), NodeId(1)], 16, 0).expect("a view");
    [encoded(1_u32), encoded(view), encoded(tables)].concat()
}

/// A page of rows that are not of the range that was asked for, or not in order, with more to come.
fn page(keys: &[u64]) -> Vec<u8> {
    let (mut rows, value): (_, &[u8]) = (Vec::new(), &[1]);
    for key in keys {
        (0_u8, *key).encode(&mut rows);
        (0x7_0001_u64, Version::new(4).to_word(), value).encode(&mut rows);
    }
    encoded(((0_u64, false), (0_u64, 0_u64), 0_u32, &rows[..]))
}

/// What makes no sense as an answer to anything, or is a lie.
fn nonsense(request: u16, random: &mut Rng) -> Vec<Made> {
    let mut all = vec![Made::Bytes(Vec::new()), Made::Bytes(vec![0xFF; 1]), Made::Bytes(vec![0xFF; 64]), Made::Unknown];
    let mut noise = || (0..random.usize(1..120)).map(|_| random.u8(..)).collect::<Vec<_>>();
    all.extend((0..8).map(|_| Made::Bytes(noise())));
    all.extend((0..15).chain([u32::MAX]).map(Made::Refusal));
    if let Made::Bytes(sense) = sense(request) {
        // Cut off, and with something behind.
        all.push(Made::Bytes(sense[..sense.len().saturating_sub(1)].to_vec()));
        all.push(Made::Bytes([&sense[..], &[0]].concat()));
        // One word of it is another.
        for at in 0..sense.len() / 8 {
            let mut other = sense.clone();
            other[8 * at..8 * (at + 1)].copy_from_slice(&random.u64(..).to_le_bytes());
            all.push(Made::Bytes(other));
        }
    }
    match request {
        3 => all.push(Made::Bytes(encoded((0_u64, 0x7_0001_u64, Version::new(4).to_word(), true, 0_u32)))),
        5 => all.push(Made::Bytes(encoded((u64::MAX, u64::MAX)))),
        6 | 7 => all.push(Made::Bytes(encoded(false))),
        11 => all.extend([&[][..], &[1], &[25, 24], &[24, 24], &[99]].map(|keys| Made::Bytes(page(keys)))),
        _ => {}
    }
    all
}

/// An honest owner of even words, a hostile one of odd ones, and a client.
struct Stage {
    fabric: Local,
    owner: Node<Local, Tested>,
    client: Node<Local, Tested>,
    tables: Tables,
}

impl Stage {
    fn new(protocol: Protocol) -> Self {
        let fabric = Local::new(3, LocalConfig::perfect());
        let (owner, tables) = node(&fabric, 0, 2, protocol);
        let (client, _) = node(&fabric, 2, 2, protocol);
        Self { fabric, owner, client, tables }
    }

    /// Runs something on the client's thread, while both owners answer in the first view.
    fn run(&self, hostile: impl Fn(u16) -> Made + Sync, body: impl AsyncFnOnce(Worker<'_, Local, Tested>)) {
        self.run_in(FIRST_VIEW, hostile, body);
    }

    /// Runs something, like [`run`](Self::run), while the hostile owner says that it is in a view.
    fn run_in(
        &self,
        view: u64,
        hostile: impl Fn(u16) -> Made + Sync,
        body: impl AsyncFnOnce(Worker<'_, Local, Tested>),
    ) {
        let (done, hostile) = (&AtomicBool::new(false), &hostile);
        thread::scope(|scope| {
            scope.spawn(move || {
                let _ends = SetAtEnd(done);
                let endpoint = self.owner.endpoint().expect("room");
                let mut executor = Executor::new(&endpoint);
                self.owner.worker(&endpoint).expect("few").serve(&executor.spawner());
                executor.spawn(endpoint.until(|| done.load(SeqCst)));
                executor.run();
            });
            scope.spawn(move || {
                let _ends = SetAtEnd(done);
                let endpoint = drtm_rdma::Fabric::endpoint(&self.fabric, NodeId(1)).expect("room");
                let mut executor = Executor::new(&endpoint);
                let verbs = endpoint.during(Phase::Other);
                let _ = executor.spawner().serve(async move {
                    rpc::serve_tagged(verbs, |call| answer(call, hostile), |_| view).await;
                });
                executor.spawn(endpoint.until(|| done.load(SeqCst)));
                executor.run();
            });
            let _ends = SetAtEnd(done);
            let endpoint = self.client.endpoint().expect("room");
            let worker = self.client.worker(&endpoint).expect("few");
            let mut executor = Executor::new(&endpoint).patience(Duration::from_secs(60));
            worker.serve(&executor.spawner());
            executor.spawn(body(worker));
            executor.run();
        });
    }
}

/// A transaction that asks both owners for everything.
async fn attempt(worker: &Worker<'_, Local, Tested>, tables: Tables, value: u8) -> Result<(), Error> {
    let changed = worker.transact_with(Options::new().attempts(2), async |tx| {
        tx.put(tables.words, 0, vec![value; 8]).await?;
        tx.get(tables.words, 1).await?;
        tx.get(tables.words, 3).await?;
        tx.range(tables.sorted_words, 20..30).await?;
        tx.put(tables.words, 3, vec![value; 8]).await?;
        tx.insert(tables.words, 5, vec![value; 8]).await?;
        tx.put(tables.words, 2, vec![value; 8]).await
    });
    changed.await
}

/// Looks whether the honest owner's rows are those of a transaction or not, as a whole, and free.
async fn look(worker: &Worker<'_, Local, Tested>, tables: Tables) -> Option<u8> {
    let seen = worker.transact_with(Options::new().attempts(1), async |tx| {
        let rows = tx.get_many(tables.words, [0, 2]).await?;
        tx.put(tables.words, 4, vec![7]).await?;
        for (row, seen) in [0, 2].into_iter().zip(&rows) {
            if let Some(seen) = seen {
                tx.put(tables.words, row, &seen[..]).await?;
            }
        }
        Ok(rows)
    });
    let rows = seen.await.expect("nothing is locked at the honest owner");
    assert_eq!(rows[0], rows[1], "a transaction happens as a whole");
    rows[0].as_ref().map(|row| row[0])
}

#[test]
fn a_node_that_answers_nonsense_harms_nobody() {
    for protocol in [Protocol::FASST, Protocol::DRTM_H] {
        let stage = Stage::new(protocol);
        let lie: Mutex<Option<(u16, Made)>> = Mutex::new(None);
        let answers = |request| match &*lie.lock().expect("no thread panics") {
            Some((lied, made)) if *lied == request => made.clone(),
            _ => sense(request),
        };
        let (tables, mut random) = (stage.tables, Rng::with_seed(5));
        stage.run(answers, async |worker| {
            // As a whole, it makes sense.
            attempt(&worker, tables, 1).await.expect("all answers make sense");
            worker.settle().await;
            assert_eq!(look(&worker, tables).await, Some(1));
            let mut value = 1;
            for (request, name) in REQUESTS.iter().filter(|(request, _)| *request != 1) {
                for made in nonsense(*request, &mut random) {
                    let before = value;
                    value = if value == 200 { 2 } else { value + 1 };
                    *lie.lock().expect("no thread panics") = Some((*request, made.clone()));
                    let ended = attempt(&worker, tables, value).await;
                    *lie.lock().expect("no thread panics") = None;
                    worker.settle().await;
                    let now = look(&worker, tables).await;
                    match ended {
                        // Some lies are as good as the truth.
                        Ok(()) | Err(Error::Cluster(ClusterError::OutcomeUnknown { node: NodeId(1), .. })) => {
                            assert!(protocol.is_passive || now == Some(value), "{name}: {made:?}");
                        }
                        Err(
                            Error::Contended { .. } | Error::Exists { .. } | Error::Key { .. } | Error::Codec { .. },
                        )
                        | Err(Error::Cluster(
                            ClusterError::Nonsense { node: NodeId(1), .. }
                            | ClusterError::Refused { node: NodeId(1), .. }
                            | ClusterError::Unreachable { node: NodeId(1), .. },
                        )) => assert_eq!(now, Some(before), "{name}: {made:?}"),
                        Err(error) => panic!("{name}: {made:?}: {error:?}"),
                    }
                    value = now.expect("it was written at first");
                }
            }
        });
    }
}

#[test]
fn answers_from_another_view_are_not_believed() {
    let stage = Stage::new(Protocol::FASST);
    stage.run_in(FIRST_VIEW + 1, sense, async |worker| {
        let ended = attempt(&worker, stage.tables, 9).await;
        assert!(matches!(ended, Err(Error::Contended { .. })), "{ended:?}");
        worker.settle().await;
        assert_eq!(look(&worker, stage.tables).await, None, "nothing was written");
    });
}

#[test]
fn a_node_that_introduces_itself_by_nonsense_is_not_asked() {
    for protocol in [Protocol::FASST, Protocol::DRTM_H] {
        let stage = Stage::new(protocol);
        let mut random = Rng::with_seed(6);
        let mut lies = nonsense(1, &mut random);
        // Tables that are nowhere, in regions that are none.
        for (region, line, table) in
            [(0, 0, u64::MAX), (9, 8, 64), (u16::MAX, u64::MAX, 8), (0, 64, 1 << 20), (0, 64, 7)]
        {
            let two = (Some(table), Some(table));
            lies.push(Made::Bytes(welcome(((region, line), (0_u8, 8_u16), (two, two, two, two)))));
        }
        for made in lies {
            let stage = &stage;
            let lie = made.clone();
            stage.run(
                move |request| if request == 1 { lie.clone() } else { sense(request) },
                async |worker| {
                    let asked = attempt(&worker, stage.tables, 9).await;
                    worker.settle().await;
                    match asked {
                        Ok(()) | Err(Error::Contended { .. } | Error::Cluster(_)) => {}
                        Err(error) => panic!("{made:?}: {error:?}"),
                    }
                    look(&worker, stage.tables).await;
                },
            );
        }
    }
}

/// Returns a caller whose messages are of the view, and for the incarnation, that the owner is in.
fn of_the_view<'e>(worker: &Worker<'e, Local, Tested>) -> Rpc<'e, <Local as drtm_rdma::Fabric>::Port> {
    Rpc::new(worker.endpoint().during(Phase::Other)).tagged(1 << 32 | FIRST_VIEW)
}

#[test]
fn a_row_that_is_changed_twice_at_once_is_written_under_its_lock_only() {
    let stage = Stage::new(Protocol::FASST);
    stage.run(sense, async |worker| {
        attempt(&worker, stage.tables, 1).await.expect("all answers make sense");
        worker.settle().await;
        let (rpc, me) = (of_the_view(&worker), Holder::new(2, 1, 9, 9).to_word());
        let row = (1_u16, (0_u8, 0_u64));
        let read = ask(&rpc, NodeId(0), 2, encoded((row, me))).await.expect("the row");
        let (_count, _kind, at, version): (u64, u8, u64, u64) =
            Decode::decode(&mut Reader::new(&read)).expect("a record");
        let length = Some(8_u32);
        ask(&rpc, NodeId(0), 4, encoded((row, at, version, (me, length)))).await.expect("its lock");
        let change = |value: u8| encoded((row, at, 0_u8, &[value; 8][..]));
        let rows = [change(8), change(9)].concat();
        let changed = ask(&rpc, NodeId(0), 8, encoded((me, 0_u64, &rows[..]))).await;
        assert!(matches!(changed, Err(RpcError::Refused { reason: 7 })), "{changed:?}");
        let now = worker.transact(async |tx| tx.get(stage.tables.words, 0).await).await.expect("it is free");
        assert_eq!(now.as_deref(), Some(&[8; 8][..]));
    });
}

#[test]
fn a_node_that_asks_for_nonsense_harms_nobody() {
    for protocol in [Protocol::FASST, Protocol::DRTM_H] {
        let stage = Stage::new(protocol);
        stage.run(sense, async |worker| {
            attempt(&worker, stage.tables, 1).await.expect("all answers make sense");
            worker.settle().await;
            let rpc = of_the_view(&worker);
            let mut random = Rng::with_seed(8);
            let mut answered = 0;
            for turn in 0..rounds(400) {
                for (request, _) in REQUESTS {
                    let mut bytes: Vec<u8> = (0..random.usize(0..100)).map(|_| random.u8(..)).collect();
                    if turn % 2 == 0 {
                        // A table that there is, a key of either kind, and words.
                        bytes = encoded((random.u16(0..12), random.u8(0..2), random.u64(..8)));
                        bytes.extend((0..random.usize(0..6)).flat_map(|_| random.u64(..).to_le_bytes()));
                        bytes.extend((0..random.usize(0..4)).map(|_| random.u8(0..3)));
                    }
                    answered += u64::from(ask(&rpc, NodeId(0), *request, bytes).await.is_ok());
                }
            }
            assert!(answered > 0, "some of it is well formed");
            assert_eq!(look(&worker, stage.tables).await, Some(1));
        });
    }
}
