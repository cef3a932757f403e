//! Moving rows together, so that memory serves rows of any size again.

use std::{
    thread,
    time::{Duration, Instant},
};

use drtm_kv::{KvError, Relocated};

use super::{Db, retry::try_garbage};
use crate::{
    Config, Error,
    memory::storage::{OwnedKey, Tour},
    schema::catalog::Opened,
    trace::event,
};

/// How many rows are looked at under one admission.
const BATCH: usize = 256;

/// How long open transactions are waited for in the end, and how long a thread sleeps between
/// looks.
const PATIENCE: Duration = Duration::from_secs(1);
const NAP: Duration = Duration::from_micros(500);

/// What a [compaction](Db::compact) has done.
///
/// # Example
///
/// See [`Db::compact`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compacted {
    /// Rows that were moved.
    pub rows: u64,
    /// Spans that were to be emptied, and had rows.
    pub spans: u64,
    /// Bytes that serve rows of any size from now on. Together with what the system was given back.
    pub free: u64,
    /// Bytes that will be free when transactions and snapshots have ended that were open meanwhile.
    pub waiting: u64,
    /// Bytes that were given back to the system.
    pub discarded: u64,
}

impl<S: Config> Db<S> {
    /// Moves rows together, so that the memory that others have left serves rows of any size, and
    /// gives it back to the system.
    ///
    /// Memory is divided into spans, of which each serves rows of one size. Of each size, the rows
    /// of the emptiest spans are moved, as far as the others have room. Writers go on meanwhile.
    ///
    /// # Cost
    ///
    /// Every row of every table is looked up once, by its key, and those that are moved are locked
    /// and copied one by one. A transaction that has read a row which is moved is in conflict, and
    /// a closure is run again. In the end, this waits up to a second for transactions and snapshots
    /// that were open meanwhile; what they hold up becomes free with a later compaction, or when
    /// memory is wanted.
    ///
    /// Rows stay where they are that are locked, or of which snapshots need older versions. Tables
    /// keep their buckets and nodes. A thread that is idle keeps what it has taken for its next
    /// rows, one span of each size at most.
    ///
    /// Nothing is moved where peers may have places of rows: in a node of a cluster.
    ///
    /// # Errors
    ///
    /// [`Error::Nested`] within the closure of a transaction; [`Error::Closed`]; [`Error::Store`]
    /// if the system refuses; or when the store is corrupt.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Builder, Error, Raw, TableDef};
    ///
    /// const NOTES: TableDef<u64, Raw> = TableDef::hash("notes");
    /// let db = Builder::new().memory(64 << 20).build()?;
    /// let notes = db.table(NOTES)?;
    /// for key in 0..10_000 {
    ///     db.transact(|tx| tx.insert(notes, &key, &[7; 1_000]))?;
    /// }
    /// for key in (0..10_000).filter(|key| key % 10 > 0) {
    ///     db.transact(|tx| tx.remove(notes, &key))?;
    /// }
    /// let compacted = db.compact()?;
    /// assert!(compacted.rows > 500 && compacted.free > 8 << 20);
    /// assert_eq!(db.memory().free, compacted.free);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn compact(&self) -> Result<Compacted, Error> {
        let db = &*self.inner;
        db.lifecycle.admit(db.engine(), false)?;
        if self.is_in_closure() {
            return Err(Error::Nested);
        }
        let mut done = Compacted::default();
        if !db.quiescence.is_certain() {
            return Ok(done);
        }
        self.settle_garbage()?;
        let compaction = loop {
            match db.store.compaction() {
                Some(compaction) => break compaction,
                None => thread::sleep(NAP),
            }
            db.lifecycle.admit(db.engine(), false)?;
        };
        done.spans = compaction.spans() as u64;
        for (_, table) in db.catalog.all() {
            match self.compact_table(table) {
                Ok(rows) => done.rows += rows,
                // There is no room for more.
                Err(Error::Full { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        drop(compaction);
        let until = Instant::now() + PATIENCE;
        while db.store.waiting_spans() > 0 && Instant::now() < until {
            self.settle_garbage()?;
            if !db.store.find_memory() {
                thread::sleep(NAP);
            }
        }
        done.discarded = db.store.discard_free().map_err(KvError::from)?;
        done.waiting = db.store.waiting_spans();
        done.free = db.store.free_spans() - done.waiting;
        event!(info, rows = done.rows, free = done.free, "memory has been compacted");
        Ok(done)
    }

    /// Takes back some of what transactions have left behind, and leaves this thread's free memory
    /// to all.
    fn settle_garbage(&self) -> Result<(), Error> {
        let (db, thread) = (&*self.inner, self.inner.thread());
        try_garbage(db, thread)?;
        let mut state = db.take(thread)?;
        state.worker.leave_free();
        db.give_back(thread, state);
        Ok(())
    }

    /// Moves a table's rows out of sparse spans. Returns how many.
    fn compact_table(&self, table: &Opened<S::Engine>) -> Result<u64, Error> {
        let (db, thread) = (&*self.inner, self.inner.thread());
        let mut tour: Option<Tour> = None;
        let (mut keys, mut moved, mut has_more) = (Vec::<OwnedKey>::new(), 0, true);
        while has_more {
            // The holder of the ticket is to succeed: what it has read stays where it is meanwhile.
            while db.ticket.is_held() {
                thread::sleep(NAP);
            }
            let (_until_the_end, _) = db.enter(thread)?;
            if table.check_open().is_err() {
                break;
            }
            let tour = match &mut tour {
                Some(tour) => tour,
                None => tour.insert(table.storage.tour()?),
            };
            keys.clear();
            while has_more && keys.len() < BATCH {
                has_more = table.storage.visit_some(tour, |key| keys.push(key.into()))?;
            }
            let mut state = db.take(thread)?;
            let mut relocated = Ok(());
            for key in &keys {
                match table.storage.relocate(&mut state.worker, key.as_ref()) {
                    Ok(Relocated::Moved) => moved += 1,
                    Ok(_) => {}
                    Err(error) => {
                        relocated = Err(error);
                        break;
                    }
                }
            }
            db.give_back(thread, state);
            relocated?;
        }
        Ok(moved)
    }
}
