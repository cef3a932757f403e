//! Choppings that the caller wants: whether they are possible.

use crate::{analysis::Analysis, cycle::Cycle, program::PieceId};

/// A chopping that was insisted on is not possible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It is not serializable.
    #[error("the chopping is not serializable: {0}; merge two pieces of one transaction on this cycle")]
    Cycle(Cycle),

    /// A transaction is named twice.
    #[error("{transaction} is named twice: name all of its pieces at once")]
    Twice {
        /// The transaction.
        transaction: String,
    },

    /// A piece would run before one that it depends on.
    #[error("{transaction}: {piece} runs before {needed}, which it depends on: exchange them, or merge them")]
    Order {
        /// The transaction.
        transaction: String,
        /// The piece.
        piece: String,
        /// The piece that it depends on.
        needed: String,
    },

    /// A piece may abort after others have had an effect.
    #[error("{transaction}: {piece} may abort after {effect} has had its effect: run it earlier, or merge them")]
    Abort {
        /// The transaction.
        transaction: String,
        /// The piece that may abort.
        piece: String,
        /// The piece with an effect.
        effect: String,
    },

    /// A name is not in the program.
    #[error("the program has no {what} {name:?}: check its spelling")]
    Unknown {
        /// What is named.
        what: &'static str,
        /// The name.
        name: String,
    },

    /// A piece is not there exactly once.
    #[error("{transaction}: {piece} is there {times} times: list each piece once")]
    NotOnce {
        /// The transaction.
        transaction: String,
        /// The piece.
        piece: String,
        /// How often it is there.
        times: usize,
    },

    /// The transaction is read by two rounds, as a whole.
    #[error("{transaction} is read as a whole, by two rounds: leave it out, or switch off two_rounds")]
    Whole {
        /// The transaction.
        transaction: String,
    },
}

/// Checks the pieces that the caller wants for a transaction, and returns their places.
pub(crate) fn check(
    analysis: &Analysis<'_>,
    transaction: usize,
    wanted: &[&[&str]],
) -> Result<Vec<Vec<usize>>, Refusal> {
    let program = analysis.program;
    let known = &program.transactions[transaction];
    let named = || known.name.clone();
    let name = |piece: usize| known.pieces[piece].name.clone();
    if analysis.is_read[transaction] {
        return Err(Refusal::Whole { transaction: named() });
    }
    let mut pieces = Vec::new();
    for group in wanted {
        let place = |wanted: &&str| {
            let place = known.pieces.iter().position(|piece| piece.name == *wanted);
            place.ok_or_else(|| Refusal::Unknown { what: "piece", name: format!("{}/{wanted}", known.name) })
        };
        let mut places: Vec<usize> = group.iter().map(place).collect::<Result<_, _>>()?;
        places.sort_unstable();
        pieces.push(places);
    }
    let mut turn = vec![0; known.pieces.len()];
    for (piece, turn) in turn.iter_mut().enumerate() {
        let times = pieces.iter().flatten().filter(|&&other| other == piece).count();
        if times != 1 {
            return Err(Refusal::NotOnce { transaction: named(), piece: name(piece), times });
        }
        *turn = pieces.iter().position(|group| group.contains(&piece)).unwrap_or(0);
    }
    for piece in 0..turn.len() {
        if let Some(&needed) = analysis.needs[transaction][piece].iter().find(|&&needed| turn[needed] > turn[piece]) {
            return Err(Refusal::Order { transaction: named(), piece: name(piece), needed: name(needed) });
        }
        let id = PieceId { transaction, piece };
        for (other, path) in analysis.graph.paths(id).into_iter().enumerate() {
            if let Some(path) = path
                && turn[other] != turn[piece]
            {
                return Err(Refusal::Cycle(Cycle::new(program, id, &path)));
            }
        }
        let effect = |&other: &usize| known.pieces[other].has_effect() && turn[other] < turn[piece];
        if known.pieces[piece].may_abort
            && let Some(effect) = (0..turn.len()).find(effect)
        {
            return Err(Refusal::Abort { transaction: named(), piece: name(piece), effect: name(effect) });
        }
    }
    Ok(pieces.into_iter().filter(|group| !group.is_empty()).collect())
}
