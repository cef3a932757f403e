//! How a transaction runs: its pieces in order, as the analysis has merged them.

use drtm_chopping::{Chopped, Chopping, Execution};
use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use crate::{Config, mutation::Mutation};

/// The plan of one transaction.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) pieces: Vec<Planned>,
    /// The last piece with an effect.
    pub(crate) last_effect: usize,
    /// How many pieces have an effect.
    pub(crate) effects: usize,
    /// Identifies the pieces, so that another version of the program does not take its own to be
    /// these.
    pub(crate) fingerprint: u64,
    /// Held while the transaction runs, if it runs alone.
    pub(crate) alone: Option<Mutex<()>>,
    /// Whether a moment waits for it: it has several pieces.
    pub(crate) is_counted: bool,
    /// Whether it takes part in publications.
    pub(crate) is_party: bool,
}

/// One piece: those of the description that run together.
#[derive(Debug)]
pub(crate) struct Planned {
    /// Their places in the description.
    pub(crate) members: Vec<usize>,
    pub(crate) has_effect: bool,
}

impl Plan {
    pub(crate) fn of<S: Config>(chopping: &Chopping, transaction: usize) -> Self {
        let chopped = &chopping.transactions()[transaction];
        let pieces = if S::has(Mutation::MergeLeftOut) { apart(chopped) } else { merged(chopped) };
        let last_effect = pieces.iter().rposition(|piece| piece.has_effect).unwrap_or(0);
        let effects = pieces.iter().filter(|piece| piece.has_effect).count();
        let is_alone = chopping.program().runs_alone(transaction) && !S::has(Mutation::AloneIgnored);
        let waited_for = |other: &Chopped| other.waits_for().contains(&transaction);
        let is_party = chopping.publication().contains(&transaction);
        let is_waited_for = is_party || chopping.transactions().iter().any(waited_for);
        Self {
            last_effect,
            effects,
            fingerprint: fingerprint(chopping, transaction),
            alone: is_alone.then(Mutex::default),
            // What is one piece is atomic. But a publication is not.
            is_counted: is_waited_for && (pieces.len() > 1 || is_party),
            is_party,
            pieces,
        }
    }
}

fn merged(chopped: &Chopped) -> Vec<Planned> {
    let piece = |merged: &drtm_chopping::Merged| Planned {
        members: merged.members().iter().map(|member| member.piece).collect(),
        has_effect: merged.has_effect(),
    };
    chopped.pieces().iter().map(piece).collect()
}

/// Returns the members of all pieces, each as a piece of its own.
fn apart(chopped: &Chopped) -> Vec<Planned> {
    let members = merged(chopped).into_iter().flat_map(|Planned { members, has_effect }| {
        members.into_iter().map(move |member| Planned { members: vec![member], has_effect })
    });
    members.collect()
}

/// Returns a hash of the names of a transaction's pieces, in order.
fn fingerprint(chopping: &Chopping, transaction: usize) -> u64 {
    let chopped = &chopping.transactions()[transaction];
    let mut names = String::new();
    for piece in chopped.pieces() {
        for &member in piece.members() {
            names.push_str(chopping.program().piece_name(member));
            names.push('+');
        }
        names.push('|');
    }
    xxh3_64(names.as_bytes())
}

/// Returns whether a transaction is read by two rounds, and if it is, whether after a publication.
pub(crate) fn two_rounds(chopped: &Chopped) -> Option<bool> {
    match chopped.execution() {
        Execution::TwoRounds { after_publication } => Some(after_publication),
        _ => None,
    }
}
