//! Random runs of record operations of transactions, compared with a model: records of absent keys,
//! records that move, locks of two holders, and older versions while a snapshot needs them.
//!
//! The model describes the guarantees, not the implementation. A key has a history. A read at a
//! moment that was open during all later writes finds the key's state of that moment, or an error
//! if that state was freed for lack of memory.

use std::collections::HashMap;

use drtm_htm::{Emulated, Engine, NoHtm, Plain};
use drtm_kv::{
    Acquire, Bytes, ForHolder, HashConfig, Holder, Inline, Keys, KvError, Locking, Past, Placed, ReadEntry, Reaped,
    RetainOutcome, Store, Version, Worker,
};
use proptest::prelude::*;

use crate::{
    support::{MIB, Numbered, length, store, tight},
    transacted::{Transacted, carry},
};

#[derive(Clone, Debug)]
enum Op {
    /// Creates a record, if there is none, with a value of this length.
    Place(u16, usize),
    /// Writes another value to the record.
    Write {
        key: u16,
        length: usize,
        scarce: bool,
    },
    /// Writes a value of which only some words differ from the record's: at most this many, behind
    /// others.
    Patch {
        key: u16,
        skipped: usize,
        words: usize,
        scarce: bool,
    },
    /// Makes the record's present value that of the key again.
    Publish {
        key: u16,
        scarce: bool,
    },
    /// Marks the key as absent in its record.
    Remove {
        key: u16,
        scarce: bool,
    },
    /// Removes the record of an absent key, as it is now, or as it was at some time.
    Reap {
        key: u16,
        late: Option<usize>,
    },
    /// One of the holders keeps the record locked.
    Lock(u16, usize),
    Unlock(u16),
    /// Opens or closes a snapshot.
    Open,
    Close(usize),
    /// Frees versions that no snapshot needs.
    Tidy(u16),
    /// Looks up the key.
    Fetch(u16),
}

fn ops(keys: u16) -> impl Strategy<Value = Vec<Op>> {
    let key = 0..keys;
    let scarce = || prop::bool::weighted(0.15);
    let op = prop_oneof![
        4 => (key.clone(), length()).prop_map(|(key, length)| Op::Place(key, length)),
        6 => (key.clone(), length(), scarce()).prop_map(|(key, length, scarce)| Op::Write { key, length, scarce }),
        4 => (key.clone(), 0..40_usize, 0..40_usize, scarce())
            .prop_map(|(key, skipped, words, scarce)| Op::Patch { key, skipped, words, scarce }),
        2 => (key.clone(), scarce()).prop_map(|(key, scarce)| Op::Publish { key, scarce }),
        3 => (key.clone(), scarce()).prop_map(|(key, scarce)| Op::Remove { key, scarce }),
        3 => (key.clone(), prop::option::weighted(0.3, any::<usize>())).prop_map(|(key, late)| Op::Reap { key, late }),
        1 => (key.clone(), 0..2usize).prop_map(|(key, who)| Op::Lock(key, who)),
        2 => key.clone().prop_map(Op::Unlock),
        3 => Just(Op::Open),
        2 => any::<usize>().prop_map(Op::Close),
        2 => key.clone().prop_map(Op::Tidy),
        3 => key.prop_map(Op::Fetch),
    ];
    prop::collection::vec(op, 1..200)
}

/// The state of a key with a record.
#[derive(Debug)]
struct Row {
    now: ReadEntry,
    /// The record's value, whether the key is present or not.
    stored: Vec<u8>,
    locked_by: Option<usize>,
    /// Whether it links to older versions, as far as the table has reported.
    has_past: bool,
}

/// The states of a key from each of its versions on: `None` while it was absent.
type History = Vec<(Version, Option<Vec<u8>>)>;

struct Checked<'t, E: Engine, K: Keys, T: Transacted<E, K>> {
    store: &'t Store<E>,
    table: &'t T,
    /// Handles of the same table with a short wait limit.
    impatient: T,
    workers: [Worker<E>; 2],
    rows: HashMap<u16, Row>,
    histories: HashMap<u16, History>,
    /// The version before which nothing is known of a key, because memory ran out.
    forgotten: HashMap<u16, u64>,
    /// Reads that are no longer current.
    late: HashMap<u16, Vec<ReadEntry>>,
    /// Guards of absent keys, and of what was split off them since.
    missing: Vec<(u16, Vec<T::Guard>)>,
    /// Whether guards may have changed by anything but new records.
    is_disturbed: bool,
    clock: u64,
    /// The bounds of open snapshots: the first versions that they do not see.
    open: Vec<u64>,
    /// Bytes of older versions.
    past_bytes: u64,
}

impl<'t, E: Engine, K: Numbered, T: Transacted<E, K>> Checked<'t, E, K, T> {
    fn new(store: &'t Store<E>, table: &'t T) -> Self {
        Self {
            store,
            table,
            impatient: table.impatient(),
            workers: [store.worker().expect("a worker"), store.worker().expect("a worker")],
            rows: HashMap::new(),
            histories: HashMap::new(),
            forgotten: HashMap::new(),
            late: HashMap::new(),
            missing: Vec::new(),
            is_disturbed: false,
            clock: 10,
            open: Vec::new(),
            past_bytes: 0,
        }
    }

    fn holder(&self, who: usize) -> Holder {
        self.workers[who].holder()
    }

    /// Returns a holder that may change a row: the one that has it locked, or else any.
    fn one_who_may(&self, key: u16, turn: usize) -> usize {
        self.rows.get(&key).and_then(|row| row.locked_by).unwrap_or(turn % 2)
    }

    fn run(&mut self, ops: &[Op]) -> Result<(), TestCaseError> {
        for (turn, op) in ops.iter().enumerate() {
            match *op {
                Op::Place(key, length) => self.place(key, value(turn, length), turn)?,
                Op::Write { key, length, scarce } => self.write(key, value(turn, length), scarce, turn)?,
                Op::Patch { key, skipped, words, scarce } => self.patch(key, (skipped, words), scarce, turn)?,
                Op::Publish { key, scarce } => {
                    if let Some(stored) = self.rows.get(&key).map(|row| row.stored.clone()) {
                        self.publish(key, Some(stored), scarce, turn)?;
                    }
                }
                Op::Remove { key, scarce } => self.publish(key, None, scarce, turn)?,
                Op::Reap { key, late } => self.reap(key, late, turn)?,
                Op::Lock(key, who) => self.lock(key, who)?,
                Op::Unlock(key) => self.unlock(key),
                Op::Open => self.open.push(self.clock + 1),
                Op::Close(which) if !self.open.is_empty() => drop(self.open.swap_remove(which % self.open.len())),
                Op::Close(_) => {}
                Op::Tidy(key) => self.tidy(key, turn)?,
                Op::Fetch(key) => self.look(key)?,
            }
            let key = turn as u16 % 7;
            self.look_back(key)?;
            self.places_tell_the_truth()?;
        }
        self.end()
    }

    fn place(&mut self, key: u16, stored: Vec<u8>, turn: usize) -> Result<(), TestCaseError> {
        let who = self.one_who_may(key, turn);
        let mut changes = Vec::new();
        let worker = &mut self.workers[who];
        let placed = K::with(key, |key| {
            self.impatient.place::<ForHolder>(worker, key, &stored, None, |change| changes.push(change))
        });
        if matches!(placed, Err(KvError::Busy)) && self.is_in_the_way(key, who) {
            return Ok(());
        }
        let placed = placed.expect("room");
        if let Some(row) = self.rows.get(&key) {
            prop_assert_eq!(placed, Placed::Found(row.now));
            prop_assert!(changes.is_empty(), "nothing was made");
            return Ok(());
        }
        let Placed::Made(now) = placed else { return Err(TestCaseError::fail("found what is not there")) };
        prop_assert!(!now.is_present() && !changes.is_empty());
        if let Some((last, _)) = self.histories.get(&key).and_then(|history| history.last()) {
            prop_assert!(now.version.number() > last.number(), "versions grow, over removal too");
        }
        // Removed records raise the versions of all later ones.
        self.clock = self.clock.max(now.version.number());
        // Every third one is created by another worker, whose changes are not reported.
        if turn.is_multiple_of(3) {
            self.is_disturbed = true;
        } else {
            self.missing.retain(|(missing, _)| *missing != key);
            for (_, places) in &mut self.missing {
                changes.iter().for_each(|change| carry(change, places));
            }
        }
        self.rows.insert(key, Row { now, stored, locked_by: None, has_past: false });
        Ok(())
    }

    /// Returns whether a lookup may have to read another holder's locked record to see that it has
    /// a different key with the same prefix.
    fn is_in_the_way(&self, key: u16, who: usize) -> bool {
        let is_another_s = |row: &Row| row.locked_by.is_some_and(|by| by != who);
        !K::FITS && self.rows.iter().any(|(other, row)| *other != key && is_another_s(row))
    }

    /// Locks a row, unless it is locked. Frees versions that no snapshot needs, and keeps those
    /// that one may need for the next version. Returns the holder.
    fn hold(&mut self, key: u16, scarce: bool, turn: usize) -> Result<Option<(usize, Version)>, TestCaseError> {
        let who = self.one_who_may(key, turn);
        let holder = self.holder(who);
        let Some(row) = self.rows.get_mut(&key) else { return Ok(None) };
        let records = self.store.records();
        if row.locked_by.is_none() {
            let locking = records.lock(row.now.at, holder).expect("sound");
            let taken = matches!(locking, Locking::Taken { version, .. } if version == row.now.version);
            prop_assert!(taken, "{:?}", locking);
        }
        prop_assert!(K::with(key, |key| self.table.leads_to(key, row.now.at)).expect("sound"));
        row.locked_by = Some(who);
        self.clock += 1 + turn as u64 % 3;
        let (before, next) = (row.now.version.number(), Version::new(self.clock));
        let open = self.open.clone();
        let is_needed =
            |from: Version, until: Version| open.iter().any(|bound| from.number() < *bound && *bound <= until.number());
        self.past_bytes -= records.forget(&mut self.workers[who], row.now.at, is_needed).expect("sound");
        row.has_past = records.has_past(row.now.at).expect("sound");
        if is_needed(row.now.version, next) && (row.has_past || row.now.is_present()) {
            match records.keep(&mut self.workers[who], row.now.at, !scarce).expect("sound") {
                RetainOutcome::Copied { bytes } => self.past_bytes += bytes,
                RetainOutcome::Discarded { freed } => {
                    prop_assert!(scarce);
                    self.past_bytes -= freed;
                    self.forgotten.insert(key, self.clock);
                }
            }
            row.has_past = true;
        }
        prop_assert!(before < self.clock);
        Ok(Some((who, next)))
    }

    fn write(&mut self, key: u16, value: Vec<u8>, scarce: bool, turn: usize) -> Result<(), TestCaseError> {
        let Some((who, version)) = self.hold(key, scarce, turn)? else { return Ok(()) };
        let at = self.rows[&key].now.at;
        let worker = &mut self.workers[who];
        let now = K::with(key, |key| self.table.write(worker, key, at, version, &value)).expect("room");
        self.is_disturbed |= now != at;
        self.written(key, ReadEntry { at: now, version }, Some(value));
        Ok(())
    }

    fn patch(
        &mut self,
        key: u16,
        (skipped, words): (usize, usize),
        scarce: bool,
        turn: usize,
    ) -> Result<(), TestCaseError> {
        let Some(mut new) = self.rows.get(&key).map(|row| row.stored.clone()) else { return Ok(()) };
        let Some((_, version)) = self.hold(key, scarce, turn)? else { return Ok(()) };
        let at = self.rows[&key].now.at;
        let begin = (8 * skipped).min(new.len() / 8 * 8);
        let end = (begin + 8 * words).min(new.len());
        let was = new[begin..end].to_vec();
        new[begin..end].fill(turn as u8);
        let (part, records) = (&new[begin..end], self.store.records());
        let words = |bytes: &[u8]| bytes.chunks(8).map(<[u8]>::to_vec).collect::<Vec<_>>();
        let differ: Vec<_> = words(&was).iter().zip(words(part)).map(|(one, other)| *one != other).collect();
        let ends = differ.iter().position(|differs| *differs).zip(differ.iter().rposition(|differs| *differs));
        let changed = ends.map_or(0..0, |(first, last)| 8 * first..part.len().min(8 * (last + 1)));
        prop_assert_eq!(records.changed_bytes(at, begin / 8, part), Some(changed));
        self.store.records().write_part(at, version, begin / 8, &new[begin..end]).expect("within the value");
        self.written(key, ReadEntry { at, version }, Some(new));
        Ok(())
    }

    fn publish(&mut self, key: u16, value: Option<Vec<u8>>, scarce: bool, turn: usize) -> Result<(), TestCaseError> {
        let Some((_, version)) = self.hold(key, scarce, turn)? else { return Ok(()) };
        let at = self.rows[&key].now.at;
        let version = if value.is_some() { version } else { version.as_removed() };
        self.store.records().publish(at, version).expect("sound");
        self.written(key, ReadEntry { at, version }, value);
        Ok(())
    }

    fn written(&mut self, key: u16, now: ReadEntry, value: Option<Vec<u8>>) {
        if let Some(row) = self.rows.get_mut(&key) {
            self.late.entry(key).or_default().push(row.now);
            row.now = now;
            row.locked_by = None;
            row.stored = value.clone().unwrap_or_else(|| std::mem::take(&mut row.stored));
        }
        self.histories.entry(key).or_default().push((now.version, value));
    }

    fn reap(&mut self, key: u16, late: Option<usize>, turn: usize) -> Result<(), TestCaseError> {
        let lately = self.late.get(&key).filter(|late| !late.is_empty());
        let (seen, is_late) = match (late, lately, self.rows.get(&key)) {
            (Some(which), Some(late), _) => (late[which % late.len()], true),
            (None, _, Some(row)) if !row.now.is_present() => (row.now, false),
            _ => return Ok(()),
        };
        let row = self.rows.get(&key);
        let is_there = row.is_some_and(|row| row.now.at == seen.at);
        let is_locked = row.is_some_and(|row| row.locked_by.is_some());
        let has_past = row.is_some_and(|row| row.has_past);
        let expected = match (is_there, is_locked, is_late) {
            (false, ..) => Reaped::Gone,
            (true, true, _) => Reaped::Busy,
            (true, false, true) => Reaped::Gone,
            // A reader of an older version must find it.
            (true, false, false) if has_past => Reaped::Busy,
            (true, false, false) => Reaped::Out,
        };
        let reaped = K::with(key, |key| self.table.reap(&mut self.workers[turn % 2], key, seen, || ())).expect("sound");
        prop_assert_eq!(reaped, expected);
        // An attempt that has changed nothing may look like a change.
        self.is_disturbed = true;
        if reaped == Reaped::Out {
            self.rows.remove(&key);
            self.late.entry(key).or_default().push(seen);
        }
        Ok(())
    }

    fn lock(&mut self, key: u16, who: usize) -> Result<(), TestCaseError> {
        let (holders, records) = ([self.holder(0), self.holder(1)], self.store.records());
        for late in self.late.get(&key).into_iter().flatten() {
            prop_assert!(!records.is_still(*late, holders[who]));
            let is_there = self.rows.get(&key).is_some_and(|row| row.now.at == late.at);
            if !is_there {
                prop_assert!(!records.is_there(late.at, holders[who]));
                prop_assert_eq!(records.lock(late.at, holders[who]).expect("sound"), Locking::Gone);
            }
        }
        let Some(row) = self.rows.get_mut(&key) else { return Ok(()) };
        let locking = records.lock(row.now.at, holders[who]).expect("sound");
        if let Some(by) = row.locked_by {
            match by == who {
                true => prop_assert!(matches!(locking, Locking::Mine { .. }), "{:?}", locking),
                false => prop_assert_eq!(locking, Locking::Held(Acquire::Locked(holders[by]))),
            }
        } else {
            let Locking::Taken { version, head } = locking else {
                return Err(TestCaseError::fail(format!("{locking:?}")));
            };
            prop_assert_eq!((version, head.has_older()), (row.now.version, row.has_past));
            let Ok(length) = records.length_in(&mut Plain::new(self.store.region().engine()), row.now.at, head);
            prop_assert_eq!(length, row.stored.len() as u32);
            let again = records.lock(row.now.at, holders[who]).expect("sound");
            prop_assert_eq!(again, Locking::Mine { version, head });
            row.locked_by = Some(who);
        }
        let by = row.locked_by.unwrap_or(who);
        for (other, holder) in holders.into_iter().enumerate() {
            prop_assert_eq!(records.is_still(row.now, holder), other == by);
            prop_assert_eq!(records.is_there(row.now.at, holder), other == by);
        }
        Ok(())
    }

    fn unlock(&mut self, key: u16) {
        let holders = [self.holder(0), self.holder(1)];
        let Some(row) = self.rows.get_mut(&key) else { return };
        let records = self.store.records();
        match row.locked_by.take() {
            Some(by) => {
                // Another holder's attempt to release the lock changes nothing.
                records.unlock_if_held(row.now.at, holders[1 - by]);
                assert!(!records.is_still(row.now, holders[1 - by]), "another has given the lock up");
                records.unlock_if_held(row.now.at, holders[by]);
            }
            None => records.unlock_if_held(row.now.at, holders[0]),
        }
        assert!(records.is_still(row.now, holders[0]) && records.is_still(row.now, holders[1]));
    }

    fn tidy(&mut self, key: u16, turn: usize) -> Result<(), TestCaseError> {
        let who = self.one_who_may(key, turn);
        let holder = self.holder(who);
        let Some(row) = self.rows.get_mut(&key) else { return Ok(()) };
        let records = self.store.records();
        if row.locked_by.is_none() {
            let locking = records.lock(row.now.at, holder).expect("sound");
            prop_assert!(matches!(locking, Locking::Taken { .. }), "{:?}", locking);
        }
        let open = &self.open;
        let is_needed =
            |from: Version, until: Version| open.iter().any(|bound| from.number() < *bound && *bound <= until.number());
        self.past_bytes -= records.forget(&mut self.workers[who], row.now.at, is_needed).expect("sound");
        row.has_past = records.has_past(row.now.at).expect("sound");
        if row.locked_by.is_none() {
            records.unlock(row.now.at);
        }
        Ok(())
    }

    /// Looks up a key for both holders.
    fn look(&mut self, key: u16) -> Result<(), TestCaseError> {
        for who in 0..2 {
            let (holder, mut found) = (self.holder(who), vec![0xEE; 3]);
            let fetched = K::with(key, |key| self.impatient.fetch(key, holder, &mut found));
            match self.rows.get(&key) {
                Some(row) if row.locked_by.is_some_and(|by| by != who) => {
                    prop_assert!(matches!(fetched, Err(KvError::Busy)), "{:?}", fetched);
                }
                Some(row) => {
                    prop_assert_eq!(fetched.expect("sound"), Ok(row.now));
                    if row.now.is_present() {
                        prop_assert_eq!(&found, &row.stored);
                    }
                }
                None if matches!(fetched, Err(KvError::Busy)) && self.is_in_the_way(key, who) => {}
                None => {
                    let Err(place) = fetched.expect("sound") else {
                        return Err(TestCaseError::fail("found what is not there"));
                    };
                    prop_assert!(self.store.records().is_unchanged(&place));
                    self.missing.push((key, vec![place]));
                }
            }
        }
        Ok(())
    }

    /// Reads the key's older versions for all snapshots.
    fn look_back(&mut self, key: u16) -> Result<(), TestCaseError> {
        let row = self.rows.get(&key);
        for bound in &self.open {
            let mut found = vec![0xEE; 3];
            let past = K::with(key, |key| self.impatient.fetch_past(key, Version::new(*bound), &mut found));
            if row.is_some_and(|row| row.locked_by.is_some() && row.now.version.number() < *bound) {
                prop_assert!(matches!(past, Err(KvError::Busy)), "who has it locked may be an earlier one: {:?}", past);
                continue;
            }
            if matches!(past, Err(KvError::Busy)) && (0..2).any(|who| self.is_in_the_way(key, who)) {
                continue;
            }
            let past = past.expect("sound");
            if self.forgotten.get(&key).is_some_and(|from| bound <= from) {
                prop_assert_eq!(past, Past::TooOld);
                continue;
            }
            let mut history = self.histories.get(&key).into_iter().flatten().rev();
            match history.find(|(version, _)| version.number() < *bound) {
                Some((version, Some(value))) => {
                    prop_assert_eq!(past, Past::Present(*version));
                    prop_assert_eq!(&found, value);
                }
                Some((_, None)) | None => prop_assert_eq!(past, Past::Absent),
            }
        }
        Ok(())
    }

    /// Checks that a key is absent while its guard is unchanged, and that only changes of the table
    /// change guards.
    fn places_tell_the_truth(&mut self) -> Result<(), TestCaseError> {
        for (key, places) in &self.missing {
            let is_unchanged = places.iter().all(|place| self.store.records().is_unchanged(place));
            prop_assert!(!is_unchanged || !self.rows.contains_key(key), "{} has come where {:?} are", key, places);
            prop_assert!(is_unchanged || self.is_disturbed, "one of {:?} has changed by itself", places);
        }
        if self.is_disturbed {
            self.missing.clear();
            self.is_disturbed = false;
        }
        Ok(())
    }

    /// Releases everything, and checks that nothing is left.
    fn end(&mut self) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.table.count().expect("sound"), self.rows.len() as u64);
        let keys: Vec<u16> = self.rows.keys().copied().collect();
        for key in &keys {
            self.unlock(*key);
            self.look(*key)?;
            self.look_back(*key)?;
        }
        self.open.clear();
        for key in keys {
            self.publish(key, None, false, 0)?;
            prop_assert!(!self.rows[&key].has_past, "nobody asks for what it was");
            self.reap(key, None, 0)?;
        }
        prop_assert_eq!((self.table.count().expect("sound"), self.past_bytes), (0, 0));
        Ok(())
    }
}

/// Returns the value that the `turn`th operation writes.
fn value(turn: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (turn * 31 + at) as u8).collect()
}

fn in_hash_table<E: Engine, K: Numbered>(engine: E, config: HashConfig, ops: &[Op]) -> Result<(), TestCaseError> {
    let store = store(engine, 64 * MIB);
    let table = store.hash_table_of::<K>(config).expect("a table");
    Checked::<E, K, _>::new(&store, &table).run(ops)
}

fn in_tree<E: Engine, K: Numbered + drtm_kv::TreeKeys>(engine: E, ops: &[Op]) -> Result<(), TestCaseError> {
    let store = store(engine, 64 * MIB);
    let tree = store.tree_of::<K>().expect("a tree");
    Checked::<E, K, _>::new(&store, &tree).run(ops)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn a_hash_table_of_integers(ops in ops(7)) {
        in_hash_table::<_, Inline>(NoHtm, HashConfig::default(), &ops)?;
    }

    #[test]
    fn a_hash_table_of_byte_strings(ops in ops(7)) {
        in_hash_table::<_, Bytes>(NoHtm, HashConfig::default(), &ops)?;
    }

    #[test]
    fn a_hash_table_that_grows(ops in ops(60)) {
        in_hash_table::<_, Inline>(NoHtm, HashConfig::for_keys(1).with_occupancy(0.1), &ops)?;
    }

    #[test]
    fn a_hash_table_in_regions_that_often_fail(ops in ops(7), seed in any::<u64>()) {
        in_hash_table::<Emulated, Inline>(tight(seed), HashConfig::default(), &ops)?;
    }

    #[test]
    fn a_tree_of_integers(ops in ops(7)) {
        in_tree::<_, Inline>(NoHtm, &ops)?;
    }

    #[test]
    fn a_tree_of_integers_with_several_leaves(ops in ops(60)) {
        in_tree::<_, Inline>(NoHtm, &ops)?;
    }

    #[test]
    fn a_tree_of_byte_strings(ops in ops(20)) {
        in_tree::<_, Bytes>(NoHtm, &ops)?;
    }
}
