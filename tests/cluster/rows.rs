//! What transactions do with rows of many nodes is what they do with those of a map: ranges from
//! both ends with limits, keys of all kinds, values of all lengths, columns, entries.

use std::{collections::BTreeMap, ops::Bound};

use drtm_htm::NoHtm;
use drtm_rdma::{LocalConfig, LocalFabric, NodeId};
use drtm_testing::rounds;
use drtm_txn::{
    Builder, EntryIn, Error, Ordered, Raw, Serde, Table, TableDef, Transaction as _,
    cluster::{Cluster, ClusterError, Node, Partition, Protocol},
};
use fastrand::Rng;

use crate::{
    bed::{Tables, Tested, node},
    directory::Person,
    hades::BY_LINES,
};

type Local = Cluster<LocalFabric<NoHtm>, Tested>;

fn clusters(owners: u16, protocol: Protocol) -> (Vec<Local>, Tables) {
    let fabric = LocalFabric::<NoHtm>::new(owners + 1, LocalConfig::perfect());
    let nodes: Vec<_> = (0..=owners).map(|number| node(&fabric, number, owners, protocol)).collect();
    let tables = nodes[0].1;
    (nodes.into_iter().map(|(node, _)| Cluster::start(node, 1).expect("threads")).collect(), tables)
}

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// A range of keys, either end of which may be open.
fn range(random: &mut Rng) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let mut end = || {
        let key = key(random);
        match random.u8(0..4) {
            0 => Bound::Unbounded,
            1 => Bound::Excluded(key),
            _ => Bound::Included(key),
        }
    };
    (end(), end())
}

/// Keys of many lengths, also of none, and with zeros.
fn key(random: &mut Rng) -> Vec<u8> {
    let length = random.usize(0..4);
    (0..length).map(|_| random.choice([0, 1, 7, 255]).expect("there are four")).collect()
}

/// Values of many lengths, some so long that a message has room for two.
fn value(random: &mut Rng) -> Vec<u8> {
    let length = random.choice([0, 1, 8, 9, 100, 300, 14_000]).expect("there are seven");
    vec![random.u8(..); length]
}

fn refers((low, high): &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> (Bound<&Vec<u8>>, Bound<&Vec<u8>>) {
    (low.as_ref(), high.as_ref())
}

/// The rows of a map's range, which may be empty in ways that a map does not allow.
fn rows_of(model: &Rows, range: &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> Vec<(Vec<u8>, Vec<u8>)> {
    let is_in = |key: &&Vec<u8>| std::ops::RangeBounds::<Vec<u8>>::contains(&refers(range), *key);
    model.iter().filter(|(key, _)| is_in(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// One transaction of random steps on an ordered table, beside a map.
fn steps(cluster: &Local, tables: Tables, model: &mut Rows, seed: u64) {
    let before = model.clone();
    let committed = cluster.transact(async move |tx| {
        let (mut random, mut model, rows) = (Rng::with_seed(seed), before.clone(), tables.sorted_names);
        for _ in 0..random.u8(1..12) {
            let (key, value) = (key(&mut random), value(&mut random));
            match random.u8(0..14) {
                0 | 1 => {
                    tx.put(rows, &key, &value[..]).await?;
                    model.insert(key, value);
                }
                2 => match tx.insert(rows, &key, &value[..]).await {
                    Ok(()) => assert!(model.insert(key, value).is_none()),
                    Err(Error::Exists { .. }) => assert!(model.contains_key(&key)),
                    Err(error) => return Err(error),
                },
                3 | 4 => assert_eq!(tx.remove(rows, &key).await?, model.remove(&key)),
                5 => match tx.entry(rows, &key).await? {
                    EntryIn::Vacant(entry) => {
                        entry.insert(&value).await?;
                        assert!(model.insert(key, value).is_none());
                    }
                    EntryIn::Occupied(entry) => assert_eq!(Some(entry.remove().await?), model.remove(&key)),
                },
                6 => {
                    let seen = tx.view(rows, &key, <[u8]>::len).await?;
                    assert_eq!(seen, model.get(&key).map(Vec::len));
                }
                7 => {
                    let range = range(&mut random);
                    let expected = rows_of(&model, &range).first().cloned();
                    assert_eq!(tx.pop_first(rows, refers(&range)).await?, expected);
                    expected.map(|(key, _)| model.remove(&key));
                }
                8 => {
                    let range = range(&mut random);
                    let expected = rows_of(&model, &range).last().cloned();
                    assert_eq!(tx.pop_last(rows, refers(&range)).await?, expected);
                    expected.map(|(key, _)| model.remove(&key));
                }
                9 => {
                    let range = range(&mut random);
                    assert_eq!(tx.count(rows, refers(&range)).await?, rows_of(&model, &range).len() as u64);
                }
                10 => {
                    let range = range(&mut random);
                    assert_eq!(tx.range(rows, refers(&range)).await?, rows_of(&model, &range));
                }
                11 => {
                    let (range, limit) = (range(&mut random), random.usize(0..6));
                    let expected: Vec<_> = rows_of(&model, &range).into_iter().rev().take(limit).collect();
                    assert_eq!(tx.range_back_limit(rows, refers(&range), limit).await?, expected);
                }
                12 => {
                    let seen = tx.all(rows, &key).await?;
                    assert_eq!(
                        seen,
                        model
                            .get_key_value(&key)
                            .map(|(key, value)| (key.clone(), value.clone()))
                            .into_iter()
                            .collect::<Vec<_>>()
                    );
                }
                _ => {
                    let (range, limit) = (range(&mut random), random.usize(0..6));
                    let expected: Vec<_> = rows_of(&model, &range).into_iter().take(limit).collect();
                    assert_eq!(tx.range_limit(rows, refers(&range), limit).await?, expected);
                }
            }
        }
        Ok(model)
    });
    *model = committed.wait().expect("all nodes are here");
}

#[test]
fn of_many_nodes_are_like_those_of_a_map() {
    for protocol in [Protocol::FASST, Protocol::DRTM_H, Protocol::HADES, Protocol::HADES_H] {
        for owners in [1, 3] {
            let (clusters, tables) = clusters(owners, protocol);
            let mut model = Rows::new();
            for seed in 0..rounds(150) {
                steps(&clusters[seed as usize % clusters.len()], tables, &mut model, seed);
            }
            let all = clusters[0].transact(async move |tx| tx.range(tables.sorted_names, ..).await);
            assert!(all.wait().expect("all nodes are here").into_iter().eq(model));
        }
    }
}

const TEXTS: TableDef<String, Serde<Vec<String>>, Ordered> = TableDef::ordered("texts");
const PAIRS: TableDef<(String, u32), Raw> = TableDef::hash("pairs");
const REGIONS: TableDef<u64, Raw> = TableDef::hash("regions");

type Texts = Table<String, Serde<Vec<String>>, Ordered>;
type Pairs = Table<(String, u32), Raw>;

/// Two nodes with tables of several types.
fn typed() -> ([Local; 2], Texts, Pairs, Table<u64, Raw>) {
    let fabric = LocalFabric::<NoHtm>::new(2, LocalConfig::perfect());
    let start = |number| {
        let builder = Node::<_, Tested>::builder(NoHtm, &fabric, NodeId(number), Builder::new().memory(16 << 20));
        let mut builder = builder.and_then(|builder| builder.owners([NodeId(0), NodeId(1)])).expect("it is here");
        let texts = builder.table(TEXTS, Partition::hash()).expect("memory");
        let pairs = builder.table(PAIRS, Partition::by("number", |(_, number)| u64::from(*number))).expect("memory");
        let at = Partition::at("below ten", |key| (*key < 10).then_some(*key as usize % 2));
        let regions = builder.table(REGIONS, at).expect("memory");
        (Cluster::start(builder.start().expect("owners"), 1).expect("threads"), texts, pairs, regions)
    };
    let ((one, texts, pairs, regions), (two, ..)) = (start(0), start(1));
    ([one, two], texts, pairs, regions)
}

#[test]
fn have_keys_and_values_of_any_type() {
    let (clusters, texts, pairs, _) = typed();
    let done = clusters[0].transact(async move |tx| {
        for (name, lines) in [("b", 0), ("a", 3), ("", 1), ("ä", 40)] {
            tx.put(texts, name, vec![name.to_owned(); lines]).await?;
        }
        tx.update(texts, "a", |lines| lines.push("longer".to_owned())).await?;
        tx.put(pairs, ("eu", 7), &[1_u8][..]).await?;
        tx.put(pairs, ("eu", 8), &[0_u8; 200][..]).await
    });
    done.wait().expect("room");
    let seen = clusters[1].transact(async move |tx| {
        let texts = tx.range(texts, "".."b").await?;
        Ok((texts, tx.get(pairs, ("eu", 7)).await?, tx.get(pairs, &("eu".to_owned(), 8)).await?))
    });
    let (texts, one, other) = seen.wait().expect("both are here");
    let names: Vec<(&str, usize)> = texts.iter().map(|(name, lines)| (&**name, lines.len())).collect();
    assert_eq!(names, [("", 1), ("a", 4)]);
    assert_eq!((one, other.map(|bytes| bytes.len())), (Some(vec![1]), Some(200)));
}

#[test]
fn a_key_without_a_shard_is_refused() {
    let (clusters, _, _, regions) = typed();
    let is_refused = |result: Result<(), Error>| {
        assert!(matches!(result, Err(Error::Cluster(ClusterError::NoShard { table: "regions" }))), "{result:?}");
    };
    for cluster in &clusters {
        is_refused(cluster.transact(async move |tx| tx.put(regions, 10, &[1_u8][..]).await).wait());
        is_refused(cluster.transact(async move |tx| tx.get(regions, 11).await.map(drop)).wait());
        // Of the same transaction, nothing has happened.
        let both = cluster.transact(async move |tx| {
            tx.put(regions, 1, &[1_u8][..]).await?;
            tx.insert(regions, 12, &[1_u8][..]).await
        });
        is_refused(both.wait());
        let seen = cluster.transact(async move |tx| tx.get_many(regions, [1, 2]).await);
        assert_eq!(seen.wait().expect("both are here"), [None, None]);
    }
}

#[test]
fn have_columns() {
    for protocol in Protocol::ALL.into_iter().chain(BY_LINES) {
        let (clusters, tables) = clusters(2, protocol);
        let (people, balances) = (tables.directory.people, tables.directory.balances);
        let person = Person { nick: 7, group: 1, stamp: 3, balance: 100 };
        clusters[2].transact(async move |tx| tx.insert(people, 1, person).await).wait().expect("room");
        let changed = clusters[2].transact(async move |tx| {
            assert_eq!(tx.get(balances, 1).await?, Some(100));
            let left = tx.update(balances, 1, |balance| {
                *balance -= 30;
                *balance
            });
            let left = left.await?;
            // The transaction sees the part in the whole, and the other way round.
            assert_eq!(tx.get(people, 1).await?, Some(Person { balance: 70, ..person }));
            tx.update(people, 1, |person| person.balance += 1).await?;
            Ok((left, tx.get_many(balances, [1, 2]).await?, tx.update(balances, 2, |_| ()).await?))
        });
        assert_eq!(changed.wait().expect("all are here"), (Some(70), vec![Some(71), None], None));
        let row = clusters[0].transact(async move |tx| tx.get(tables.directory.by_nick, 7).await);
        let row = row.wait().expect("all are here");
        assert_eq!(row, Some((1, Person { balance: 71, ..person })), "{}", protocol.name);
    }
}
