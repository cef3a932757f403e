//! Logs in memory that outlives the process: DrTM's cooperative logging.
//!
//! Each life of a node has a file in a directory that all nodes map. It has a *slot* for each
//! transaction that the node runs at one time:
//!
//! ```text
//! word 0   state: sequence << 2 | FREE, AHEAD, DECIDED or REFUSED
//!      1   the next slot's offset, or zero
//!      8.. the lock-ahead log, and behind it the write-ahead log: two records as those of rings
//! ```
//!
//! The state alone says what the records mean. It goes from `AHEAD` to `DECIDED` together with the
//! write-ahead log (`write`), or to `REFUSED` by an owner that recovers (`recover`).
//!
//! The decision page is `docs/decisions/0114-logs-in-memory-that-outlives-a-process.md`.

mod notes;
mod recover;
mod restore;
mod slots;
mod write;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
};

use drtm_htm::Engine;
use drtm_kv::Holder;
use drtm_rdma::{Incarnation, NodeId, NvError, NvRegion, Offset, read_bytes};
use parking_lot::Mutex;

use self::notes::Notes;
pub(in crate::cluster) use self::{notes::hash_of, slots::Slots};
use super::record;

/// Bytes of a slot's two records.
const RECORDS: usize = 64 << 10;

/// Where they begin.
const RECORDS_AT: u64 = 64;

/// The most that the files of a node's life may have.
const CAPACITY: u64 = 4 << 30;

const STATE: usize = 0;
const NEXT: usize = 1;

/// What a slot's records mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Nothing.
    Free,
    /// Rows are locked, or about to be.
    Ahead,
    /// The transaction is decided: all that it writes is here.
    Decided,
    /// It never will be.
    Refused,
}

/// The state of a slot: which of its transactions it has, and what that one's records mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SlotState {
    sequence: u64,
    kind: Kind,
}

impl SlotState {
    const FREE: Self = Self { sequence: 0, kind: Kind::Free };

    const fn to_word(self) -> u64 {
        self.sequence << 2 | self.kind as u64
    }

    const fn of_word(word: u64) -> Self {
        let kind = match word & 3 {
            0 => Kind::Free,
            1 => Kind::Ahead,
            2 => Kind::Decided,
            _ => Kind::Refused,
        };
        Self { sequence: word >> 2, kind }
    }

    const fn but(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// Returns the positions of the two records, which tell them from those of other transactions.
    const fn positions(self) -> [u64; 2] {
        [self.sequence << 4 | 8, (self.sequence + 1) << 4]
    }
}

/// A life of a node.
type Life = (NodeId, Incarnation);

/// A node's own logs, and where those of all nodes are.
#[derive(Debug)]
pub(in crate::cluster) struct Cooperative<E: Engine> {
    directory: PathBuf,
    life: Life,
    region: NvRegion<E>,
    /// Held while a slot is added.
    links: Mutex<()>,
    /// What it has noted of transactions that it has carried out.
    notes: Notes,
    /// Whose logs this node has recovered its rows from.
    recovered: Mutex<Vec<Life>>,
    /// Whether a worker recovers.
    is_kept: AtomicBool,
}

impl<E: Engine> Cooperative<E> {
    /// Creates the logs of a node's life.
    pub(in crate::cluster) fn create(engine: E, directory: &Path, life: Life) -> Result<Self, NvError> {
        let failed = |source| NvError::File { path: directory.into(), source };
        fs::create_dir_all(directory).map_err(failed)?;
        let words = (RECORDS / size_of::<u64>()) as u64;
        let region = NvRegion::create(engine, &directory.join(file_name(life)), CAPACITY, words)?;
        let (directory, links, recovered) = (directory.to_path_buf(), Mutex::new(()), Mutex::default());
        let notes = Notes::default();
        Ok(Self { directory, life, region, links, notes, recovered, is_kept: AtomicBool::new(false) })
    }

    /// Adds a slot, which is free.
    fn add_slot(&self) -> Result<Offset, NvError> {
        let _links = self.links.lock();
        let region = self.region.region();
        let at = region.extend(RECORDS_AT + RECORDS as u64, 64)?;
        if let Some(first) = self.region.root(0) {
            let (engine, words) = (region.engine(), region.words(at, NEXT + 1)?);
            engine.store(&words[NEXT], engine.load(first));
            engine.store(first, at.bytes());
        }
        Ok(at)
    }

    /// Returns the lives of nodes that have logs in the directory, but for this one, in order.
    fn others(&self) -> Result<Vec<Life>, NvError> {
        let failed = |source| NvError::File { path: self.directory.clone(), source };
        let mut lives = Vec::new();
        for entry in fs::read_dir(&self.directory).map_err(failed)? {
            lives.extend(entry.map_err(failed)?.file_name().to_str().and_then(life_of));
        }
        lives.retain(|life| *life != self.life);
        lives.sort_unstable();
        Ok(lives)
    }

    /// Notes that a transaction is in this node's log, in an epoch that is open.
    pub(in crate::cluster) fn note(&self, holder: Holder, (row, epoch): (u64, u64)) -> Result<(), NvError> {
        self.notes.add(&self.region, (holder.to_word(), row, epoch))
    }

    fn path_of(&self, life: Life) -> PathBuf {
        self.directory.join(file_name(life))
    }
}

fn file_name((node, incarnation): Life) -> String {
    format!("node-{}-life-{}", node.0, incarnation.0)
}

fn life_of(name: &str) -> Option<Life> {
    let (node, incarnation) = name.strip_prefix("node-")?.split_once("-life-")?;
    Some((NodeId(node.parse().ok()?), Incarnation(incarnation.parse().ok()?)))
}

/// What a slot of another node has.
#[derive(Debug)]
struct Logged {
    at: Offset,
    state: SlotState,
    /// The transaction's name.
    holder: Holder,
    /// The lock-ahead log, and the write-ahead log if it is decided.
    ahead: Vec<u8>,
    decided: Vec<u8>,
}

/// Returns what the slots of a node have that are not free.
///
/// # Errors
///
/// If the records of a slot are not those that its state says.
fn logged<E: Engine>(region: &NvRegion<E>) -> Result<Vec<Logged>, NvError> {
    let (memory, engine) = (region.region(), region.region().engine());
    let mut found = Vec::new();
    let mut next = region.root(0).map_or(0, |first| engine.load(first));
    // Slots that link each other in a circle are damage.
    let most = memory.allocated() / RECORDS as u64;
    for _ in 0..=most {
        if next == 0 {
            return Ok(found);
        }
        let at = Offset::new(next);
        let words = memory.words(at, (RECORDS_AT as usize + RECORDS) / size_of::<u64>())?;
        next = engine.load(&words[NEXT]);
        loop {
            let word = engine.load(&words[STATE]);
            if word & NvRegion::<E>::HELD != 0 {
                // A commit is under way in software.
                std::thread::yield_now();
                continue;
            }
            let state = SlotState::of_word(word);
            if state.kind == Kind::Free {
                break;
            }
            let mut bytes = vec![0; RECORDS];
            read_bytes(engine, &words[RECORDS_AT as usize / size_of::<u64>()..], &mut bytes);
            if engine.load(&words[STATE]) != word {
                // The node is not dead, and goes on.
                continue;
            }
            let logged = read_slot(at, state, &bytes);
            found.push(logged.ok_or(NvError::Header { why: "a slot's records are not those that its state says" })?);
            break;
        }
    }
    Err(NvError::Header { why: "its slots do not end" })
}

/// Reads a slot's records.
fn read_slot(at: Offset, state: SlotState, bytes: &[u8]) -> Option<Logged> {
    let [ahead_at, decided_at] = state.positions();
    let mut buffer = Vec::new();
    let ahead = record::read_copy(bytes, &mut buffer).filter(|ahead| ahead.head.position == ahead_at)?;
    let (holder, length) = (Holder::from_word(ahead.head.holder)?, ahead.length as usize);
    let (ahead, rest) = bytes.split_at_checked(length)?;
    let mut decided = &[][..];
    if state.kind == Kind::Decided {
        let whole = record::read_copy(rest, &mut buffer).filter(|decided| decided.head.position == decided_at)?;
        decided = rest.get(..whole.length as usize)?;
    }
    Some(Logged { at, state, holder, ahead: ahead.to_vec(), decided: decided.to_vec() })
}
