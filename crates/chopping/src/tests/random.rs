//! Random programs, as text.

use proptest::prelude::*;

use crate::{options::Options, program::Program};

/// What random programs are made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) transactions: usize,
    pub(super) pieces: usize,
    /// How likely a transaction runs alone, in percent.
    pub(super) alone: u32,
    /// The only words of accesses, or `None` for all.
    pub(super) access: Option<&'static [&'static str]>,
}

#[derive(Clone, Debug)]
struct RandomAccess {
    word: &'static str,
    table: usize,
    column: usize,
    claims: bool,
}

#[derive(Clone, Debug)]
struct RandomPiece {
    accesses: Vec<RandomAccess>,
    after: Option<u8>,
    may_abort: bool,
}

/// Returns programs.
pub(super) fn programs(shape: Shape) -> impl Strategy<Value = String> {
    let pieces = prop::collection::vec(piece(shape), 1..=shape.pieces);
    let transaction = (pieces, prop::bool::weighted(f64::from(shape.alone) / 100.0));
    prop::collection::vec(transaction, 1..=shape.transactions).prop_map(|transactions| text(&transactions))
}

/// Returns options for the analysis: often all.
pub(super) fn options() -> impl Strategy<Value = Options> {
    prop_oneof![
        2 => Just(Options::ALL),
        1 => any::<[bool; 6]>().prop_map(|on| Options {
            reordering: on[0],
            commutativity: on[1],
            split_search: on[2],
            two_rounds: on[3],
            claims: on[4],
            deferral: on[5],
        }),
    ]
}

fn piece(shape: Shape) -> impl Strategy<Value = RandomPiece> {
    let after = prop::option::weighted(0.8, any::<u8>());
    (prop::collection::vec(access(shape), 1..=2), after, prop::bool::weighted(0.2))
        .prop_map(|(accesses, after, may_abort)| RandomPiece { accesses, after, may_abort })
}

/// All words of accesses, some more often than others.
const WORDS: &[&str] =
    &["read", "read", "update", "update", "add", "add", "insert", "append", "remove", "search", "search"];

fn access(shape: Shape) -> impl Strategy<Value = RandomAccess> {
    let word = prop::sample::select(shape.access.unwrap_or(WORDS));
    (word, 0..3_usize, 0..2_usize, any::<bool>()).prop_map(|(word, table, column, claims)| RandomAccess {
        word,
        table,
        column,
        claims,
    })
}

/// Writes a program with tables `a`, `b` and `c`. The first has two columns, the others one.
fn text(transactions: &[(Vec<RandomPiece>, bool)]) -> String {
    let mut text = "table a x y\ntable b x\ntable c x\n".to_owned();
    for (place, (pieces, alone)) in transactions.iter().enumerate() {
        text += &format!("transaction t{place}{}\n", if *alone { " alone" } else { "" });
        for (place, piece) in pieces.iter().enumerate() {
            let after = piece.after.map_or(String::new(), |mask| {
                let named: Vec<_> =
                    (0..place).filter(|before| mask & (1 << before) != 0).map(|p| format!("p{p}")).collect();
                format!(" after {}", if named.is_empty() { "nothing".to_owned() } else { named.join(" ") })
            });
            let may_abort = if piece.may_abort { ", may abort" } else { "" };
            let accesses: Vec<_> = piece.accesses.iter().map(|access| access.text(&pieces[..place])).collect();
            text += &format!("piece p{place}{after}{may_abort}: {}\n", accesses.join(", "));
        }
    }
    text
}

impl RandomAccess {
    fn text(&self, earlier: &[RandomPiece]) -> String {
        let table = ["a", "b", "c"][self.table];
        let column = ["x", "y"][if self.table == 0 { self.column } else { 0 }];
        let place = match self.word {
            "read" | "update" | "add" => format!("{table}.{column}"),
            _ => table.to_owned(),
        };
        let removes = |piece: &RandomPiece| {
            let mut tables = piece.accesses.iter().filter(|access| access.word == "remove").map(|access| access.table);
            tables.next().is_some_and(|first| tables.all(|table| table == first))
        };
        // A row that is inserted has its inserter's key.
        let claim =
            earlier.iter().position(removes).filter(|_| self.claims && !["insert", "append"].contains(&self.word));
        format!("{} {place}{}", self.word, claim.map_or(String::new(), |claim| format!(" by p{claim}")))
    }
}

/// Reads what [`programs`] has written.
pub(super) fn parse(text: &str) -> Program {
    Program::parse(text).unwrap_or_else(|why| panic!("{why}:\n{text}"))
}
