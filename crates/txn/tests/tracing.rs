//! Events of a database: rare ones only, and none of a transaction that succeeds.

use std::{
    fmt::{Debug, Write},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use drtm_txn::{Builder, Db, Error, IndexDef, Multi, Pod, Raw, TableDef};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

/// Keeps a line for each event and each span.
#[derive(Clone, Default)]
struct Recorded {
    lines: Arc<Mutex<Vec<String>>>,
    spans: Arc<AtomicU64>,
}

/// Serializes the tests. Interest is cached for the whole process: a callsite that is first reached
/// while another thread subscribes may be cached wrongly.
fn alone() -> (MutexGuard<'static, ()>, Recorded) {
    static ALONE: Mutex<()> = Mutex::new(());
    (ALONE.lock().unwrap_or_else(PoisonError::into_inner), Recorded::default())
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let written = if field.name() == "message" {
            write!(self.0, " {value:?}")
        } else {
            write!(self.0, " {}={value:?}", field.name())
        };
        written.expect("memory");
    }
}

impl Recorded {
    fn keep(&self, metadata: &Metadata<'_>, record: impl FnOnce(&mut Line)) {
        assert_eq!(metadata.target(), "drtm");
        let mut line = Line(metadata.level().to_string());
        record(&mut line);
        self.lines.lock().expect("no thread panics here").push(line.0);
    }

    /// Returns the events of `body` on this thread.
    fn told<T>(&self, body: impl FnOnce() -> T) -> (T, Vec<String>) {
        self.take();
        let result = tracing::subscriber::with_default(self.clone(), body);
        (result, self.take())
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.lines.lock().expect("no thread panics here"))
    }
}

impl Subscriber for Recorded {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "drtm"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.keep(span.metadata(), |line| {
            write!(line.0, " span {}", span.metadata().name()).expect("memory");
            span.record(line);
        });
        Id::from_u64(self.spans.fetch_add(1, Relaxed) + 1)
    }

    fn event(&self, event: &Event<'_>) {
        self.keep(event.metadata(), |line| event.record(line));
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

const COUNTERS: TableDef<u64, Pod<u64>> = TableDef::hash("counters");

/// Asserts that one line contains all parts.
fn has(lines: &[String], parts: &[&str]) {
    assert!(lines.iter().any(|line| parts.iter().all(|part| line.contains(part))), "no {parts:?} in {lines:#?}");
}

#[test]
fn what_is_rare_is_told_and_nothing_else() -> Result<(), Error> {
    let (_alone, kept) = alone();
    let (db, told) = kept.told(|| Builder::new().memory(64 << 20).build());
    let db = db?;
    has(&told, &["INFO", "a database is open", "memory=67108864"]);
    let (counters, told) = kept.told(|| db.table(COUNTERS));
    let counters = counters?;
    has(&told, &["DEBUG", "a table has been made", "table=\"counters\""]);

    let (done, told) = kept.told(|| {
        db.transact(|tx| tx.insert(counters, 1, &1))?;
        db.transact(|tx| tx.update(counters, 1, |count| *count += 1))?;
        db.read(|tx| tx.get(counters, 1))?;
        db.begin()?.commit()?;
        db.table(COUNTERS)?;
        db.transact(|_| Err::<(), _>(Error::aborted("no"))).or(Ok::<(), Error>(()))
    });
    done?;
    assert_eq!(told, [""; 0], "that is not rare");

    let (grown, told) = kept.told(|| (2..5_000).try_for_each(|key| db.transact(|tx| tx.insert(counters, key, &key))));
    grown?;
    has(&told, &["DEBUG", "more buckets", "buckets="]);
    assert!(told.len() < 20, "{} events", told.len());

    let (snapshot, told) = kept.told(|| db.snapshot().map(drop));
    snapshot?;
    has(&told, &["TRACE", "a snapshot is open"]);
    has(&told, &["TRACE", "a snapshot is closed"]);
    Ok(())
}

#[test]
fn indexes_are_told_of_whether_they_come_about_or_not() -> Result<(), Error> {
    const BY_COUNT: IndexDef<u64, Pod<u64>, u64, Multi> = IndexDef::multi("by count", |_, count| Some(count));
    const ALONE: IndexDef<u64, Pod<u64>, u64> = IndexDef::unique("alone", |_, _| Some(1));
    let (_alone, kept) = alone();
    let db = Db::new()?;
    let counters = db.table(COUNTERS)?;
    db.transact(|tx| tx.insert(counters, 1, &1).and_then(|()| tx.insert(counters, 2, &1)))?;
    let (made, told) = kept.told(|| db.index(counters, BY_COUNT));
    made?;
    has(&told, &["INFO", "span index", "index=\"by count\"", "table=\"counters\""]);
    has(&told, &["INFO", "an index has been made"]);
    let (refused, told) = kept.told(|| db.index(counters, ALONE));
    assert!(refused.is_err());
    has(&told, &["WARN", "an index has been given up", "index=\"alone\"", "two rows of `counters`"]);
    Ok(())
}

#[test]
fn who_starves_is_told_of() -> Result<(), Error> {
    let (_alone, kept) = alone();
    let db = Db::new()?;
    let counters = db.table(COUNTERS)?;
    db.transact(|tx| tx.put(counters, 1, &0))?;
    let (done, told) = kept.told(|| {
        let mut tries = 0_u64;
        db.transact(|tx| {
            tries += 1;
            let count = tx.get(counters, 1)?.unwrap_or(0);
            // Another transaction always commits first, until the ticket.
            if tries <= 48 {
                let faster = || db.transact(|tx| tx.put(counters, 1, &tries));
                thread::scope(|scope| scope.spawn(faster).join().expect("it does not panic"))?;
            }
            tx.put(counters, 1, &(count + 1))
        })
    });
    done?;
    has(&told, &["DEBUG", "fails again and again", "times=16"]);
    has(&told, &["WARN", "the ticket", "tries=48"]);
    assert_eq!(told.len(), 2, "{told:#?}");
    Ok(())
}

#[test]
fn that_no_memory_is_left_for_older_versions_is_told_once() -> Result<(), Error> {
    const NOTES: TableDef<u64, Raw> = TableDef::hash("notes");
    let (_alone, kept) = alone();
    let db = Builder::new().memory(64 << 20).older_versions(1_000).build()?;
    let notes = db.table(NOTES)?;
    db.transact(|tx| (0..100).try_for_each(|key| tx.put(notes, key, &[1; 100])))?;
    let snapshot = db.snapshot()?;
    let (done, told) = kept.told(|| db.transact(|tx| (0..100).try_for_each(|key| tx.put(notes, key, &[2; 100]))));
    done?;
    drop(snapshot);
    has(&told, &["WARN", "older versions", "most=1000"]);
    assert_eq!(told.len(), 1, "{told:#?}");
    Ok(())
}

#[test]
fn the_end_is_told() -> Result<(), Error> {
    let (_alone, kept) = alone();
    let db = Db::new()?;
    let tx = db.begin()?;
    let (closed, told) = thread::scope(|scope| {
        let close = || kept.told(|| db.close_within(Some(Duration::from_millis(1))));
        scope.spawn(close).join().expect("it does not panic")
    });
    assert!(closed.is_err());
    has(&told, &["WARN", "a database is not closed", "1 transactions"]);
    drop(tx);
    let (closed, told) = kept.told(|| db.close());
    closed?;
    has(&told, &["INFO", "span close"]);
    has(&told, &["INFO", "a database is closed"]);
    Ok(())
}
