//! Indexes compared with a model: after any writes and rollbacks of rows, each index has exactly
//! the entries of its function.

use std::{
    collections::BTreeMap,
    ops::{Bound, RangeBounds},
};

use drtm_htm::{Emulated, NoHtm};
use drtm_txn::{
    Builder, Config, Db, Error, Hash, Index, IndexDef, Key, Kind, Multi, Ordered, Pod, Serde, Table, TableDef, Tx,
    Unique, Uniqueness,
};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use crate::On;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Item {
    label: Option<String>,
    shelf: u8,
    tags: Vec<u8>,
}

type Items<O> = TableDef<u16, Serde<Item>, O>;

const HASHED: Items<Hash> = TableDef::hash("items");
const SORTED: Items<Ordered> = TableDef::ordered("items");

// Each shape of index: one key or several, unique or not, in words or in bytes.
const BY_LABEL: IndexDef<u16, Serde<Item>, String> = IndexDef::unique("items by label", |_, item| item.label);
const BY_SHELF: IndexDef<u16, Serde<Item>, u8, Multi> = IndexDef::multi("items by shelf", |_, item| Some(item.shelf));
const BY_NAME: IndexDef<u16, Serde<Item>, String, Multi> = IndexDef::multi("items by name", |_, item| item.label);
const BY_TAG: IndexDef<u16, Serde<Item>, u8, Multi> = IndexDef::multi_each("items by tag", |_, item| item.tags);
const BY_CODE: IndexDef<u16, Serde<Item>, u64> =
    IndexDef::unique_each("items by code", |_, item| item.tags.iter().map(|tag| code(item.shelf, *tag)).collect());

fn code(shelf: u8, tag: u8) -> u64 {
    u64::from(shelf) << 8 | u64::from(tag)
}

/// A write of a row, in one transaction with others.
#[derive(Clone, Debug)]
enum Step {
    Put(u16, Item),
    Insert(u16, Item),
    Relabel(u16, Option<String>),
    Remove(u16),
    /// Sets a savepoint, to which later steps return.
    Save,
    Return,
}

fn label() -> impl Strategy<Value = Option<String>> {
    // Some of them are prefixes of others, and one has the byte that ends strings in keys.
    prop::option::of(prop::sample::select(vec!["", "a", "a\0", "a\u{1}", "ab", "b"]).prop_map(str::to_owned))
}

fn item() -> impl Strategy<Value = Item> {
    let shelf = prop::sample::select(vec![0, 1, 254, 255]);
    (label(), shelf, prop::collection::vec(0_u8..4, 0..3)).prop_map(|(label, shelf, tags)| Item { label, shelf, tags })
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0_u16..6;
    prop_oneof![
        3 => (key.clone(), item()).prop_map(|(key, item)| Step::Put(key, item)),
        3 => (key.clone(), item()).prop_map(|(key, item)| Step::Insert(key, item)),
        3 => (key.clone(), label()).prop_map(|(key, label)| Step::Relabel(key, label)),
        2 => key.prop_map(Step::Remove),
        1 => Just(Step::Save),
        1 => Just(Step::Return),
    ]
}

type Model = BTreeMap<u16, Item>;

/// Returns whether a row violates a unique index.
fn clashes(model: &Model, key: u16, item: &Item) -> bool {
    model.iter().filter(|(other, _)| **other != key).any(|(_, other)| {
        let codes = |item: &Item| item.tags.iter().map(|tag| code(item.shelf, *tag)).collect::<Vec<_>>();
        other.label.is_some() && other.label == item.label || codes(other).iter().any(|of| codes(item).contains(of))
    })
}

struct Shop<S: Config, O> {
    db: Db<S>,
    items: Table<u16, Serde<Item>, O>,
    by_label: Index<u16, Serde<Item>, String, Unique, O>,
    by_shelf: Index<u16, Serde<Item>, u8, Multi, O>,
    by_name: Index<u16, Serde<Item>, String, Multi, O>,
    by_tag: Index<u16, Serde<Item>, u8, Multi, O>,
    by_code: Index<u16, Serde<Item>, u64, Unique, O>,
}

impl<S: Config, O: Kind> Shop<S, O> {
    fn open(engine: S::Engine, def: Items<O>) -> Result<Self, Error>
    where
        S: Config,
    {
        let db = Builder::new().memory(16 << 20).build_with::<S>(engine)?;
        let items = db.table(def)?;
        let (by_label, by_shelf) = (db.index(items, BY_LABEL)?, db.index(items, BY_SHELF)?);
        let (by_name, by_tag) = (db.index(items, BY_NAME)?, db.index(items, BY_TAG)?);
        let by_code = db.index(items, BY_CODE)?;
        Ok(Self { db, items, by_label, by_shelf, by_name, by_tag, by_code })
    }

    /// Applies a step to both, and compares the results.
    fn step(&self, tx: &mut Tx<'_, S>, model: &mut Model, step: &Step) -> Result<(), Error> {
        let written = match step {
            Step::Put(key, item) => (tx.put(self.items, key, item), Some((*key, item.clone()))),
            Step::Insert(key, item) => {
                let inserted = tx.insert(self.items, key, item);
                if model.contains_key(key) {
                    assert!(matches!(inserted, Err(Error::Exists { table: "items" })), "{inserted:?}");
                    return Ok(());
                }
                (inserted, Some((*key, item.clone())))
            }
            Step::Relabel(key, label) => {
                let updated = tx.update(self.items, key, |item| item.label.clone_from(label));
                let row = model.get(key).map(|item| (*key, Item { label: label.clone(), ..item.clone() }));
                (updated.map(|found| assert_eq!(found.is_some(), row.is_some())), row)
            }
            Step::Remove(key) => {
                assert_eq!(tx.remove(self.items, key)?, model.remove(key));
                return Ok(());
            }
            Step::Save | Step::Return => return Ok(()),
        };
        match written {
            (written, Some((key, item))) if clashes(model, key, &item) => {
                let index = match written {
                    Err(Error::Duplicate { index }) => index,
                    other => panic!("{other:?} where {item:?} clashes"),
                };
                assert!(["items by label", "items by code"].contains(&index));
            }
            (written, row) => {
                written?;
                model.extend(row);
            }
        }
        Ok(())
    }

    /// Compares everything visible.
    fn compare(&self, tx: &mut Tx<'_, S>, model: &Model) -> Result<(), Error> {
        let shelves = [0, 1, 2, 254, 255];
        same(tx, self.by_shelf, model, &shelves, |item| vec![item.shelf])?;
        same(tx, self.by_tag, model, &[0, 1, 2, 3], |item| item.tags.clone())?;
        let codes: Vec<u64> = shelves.iter().flat_map(|shelf| [0, 3].map(|tag| code(*shelf, tag))).collect();
        let codes_of = |item: &Item| item.tags.iter().map(|tag| code(item.shelf, *tag)).collect();
        same(tx, self.by_code, model, &codes, codes_of)?;
        let labels = ["", "a", "a\0", "a\u{1}", "ab", "c"].map(str::to_owned);
        let labels_of = |item: &Item| item.label.iter().cloned().collect();
        same(tx, self.by_label, model, &labels, labels_of)?;
        same(tx, self.by_name, model, &labels, labels_of)?;
        for label in labels {
            let found = model.iter().find(|(_, item)| item.label.as_ref() == Some(&label));
            let row = tx.get(self.by_label, &label)?;
            assert_eq!(row.as_ref().map(|(key, item)| (key, item)), found);
            assert_eq!(tx.get(self.by_label.keys(), &label)?, found.map(|(key, _)| *key));
        }
        Ok(())
    }
}

/// Compares an index with its expected entries, in every range between these bounds, both ways.
fn same<S: Config, I: Key + Ord + std::fmt::Debug, U: Uniqueness, O: Kind>(
    tx: &mut Tx<'_, S>,
    index: Index<u16, Serde<Item>, I, U, O>,
    model: &Model,
    bounds: &[I],
    keys: impl Fn(&Item) -> Vec<I>,
) -> Result<(), Error> {
    let mut entries: Vec<(I, (u16, Item))> =
        model.iter().flat_map(|(key, item)| keys(item).into_iter().map(|by| (by, (*key, item.clone())))).collect();
    entries.sort_by(|a, b| (&a.0, a.1.0).cmp(&(&b.0, b.1.0)));
    entries.dedup();
    let all = bounds.iter().flat_map(|bound| [Bound::Included(bound), Bound::Excluded(bound)]);
    let all: Vec<Bound<&I>> = all.chain([Bound::Unbounded]).collect();
    for start in &all {
        for end in &all {
            // An inverted range is empty.
            let range = (*start, *end);
            let expected: Vec<_> = entries.iter().filter(|(by, ..)| range.contains(by)).cloned().collect();
            let found: Vec<_> = tx.range(index, range)?.rows().collect::<Result<_, _>>()?;
            assert_eq!(found, expected, "{range:?}");
            let mut back: Vec<_> = tx.range(index, range)?.rev().rows().collect::<Result<_, _>>()?;
            back.reverse();
            assert_eq!(back, expected, "{range:?}");
            let mut rows = tx.range(index, range)?.rows();
            let (mut low, mut high) = (Vec::new(), Vec::new());
            while let Some(row) = rows.next() {
                low.push(row?);
                high.extend(rows.next_back().transpose()?);
            }
            drop(rows);
            low.extend(high.into_iter().rev());
            assert_eq!(low, expected, "{range:?}, from both ends");
            assert_eq!(tx.range(index, range)?.count()?, expected.len() as u64);
        }
    }
    assert_eq!(tx.range(index, ..)?.first()?.as_ref(), entries.first());
    assert_eq!(tx.range(index, ..)?.last()?.as_ref(), entries.last());
    for by in bounds {
        let found: Vec<_> = tx.range(index, by..=by)?.rows().collect::<Result<_, _>>()?;
        assert_eq!(found, entries.iter().filter(|entry| entry.0 == *by).cloned().collect::<Vec<_>>());
    }
    Ok(())
}

/// Runs transactions of some steps each; those with `false` are aborted.
fn run<S: Config, O: Kind>(engine: S::Engine, def: Items<O>, transactions: &[(Vec<Step>, bool)]) -> Result<(), Error> {
    let shop = Shop::<S, O>::open(engine, def)?;
    let mut committed = Model::new();
    for (steps, commits) in transactions {
        let mut tx = shop.db.begin()?;
        let mut model = committed.clone();
        let mut saved = Vec::new();
        for step in steps {
            match step {
                Step::Save => saved.push((tx.savepoint(), model.clone())),
                Step::Return => {
                    if let Some((savepoint, then)) = saved.pop() {
                        tx.return_to(savepoint)?;
                        model = then;
                    }
                }
                step => shop.step(&mut tx, &mut model, step)?,
            }
        }
        shop.compare(&mut tx, &model)?;
        if *commits {
            tx.commit()?;
            committed = model;
        } else {
            drop(tx);
        }
        shop.db.transact(|tx| shop.compare(tx, &committed))?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn each_index_has_what_its_function_says(
        transactions in prop::collection::vec((prop::collection::vec(step(), 0..10), prop::bool::weighted(0.8)), 1..5)
    ) {
        run::<On<NoHtm>, _>(NoHtm, HASHED, &transactions).expect("nothing else is wrong");
        run::<On<NoHtm>, _>(NoHtm, SORTED, &transactions).expect("nothing else is wrong");
        run::<On<Emulated>, _>(Emulated::default(), HASHED, &transactions).expect("nothing else is wrong");
    }
}

#[test]
fn a_name_is_of_one_index_of_one_table() -> Result<(), Error> {
    const OTHERS: TableDef<u16, Serde<Item>> = TableDef::hash("other items");
    const AS_TABLE: TableDef<(u8, u16), Pod<()>, Ordered> = TableDef::ordered("items by shelf");
    const AS_UNIQUE: IndexDef<u16, Serde<Item>, u8> = IndexDef::unique("items by shelf", |_, item| Some(item.shelf));
    const AS_ITEMS: IndexDef<u16, Serde<Item>, u8> = IndexDef::unique("items", |_, item| Some(item.shelf));

    let (db, elsewhere) = (Db::new()?, Db::new()?);
    let (items, others) = (db.table(HASHED)?, db.table(OTHERS)?);
    db.index(items, BY_SHELF)?;
    let refusals = [
        db.index(others, BY_SHELF).expect_err("it is the other table's"),
        db.table(AS_TABLE).expect_err("it is no table"),
        db.index(items, AS_UNIQUE).expect_err("it is not unique"),
        db.index(items, AS_ITEMS).expect_err("it is a table"),
    ];
    for refusal in refusals {
        assert!(matches!(refusal, Error::OtherTypes { .. }), "{refusal}");
    }
    assert!(matches!(elsewhere.index(items, BY_SHELF), Err(Error::OtherDatabase)));
    Ok(())
}

#[test]
fn a_refusal_leaves_the_transaction_as_it_was() -> Result<(), Error> {
    let shop = Shop::<On<NoHtm>, _>::open(NoHtm, HASHED)?;
    let item = |label: &str, shelf| Item { label: Some(label.to_owned()), shelf, tags: vec![shelf] };
    shop.db.transact(|tx| {
        tx.insert(shop.items, 1, &item("a", 1))?;
        let refused = tx.insert(shop.items, 2, &item("a", 2));
        assert!(matches!(refused, Err(Error::Duplicate { index: "items by label" })));
        assert!(!tx.contains(shop.items, 2)?);
        assert_eq!(tx.range(shop.by_shelf, ..)?.count()?, 1);
        // The key that the refused row had taken is free.
        tx.insert(shop.items, 3, &item("b", 2))?;
        let too_long = "x".repeat(100_000);
        let refused = tx.update(shop.items, 3, |item| item.label = Some(too_long));
        assert!(matches!(refused, Err(Error::TooLong { .. })), "{refused:?}");
        Ok(())
    })?;
    let model = Model::from([(1, item("a", 1)), (3, item("b", 2))]);
    shop.db.transact(|tx| shop.compare(tx, &model))
}

#[test]
fn a_function_that_changes_its_mind_is_noticed() -> Result<(), Error> {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    static MOOD: AtomicU64 = AtomicU64::new(0);
    const COUNTERS: TableDef<u64, Pod<u64>> = TableDef::hash("counters");
    const BY_MOOD: IndexDef<u64, Pod<u64>, u64> = IndexDef::unique("counters by mood", |_, _| Some(MOOD.load(Relaxed)));
    let db = Db::new()?;
    let counters = db.table(COUNTERS)?;
    db.index(counters, BY_MOOD)?;
    db.transact(|tx| tx.put(counters, 1, &1))?;
    MOOD.store(1, Relaxed);
    let refused = db.transact(|tx| tx.remove(counters, 1));
    assert!(matches!(refused, Err(Error::Index { index: "counters by mood", table: "counters" })), "{refused:?}");
    assert!(db.transact(|tx| tx.contains(counters, 1))?, "nothing has happened");
    Ok(())
}
