//! When a commit returns: by a transaction's durability, by tokens, and by deadlines; and what a
//! reader waits for.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::Duration,
};

use drtm_htm::NoHtm;
use drtm_txn::{
    Commit, Db, Durability, Error, Pod, Sink, SinkError, Table, TableDef,
    durability::storage::{Fault, Image},
};
use parking_lot::Mutex;

use super::{Sound, builder};

const COUNTS: TableDef<u32, Pod<u64>> = TableDef::hash("counts");
type Counts = Table<u32, Pod<u64>>;

const NEVER: Duration = Duration::from_secs(3_600);

fn database(disk: &Image, durability: Durability) -> Result<(Db<Sound>, Counts), Error> {
    let db = builder(disk, durability).flush_within(NEVER).build_with(NoHtm)?;
    let counts = db.table(COUNTS)?;
    Ok((db, counts))
}

/// Returns the rows after a crash that loses everything unsynced.
fn durable(disk: &Image, keys: &[u32]) -> Vec<Option<u64>> {
    let (db, counts) = database(&disk.after_crash(&mut |most| most - 1), Durability::Sync).expect("it opens");
    db.read(|tx| tx.get_many(counts, keys)).expect("memory")
}

#[test]
fn a_transaction_chooses_for_itself() -> Result<(), Error> {
    for (of_database, of_transaction) in [(Durability::Sync, Durability::Async), (Durability::Async, Durability::Sync)]
    {
        let disk = Image::default();
        let (db, counts) = database(&disk, of_database)?;
        let waits = of_transaction == Durability::Sync;
        db.transact(|tx| {
            tx.set_durability(of_transaction)?;
            tx.put(counts, 1, &7)
        })?;
        assert_eq!(durable(&disk, &[1]), [waits.then_some(7)], "{of_transaction:?}");
        // The setting holds for one transaction.
        db.transact(|tx| tx.put(counts, 2, &8))?;
        let all = if of_database == Durability::Sync { [Some(7), Some(8)] } else { [Some(7), None] };
        assert_eq!(durable(&disk, &[1, 2]), all);
        // Also for an aborted one, and for an explicit one.
        let mut tx = db.begin()?;
        tx.set_durability(of_transaction)?;
        drop(tx);
        let mut tx = db.begin()?;
        tx.put(counts, 3, &9)?;
        tx.set_durability(of_database)?;
        tx.commit()?;
        assert_eq!(durable(&disk, &[3]), [(of_database == Durability::Sync).then_some(9)]);
        assert!(matches!(db.begin()?.set_durability(Durability::None), Err(Error::Config { .. })));
    }
    let memory = Db::new()?;
    assert!(matches!(memory.begin()?.set_durability(Durability::Sync), Err(Error::Config { .. })));
    Ok(())
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread: a token needs no other runtime.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn tokens_are_waited_for_or_awaited() -> Result<(), Error> {
    for durability in [Durability::Sync, Durability::Async] {
        let disk = Image::default();
        let (db, counts) = database(&disk, durability)?;
        let ((), first) = db.submit(|tx| tx.put(counts, 1, &1))?;
        let mut tx = db.begin()?;
        tx.put(counts, 2, &2)?;
        let second = tx.submit()?;
        assert!(!first.is_durable() && !second.is_durable());
        assert_eq!(durable(&disk, &[1, 2]), [None, None]);
        block_on(second.clone())?;
        assert!(first.is_durable() && second.is_durable());
        assert_eq!(durable(&disk, &[1, 2]), [Some(1), Some(2)]);
        second.wait_within(Duration::ZERO)?;
        let ((), third) = db.submit(|tx| tx.put(counts, 3, &3))?;
        third.wait()?;
        assert_eq!(durable(&disk, &[3]), [Some(3)]);
        // A read-only transaction depends on the writes that it has read.
        let (read, token) = db.submit(|tx| tx.get(counts, 3))?;
        assert!(read == Some(3) && token.is_durable());
        let ((), token) = db.submit(|tx| tx.put(counts, 4, &4))?;
        drop(db);
        assert!(token.is_durable(), "dropping a database makes all durable");
    }
    Ok(())
}

/// So that the same code runs with a directory and without one.
#[test]
fn tokens_of_a_database_in_memory_are_ready_at_once() -> Result<(), Error> {
    let db = Db::new()?;
    let counts = db.table(COUNTS)?;
    let ((), first) = db.submit(|tx| tx.put(counts, 1, &1))?;
    let mut tx = db.begin()?;
    tx.put(counts, 2, &2)?;
    let second = tx.submit()?;
    assert_eq!(db.read(|tx| tx.get_many(counts, [1, 2]))?, [Some(1), Some(2)]);
    assert!(first.is_durable() && second.is_durable());
    first.wait()?;
    first.wait_within(Duration::ZERO)?;
    block_on(second)?;
    let failed = db.submit(|_| Err::<(), _>(Error::aborted("on purpose")));
    assert!(matches!(failed, Err(Error::Aborted { .. })));
    Ok(())
}

#[test]
fn tokens_tell_of_a_log_that_has_failed() -> Result<(), Error> {
    let disk = Image::default();
    let (db, counts) = database(&disk, Durability::Sync)?;
    let ((), waited) = db.submit(|tx| tx.put(counts, 1, &1))?;
    let ((), awaited) = db.submit(|tx| tx.put(counts, 2, &1))?;
    disk.fail_at(disk.calls(), Fault::Device);
    assert!(matches!(block_on(awaited), Err(Error::OutcomeUnknown { .. })));
    assert!(matches!(waited.wait(), Err(Error::OutcomeUnknown { .. })));
    Ok(())
}

#[test]
fn a_reader_waits_for_what_it_has_read_and_for_nothing_else() -> Result<(), Error> {
    let disk = Image::default();
    let (db, counts) = database(&disk, Durability::Sync)?;
    db.transact(|tx| tx.put(counts, 1, &1))?;
    let ((), second) = db.submit(|tx| tx.put(counts, 2, &2))?;
    let calls = disk.calls();
    assert_eq!(db.read(|tx| tx.get(counts, 1))?, Some(1));
    assert_eq!(db.transact(|tx| tx.get(counts, 1))?, Some(1));
    assert!(disk.calls() == calls && !second.is_durable(), "what it has read is durable");
    assert_eq!(db.read(|tx| tx.get(counts, 2))?, Some(2));
    assert!(second.is_durable());
    let calls = disk.calls();
    assert_eq!(db.read(|tx| tx.get_many(counts, [1, 2, 3]))?, [Some(1), Some(2), None]);
    assert_eq!(disk.calls(), calls, "everything is durable");
    // An absent key may depend on a recent removal.
    let (_, removal) = db.submit(|tx| tx.remove(counts, 1))?;
    assert_eq!(db.read(|tx| tx.get(counts, 1))?, None);
    assert!(removal.is_durable());
    Ok(())
}

#[test]
fn once_the_log_has_failed_reads_of_what_is_durable_succeed() -> Result<(), Error> {
    let disk = Image::default();
    let (db, counts) = database(&disk, Durability::Sync)?;
    db.transact(|tx| tx.put(counts, 1, &1))?;
    disk.fail_at(disk.calls(), Fault::Device);
    assert!(matches!(db.transact(|tx| tx.put(counts, 2, &2)), Err(Error::OutcomeUnknown { .. })));
    assert!(matches!(db.transact(|tx| tx.put(counts, 3, &3)), Err(Error::Poisoned { .. })));
    assert_eq!(db.read(|tx| tx.get(counts, 1))?, Some(1));
    assert!(matches!(db.read(|tx| tx.get(counts, 2)), Err(Error::Poisoned { .. })));
    assert!(matches!(db.read(|tx| tx.get(counts, 9)), Err(Error::Poisoned { .. })), "it may have been removed");
    assert_eq!(db.snapshot()?.get(counts, 2)?, Some(2), "that waits for nothing");
    let unsynced = db.read(|tx| {
        tx.set_durability(Durability::Async)?;
        tx.get(counts, 2)
    })?;
    assert_eq!(unsynced, Some(2));
    assert!(matches!(db.checkpoint(), Err(Error::OutcomeUnknown { .. } | Error::Poisoned { .. })));
    assert_eq!(durable(&disk, &[1, 3]), [Some(1), None]);
    Ok(())
}

/// Stops the commit of one row.
#[derive(Debug)]
struct Stop {
    reached: Mutex<Sender<()>>,
    go_on: Mutex<Receiver<()>>,
}

impl Sink for Stop {
    fn commit(&self, commit: &Commit<'_>) -> Result<(), SinkError> {
        if commit.rows().any(|row| row.key() == 100_u32.to_be_bytes()) {
            self.reached.lock().send(())?;
            self.go_on.lock().recv()?;
        }
        Ok(())
    }
}

#[test]
fn a_thread_that_has_stopped_is_named_and_nothing_false_is_acknowledged() -> Result<(), Error> {
    let disk = Image::default();
    let ((reached_in, reached), (go_on, go_on_out)) = (channel(), channel());
    let stop = Stop { reached: Mutex::new(reached_in), go_on: Mutex::new(go_on_out) };
    let patience = Duration::from_millis(20);
    let db = builder(&disk, Durability::Sync).sink(Arc::new(stop)).sync_within(patience).build_with::<Sound>(NoHtm)?;
    let counts = db.table(COUNTS)?;
    thread::scope(|scope| {
        let (reached, db) = (reached, &db);
        let stopped = thread::Builder::new().name("the stopped one".to_owned());
        let stopped = stopped.spawn_scoped(scope, || db.transact(|tx| tx.put(counts, 100, &1))).expect("a thread");
        reached.recv().expect("it gets there");
        for key in 0..3 {
            match db.transact(|tx| tx.put(counts, key, &1)) {
                Err(error @ Error::NotYetDurable { .. }) => {
                    assert!(error.to_string().contains("`the stopped one`"), "{error}");
                    let Error::NotYetDurable { waited, thread, full: None } = error else { continue };
                    assert!(waited >= patience && thread.as_deref() == Some("the stopped one"));
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(durable(&disk, &[0, 1, 2, 100]), [None; 4]);
        let ((), token) = db.submit(|tx| tx.put(counts, 3, &1))?;
        assert!(matches!(token.wait_within(patience), Err(Error::NotYetDurable { .. })));
        go_on.send(()).expect("it waits for it");
        // It may have missed its own deadline.
        assert!(matches!(stopped.join().expect("no panic"), Ok(()) | Err(Error::NotYetDurable { .. })));
        token.wait()?;
        assert_eq!(durable(&disk, &[0, 1, 2, 3, 100]), [Some(1); 5]);
        Ok(())
    })
}
