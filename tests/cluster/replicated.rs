//! Tables that every node has whole: read without a message, never written, and the same
//! everywhere.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::SeqCst},
};

use drtm_htm::NoHtm;
use drtm_rdma::{Fabric, LocalConfig, LocalFabric, NodeId, block_on};
use drtm_testing::rounds;
use drtm_txn::{
    Builder, Error, IndexDef, Multi, Ordered, Pod, TableDef, Transaction as _,
    cluster::{ClusterError, Node, NodeBuilder, Partition, Protocol, Refusal, Worker},
};
use fastrand::Rng;

use crate::{
    bed::{Bed, Script, Size, Tables, Tested, node},
    directory::{ITEMS, PRICES, price},
};

type Local = LocalFabric<NoHtm>;

const NAMES: TableDef<String, Pod<u32>, Ordered> = TableDef::ordered("names of colours");
const BY_SHADE: IndexDef<String, Pod<u32>, u32, Multi> = IndexDef::multi("colours by shade", |_, shade| Some(shade));

fn builder(fabric: &Local, node: u16, owners: &[u16]) -> NodeBuilder<Local, Tested> {
    let builder = Node::builder(NoHtm, fabric, NodeId(node), Builder::new().memory(16 << 20));
    builder.and_then(|builder| builder.owners(owners.iter().copied().map(NodeId))).expect("the node is here")
}

#[test]
fn are_read_without_a_message() {
    for protocol in Protocol::ALL {
        let fabric = Local::new(2, LocalConfig::perfect());
        // The only owner answers nothing.
        let (_owner, _) = node(&fabric, 0, 1, protocol);
        let (client, tables) = node(&fabric, 1, 1, protocol);
        let endpoint = client.endpoint().expect("room");
        let worker = client.worker(&endpoint).expect("few");
        let prices = tables.directory.prices;
        let read = block_on(
            &endpoint,
            worker.transact(async |tx| {
                let many = tx.get_many(prices, [1, 2, ITEMS]).await?;
                Ok((many, tx.contains(prices, 7).await?, tx.contains(prices, ITEMS).await?, tx.get(prices, 3).await?))
            }),
        );
        let many = vec![Some(price(1)), Some(price(2)), None];
        assert_eq!(read.expect("all of it is here"), (many, true, false, Some(price(3))), "{}", protocol.name);
        assert_eq!(endpoint.counters(), drtm_rdma::Counters::default(), "{}", protocol.name);
    }
}

#[test]
fn are_written_before_the_node_is_started_only() {
    let fabric = Local::new(1, LocalConfig::perfect());
    let (node, tables) = node(&fabric, 0, 1, Protocol::default());
    let endpoint = node.endpoint().expect("room");
    let worker = node.worker(&endpoint).expect("few");
    let prices = tables.directory.prices;
    let is_refused = |result: Result<(), Error>| matches!(result, Err(Error::Replicated { table: "prices" }));
    block_on(&endpoint, async {
        assert!(is_refused(worker.transact(async |tx| tx.put(prices, 1, 2).await).await));
        assert!(is_refused(worker.transact(async |tx| tx.insert(prices, ITEMS, 2).await).await));
        assert!(is_refused(worker.transact(async |tx| tx.update(prices, 1, |_| ()).await.map(drop)).await));
        assert!(is_refused(worker.transact(async |tx| tx.remove(prices, 1).await.map(drop)).await));
        assert!(is_refused(worker.transact(async |tx| tx.entry(prices, 1).await?.put(&2).await).await));
    });
    let db = node.local();
    let local = db.table(PRICES).expect("it is there");
    assert!(is_refused(db.transact(|tx| tx.put(local, 1, &2))));
    assert!(is_refused(db.transact(|tx| tx.remove(local, 1).map(drop))));
    assert_eq!(db.read(|tx| tx.get(local, 1)).expect("it is read"), Some(price(1)));
    let dropped = db.drop_table("prices");
    assert!(matches!(dropped, Err(Error::OfCluster { table: "prices" })), "{dropped:?}");
}

#[test]
fn have_indexes_that_are_replicated_too() {
    let fabric = Local::new(2, LocalConfig::perfect());
    let mut builder = builder(&fabric, 1, &[0]);
    let names = builder.table(NAMES, Partition::replicated()).expect("memory");
    let db = builder.local().expect("memory");
    let local = db.table(NAMES).expect("it is there");
    let fill = |names: &[(&str, u32)]| {
        db.transact(|tx| names.iter().try_for_each(|(name, shade)| tx.put(local, *name, shade)))
    };
    fill(&[("blue", 3), ("red", 1)]).expect("room");
    let divided = builder.index(names, BY_SHADE, Partition::hash());
    assert!(matches!(divided, Err(Error::Config { what: "an index of a table", .. })), "{divided:?}");
    let by_shade = builder.index(names, BY_SHADE, Partition::replicated()).expect("memory");
    fill(&[("green", 2), ("crimson", 1), ("blue", 4)]).expect("room");
    let node = builder.start().expect("owners");
    let endpoint = node.endpoint().expect("room");
    let worker = node.worker(&endpoint).expect("few");
    let read = worker.transact(async |tx| {
        let all = tx.range(by_shade, ..).await?;
        Ok((all, tx.all(by_shade.keys(), 1).await?, tx.range_back_limit(names, .., 2).await?))
    });
    let (all, ones, last) = block_on(&endpoint, read).expect("all of it is here");
    let named = |name: &str, shade| (shade, (name.to_owned(), shade));
    assert_eq!(all, [named("crimson", 1), named("red", 1), named("green", 2), named("blue", 4)]);
    assert_eq!(ones, [(1, "crimson".to_owned()), (1, "red".to_owned())]);
    assert_eq!(last, [("red".to_owned(), 1), ("green".to_owned(), 2)]);
}

#[test]
fn nodes_whose_replicas_differ_do_not_meet() {
    let fabric = Local::new(2, LocalConfig::perfect());
    let start = |number, is_other: bool| {
        let mut builder = builder(&fabric, number, &[0]);
        let prices = builder.table(PRICES, Partition::replicated()).expect("memory");
        let rows = builder.table(TableDef::<u64, Pod<u64>>::hash("rows"), Partition::hash()).expect("memory");
        let local = builder.local().expect("memory").table(PRICES).expect("it is there");
        let last = if is_other { 8 } else { 7 };
        // In another order, which makes no difference.
        let mut items: Vec<u64> = (0..ITEMS).collect();
        if number == 1 {
            items.reverse();
        }
        let filled = builder.local().expect("memory").transact(|tx| {
            items.iter().try_for_each(|item| tx.put(local, item, &price(*item)))?;
            tx.put(local, ITEMS, &last)
        });
        filled.expect("room");
        (builder.start().expect("owners"), prices, rows)
    };
    for is_other in [false, true] {
        let ((owner, ..), (client, _, rows)) = (start(0, false), start(1, is_other));
        let done = &std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let endpoint = owner.endpoint().expect("room");
                let mut executor = drtm_rdma::Executor::new(&endpoint);
                owner.worker(&endpoint).expect("few").serve(&executor.spawner());
                executor.spawn(endpoint.until(|| done.load(SeqCst)));
                executor.run();
            });
            let endpoint = client.endpoint().expect("room");
            let worker = client.worker(&endpoint).expect("few");
            let asked = block_on(&endpoint, worker.transact(async |tx| tx.get(rows, 1).await));
            done.store(true, SeqCst);
            match asked {
                Ok(None) => assert!(!is_other),
                Err(Error::Cluster(ClusterError::Refused { reason: Refusal::Other, .. })) => assert!(is_other),
                other => panic!("{other:?}"),
            }
        });
    }
}

/// Adds prices to one sum, which all do.
#[derive(Clone)]
struct Orders {
    seed: u64,
    total: Arc<AtomicU64>,
    left: Arc<AtomicU64>,
}

impl Script for Orders {
    async fn run<'e, F: Fabric<Engine = NoHtm>>(self, worker: Worker<'e, F, Tested>, tables: Tables, number: u64) {
        let mut random = Rng::with_seed(self.seed << 16 | number);
        let sum = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        for _ in 0..rounds(8) {
            let items = [random.u64(0..ITEMS), random.u64(0..ITEMS)];
            let added = worker.transact(async |tx| {
                let before = tx.get(tables.words, 1).await?.map_or(0, |bytes| sum(&bytes));
                let prices = tx.get_many(tables.directory.prices, items).await?;
                let prices = prices.into_iter().sum::<Option<u64>>().expect("all items have prices");
                tx.put(tables.words, 1, (before + prices).to_le_bytes().to_vec()).await?;
                Ok(prices)
            });
            let added = added.await.expect("all nodes are here");
            assert_eq!(added, items.map(price).iter().sum::<u64>());
            self.total.fetch_add(added, SeqCst);
        }
        if self.left.fetch_sub(1, SeqCst) == 1 {
            let seen = worker.transact(async |tx| tx.get(tables.words, 1).await).await.expect("all nodes are here");
            assert_eq!(sum(&seen.expect("it was written")), self.total.load(SeqCst));
        }
    }
}

#[test]
fn are_in_no_transactions_way() {
    // So many that those which starve lock their rows beforehand.
    let size = Size { nodes: 2, owners: 2, coroutines: 16, protocol: Protocol::FASST };
    for protocol in [Protocol::FASST, Protocol::DRTM_H] {
        for bed in [Bed::perfect(), Bed::harsh(3), Bed::atomic(3), Bed::rough(5)] {
            let orders = Orders { seed: 1, total: Arc::default(), left: Arc::new(AtomicU64::new(32)) };
            bed.run(Size { protocol, ..size }, &orders);
        }
    }
}
