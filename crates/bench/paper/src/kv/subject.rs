//! Filled maps, ready to be measured, and slices of work.

use std::{
    sync::{PoisonError, RwLock},
    thread,
    time::{Duration, Instant},
};

use super::{
    Key, MapName, Op, Style,
    maps::{self, Map, Session, VALUE},
};
use crate::Error;

/// A slice of work: the keys of each thread, one operation each.
#[derive(Debug)]
pub struct Work<K> {
    /// The operation.
    pub op: Op,
    /// How gets and updates depend on each other.
    pub style: Style,
    /// Rows of a scan.
    pub rows: usize,
    /// The keys of each thread.
    pub keys: Vec<Vec<K>>,
}

/// A filled map, ready to be measured.
pub trait Subject<K> {
    /// Does the work with all threads at once, and returns its duration. Spawning threads and
    /// cleaning up is not counted.
    ///
    /// # Errors
    ///
    /// Returns an error if an operation gives a wrong result, memory runs out, or threads cannot be
    /// spawned.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_paper::kv::{Draw, Fill, MapName, Op, Style, Work};
    ///
    /// let subject = u64::subject(MapName::DrtmHash, 1_000)?;
    /// let keys = vec![Draw::Uniform.keys(1_000, 100, 1), Draw::Uniform.keys(1_000, 100, 2)];
    /// let time = subject.run(&Work { op: Op::Get, style: Style::Dependent, rows: 0, keys })?;
    /// assert!(!time.is_zero());
    /// # Ok::<(), drtm_paper::Error>(())
    /// ```
    fn run(&self, work: &Work<K>) -> Result<Duration, Error>;

    /// Returns the bytes that the map has allocated from the store's region; `None` for other maps.
    fn taken(&self) -> Option<u64>;
}

/// A kind of keys that maps can be filled with.
pub trait Fill: Key {
    /// Returns a map with all keys of this kind that are numbered below `records`.
    ///
    /// # Errors
    ///
    /// Returns an error if the map does not support such keys, or memory runs out.
    ///
    /// # Example
    ///
    /// See [`Subject::run`].
    fn subject(map: MapName, records: u64) -> Result<Box<dyn Subject<Self>>, Error>;
}

impl Fill for u64 {
    fn subject(map: MapName, records: u64) -> Result<Box<dyn Subject<Self>>, Error> {
        match map {
            #[cfg(feature = "peers")]
            MapName::Congee => filled::<u64, maps::ArtByCongee>(map, records),
            _ => with_any(map, records),
        }
    }
}

impl Fill for [u8; 32] {
    fn subject(map: MapName, records: u64) -> Result<Box<dyn Subject<Self>>, Error> {
        with_any(map, records)
    }
}

struct Filled<M> {
    map: M,
    name: MapName,
}

/// Returns a filled map that takes keys of any kind.
fn with_any<K: Key>(name: MapName, records: u64) -> Result<Box<dyn Subject<K>>, Error> {
    match name {
        MapName::DrtmHash => filled::<K, maps::DrtmHash<K::Kind>>(name, records),
        MapName::DrtmTree => filled::<K, maps::DrtmTree<K::Kind>>(name, records),
        MapName::BTreeMap => filled::<K, maps::Ordered<K>>(name, records),
        #[cfg(feature = "peers")]
        MapName::Hashbrown => filled::<K, maps::Hashed<K>>(name, records),
        #[cfg(feature = "peers")]
        MapName::Dashmap => filled::<K, maps::Dashmap<K>>(name, records),
        #[cfg(feature = "peers")]
        MapName::Papaya => filled::<K, maps::Papaya<K>>(name, records),
        #[cfg(feature = "peers")]
        MapName::Scc => filled::<K, maps::Scc<K>>(name, records),
        #[cfg(feature = "peers")]
        MapName::CrossbeamSkiplist => filled::<K, maps::Skiplist<K>>(name, records),
        #[cfg(feature = "peers")]
        MapName::ConcurrentMap => filled::<K, maps::BTreeByConcurrentMap<K>>(name, records),
        _ => {
            let why = name.refuses(Op::Get, 1, K::BYTES).unwrap_or("is not for keys of this kind");
            Err(Error::NotSupported { engine: name.name(), why })
        }
    }
}

fn filled<K: Key, M: Map<K> + 'static>(name: MapName, records: u64) -> Result<Box<dyn Subject<K>>, Error> {
    let map = M::new(records)?;
    let mut session = map.session();
    for number in 0..records {
        if !session.insert(&K::numbered(number), &[number as u8; VALUE])? {
            return Err(Error::Misbehaved { engine: name.name(), did: "found a key that was never inserted" });
        }
    }
    drop(session);
    Ok(Box::new(Filled { map, name }))
}

impl<K: Key, M: Map<K>> Subject<K> for Filled<M> {
    fn run(&self, work: &Work<K>) -> Result<Duration, Error> {
        if let Some(why) = self.name.refuses(work.op, work.keys.len(), K::BYTES) {
            return Err(Error::NotSupported { engine: self.name.name(), why });
        }
        let time = self.at_once(&work.keys, |session, keys| self.perform(session, work, keys))?;
        if work.op == Op::Insert {
            self.at_once(&work.keys, |session, keys| {
                self.check(each(keys, |key| session.remove(key))?, "lost a key that was inserted")
            })?;
        }
        Ok(time)
    }

    fn taken(&self) -> Option<u64> {
        self.map.taken()
    }
}

impl<M> Filled<M> {
    /// Runs each thread's part, all at once, and returns the duration.
    fn at_once<K: Key>(
        &self,
        parts: &[Vec<K>],
        part: impl Fn(&mut M::Session<'_>, &[K]) -> Result<(), Error> + Sync,
    ) -> Result<Duration, Error>
    where
        M: Map<K>,
    {
        // Holds the threads back until all are ready. It is a lock, because it opens by itself if a
        // thread cannot be spawned.
        let gate = RwLock::new(());
        thread::scope(|scope| {
            let closed = gate.write().unwrap_or_else(PoisonError::into_inner);
            let mut threads = Vec::with_capacity(parts.len());
            for keys in parts {
                let (gate, part) = (&gate, &part);
                let run = move || {
                    let mut session = self.map.session();
                    drop(gate.read());
                    let begin = Instant::now();
                    part(&mut session, keys)?;
                    Ok::<_, Error>((begin, Instant::now()))
                };
                threads.push(thread::Builder::new().spawn_scoped(scope, run).map_err(drtm_drive::Error::Thread)?);
            }
            drop(closed);
            let mut spans = Vec::with_capacity(threads.len());
            for thread in threads {
                spans.push(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
            }
            let begin = spans.iter().map(|(begin, _)| *begin).min();
            let end = spans.iter().map(|(_, end)| *end).max();
            Ok(begin.zip(end).map_or(Duration::ZERO, |(begin, end)| end - begin))
        })
    }

    fn perform<K: Key, S: Session<K>>(&self, session: &mut S, work: &Work<K>, keys: &[K]) -> Result<(), Error> {
        let mut value = [7; VALUE];
        match (work.op, work.style) {
            (Op::Get, Style::Overlapping) => {
                let found = each(keys, |key| {
                    let found = session.get(key, &mut value);
                    std::hint::black_box(&mut value);
                    found
                });
                self.check(found?, "did not find a key that is there")
            }
            (Op::Get, Style::Dependent) => {
                // Zero, but the compiler must assume that it depends on the value.
                let bits = std::hint::black_box(0);
                let found = each(keys, |key| {
                    let found = session.get(&key.flipped(value[3] & bits), &mut value);
                    std::hint::black_box(&mut value);
                    found
                });
                self.check(found?, "did not find a key that is there")
            }
            (Op::Update, Style::Overlapping) => {
                let found = each(keys, |key| Ok(session.update(key, std::hint::black_box(&value))?.is_some()));
                self.check(found?, "did not find a key that is there")
            }
            (Op::Update, Style::Dependent) => {
                let (bits, mut before) = (std::hint::black_box(0), 0);
                let found = each(keys, |key| {
                    let found = session.update(&key.flipped(before & bits), std::hint::black_box(&value))?;
                    before = found.unwrap_or_default();
                    Ok(found.is_some())
                });
                self.check(found?, "did not find a key that is there")
            }
            (Op::Insert, _) => {
                let inserted = each(keys, |key| session.insert(key, std::hint::black_box(&value)));
                self.check(inserted?, "found a key that was never inserted")
            }
            (Op::Scan, _) => {
                let found = each(keys, |key| {
                    let found = session.scan(key, work.rows, &mut value);
                    std::hint::black_box(&mut value);
                    found.map(|rows| rows > 0)
                });
                self.check(found?, "did not scan from a key that is there")
            }
        }
    }

    fn check(&self, as_it_must: bool, did: &'static str) -> Result<(), Error> {
        if as_it_must { Ok(()) } else { Err(Error::Misbehaved { engine: self.name.name(), did }) }
    }
}

/// Returns whether an operation succeeded with every key. It tries all keys, so that the measured
/// loop has no early exit.
#[inline(always)]
fn each<K>(keys: &[K], mut operation: impl FnMut(&K) -> Result<bool, Error>) -> Result<bool, Error> {
    let mut all = true;
    for key in keys {
        all &= operation(key)?;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn behaves<K: Fill>(name: MapName) {
        const RECORDS: u64 = 3_000;
        let subject = K::subject(name, RECORDS).unwrap_or_else(|error| panic!("{name:?}: {error}"));
        let part = |from: u64, to: u64| (from..to).map(K::numbered).collect::<Vec<_>>();
        for threads in [1, 2] {
            for op in [Op::Get, Op::Update, Op::Insert, Op::Scan] {
                for style in [Style::Dependent, Style::Overlapping] {
                    let from = if op == Op::Insert { RECORDS } else { 0 };
                    let keys =
                        (0..threads).map(|part_of| part(from + 500 * part_of, from + 500 * (part_of + 1))).collect();
                    let work = Work { op, style, rows: 10, keys };
                    match (name.refuses(op, threads as usize, K::BYTES), subject.run(&work)) {
                        (None, Ok(time)) => assert!(!time.is_zero()),
                        (Some(_), Err(Error::NotSupported { .. })) => {}
                        (refuses, done) => panic!("{name:?} {op:?} {threads}: {refuses:?}, {done:?}"),
                    }
                }
            }
        }
        // The inserted keys are removed again.
        let gone = Work { op: Op::Get, style: Style::Dependent, rows: 0, keys: vec![part(RECORDS, RECORDS + 1)] };
        assert!(matches!(subject.run(&gone), Err(Error::Misbehaved { .. })), "{name:?}");
    }

    #[test]
    fn every_map_does_what_it_must() {
        for name in MapName::ALL {
            if name.refuses(Op::Get, 1, 8).is_none() {
                behaves::<u64>(name);
            }
            match name.refuses(Op::Get, 1, 32) {
                None => behaves::<[u8; 32]>(name),
                Some(_) => {
                    let refused = <[u8; 32]>::subject(name, 10).map(|_| ());
                    assert!(matches!(refused, Err(Error::NotSupported { .. })), "{name:?}: {refused:?}");
                }
            }
        }
    }

    #[test]
    fn scans_go_through_so_many_rows_in_order() {
        fn scanned<M: Map<u64>>() -> Vec<Option<usize>> {
            let map = M::new(100).expect("memory");
            let mut session = map.session();
            for key in 0..100 {
                assert!(session.insert(&key, &[key as u8; VALUE]).expect("memory"));
            }
            let mut value = [0; VALUE];
            [(10, 5), (95, 10), (0, 100)]
                .map(|(from, rows)| {
                    let found = session.scan(&from, rows, &mut value).expect("sound");
                    (value == [(from as usize + found - 1) as u8; VALUE]).then_some(found)
                })
                .into()
        }
        let expected = [Some(5), Some(5), Some(100)];
        assert_eq!(scanned::<maps::DrtmTree<drtm_kv::Inline>>(), expected);
        assert_eq!(scanned::<maps::Ordered<u64>>(), expected);
        #[cfg(feature = "peers")]
        {
            assert_eq!(scanned::<maps::Skiplist<u64>>(), expected);
            assert_eq!(scanned::<maps::ArtByCongee>(), expected);
            assert_eq!(scanned::<maps::BTreeByConcurrentMap<u64>>(), expected);
        }
    }

    #[test]
    fn values_come_back_as_they_were_written() {
        fn check<K: Key, M: Map<K>>() {
            let map = M::new(10).expect("memory");
            let mut session = map.session();
            let key = K::numbered(3);
            let mut value = [0; VALUE];
            assert!(!session.get(&key, &mut value).expect("sound") && !session.remove(&key).expect("sound"));
            assert!(session.insert(&key, &[1; VALUE]).expect("memory"));
            assert!(session.get(&key, &mut value).expect("sound") && value == [1; VALUE]);
            assert!(session.update(&key, &[2; VALUE]).expect("memory").is_some());
            assert!(session.get(&key, &mut value).expect("sound") && value == [2; VALUE]);
            assert!(session.remove(&key).expect("sound") && !session.get(&key, &mut value).expect("sound"));
        }
        check::<u64, maps::DrtmHash<drtm_kv::Inline>>();
        check::<[u8; 32], maps::DrtmHash<drtm_kv::Bytes>>();
        check::<u64, maps::DrtmTree<drtm_kv::Inline>>();
        check::<[u8; 32], maps::DrtmTree<drtm_kv::Bytes>>();
        check::<[u8; 32], maps::Ordered<[u8; 32]>>();
        #[cfg(feature = "peers")]
        {
            check::<u64, maps::Hashed<u64>>();
            check::<u64, maps::Dashmap<u64>>();
            check::<u64, maps::Papaya<u64>>();
            check::<u64, maps::Scc<u64>>();
            check::<u64, maps::Skiplist<u64>>();
            check::<u64, maps::ArtByCongee>();
            check::<u64, maps::BTreeByConcurrentMap<u64>>();
        }
    }
}
