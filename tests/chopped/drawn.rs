//! Random chopped programs, and what their transactions do as a history has it: for one node, and
//! for clusters.
//!
//! A row counts its updates, so that the count is its version. It also has a bit for each addition:
//! each adds another one. So a reader knows which additions it has seen. In the history, each is a
//! row of its own, which one transaction writes and readers find, or do not.

use std::sync::atomic::AtomicU32;

use drtm::{
    Part, Pod, TableDef,
    chopping::{Access, Chopping, Options, Piece, Program, Table as Described, Transaction},
    part,
};
use drtm_history::Recording;
use fastrand::Rng;
use serde::{Deserialize, Serialize};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Counted {
    pub(crate) count: u64,
    pub(crate) bits: u64,
}

pub(crate) const BITS: Part<Counted, u64> = part!(Counted, bits);
pub(crate) const ROWS: TableDef<u64, Pod<Counted>> = TableDef::hash("");
pub(crate) const TABLES: usize = 4;
pub(crate) const NAMES: [&str; TABLES] = ["a", "b", "c", "d"];
pub(crate) const DESCRIBED: [Described<'static>; TABLES] =
    [Described::new("a", &[]), Described::new("b", &[]), Described::new("c", &[]), Described::new("d", &[])];
/// The rows of each table. The analysis knows none.
pub(crate) const KEYS: u64 = 2;
/// The most additions of a row in a run: the bits of a word.
pub(crate) const ADDITIONS: u32 = u64::BITS;
pub(crate) const PIECES: [&str; 3] = ["one", "two", "three"];
pub(crate) const WRITERS: usize = 3;

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Does {
    Read,
    Update,
    Add,
}

/// The accesses of each piece: tables, and what is done there.
pub(crate) type Pieces = [Vec<(usize, Does)>; 3];

#[derive(Clone, Debug)]
pub(crate) struct Drawn {
    pub(crate) writers: [(Pieces, bool); WRITERS],
    /// The tables of the transaction that only reads.
    pub(crate) read: Vec<usize>,
    /// The last pieces of each of the others.
    pub(crate) last: &'static [Piece<'static>],
}

/// Draws a program of which at least one transaction runs in pieces, with these optimisations.
/// Transactions may run alone only if `may_be_alone`.
pub(crate) fn draw(random: &mut Rng, options: Options, may_be_alone: bool, last: &'static [Piece<'static>]) -> Drawn {
    loop {
        let mut writers = [0; WRITERS].map(|_| {
            let piece = |random: &mut Rng| {
                let does = |random: &mut Rng| [Does::Read, Does::Update, Does::Add, Does::Add][random.usize(..4)];
                (0..random.usize(1..=2)).map(|_| (random.usize(..TABLES), does(random))).collect::<Vec<_>>()
            };
            ([(); 3].map(|()| piece(random)), random.u8(..4) == 0 && may_be_alone)
        });
        // A transaction without effect would be a reader.
        for (pieces, _) in &mut writers {
            if pieces.iter().flatten().all(|(_, does)| *does == Does::Read) {
                pieces[2].push((random.usize(..TABLES), Does::Add));
            }
        }
        let read: Vec<usize> = (0..TABLES).filter(|_| random.bool()).collect();
        let drawn = Drawn { writers, read: if read.is_empty() { vec![0, 1] } else { read }, last };
        let program = Program::new(&drawn.described()).expect("it makes sense");
        let chopping = Chopping::finest(&program, options);
        if chopping.transactions().iter().any(|chopped| chopped.pieces().len() > 1) {
            return drawn;
        }
    }
}

pub(crate) fn leaked<T>(values: Vec<T>) -> &'static [T] {
    Vec::leak(values)
}

impl Drawn {
    pub(crate) fn described(&self) -> Vec<Transaction<'static>> {
        let access = |(table, does): (usize, Does)| -> Access<'static> {
            let table: Described<'static> = DESCRIBED[table];
            match does {
                Does::Read => table.read("*"),
                Does::Update => table.update("*"),
                Does::Add => table.add("*"),
            }
        };
        let writer = |(number, (pieces, is_alone)): (usize, &(Pieces, bool))| {
            let piece = |(name, accesses): (&&'static str, &Vec<(usize, Does)>)| {
                let accesses = leaked(accesses.iter().map(|one| access(*one)).collect());
                Piece::new(name, accesses).after(&[])
            };
            let pieces = leaked(PIECES.iter().zip(pieces).map(piece).chain(self.last.iter().copied()).collect());
            let described = Transaction::new(["x", "y", "z"][number], pieces);
            if *is_alone { described.alone() } else { described }
        };
        let mut all: Vec<_> = self.writers.iter().enumerate().map(writer).collect();
        let reads = leaked(self.read.iter().map(|table| DESCRIBED[*table].read("*")).collect());
        all.push(Transaction::new("read", leaked(vec![Piece::new("read", reads)])));
        all
    }
}

/// What a transaction has done to a row, as the history has it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Done {
    /// It has seen this count and these additions.
    Read { table: usize, key: u64, count: u64, bits: u64 },
    /// It has written this count.
    Update { table: usize, key: u64, count: u64 },
    /// It has added this bit.
    Add { table: usize, key: u64, bit: u32 },
}

/// What the pieces of a transaction hand over.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Handed {
    pub(crate) seed: u64,
    pub(crate) done: Vec<Done>,
}

/// The next bits of each row.
pub(crate) type Bits = [[AtomicU32; KEYS as usize]; TABLES];
/// A row's number in the history: of its count, or of one of its additions.
pub(crate) fn row(key: u64, bit: Option<u32>) -> u64 {
    key << 8 | bit.map_or(0, |bit| u64::from(bit) + 1)
}

/// Notes what a transaction has done, which has ended.
pub(crate) fn note(recording: &mut Recording<'_, u64>, done: &[Done]) {
    let mut added = Vec::new();
    for (nth, one) in done.iter().enumerate() {
        match *one {
            Done::Read { table, key, count, bits } => {
                recording.read(table as u32, row(key, None), Some(count));
                for bit in 0..ADDITIONS {
                    // What it adds itself it may see at once, or only after a publication.
                    let place = (table, key, bit);
                    let is_own =
                        |other: &Done| matches!(*other, Done::Add { table, key, bit } if (table, key, bit) == place);
                    if !done[..nth].iter().any(is_own) {
                        let seen = (bits & 1 << bit != 0).then_some(1);
                        recording.read(table as u32, row(key, Some(bit)), seen);
                    }
                }
            }
            Done::Update { table, key, count } => recording.write(table as u32, row(key, None), count),
            Done::Add { table, key, bit } => added.push((table, key, bit)),
        }
    }
    for (table, key, bit) in added {
        recording.write(table as u32, row(key, Some(bit)), 1);
    }
}
