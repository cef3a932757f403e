//! The metrics that a database publishes to a recorder: all of its figures, under the documented
//! names, and only on request.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use drtm_htm::Emulated;
use drtm_txn::{Builder, Config, Conflict, Db, Error, IndexDef, Multi, Pod, TableDef};
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

/// Labels that say whose figures they are.
const OWNERS: [&str; 2] = ["database", "node"];

/// Keeps the published values: counters as they are, gauges as the bits of a `f64`.
#[derive(Default)]
struct Recorded {
    values: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
    described: Mutex<BTreeMap<String, Option<Unit>>>,
}

impl Recorded {
    fn value(&self, key: &Key) -> Arc<AtomicU64> {
        let labels: Vec<_> =
            key.labels().filter(|label| !OWNERS.contains(&label.key())).map(|label| label.value()).collect();
        assert!(key.labels().any(|label| OWNERS.contains(&label.key())), "{key} does not say of which");
        let name = [&[key.name()][..], &labels].concat().join(" ");
        Arc::clone(self.values.lock().expect("no thread panics here").entry(name).or_default())
    }

    fn describe(&self, name: KeyName, unit: Option<Unit>) {
        self.described.lock().expect("no thread panics here").insert(name.as_str().to_owned(), unit);
    }

    fn counter(&self, name: &str) -> u64 {
        self.values.lock().expect("no thread panics here")[name].load(Relaxed)
    }

    fn gauge(&self, name: &str) -> f64 {
        f64::from_bits(self.counter(name))
    }
}

impl Recorder for Recorded {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(name, unit);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(name, unit);
    }

    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        panic!("{name:?} is no counter and no gauge");
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.value(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.value(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        panic!("{key} is no counter and no gauge");
    }
}

#[derive(Debug)]
struct Regions;

impl Config for Regions {
    type Engine = Emulated;
    const HTM_FROM: usize = 1;
}

const COUNTERS: TableDef<u64, Pod<u64>> = TableDef::hash("counters");
const BY_COUNT: IndexDef<u64, Pod<u64>, u64, Multi> = IndexDef::multi("by count", |_, count| Some(count));

#[test]
fn figures_are_handed_over_when_somebody_asks() -> Result<(), Error> {
    let recorder = Recorded::default();
    metrics::with_local_recorder(&recorder, || {
        let db: Db<Regions> = Builder::new().memory(32 << 20).build_with(Emulated::default())?;
        let counters = db.table(COUNTERS)?;
        db.index(counters, BY_COUNT)?;
        for key in 0..10 {
            db.transact(|tx| tx.insert(counters, key, &key))?;
        }
        assert!(db.transact(|_| Err::<(), _>(Error::aborted("no"))).is_err());
        let (mut one, mut two) = (db.begin()?, db.begin()?);
        for tx in [&mut one, &mut two] {
            tx.update(counters, 1, |count| *count += 1)?;
        }
        one.commit()?;
        assert!(two.commit().is_err());
        let _snapshot = db.snapshot()?;
        db.transact(|tx| tx.put(counters, 1, &7))?;
        assert!(recorder.values.lock().expect("no thread panics here").is_empty(), "no thread has asked");

        db.describe_metrics();
        for _ in 0..2 {
            db.publish_metrics()?;
            let stats = db.stats();
            assert_eq!(recorder.counter("drtm_transactions_committed_total"), stats.commits);
            assert!(stats.commits >= 12);
            assert_eq!(recorder.counter("drtm_transactions_given_up_total"), stats.given_up);
            for cause in Conflict::ALL {
                let name = format!("drtm_transactions_conflicts_total {}", cause.name());
                assert_eq!(recorder.counter(&name), stats.conflicts(cause));
            }
            assert_eq!(stats.all_conflicts(), 1);
            assert_eq!(recorder.counter("drtm_htm_transactions_total commit"), db.htm_stats().commits);
            assert!(db.htm_stats().commits > 0);
            assert_eq!(recorder.gauge("drtm_table_records counters"), 10.0);
            for (table, records) in db.tables()? {
                assert_eq!(recorder.gauge(&format!("drtm_table_records {table}")), records as f64);
            }
            assert_eq!(recorder.gauge("drtm_snapshots_open"), 1.0);
            assert_eq!(recorder.gauge("drtm_older_versions_bytes"), db.older_versions() as f64);
            assert!(db.older_versions() > 0);
            assert_eq!(recorder.gauge("drtm_memory_bytes"), db.memory().total() as f64);
            assert_eq!(recorder.gauge("drtm_memory_most_bytes"), f64::from(32 << 20));
        }
        // Every published metric is described, and vice versa.
        let values = recorder.values.lock().expect("no thread panics here");
        let published: std::collections::BTreeSet<&str> =
            values.keys().filter_map(|name| name.split(' ').next()).collect();
        let described = recorder.described.lock().expect("no thread panics here");
        assert!(described.keys().map(String::as_str).eq(published));
        Ok(())
    })
}

#[cfg(feature = "cluster")]
#[test]
fn figures_of_a_clusters_node_are_handed_over() -> Result<(), Error> {
    use drtm_rdma::Phase;
    use drtm_txn::{
        Transaction,
        cluster::{Cluster, Partition},
    };

    let mut builder = Cluster::builder().nodes(2);
    let counters = builder.table(COUNTERS, Partition::by("number", |number| *number));
    let nodes = builder.start()?;
    for value in 0..5 {
        nodes[0].transact(async move |tx| tx.put(counters, 1, &value).await).wait()?;
    }
    let recorder = Recorded::default();
    metrics::with_local_recorder(&recorder, || {
        nodes[0].describe_metrics();
        nodes[0].publish_metrics();
    });
    let stats = nodes[0].stats();
    assert_eq!(recorder.counter("drtm_cluster_transactions_committed_total"), 5);
    assert_eq!(recorder.counter("drtm_cluster_transactions_conflicts_total locked"), stats.conflicts(Conflict::Locked));
    assert_eq!(recorder.counter("drtm_cluster_rounds_total commit"), stats.rounds(Phase::Commit).count);
    assert!(recorder.counter("drtm_cluster_rounds_nanoseconds_total commit") > 0);
    assert_eq!(recorder.counter("drtm_cluster_bytes_total commit out"), stats.counters[Phase::Commit].bytes_out);
    assert_eq!(recorder.counter("drtm_cluster_messages_total lock"), stats.counters[Phase::Lock].messages());
    assert_eq!(recorder.counter("drtm_cluster_verbs_total lock"), stats.counters[Phase::Lock].operations());
    assert_eq!(recorder.gauge("drtm_cluster_transactions_under_way"), 0.0);
    let values = recorder.values.lock().expect("no thread panics here");
    let published: std::collections::BTreeSet<&str> = values.keys().filter_map(|name| name.split(' ').next()).collect();
    let described = recorder.described.lock().expect("no thread panics here");
    assert_eq!(published, described.keys().map(String::as_str).collect());
    Ok(())
}
