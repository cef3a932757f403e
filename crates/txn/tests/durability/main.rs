//! What survives a database: on a simulated disk that crashes and fails at every call, and in
//! directories of killed processes. It is a program of its own, because it starts itself as the
//! process to be killed.
#![cfg(not(feature = "model"))]

mod backup;
mod catalog;
mod checkpoints;
mod concurrent;
mod crash;
mod failures;
mod format;
mod full;
mod hooked;
mod kill;
mod limits;
mod migrate;
mod notes;
mod opening;
mod pace;
mod read_only;
mod reopen;
mod types;
mod waiting;

// As an application knows it: derived code says so.
extern crate drtm_txn as drtm;

use std::sync::Arc;

use drtm_htm::NoHtm;
use drtm_txn::{
    Builder, Config, Db, Durability, Error, Mutation, Ordered, Pod, Raw, Table, TableDef, durability::storage::Image,
    part,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Pair {
    first: u64,
    second: u64,
}

const PAIRS: TableDef<u32, Pod<Pair>> = TableDef::hash("pairs");
const TEXTS: TableDef<String, Raw, Ordered> = TableDef::ordered("texts");

/// The number of keys of each table.
const KEYS: u32 = 5;

/// The database's configuration: the same type in all tests.
#[derive(Debug)]
struct Sound;

impl Config for Sound {
    type Engine = NoHtm;
}

const SEGMENT: u64 = 1 << 10;

fn builder(disk: &Image, durability: Durability) -> Builder {
    Builder::new().memory(16 << 20).storage(Arc::new(disk.clone()), SEGMENT).durability(durability)
}

/// Adds a fault to the builder, if any. A fault is no type, so that everything is compiled once.
fn with(builder: Builder, fault: Option<Mutation>) -> Builder {
    match fault {
        None => builder,
        Some(fault) => builder.fault(fault),
    }
}

fn open(disk: &Image) -> Result<Db<Sound>, Error> {
    open_with(disk, None)
}

fn open_with(disk: &Image, fault: Option<Mutation>) -> Result<Db<Sound>, Error> {
    with(builder(disk, Durability::Sync), fault).build_with(NoHtm)
}

/// Both tables of a database.
struct Tables<'d> {
    db: &'d Db<Sound>,
    pairs: Table<u32, Pod<Pair>>,
    texts: Table<String, Raw, Ordered>,
}

/// All rows, in the order of their keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rows {
    pairs: Vec<Option<Pair>>,
    texts: Vec<(String, Vec<u8>)>,
}

impl Rows {
    fn none() -> Self {
        Self { pairs: vec![None; KEYS as usize], texts: Vec::new() }
    }
}

impl<'d> Tables<'d> {
    fn of(db: &'d Db<Sound>) -> Result<Self, Error> {
        Ok(Self { db, pairs: db.table(PAIRS)?, texts: db.table(TEXTS)? })
    }

    fn rows(&self) -> Result<Rows, Error> {
        let keys: Vec<u32> = (0..KEYS).collect();
        self.db.read(|tx| {
            let pairs = tx.get_many(self.pairs, &keys)?;
            let texts = tx.range(self.texts, ..)?.rows().collect::<Result<_, _>>()?;
            Ok(Rows { pairs, texts })
        })
    }

    /// Runs the transaction of a seed, and applies its changes to `rows`.
    fn run(&self, seed: u64, rows: &mut Rows) -> Result<(), Error> {
        self.run_as(Durability::Sync, seed, rows)
    }

    /// [Runs](Self::run) it with this durability.
    fn run_as(&self, durability: Durability, seed: u64, rows: &mut Rows) -> Result<(), Error> {
        let mut next = rows.clone();
        let done = self.db.transact(|tx| {
            next = rows.clone();
            tx.set_durability(durability)?;
            let mut random = fastrand::Rng::with_seed(seed);
            for _ in 0..random.u32(1..4) {
                let key = random.u32(0..KEYS);
                // Some keys have the same first bytes.
                let (number, text) = (random.u64(..), format!("{} {key}", ["text", "some text"][key as usize % 2]));
                match random.u32(0..6) {
                    0 => {
                        tx.put(self.pairs, key, &Pair { first: number, second: seed })?;
                        next.pairs[key as usize] = Some(Pair { first: number, second: seed });
                    }
                    1 => {
                        tx.update(self.pairs.column(part!(Pair, second)), key, |second| *second = number)?;
                        next.pairs[key as usize].iter_mut().for_each(|pair| pair.second = number);
                    }
                    2 => {
                        tx.remove(self.pairs, key)?;
                        next.pairs[key as usize] = None;
                    }
                    3 | 4 => {
                        let known = next.texts.iter().find(|(one, value)| *one == text && !value.is_empty());
                        let value = match known {
                            // Of such a value, only what differs is logged.
                            Some((_, known)) if random.bool() => {
                                let (mut value, from) = (known.clone(), random.usize(..known.len()));
                                value[from..].iter_mut().take(random.usize(1..20)).for_each(|byte| *byte ^= seed as u8);
                                value
                            }
                            _ => vec![seed as u8; random.usize(0..300)],
                        };
                        tx.put(self.texts, &text, &value)?;
                        next.texts.retain(|(one, _)| *one != text);
                        next.texts.push((text, value));
                        next.texts.sort();
                    }
                    _ => {
                        tx.remove(self.texts, &text)?;
                        next.texts.retain(|(one, _)| *one != text);
                    }
                }
            }
            Ok(())
        });
        // The intended rows, whether it committed or not: the caller knows.
        *rows = next;
        done
    }
}
