//! Bodies that are written once: they do the same on a database and on a cluster.

use std::collections::BTreeMap;

use drtm_htm::NoHtm;
use drtm_rdma::{LocalConfig, LocalFabric, block_on};
use drtm_testing::rounds;
use drtm_txn::{
    Builder, Conflict, Db, Error, Mutation, OneNode, Options, Ordered, Pod, Table, TableDef, Transaction,
    cluster::{Cluster, ClusterError, Partition, Protocol, Worker},
    ready,
};
use fastrand::Rng;

use crate::bed::{Setup, Tables, Tested, node};
use crate::hades::BY_LINES;

const HASHED: TableDef<u64, Pod<u64>> = TableDef::hash("hashed");
const SORTED: TableDef<u64, Pod<u64>, Ordered> = TableDef::ordered("sorted");

#[derive(Clone, Copy)]
struct Both {
    hashed: Table<u64, Pod<u64>>,
    sorted: Table<u64, Pod<u64>, Ordered>,
}

type Model = [BTreeMap<u64, u64>; 2];

/// Runs an expression with each table, and the model of its rows.
macro_rules! in_each {
    ($both:expr, $model:expr, |$table:ident, $rows:ident| $body:expr) => {{
        let ($table, $rows) = ($both.hashed, &mut $model[0]);
        $body
        let ($table, $rows) = ($both.sorted, &mut $model[1]);
        $body
    }};
}

/// Does random operations, each of which gives what it gives on maps.
async fn check(tx: &mut impl Transaction, both: Both, model: &mut Model, random: &mut Rng) -> Result<(), Error> {
    let (mut saved, keys) = (Vec::new(), 0..60_u64);
    for _ in 0..random.usize(1..12) {
        let (key, value) = (random.u64(keys.clone()), random.u64(..));
        match random.u8(0..11) {
            0 => in_each!(both, model, |table, rows| {
                tx.put(table, key, &value).await?;
                rows.insert(key, value);
            }),
            1 => in_each!(both, model, |table, rows| {
                assert_eq!(tx.remove(table, key).await?, rows.remove(&key));
            }),
            2 => {
                let new: Vec<u64> =
                    (key..key + 5).filter(|key| !model.iter().any(|rows| rows.contains_key(key))).collect();
                in_each!(both, model, |table, rows| {
                    tx.insert_many(table, new.iter().map(|key| (*key, &value))).await?;
                    rows.extend(new.iter().map(|key| (*key, value)));
                });
            }
            3 => in_each!(both, model, |table, rows| {
                let mut seen = BTreeMap::new();
                tx.walk(table, |key, value| {
                    assert!(seen.insert(key, value).is_none(), "each row is shown once");
                })
                .await?;
                assert_eq!(seen, *rows);
                assert_eq!(tx.len(table).await?, rows.len() as u64);
            }),
            4 => in_each!(both, model, |table, rows| {
                let before = rows.len();
                rows.retain(|key, _| !key.is_multiple_of(7));
                assert_eq!(tx.retain(table, |key, _| !key.is_multiple_of(7)).await?, (before - rows.len()) as u64);
            }),
            5 if random.u8(0..4) == 0 => in_each!(both, model, |table, rows| {
                assert_eq!(tx.clear(table).await?, rows.len() as u64);
                rows.clear();
            }),
            6 => saved.push((tx.savepoint(), model.clone())),
            7 if !saved.is_empty() => {
                let to = random.usize(0..saved.len());
                saved.truncate(to + 1);
                tx.return_to(saved[to].0)?;
                model.clone_from(&saved[to].1);
            }
            8 => in_each!(both, model, |table, rows| {
                let now = tx.entry(table, key).await?.and_modify(|value| *value ^= 1).await?.or_insert(value).await?;
                rows.entry(key).and_modify(|value| *value ^= 1).or_insert(value);
                assert_eq!(Some(&now), rows.get(&key));
            }),
            9 => {
                let first = model[1].range(key..).next().map(|(key, value)| (*key, *value));
                assert_eq!(tx.first(both.sorted, key..).await?, first);
                let mut seen = 0;
                tx.view_each(both.sorted, key.., 3, |_, _| seen += 1).await?;
                assert_eq!(seen, model[1].range(key..).take(3).count());
            }
            _ => in_each!(both, model, |table, rows| {
                assert_eq!(tx.get(table, key).await?, rows.get(&key).copied());
            }),
        }
    }
    if random.u8(0..6) == 0 { Err(Error::aborted("on purpose")) } else { Ok(()) }
}

/// Runs `transact` with random bodies, and what they make of maps.
fn check_all(seed: u64, mut transact: impl FnMut(Rng, Model) -> Result<Model, Error>) {
    let (mut random, mut model) = (Rng::with_seed(seed), Model::default());
    for _ in 0..40 {
        match transact(random.fork(), model.clone()) {
            Ok(made) => model = made,
            Err(Error::Aborted { .. }) => {}
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
}

#[test]
fn a_body_does_on_a_database_what_it_does_on_maps() {
    for seed in 0..rounds(20) {
        let db = Db::new().expect("memory");
        let both = Both { hashed: db.table(HASHED).expect("room"), sorted: db.table(SORTED).expect("room") };
        check_all(seed, |random, model| {
            db.transact(|tx| {
                let (mut random, mut model) = (random.clone(), model.clone());
                ready(check(&mut OneNode(tx), both, &mut model, &mut random)).map(|()| model)
            })
        });
    }
}

#[test]
fn a_body_does_on_a_cluster_what_it_does_on_maps() {
    for seed in 0..rounds(20) {
        let protocols = [&Protocol::ALL[..], &BY_LINES].concat();
        let protocol = protocols[seed as usize % protocols.len()];
        let mut builder = Cluster::builder().nodes(3).protocol(protocol).database(Builder::new().memory(16 << 20));
        let both = Both {
            hashed: builder.table(HASHED, Partition::hash()),
            sorted: builder.table(SORTED, Partition::by("number", |number| *number)),
        };
        let nodes = builder.start().expect("memory");
        let mut turn = 0;
        check_all(seed, |random, model| {
            turn += 1;
            let ran = nodes[turn % 3].transact(async move |tx| {
                let (mut random, mut model) = (random.clone(), model.clone());
                check(tx, both, &mut model, &mut random).await.map(|()| model)
            });
            ran.wait()
        });
        // They are closed in turn, while protocols tell each other what needs no answer.
    }
}

/// Others are told of a node that has closed: what they ask it fails, and does not wait for ever.
#[test]
fn a_node_that_has_closed_is_asked_in_vain() {
    for protocol in Protocol::ALL.into_iter().chain(BY_LINES) {
        let mut builder = Cluster::builder().nodes(2).protocol(protocol).database(Builder::new().memory(16 << 20));
        let sorted = builder.table(SORTED, Partition::by("number", |number| *number));
        let nodes = builder.start().expect("memory");
        let put = nodes[1].transact(async move |tx| tx.put(sorted, 2, &1).await);
        put.wait().expect("both are here");
        nodes[0].close();
        let asked = nodes[1].transact(async move |tx| tx.put(sorted, 4, &1).await).wait();
        assert!(matches!(asked, Err(Error::Cluster(ClusterError::Unreachable { .. }))), "{protocol:?}: {asked:?}");
        let own = nodes[1].transact(async move |tx| tx.put(sorted, 3, &1).await).wait();
        own.expect("it is at the node that is still here");
    }
}

/// Runs the body on one node, with what is wrong with it.
fn on_one_node<T>(run: impl AsyncFnOnce(&Worker<'_, LocalFabric<NoHtm>, Tested>, Tables) -> T) -> T {
    on_a_node_of(Protocol::default(), run)
}

fn on_a_node_of<T>(
    protocol: Protocol,
    run: impl AsyncFnOnce(&Worker<'_, LocalFabric<NoHtm>, Tested>, Tables) -> T,
) -> T {
    let fabric = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect());
    let (node, tables) = node(&fabric, 0, 1, protocol);
    let endpoint = node.endpoint().expect("one");
    let worker = node.worker(&endpoint).expect("one");
    block_on(&endpoint, run(&worker, tables))
}

/// Two transactions count the rows of a hash table, and each writes the count as a new row.
fn both_count() -> Result<(), Error> {
    on_one_node(async |worker, tables| {
        let (mut one, mut two) = (worker.begin().await, worker.begin().await);
        let counts = (one.len(tables.words).await?, two.len(tables.words).await?);
        assert_eq!(counts, (0, 0));
        one.put(tables.words, 1, vec![1]).await?;
        two.put(tables.words, 2, vec![2]).await?;
        one.commit().await?;
        two.commit().await
    })
}

#[test]
fn a_walk_of_a_hash_table_is_in_conflict_with_an_insertion() {
    assert!(matches!(both_count(), Err(Error::Conflict(Conflict::Phantom | Conflict::Validation))));
    Setup::faulty(Mutation::CommitDespitePhantoms).run(|| both_count().expect("the fault is not noticed"));
}

/// Two transactions find rows missing, of neighbouring keys or of one, and insert them.
fn both_insert(protocol: Protocol, keys: [u64; 2]) -> Result<(), Error> {
    on_a_node_of(protocol, async |worker, tables| {
        let (mut one, mut two) = (worker.begin().await, worker.begin().await);
        for (tx, key) in [(&mut one, keys[0]), (&mut two, keys[1])] {
            tx.insert(tables.words, key, vec![1]).await?;
            tx.insert(tables.sorted_words, key, vec![1]).await?;
        }
        one.commit().await?;
        two.commit().await
    })
}

#[test]
fn insertions_are_in_conflict_if_they_are_of_one_key() {
    for protocol in Protocol::with_names().chain(BY_LINES) {
        both_insert(protocol, [1, 2]).unwrap_or_else(|error| panic!("{protocol:?}: {error:?}"));
        let same = || both_insert(protocol, [1, 1]);
        assert!(matches!(same(), Err(Error::Conflict(_))), "{protocol:?}");
    }
    let over = || both_insert(Protocol::FASST, [1, 1]).expect("the fault is not noticed");
    Setup::faulty(Mutation::InsertedOver).run(over);
}

/// One counts a table, and inserts into it, while another one does: a guard of a range stays.
#[test]
fn an_insertion_leaves_the_guards_of_ranges() {
    let both = |protocol| {
        on_a_node_of(protocol, async |worker, tables| {
            let (mut one, mut two) = (worker.begin().await, worker.begin().await);
            for (tx, key) in [(&mut one, 1), (&mut two, 2)] {
                assert_eq!(tx.len(tables.sorted_words).await?, 0);
                tx.insert(tables.sorted_words, key, vec![1]).await?;
            }
            one.commit().await?;
            two.commit().await
        })
    };
    for protocol in Protocol::with_names().chain(BY_LINES) {
        assert!(matches!(both(protocol), Err(Error::Conflict(_))), "{protocol:?}");
    }
}

/// Returns what a row is after a transaction has undone one of its writes.
fn undone() -> Option<Vec<u8>> {
    let seen = on_one_node(async |worker, tables| {
        let put = worker.transact(async |tx| {
            tx.put(tables.words, 1, vec![1]).await?;
            let before = tx.savepoint();
            tx.put(tables.words, 1, vec![2]).await?;
            tx.return_to(before)
        });
        put.await?;
        worker.transact(async |tx| tx.get(tables.words, 1).await).await
    });
    seen.expect("nothing is in the way")
}

#[test]
fn what_is_undone_is_not_written() {
    assert_eq!(undone(), Some(vec![1]));
    assert_eq!(Setup::faulty(Mutation::UndoneWritesKept).run(undone), Some(vec![2]), "the fault is not noticed");
}

#[test]
fn a_savepoint_is_of_one_run() {
    on_one_node(async |worker, tables| {
        let mut earlier = None;
        let ran = worker.transact(async |tx| {
            if let Some(savepoint) = earlier {
                assert!(matches!(tx.return_to(savepoint), Err(Error::OtherSavepoint)));
                return Ok(());
            }
            tx.put(tables.words, 1, vec![1]).await?;
            earlier = Some(tx.savepoint());
            Err(Conflict::Validation.into())
        });
        ran.await.expect("nothing is in the way");
    });
}

/// On rows that were fetched, too.
#[test]
fn tables_are_walked_on_fetched_rows() {
    on_one_node(async |worker, tables| {
        let counted = worker.transact_on(
            |_| Ok(()),
            async |tx| {
                tx.put(tables.words, 1, vec![1]).await?;
                tx.put(tables.words, 2, vec![2]).await?;
                tx.len(tables.words).await
            },
        );
        assert_eq!(counted.await.expect("nothing is in the way"), 2);
        let cleared = worker.transact_on(
            |_| Ok(()),
            async |tx| Ok((tx.clear(tables.words).await?, tx.clear(tables.sorted_words).await?)),
        );
        assert_eq!(cleared.await.expect("nothing is in the way"), (2, 0));
        let left = worker.transact(async |tx| tx.len(tables.words).await);
        assert_eq!(left.await.expect("nothing is in the way"), 0);
    });
}

#[test]
fn a_body_on_fetched_rows_waits_for_nothing_else() {
    let waited = on_one_node(async |worker, _| {
        worker.transact_on(|_| Ok(()), async |_| std::future::pending::<Result<(), Error>>().await).await
    });
    assert!(matches!(waited, Err(Error::NotReady)));
}

#[test]
fn handles_of_a_cluster_are_not_those_of_a_database() {
    let mut builder = Cluster::builder();
    let (hashed, db) = (builder.table(HASHED, Partition::hash()), Db::new().expect("memory"));
    let own = db.table(HASHED).expect("room");
    assert!(matches!(db.transact(|tx| tx.get(hashed, 1)), Err(Error::OtherDatabase)));
    let nodes = builder.start().expect("memory");
    let refused = nodes[0].transact(async move |tx| tx.get(own, 1).await).wait();
    assert!(matches!(refused, Err(Error::OtherDatabase)));
}

#[test]
fn what_is_said_wrongly_of_a_cluster_is_refused() {
    let refused = |error: Error| match error {
        Error::Cluster(error) => error,
        other => panic!("{other}"),
    };
    let mut late = Cluster::builder();
    late.table(HASHED, Partition::hash());
    let late = late.group("late", 0, 1).start().expect_err("the table would be lost");
    assert!(matches!(late, Error::Config { what: "where the nodes of a cluster are", .. }));
    let of_group = refused(Cluster::builder().group("wrong", 3, 3).start().expect_err("there is no node 3"));
    assert!(matches!(of_group, ClusterError::NodeNumber { number: 3, nodes: 3 }));
    let name = refused(Cluster::builder().group("../elsewhere", 0, 1).start().expect_err("a path"));
    assert!(matches!(name, ClusterError::Group(_)));
    assert!(matches!(Cluster::builder().threads(0).start(), Err(Error::Config { .. })));
    let more = Cluster::builder().nodes(2).owners(3).start();
    assert!(matches!(more, Err(Error::Config { what: "owners", .. })));
    let none = refused(Cluster::builder().nodes(2).owners(0).start().expect_err("no node has the rows"));
    assert!(matches!(none, ClusterError::NoOwners));
    assert!(matches!(refused(Cluster::builder().nodes(0).start().expect_err("no nodes")), ClusterError::NoOwners));
}

#[cfg(feature = "tcp")]
#[test]
fn what_is_said_wrongly_of_addresses_is_refused() {
    let at = |addresses: &[&str]| Cluster::builder().addresses(0, addresses);
    let refused = |builder: drtm_txn::cluster::ClusterBuilder<drtm_txn::cluster::OnTcp>| match builder.start() {
        Err(Error::Cluster(error)) => error,
        other => panic!("{other:?}"),
    };
    assert!(matches!(refused(at(&["127.0.0.1:0"])), ClusterError::NoKey));
    let missing = refused(at(&["127.0.0.1:0"]).key_file("/nowhere/cluster.key"));
    assert!(missing.to_string().contains("head -c 32 /dev/urandom"), "{missing}");
    let short = std::env::temp_dir().join(format!("drtm-short-{}.key", std::process::id()));
    std::fs::write(&short, [7; 31]).expect("room");
    assert!(matches!(refused(at(&["127.0.0.1:0"]).key_file(&short)), ClusterError::KeyLength { bytes: 31, .. }));
    std::fs::remove_file(&short).expect("it is there");
    assert!(matches!(refused(at(&["nonsense"]).key([7; 32])), ClusterError::Address { .. }));
    assert!(matches!(refused(at(&[]).key([7; 32])), ClusterError::NodeNumber { number: 0, nodes: 0 }));
    #[cfg(feature = "raft")]
    {
        let addresses = drtm_testing::ports::free_addresses(4).iter().map(ToString::to_string).collect::<Vec<_>>();
        let client = Cluster::builder().addresses(3, &addresses).owners(3).key([7; 32]);
        assert!(matches!(refused(client.bootstrap()), ClusterError::NoVoter { node: drtm_rdma::NodeId(3) }));
    }
    let twice = refused(at(&["127.0.0.1:7000", "127.0.0.1:7000"]).key([7; 32]));
    assert!(matches!(twice, ClusterError::AddressTwice { .. }));
    let alone = Cluster::builder().addresses(0, ["127.0.0.1:0"]).key([7; 32]).start().expect("a port");
    let options = Options::new().attempts(1);
    assert_eq!(alone.transact_with(options, async |_| Ok(7)).wait().expect("it is alone"), 7);
}
