//! Reads of many keys at once, compared with a map, for every table, transaction and prefetch.

use std::{collections::BTreeMap, fmt::Debug, ops::ControlFlow};

use drtm_htm::NoHtm;
use drtm_txn::{
    Builder, Config, Db, Error, Hash, Key, Kind, Mode, Ordered, Part, Pod, PrefetchMask, Table, TableDef, Tx, part,
};
use proptest::{collection::vec, prelude::*};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::On;

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Row {
    front: u64,
    between: [u64; 7],
    back: u64,
}

impl Row {
    fn of(number: u64) -> Self {
        Self { front: number, between: [number + 1; 7], back: number + 2 }
    }
}

const BACK: Part<Row, u64> = part!(Row, back);
const WANTED: PrefetchMask = PrefetchMask::of(&[BACK.bytes()]);

/// A transaction's operations before its reads.
#[derive(Clone, Debug)]
enum Before {
    Put(u8, u64),
    UpdateBack(u8, u64),
    Remove(u8),
    Ask(Vec<u8>),
    AskForParts(Vec<u8>),
}

/// The keys to read, and how many rows to visit.
#[derive(Clone, Debug)]
struct Wish {
    keys: Vec<u8>,
    most: usize,
}

fn before() -> impl Strategy<Value = Vec<Before>> {
    let (key, number) = (0..120_u8, 0..1_000_u64);
    let keys = vec(key.clone(), 0..60);
    let one = prop_oneof![
        (key.clone(), number.clone()).prop_map(|(key, number)| Before::Put(key, number)),
        (key.clone(), number).prop_map(|(key, number)| Before::UpdateBack(key, number)),
        key.prop_map(Before::Remove),
        keys.clone().prop_map(Before::Ask),
        keys.prop_map(Before::AskForParts),
    ];
    vec(one, 0..8)
}

fn wish() -> impl Strategy<Value = Wish> {
    // Ordered, as is most common; or unordered, with duplicates.
    let keys = prop_oneof![(0..120_u8, 0..120_u8).prop_map(|(from, to)| (from..to).collect()), vec(0..130_u8, 0..80),];
    (keys, prop_oneof![Just(usize::MAX), 1..50_usize]).prop_map(|(keys, most)| Wish { keys, most })
}

struct Told<K> {
    key_of: fn(u8) -> K,
    model: BTreeMap<u8, Row>,
}

impl<K: Key + Clone + Debug> Told<K> {
    fn keys(&self, keys: &[u8]) -> Vec<K> {
        keys.iter().map(|key| (self.key_of)(*key)).collect()
    }

    fn begin<S: Config, O: Kind>(
        &mut self,
        tx: &mut Tx<'_, S>,
        table: Table<K, Pod<Row>, O>,
        before: &[Before],
    ) -> Result<(), Error> {
        for step in before {
            match step {
                Before::Put(key, number) => {
                    tx.put(table, &(self.key_of)(*key), &Row::of(*number))?;
                    self.model.insert(*key, Row::of(*number));
                }
                Before::UpdateBack(key, number) => {
                    tx.update(table.column(BACK), &(self.key_of)(*key), |back| *back = *number)?;
                    self.model.entry(*key).and_modify(|row| row.back = *number);
                }
                Before::Remove(key) => {
                    tx.remove(table, &(self.key_of)(*key))?;
                    self.model.remove(key);
                }
                Before::Ask(keys) => tx.prefetch(table, self.keys(keys).iter())?,
                Before::AskForParts(keys) => tx.prefetch(table.columns(&WANTED), self.keys(keys).iter())?,
            }
        }
        Ok(())
    }

    /// Reads in all ways.
    fn look<S: Config, M: Mode, O: Kind>(
        &self,
        tx: &Tx<'_, S, M>,
        table: Table<K, Pod<Row>, O>,
        wish: &Wish,
    ) -> Result<(), Error> {
        let keys = self.keys(&wish.keys);
        let expected: Vec<_> = wish.keys.iter().map(|key| self.model.get(key).copied()).collect();
        let first = &expected[..expected.len().min(wish.most)];
        let flow = |seen: usize| if seen < wish.most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };

        let mut rows = Vec::new();
        tx.view_many(table, keys.iter(), |row| {
            rows.push(row);
            flow(rows.len())
        })?;
        assert_eq!(rows, first);
        let mut backs = Vec::new();
        tx.view_many(table.column(BACK), keys.iter(), |back| {
            backs.push(back);
            flow(backs.len())
        })?;
        assert!(backs.iter().copied().eq(first.iter().map(|row| row.map(|row| row.back))));
        assert_eq!(tx.get_many(table, &keys)?, expected);
        Ok(())
    }
}

fn agree<S: Config, K: Key + Clone + Debug, O: Kind>(
    db: &Db<S>,
    table: Table<K, Pod<Row>, O>,
    key_of: fn(u8) -> K,
    (before, wishes): (&[Before], &[Wish]),
) {
    let there = (0..100).step_by(3).chain([101, 103]);
    let mut told = Told { key_of, model: there.map(|key| (key, Row::of(u64::from(key)))).collect() };
    db.transact(|tx| told.model.iter().try_for_each(|(key, row)| tx.insert(table, &key_of(*key), row))).expect("room");
    // Each read validates all earlier ones, which has to be cheap enough for many rows.
    let explicit = db.begin().expect("open");
    wishes.iter().take(2).try_for_each(|wish| told.look(&explicit, table, wish)).expect("alone");
    drop(explicit);
    db.read(|tx| wishes.iter().try_for_each(|wish| told.look(tx, table, wish))).expect("alone");
    let snapshot = db.snapshot().expect("room");
    wishes.iter().try_for_each(|wish| told.look(&snapshot, table, wish)).expect("alone");
    drop(snapshot);

    let mut tx = db.begin().expect("open");
    told.begin(&mut tx, table, before).expect("alone");
    wishes.iter().take(2).try_for_each(|wish| told.look(&tx, table, wish)).expect("alone");
    tx.commit().expect("alone");
    db.transact(|tx| {
        let mut now = Told { key_of, model: told.model.clone() };
        now.begin(tx, table, before)?;
        wishes.iter().try_for_each(|wish| now.look(tx, table, wish))
    })
    .expect("alone");
}

fn name(key: u8) -> String {
    format!("a name that is longer than a word {key}")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn rows_of_many_keys_are_those_of_each(before in before(), wishes in vec(wish(), 1..6)) {
        let db = Builder::new().memory(16 << 20).build_with::<On<NoHtm>>(NoHtm).expect("memory");
        let program = (&before[..], &wishes[..]);
        agree(&db, db.table(TableDef::<u64, Pod<Row>>::hash("numbers")).expect("room"), u64::from, program);
        agree(&db, db.table(TableDef::<String, Pod<Row>, Hash>::hash("names")).expect("room"), name, program);
        agree(&db, db.table(TableDef::<u64, Pod<Row>, Ordered>::ordered("sorted")).expect("room"), u64::from, program);
    }
}

#[test]
fn what_others_write_meanwhile_is_found_out() {
    let db = Builder::new().memory(16 << 20).build_with::<On<NoHtm>>(NoHtm).expect("memory");
    let table = db.table(TableDef::<u64, Pod<Row>>::hash("numbers")).expect("room");
    db.transact(|tx| (0..600).try_for_each(|key| tx.insert(table, key, &Row::of(7)))).expect("room");
    let mut tries = 0;
    let (seen, sum) = db
        .transact(|tx| {
            tries += 1;
            let (mut seen, mut sum) = (0, 0);
            tx.view_many(table, 0..600, |row| {
                if tries == 1 && seen == 10 {
                    // A row that was read, and one that is read later.
                    let others = db.clone();
                    let write = move || {
                        others.transact(|tx| [3, 400].iter().try_for_each(|key| tx.put(table, key, &Row::of(100))))
                    };
                    std::thread::spawn(write).join().expect("no panic").expect("no other thread writes");
                }
                seen += 1;
                sum += row.map_or(0, |row| row.front);
            })?;
            Ok((seen, sum))
        })
        .expect("in the end");
    assert_eq!((tries, seen, sum), (2, 600, 598 * 7 + 200));
}
