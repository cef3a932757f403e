//! Making checkpoints and backups on demand.

use std::{path::PathBuf, sync::Arc};

use super::Db;
use crate::{
    Checkpoint, CommitToken, Config, Error, LogError,
    durability::storage::{Files, Storage},
    tx::in_memory_only,
};

impl<S: Config> Db<S> {
    /// Makes a checkpoint: a file of all rows, after which the log before it is removed. Writers
    /// are not blocked.
    ///
    /// Checkpoints are also made [automatically](crate::Builder::checkpoint_every). Concurrent
    /// calls run one after the other.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] in a database that is in memory only. [`Error::ReadOnly`] in one that is
    /// only read. [`Error::DiskFull`] and [`Error::NotYetDurable`] if the disk is full.
    /// [`Error::Poisoned`] and [`Error::OutcomeUnknown`] if the log has failed. [`Error::Log`] if
    /// an I/O operation fails; the log then stays as it was. [`Error::Closed`].
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Raw, TableDef};
    ///
    /// const NOTES: TableDef<u64, Raw> = TableDef::hash("notes");
    /// let directory = std::env::temp_dir().join(format!("drtm-checkpoint-{}", std::process::id()));
    /// let db = Db::create(&directory)?;
    /// let notes = db.table(NOTES)?;
    /// db.transact(|tx| (0..100).try_for_each(|key| tx.put(notes, &key, b"kept")))?;
    /// let checkpoint = db.checkpoint()?;
    /// assert!(checkpoint.rows == 100 && checkpoint.bytes > 400);
    /// drop(db);
    ///
    /// let db = Db::open(&directory)?;
    /// let notes = db.table(NOTES)?;
    /// assert_eq!(db.read(|tx| tx.get(notes, &99))?.as_deref(), Some(&b"kept"[..]));
    /// # drop(db);
    /// # std::fs::remove_dir_all(&directory).expect("it is there");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn checkpoint(&self) -> Result<Checkpoint, Error> {
        let db = &*self.inner;
        db.lifecycle.admit(db.engine(), false)?;
        match &db.log {
            Some(log) => log.checkpoint(),
            None => Err(in_memory_only("a checkpoint", "of a database with a path")),
        }
    }

    /// Notes some bytes in the log, in place of those that were noted before: for tests. A node of
    /// a cluster does so by itself.
    ///
    /// # Errors
    ///
    /// [`Error::Poisoned`], [`Error::ReadOnly`]; [`Error::Config`] without a log.
    #[doc(hidden)]
    pub fn note(&self, note: &[u8]) -> Result<CommitToken, Error> {
        let log = self.inner.log.as_ref().ok_or_else(|| in_memory_only("a note", "of a database with a path"))?;
        Ok(CommitToken::new(Some(log), log.note(note)?))
    }

    /// Returns what was noted last: for tests. `None` if nothing was.
    #[doc(hidden)]
    #[must_use]
    pub fn noted(&self) -> Option<Vec<u8>> {
        self.inner.log.as_ref()?.noted()
    }

    /// Copies the database to another directory, which can be opened by itself. The copy has
    /// everything that is committed when this is called, and a prefix of what is committed
    /// meanwhile. Writers are not blocked.
    ///
    /// The directory is created if it does not exist. If this fails, or the process ends meanwhile,
    /// it has no database that can be opened, and can be removed. The copy keeps the log's
    /// identity: it is a copy of this database, not another one.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if there is a database in the directory, or this one is in memory only.
    /// Otherwise as for [`checkpoint`](Self::checkpoint).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Raw, TableDef};
    ///
    /// const NOTES: TableDef<u64, Raw> = TableDef::hash("notes");
    /// let directory = std::env::temp_dir().join(format!("drtm-backup-{}", std::process::id()));
    /// let db = Db::create(directory.join("live"))?;
    /// let notes = db.table(NOTES)?;
    /// db.transact(|tx| tx.put(notes, &1, b"kept"))?;
    /// db.backup(directory.join("copy"))?;
    ///
    /// let copy = Db::open(directory.join("copy"))?;
    /// let notes = copy.table(NOTES)?;
    /// assert_eq!(copy.read(|tx| tx.get(notes, &1))?.as_deref(), Some(&b"kept"[..]));
    /// # drop((db, copy));
    /// # std::fs::remove_dir_all(&directory).expect("it is there");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn backup(&self, directory: impl Into<PathBuf>) -> Result<Checkpoint, Error> {
        let directory = directory.into();
        let file = directory.display().to_string();
        let files =
            Files::create(directory).map_err(|source| LogError::Io { action: "open the directory", file, source })?;
        let target: Arc<dyn Storage> = Arc::new(files);
        self.backup_to(&target)
    }

    /// [Copies](Self::backup) the database to other storage: for tests.
    ///
    /// # Errors
    ///
    /// As for [`backup`](Self::backup).
    #[doc(hidden)]
    pub fn backup_to(&self, target: &Arc<dyn Storage>) -> Result<Checkpoint, Error> {
        let db = &*self.inner;
        db.lifecycle.admit(db.engine(), false)?;
        match &db.log {
            Some(log) => log.back_up(target),
            None => Err(in_memory_only("a backup", "of a database with a path")),
        }
    }
}
