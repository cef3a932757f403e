//! The progress of a recovery, for observers.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// A step of a recovery.
///
/// # Example
///
/// See [`Progress`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecoveryStep {
    /// It reads the log. The unit is bytes.
    Log,
    /// It inserts the rows of a checkpoint into tables. The unit is rows.
    Checkpoint,
    /// It replays the log's entries. The unit is entries.
    Replay,
}

/// The progress of a recovery.
///
/// # Example
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use drtm::{Db, Error, Raw, RecoveryStep, TableDef};
///
/// const NOTES: TableDef<u64, Raw> = TableDef::hash("notes");
/// let directory = std::env::temp_dir().join(format!("drtm-progress-{}", std::process::id()));
/// let db = Db::create(&directory)?;
/// let notes = db.table(NOTES)?;
/// db.transact(|tx| tx.put(notes, &1, b"kept"))?;
/// drop(db);
///
/// let seen = Arc::new(Mutex::new(Vec::new()));
/// let noting = Arc::clone(&seen);
/// let db = Db::builder().path(&directory).on_recovery(move |progress| {
///     noting.lock().expect("no panic").push((progress.step, progress.done, progress.total));
/// });
/// let db = db.build()?;
/// assert_eq!(seen.lock().expect("no panic").last(), Some(&(RecoveryStep::Replay, 1, 1)));
/// # drop(db);
/// # std::fs::remove_dir_all(&directory).expect("it is there");
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// The current step.
    pub step: RecoveryStep,
    /// The part of the step that is done.
    pub done: u64,
    /// The size of the step.
    pub total: u64,
}

type Observe = dyn Fn(&Progress) + Send + Sync;

/// The observer of a recovery, if there is one.
#[derive(Clone, Default)]
pub(crate) struct Observer(Option<Arc<Observe>>);

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Observer").field(&self.0.is_some()).finish()
    }
}

impl Observer {
    pub(crate) const NONE: Self = Self(None);

    pub(crate) fn new(observe: impl Fn(&Progress) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(observe)))
    }

    /// Begins a step of this size.
    pub(super) fn begin(&self, step: RecoveryStep, total: u64) -> Step<'_> {
        Step { observer: self, step, total, done: AtomicU64::new(0) }
    }
}

/// A running step. Several threads can work on it.
#[derive(Debug)]
pub(super) struct Step<'o> {
    observer: &'o Observer,
    step: RecoveryStep,
    total: u64,
    done: AtomicU64,
}

impl Step<'_> {
    /// Adds to the part that is done.
    pub(super) fn advance(&self, by: u64) {
        let done = self.done.fetch_add(by, Relaxed) + by;
        if let Some(observe) = &self.observer.0 {
            observe(&Progress { step: self.step, done, total: self.total });
        }
    }
}
