//! What outlives a database: on a simulated disk that crashes and fails at every call, and in directories of processes
//! that are killed: a program of its own, since it starts itself to be killed.
#![cfg(not(feature = "model"))]

mod concurrent;
mod crash;
mod failures;
mod format;
mod kill;
mod reopen;

use std::{marker::PhantomData, sync::Arc};

use drtm_htm::NoHtm;
use drtm_txn::{
    Builder, Db, Durability, Error, Mutation, Ordered, Pod, Raw, Setting, Table, TableDef, durability::storage::Image,
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

/// How many keys each table has.
const KEYS: u32 = 5;

/// Without a fault.
#[derive(Debug)]
struct Sound;

impl Setting for Sound {
    type Engine = NoHtm;
}

/// With a fault, named by its number in [`FAULTS`].
#[derive(Debug)]
struct Faulty<const FAULT: usize>(PhantomData<()>);

const FAULTS: [Mutation; 6] = [
    Mutation::EpochNotPublished,
    Mutation::RemovalsDropped,
    Mutation::NumberNotRestored,
    Mutation::VoidRevived,
    Mutation::PreviousNotChecked,
    Mutation::DirectoryNotSynced,
];

impl<const FAULT: usize> Setting for Faulty<FAULT> {
    type Engine = NoHtm;
    const FAULT: Option<Mutation> = Some(FAULTS[FAULT]);
}

const SEGMENT: u64 = 4 << 10;

fn builder(disk: &Image, durability: Durability) -> Builder {
    Builder::new().memory(16 << 20).storage(Arc::new(disk.clone()), SEGMENT).durability(durability)
}

fn open<S: Setting<Engine = NoHtm>>(disk: &Image) -> Result<Db<S>, Error> {
    builder(disk, Durability::Sync).build_with(NoHtm)
}

/// Both tables of a database.
struct Tables<'d, S: Setting> {
    db: &'d Db<S>,
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

impl<'d, S: Setting> Tables<'d, S> {
    fn of(db: &'d Db<S>) -> Result<Self, Error> {
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

    /// Runs the transaction that a seed stands for, and notes in `rows` what it does.
    fn run(&self, seed: u64, rows: &mut Rows) -> Result<(), Error> {
        let mut next = rows.clone();
        let done = self.db.transact(|tx| {
            next = rows.clone();
            let mut random = fastrand::Rng::with_seed(seed);
            for _ in 0..random.u32(1..4) {
                let key = random.u32(0..KEYS);
                let (number, text) = (random.u64(..), format!("text {key}"));
                match random.u32(0..6) {
                    0 => {
                        tx.put(self.pairs, &key, &Pair { first: number, second: seed })?;
                        next.pairs[key as usize] = Some(Pair { first: number, second: seed });
                    }
                    1 => {
                        tx.update(self.pairs.column(part!(Pair, second)), &key, |second| *second = number)?;
                        next.pairs[key as usize].iter_mut().for_each(|pair| pair.second = number);
                    }
                    2 => {
                        tx.remove(self.pairs, &key)?;
                        next.pairs[key as usize] = None;
                    }
                    3 | 4 => {
                        let value = vec![seed as u8; random.usize(0..300)];
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
        // What it was to do, whether it has happened or not: the caller knows which.
        *rows = next;
        done
    }
}
