//! What a node does as a backup: rings for producers, and replicas of the owners whose backup it
//! is.
//!
//! One thread at a time applies what is settled in all rings. It is called by the node's workers,
//! in the background. What becomes of it when the view changes is in `closing`.

mod closing;
mod learning;

use std::sync::{
    Arc, OnceLock,
    atomic::{
        AtomicBool, AtomicU8,
        Ordering::{Acquire, Relaxed},
    },
};

use drtm_htm::Engine;
use drtm_kv::{Holder, KvError, Store, Version, Worker};
use drtm_rdma::NodeId;
use parking_lot::Mutex;

pub(in crate::cluster) use self::learning::Standing;

use super::{
    record::Rows as RecordRows,
    replica::{Applied, Grave, NotApplied, Replica},
    ring::{Corrupt, DATA, Reader, Ring},
};
use crate::{
    cluster::{Refusal, view::View, wire::parts::RingPlace},
    commit::epoch::epoch_of,
    durability::{Log, Participant, format::Entry},
};

/// How many records of a ring are applied before it is another's turn.
const TURN: usize = 64;

/// The most rings that a backup has.
const MOST_RINGS: usize = 1 << 16;

/// See the [module](self).
#[derive(Debug)]
pub(in crate::cluster) struct Backup<E: Engine> {
    store: Store<E>,
    ring_bytes: u64,
    /// Which groups there are never changes.
    first_view: View,
    /// By their numbers. They are added with the applier locked.
    rings: Box<[OnceLock<Arc<Ring>>]>,
    /// For each group, whether this node serves it: its rows are written under their locks then.
    served: Box<[AtomicBool]>,
    /// For each group, what this node has of it: a [`Standing`].
    standings: Box<[AtomicU8]>,
    /// The node's log, if it has one, which gets what is applied.
    log: Option<(Arc<Log<E>>, Arc<Participant>)>,
    applier: Mutex<Applier<E>>,
}

#[derive(Debug)]
struct Applier<E: Engine> {
    readers: Vec<Reader>,
    worker: Worker<E>,
    replicas: Vec<Replica<E>>,
    graves: Graves,
}

/// Graves, until no ring can have an older version of their rows.
#[derive(Debug, Default)]
struct Graves {
    /// Those that no stamp is later than.
    dug: Vec<(usize, Grave)>,
    /// Those that were dug before the stamp was made.
    waiting: Vec<(usize, Grave)>,
    /// Where each ring ended then. What is older than a removal was in the memory of all backups
    /// before the removal's transaction had its locks.
    stamp: Vec<u64>,
}

impl<E: Engine> Backup<E> {
    /// Creates a backup of owners, with a log if its replicas have tables there.
    pub(in crate::cluster) fn new(
        store: &Store<E>,
        (ring_bytes, first_view): (u64, View),
        (node, replicas): (NodeId, Vec<Replica<E>>),
        log: Option<&Arc<Log<E>>>,
    ) -> Result<Self, KvError> {
        let worker = store.worker()?;
        let log = log.map(|log| (Arc::clone(log), log.participant()));
        let applier = Applier { readers: Vec::new(), worker, replicas, graves: Graves::default() };
        let rings = (0..MOST_RINGS).map(|_| OnceLock::new()).collect();
        let served = (0..first_view.groups()).map(|group| AtomicBool::new(first_view.serves(node, group))).collect();
        let standings = (0..first_view.groups()).map(|_| AtomicU8::new(Standing::None as u8)).collect();
        let (store, applier) = (store.clone(), Mutex::new(applier));
        let backup = Self { store, ring_bytes, first_view, rings, served, standings, log, applier };
        backup.note_standings(&backup.first_view, node, &mut backup.applier.lock());
        Ok(backup)
    }

    /// Gives a worker of some node a ring.
    pub(in crate::cluster) fn open(&self, producer: Holder) -> Result<RingPlace, Refusal> {
        let region = self.store.region();
        let mut applier = self.applier.lock();
        let readers = &mut applier.readers;
        for (reader, number) in readers.iter_mut().zip(0..) {
            // An earlier worker of this name has ended. What it has left undecided stays where it
            // is.
            if reader.ring.producer == producer && reader.check_drained(region) {
                let ring = Arc::clone(&reader.ring);
                let start = (reader.applied / ring.size + 1) * ring.size;
                ring.begin(region, start)?;
                *reader = Reader::new(ring, start);
                return Ok(place(number, &reader.ring, start));
            }
        }
        let slot = self.rings.get(readers.len()).ok_or(Refusal::Full)?;
        let (size, start) = (self.ring_bytes, self.ring_bytes);
        let at = region.extend(DATA + size, 64).map_err(|_| Refusal::Full)?;
        let ring = Arc::new(Ring::new(at, size, producer));
        ring.begin(region, start)?;
        let number = readers.len() as u32;
        readers.push(Reader::new(Arc::clone(slot.get_or_init(|| ring)), start));
        Ok(place(number, &readers[number as usize].ring, start))
    }

    fn ring(&self, number: u32, producer: Holder) -> Result<&Ring, Refusal> {
        let ring = self.rings.get(number as usize).and_then(OnceLock::get).ok_or(Refusal::Corrupt)?;
        if ring.producer == producer { Ok(ring) } else { Err(Refusal::Corrupt) }
    }

    /// Writes bytes of a record. Gives up to where the ring is free.
    pub(in crate::cluster) fn write(
        &self,
        (number, producer): (u32, Holder),
        position: u64,
        bytes: &[u8],
    ) -> Result<u64, Refusal> {
        let (ring, region) = (self.ring(number, producer)?, self.store.region());
        ring.write(region, position, bytes)?;
        Ok(ring.freed(region)?)
    }

    /// Notes up to where a producer's records are settled. Gives up to where the ring is free.
    pub(in crate::cluster) fn settle(&self, (number, producer): (u32, Holder), settled: u64) -> Result<u64, Refusal> {
        let (ring, region) = (self.ring(number, producer)?, self.store.region());
        ring.settle(region, settled)?;
        Ok(ring.freed(region)?)
    }

    /// Applies some of what is settled, unless another thread does. Returns how many records that
    /// were. If all are `believed`, which is a fault, those that are not settled, too; with another
    /// fault, nothing is `logged`.
    pub(in crate::cluster) fn apply_some(&self, believed: bool, logged: bool) -> usize {
        let Some(mut applier) = self.applier.try_lock() else { return 0 };
        let Applier { readers, worker, replicas, graves } = &mut *applier;
        let mut applied = 0;
        for reader in readers.iter_mut().filter(|reader| reader.closed.is_none()) {
            for _ in 0..TURN {
                match self.apply_next(reader, worker, (replicas, graves), (believed, logged)) {
                    Ok(true) => applied += 1,
                    Ok(false) => break,
                    Err(Corrupt) => {
                        reader.mark_corrupt();
                        break;
                    }
                }
            }
        }
        self.fill_graves(&mut applier);
        applied
    }

    fn apply_next(
        &self,
        reader: &mut Reader,
        worker: &mut Worker<E>,
        (replicas, graves): (&mut [Replica<E>], &mut Graves),
        (believed, logged): (bool, bool),
    ) -> Result<bool, Corrupt> {
        let region = self.store.region();
        let Some(record) = reader.next(region, believed)? else { return Ok(false) };
        let (length, sequence) = (record.length, record.head.sequence);
        if let Some(rows) = record.rows
            && !self.apply_record(&rows, worker, (replicas, graves), logged)?
        {
            return Ok(false);
        }
        reader.free(region, length, sequence)?;
        Ok(true)
    }

    /// Applies a record. Returns whether there was room for all of it.
    fn apply_record(
        &self,
        rows: &RecordRows<'_>,
        worker: &mut Worker<E>,
        (replicas, graves): (&mut [Replica<E>], &mut Graves),
        logged: bool,
    ) -> Result<bool, Corrupt> {
        let log = self.log.as_ref().filter(|_| logged);
        if let Some((log, participant)) = log
            && participant.is_full()
        {
            // The disk is slower than memory. A log that has failed never becomes full.
            let _ = log.request_flush();
            return Ok(false);
        }
        // A log that has failed is told of by the node as an owner. The replica is kept all the
        // same.
        let open = log.and_then(|(log, participant)| log.enter_at_once(participant).ok());
        let mut applied = Vec::new();
        let all = self.apply_rows(rows, worker, (replicas, graves), &mut applied);
        if let (Some((log, participant)), Some(_open), false) = (log, open, applied.is_empty()) {
            // It has as many bytes as the ring's record, at most.
            log.append_rows(participant, &applied).map_err(|_| Corrupt)?;
        }
        all
    }

    /// Applies the rows of a record, and adds those that were not known to what was `applied`.
    /// Returns whether there was memory for all.
    fn apply_rows<'r>(
        &self,
        rows: &RecordRows<'r>,
        worker: &mut Worker<E>,
        (replicas, graves): (&mut [Replica<E>], &mut Graves),
        applied: &mut Vec<Entry<'r>>,
    ) -> Result<bool, Corrupt> {
        for redo in rows.redo() {
            let (shard, redo) = redo.map_err(|_| Corrupt)?;
            let group = self.first_view.group_of(shard);
            if group.is_some_and(|group| self.served[usize::from(group)].load(Acquire)) {
                continue;
            }
            let number = replicas.iter().position(|replica| Some(replica.group) == group).ok_or(Corrupt)?;
            for entry in redo.entries() {
                let entry = entry.map_err(|_| Corrupt)?;
                match replicas[number].apply((&self.store, worker), &entry) {
                    Ok(Applied::Nothing) => continue,
                    Ok(Applied::Put) => {}
                    Ok(Applied::Removed(grave)) => graves.dug.push((number, grave)),
                    Err(NotApplied::Wrong) => return Err(Corrupt),
                    // Without memory it stays where it is. The producer finds the ring full.
                    Err(NotApplied::Full) => return Ok(false),
                }
                let replica = &mut replicas[number];
                replica.last_epoch = replica.last_epoch.max(epoch_of(Version::new(entry.version)));
                let table = replica.table(entry.table).and_then(|table| table.id);
                applied.extend(table.map(|table| Entry { table, ..entry }));
            }
        }
        Ok(true)
    }

    /// Takes out what says that rows are not there, where nothing older can come.
    fn fill_graves(&self, applier: &mut Applier<E>) {
        // Rows that are copied may be older than graves.
        if self.standings.iter().any(|standing| standing.load(Relaxed) == Standing::Learns as u8) {
            return;
        }
        let Applier { readers, worker, replicas, graves } = applier;
        if graves.waiting.is_empty() && !graves.dug.is_empty() {
            let region = self.store.region();
            // A ring that is corrupt keeps all graves, as does one that is closed and undecided.
            graves.stamp = readers.iter_mut().map(|reader| reader.end(region).unwrap_or(u64::MAX)).collect();
            graves.waiting = std::mem::take(&mut graves.dug);
        }
        if readers.iter().zip(&graves.stamp).all(|(reader, end)| reader.applied >= *end || reader.is_decided()) {
            let is_left = |(number, grave): &(usize, Grave)| !replicas[*number].fill(worker, grave).unwrap_or(false);
            let left = std::mem::take(&mut graves.waiting).into_iter().filter(is_left).collect::<Vec<_>>();
            graves.dug.extend(left);
        }
    }

    /// Returns how many rings of such producers have records that are not applied.
    pub(in crate::cluster) fn undrained(&self, of: impl Fn(Holder) -> bool) -> u64 {
        let (mut applier, region) = (self.applier.lock(), self.store.region());
        let left = applier.readers.iter_mut().filter(|reader| of(reader.ring.producer));
        left.map(|reader| u64::from(!reader.check_drained(region))).sum()
    }

    /// Returns the last epoch in which something was written that was applied to a group.
    pub(in crate::cluster) fn last_epoch(&self, group: u16) -> u64 {
        let applier = self.applier.lock();
        let replica = applier.replicas.iter().find(|replica| replica.group == group);
        replica.map_or(0, |replica| replica.last_epoch)
    }

    /// Applies nothing until what is returned is dropped.
    pub(in crate::cluster) fn pause(&self) -> impl Sized {
        self.applier.lock()
    }
}

fn place(number: u32, ring: &Ring, start: u64) -> RingPlace {
    RingPlace { number, at: ring.at.bytes(), size: ring.size, start }
}

impl From<Corrupt> for Refusal {
    fn from(Corrupt: Corrupt) -> Self {
        Self::Corrupt
    }
}

#[cfg(test)]
mod tests {
    use drtm_htm::NoHtm;

    use super::*;
    use crate::{
        cluster::{
            log::{
                record::{Head, Participant, encode},
                replica::ReplicaTable,
                ring::Standing,
            },
            shard::ShardId,
            wire::{Many, parts::InRing},
        },
        durability::format::{Change, RecordKind, RecordWriter},
        memory::storage::Storage,
        mutation::Mutation,
    };

    fn backup() -> Backup<NoHtm> {
        let store = Store::in_memory(NoHtm, 16 << 20).expect("memory");
        let table = Storage::create(&store, false, true, 0, false).expect("memory");
        let tables = vec![Some(ReplicaTable::new(table, 8, None))];
        let view = View::fixed(&(0..9).map(NodeId).collect::<Vec<_>>(), 9, 1).expect("a view");
        Backup::new(&store, (1 << 12, view), (NodeId(5), vec![Replica::new(7, tables)]), None).expect("memory")
    }

    fn record(shard: u16, position: u64, key: u64, version: u64, change: Change<'_>) -> Vec<u8> {
        let head = Head { position, settled: 0, holder: 1, sequence: 1, view: 1 };
        record_of(head, shard, key, version, change)
    }

    fn record_of(head: Head, shard: u16, key: u64, version: u64, change: Change<'_>) -> Vec<u8> {
        let (mut redo, key) = (Vec::new(), key.to_be_bytes());
        let mut writer = RecordWriter::begin(&mut redo, 1, RecordKind::Rows);
        writer.entry(&Entry { table: 0, key: &key, version, change }).expect("short");
        writer.finish().expect("short");
        let mut bytes = Vec::new();
        encode(&mut bytes, head, &[Participant::new(ShardId(shard), true)], [&redo[..]].into_iter());
        bytes
    }

    /// What is told of a ring: number and standing.
    fn told(backup: &Backup<NoHtm>) -> Vec<(u64, u8)> {
        let mut report = Vec::new();
        backup.report(&mut report);
        let all = Many::<InRing<'_>>::new(&report, 0);
        all.iter().map(|InRing { sequence, standing, .. }| (sequence, standing)).collect()
    }

    #[test]
    fn a_ring_that_is_closed_is_searched_beyond_gaps_and_decided_once() {
        let (backup, me, none) = (backup(), Holder::new(1, 1, 3, 0), |_: Mutation| false);
        let ring = backup.open(me).expect("memory");
        let put = |sequence: u64, position| {
            let head = Head { position, settled: 0, holder: me.to_word(), sequence, view: 1 };
            let bytes = record_of(head, 7, sequence, 10 + sequence, Change::Put(b"value"));
            backup.write((ring.number, me), position, &bytes).map(|_| bytes.len() as u64)
        };
        let length = put(1, ring.start).expect("it is free");
        backup.settle((ring.number, me), ring.start + length).expect("it is there");
        // The second one never comes, and the third and the fourth do.
        put(3, ring.start + 2 * length).expect("it is free");
        put(4, ring.start + 3 * length).expect("it is free");
        backup.close(|producer| producer == me, true).expect("there is room");
        assert_eq!(told(&backup), [(1, 0), (3, Standing::Recorded as u8), (4, Standing::Recorded as u8)]);
        assert_eq!(put(2, ring.start + length), Err(Refusal::Corrupt), "nothing more is taken");
        let records = || {
            let applier = backup.applier.lock();
            applier.replicas[0].table(0).expect("it is there").storage.records().expect("a store")
        };
        assert_eq!(records(), 1, "what is settled was applied");
        assert_eq!(backup.decide(&[(me, 3)], (true, none)), Ok(true));
        let decided = [(1, 0), (3, Standing::Completed as u8), (4, Standing::Undone as u8)];
        assert_eq!((told(&backup), records()), (decided.to_vec(), 2));
        // Another driver, which has heard other votes, changes nothing.
        assert_eq!(backup.decide(&[(me, 4)], (true, none)), Ok(true));
        assert_eq!((told(&backup), records()), (decided.to_vec(), 2));
    }

    #[test]
    fn a_ring_is_given_again_when_nothing_is_in_it() {
        let (backup, me) = (backup(), Holder::new(1, 1, 3, 0));
        let first = backup.open(me).expect("memory");
        let bytes = record(7, first.start, 1, 10, Change::Put(b"one"));
        backup.write((first.number, me), first.start, &bytes).expect("it is free");
        // A worker has ended, and has left this undecided.
        let second = backup.open(me).expect("memory");
        assert_ne!(second.number, first.number);
        backup.settle((first.number, me), first.start + bytes.len() as u64).expect("it is there");
        assert_eq!(backup.apply_some(false, true), 1);
        let third = backup.open(me).expect("memory");
        assert_eq!((third.number, third.at), (first.number, first.at));
        assert!(third.start >= first.start + third.size, "no position is given twice");
        assert_ne!(backup.open(Holder::new(1, 1, 4, 0)).expect("memory").number, third.number);
    }

    #[test]
    fn only_its_producer_writes_a_ring() {
        let (backup, me, other) = (backup(), Holder::new(1, 1, 3, 0), Holder::new(2, 1, 3, 0));
        let place = backup.open(me).expect("memory");
        let bytes = record(7, place.start, 1, 10, Change::Put(b"one"));
        assert_eq!(backup.write((place.number, other), place.start, &bytes), Err(Refusal::Corrupt));
        assert_eq!(backup.write((9, me), place.start, &bytes), Err(Refusal::Corrupt));
        assert_eq!(backup.settle((place.number, other), place.start), Err(Refusal::Corrupt));
    }

    #[test]
    fn rows_of_an_owner_that_is_not_backed_up_end_the_ring() {
        let (backup, me) = (backup(), Holder::new(1, 1, 3, 0));
        let place = backup.open(me).expect("memory");
        let bytes = record(8, place.start, 1, 10, Change::Put(b"one"));
        backup.write((place.number, me), place.start, &bytes).expect("it is free");
        backup.settle((place.number, me), place.start + bytes.len() as u64).expect("it is there");
        assert_eq!(backup.apply_some(false, true), 0);
        assert_eq!(backup.settle((place.number, me), place.start), Err(Refusal::Corrupt));
    }

    /// A removal comes before what it has removed, by another ring. It is remembered until that has
    /// come, and no longer.
    #[test]
    fn a_removal_is_remembered_until_nothing_older_can_come() {
        let (backup, me, other) = (backup(), Holder::new(1, 1, 3, 0), Holder::new(2, 1, 3, 0));
        let (one, two) = (backup.open(me).expect("memory"), backup.open(other).expect("memory"));
        let put = record(7, one.start, 1, 10, Change::Put(b"one"));
        backup.write((one.number, me), one.start, &put).expect("it is free");
        let remove = record(7, two.start, 1, 11, Change::Remove);
        backup.write((two.number, other), two.start, &remove).expect("it is free");
        backup.settle((two.number, other), two.start + remove.len() as u64).expect("it is there");
        assert_eq!(backup.apply_some(false, true), 1);
        let table = || backup.applier.lock().replicas[0].table(0).expect("it is there").storage.clone();
        let records = || table().records().expect("a store");
        assert_eq!(records(), 1, "that it is not there");
        backup.settle((one.number, me), one.start + put.len() as u64).expect("it is there");
        assert_eq!(backup.apply_some(false, true), 1);
        backup.apply_some(false, true);
        assert_eq!(records(), 0);
        assert_eq!((backup.last_epoch(7), backup.last_epoch(8)), (0, 0), "the versions are small");
    }
}
