//! A voter's directory: who it is, how it voted, its log, and its snapshot.
//!
//! Each is a file of its own that is replaced as a whole, durably, before anything is answered. A
//! log has a few configurations only, so that this costs no more than appending would, and a file
//! is never the trace of a crash: one that does not agree with its checksum is damaged, and the
//! voter does not start.
//!
//! `identity` is written last when a directory is made. Without it, there is no voter, whatever
//! else is there. With it, all others must be there.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::types::{Entry, LogId, SnapshotMeta, Vote};
use crate::{
    error::Error,
    mutation::Mutation,
    sealed_file::{self, Kind},
};

/// Who a voter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) id: u64,
    pub(crate) node: u32,
    /// The cluster's random number. 0 until the voter has been told, or has made one.
    pub(crate) group: u64,
}

/// A voter's log, without what its snapshot covers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Log {
    pub(crate) purged: Option<LogId>,
    pub(crate) committed: Option<LogId>,
    pub(crate) entries: Vec<Entry>,
}

/// A snapshot, as it is kept and sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct KeptSnapshot {
    pub(crate) meta: SnapshotMeta,
    pub(crate) data: Vec<u8>,
}

/// What a directory had when it was opened.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) identity: Identity,
    pub(crate) vote: Option<Vote>,
    pub(crate) log: Log,
    pub(crate) snapshot: Option<KeptSnapshot>,
}

/// Where a voter keeps what it must not forget. Without a directory it keeps nothing, and a
/// restarted node is another voter.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    directory: Option<Arc<Owned>>,
    fault: Option<Mutation>,
}

#[derive(Debug)]
struct Owned {
    path: PathBuf,
    /// Locked as long as the directory is in use. The system unlocks it when the process ends.
    _lock: File,
}

#[derive(Clone, Copy, Debug)]
enum Name {
    Identity,
    Vote,
    Log,
    Snapshot,
}

impl Name {
    fn file(self) -> (&'static str, Kind) {
        match self {
            Self::Identity => ("identity", Kind(16)),
            Self::Vote => ("vote", Kind(17)),
            Self::Log => ("log", Kind(18)),
            Self::Snapshot => ("snapshot", Kind(19)),
        }
    }
}

impl Disk {
    /// Opens a node's directory, and makes another voter if there is none in it.
    pub(crate) fn open(path: Option<&Path>, node: u32, fault: Option<Mutation>) -> Result<(Self, Kept), Error> {
        let directory = path.map(Owned::lock).transpose()?;
        let disk = Self { directory: directory.map(Arc::new), fault };
        let kept = match disk.read(Name::Identity)? {
            Some(identity) => disk.kept(identity)?,
            None => disk.new_voter(node)?,
        };
        if kept.identity.node != node {
            let why = format!("it is node {}'s, and not node {node}'s: name its own directory", kept.identity.node);
            return Err(Error::Refused { why: format!("{}: {why}", disk.path(Name::Identity).display()) });
        }
        Ok((disk, kept))
    }

    fn kept(&self, identity: Identity) -> Result<Kept, Error> {
        Ok(Kept {
            identity,
            vote: self.read_all(Name::Vote)?,
            log: self.read_all(Name::Log)?,
            snapshot: self.read_all(Name::Snapshot)?,
        })
    }

    fn new_voter(&self, node: u32) -> Result<Kept, Error> {
        let identity = Identity { id: fastrand::u64(1..), node, group: 0 };
        let kept = Kept { identity, vote: None, log: Log::default(), snapshot: None };
        self.write(Name::Vote, &kept.vote)?;
        self.write(Name::Log, &kept.log)?;
        self.write(Name::Snapshot, &kept.snapshot)?;
        self.save_identity(identity)?;
        Ok(kept)
    }

    pub(crate) fn save_identity(&self, identity: Identity) -> Result<(), Error> {
        self.write(Name::Identity, &identity)
    }

    pub(crate) async fn save_vote(&self, vote: Vote) -> Result<(), Error> {
        if self.fault == Some(Mutation::VoteNotSynced) {
            return Ok(());
        }
        self.write_aside(Name::Vote, Some(vote)).await
    }

    pub(crate) async fn save_log(&self, log: Log) -> Result<(), Error> {
        if self.fault == Some(Mutation::LogNotSynced) {
            return Ok(());
        }
        self.write_aside(Name::Log, log).await
    }

    pub(crate) async fn save_snapshot(&self, snapshot: KeptSnapshot) -> Result<(), Error> {
        self.write_aside(Name::Snapshot, Some(snapshot)).await
    }

    /// Says that the snapshot is not one of a ledger.
    pub(crate) fn damaged_snapshot(&self, why: impl ToString) -> Error {
        Error::damaged(&self.path(Name::Snapshot), why)
    }

    /// Writes on another thread, so that messages are answered while the disk is slow.
    async fn write_aside(&self, name: Name, value: impl Serialize + Send + 'static) -> Result<(), Error> {
        if self.directory.is_none() {
            return Ok(());
        }
        let (disk, path) = (self.clone(), self.path(name));
        let written = tokio::task::spawn_blocking(move || disk.write(name, &value)).await;
        written.map_err(|why| Error::disk(&path, why))?
    }

    fn path(&self, name: Name) -> PathBuf {
        self.directory.as_ref().map(|owned| owned.path.join(name.file().0)).unwrap_or_default()
    }

    fn write(&self, name: Name, value: &impl Serialize) -> Result<(), Error> {
        if self.directory.is_none() {
            return Ok(());
        }
        let path = self.path(name);
        let content = postcard::to_stdvec(value).map_err(|why| Error::disk(&path, why))?;
        replace(&path, &sealed_file::seal(name.file().1, &content))
    }

    /// Reads a file that must be there.
    fn read_all<T: DeserializeOwned>(&self, name: Name) -> Result<T, Error> {
        self.read(name)?.ok_or_else(|| Error::damaged(&self.path(name), "it is not there, and the voter is"))
    }

    fn read<T: DeserializeOwned>(&self, name: Name) -> Result<Option<T>, Error> {
        if self.directory.is_none() {
            return Ok(None);
        }
        let path = self.path(name);
        let content = read(&path, name.file().1, self.fault)?;
        let decoded = content.map(|content| postcard::from_bytes(&content));
        decoded.transpose().map_err(|why| Error::damaged(&path, why))
    }
}

impl Owned {
    fn lock(path: &Path) -> Result<Self, Error> {
        fs::create_dir_all(path).map_err(|why| Error::disk(path, why))?;
        let lock = File::create(path.join("lock")).map_err(|why| Error::disk(path, why))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(Error::InUse { path: path.to_owned() }),
            Err(TryLockError::Error(why)) => Err(Error::disk(path, why)),
        }
    }
}

/// Replaces a file as a whole, durably: when this returns, the new content is on disk under its
/// name. A crash at any moment leaves the old content or the new one.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let write = || -> io::Result<()> {
        let new = path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
        File::open(folder)?.sync_all()
    };
    write().map_err(|why| Error::disk(path, why))
}

/// Reads a sealed file. `None` if there is none.
fn read(path: &Path, kind: Kind, fault: Option<Mutation>) -> Result<Option<Vec<u8>>, Error> {
    match fs::read(path) {
        Ok(bytes) => {
            let content = sealed_file::open(kind, &bytes, fault).map_err(|why| Error::damaged(path, why))?;
            Ok(Some(content.to_vec()))
        }
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(why) => Err(Error::disk(path, why)),
    }
}
