//! A chopping as text.

use std::fmt;

use crate::{
    chopping::{Chopped, Chopping, Execution},
    program::PieceId,
};

impl fmt::Display for Chopping {
    /// Writes what runs together, and why.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chopped in self.transactions() {
            self.write_transaction(f, chopped)?;
        }
        let program = self.program();
        let name = |transaction: usize| program.transactions[transaction].name.as_str();
        for deferral in self.deferrals() {
            let subscribers: Vec<_> = deferral.subscribers.iter().map(|&place| name(place)).collect();
            let publisher = name(deferral.publisher);
            writeln!(
                f,
                "deferred: {publisher}'s additions to {}, until {} may see them",
                deferral.column,
                subscribers.join(", ")
            )?;
        }
        for undeferred in self.undeferred() {
            let publisher = name(undeferred.publisher);
            writeln!(f, "not deferred: {publisher}'s additions to {}: {}", undeferred.column, undeferred.path)?;
        }
        for claim in self.claims() {
            let by = self.full_name(claim.by);
            match claim.void_by {
                None => writeln!(f, "claimed: rows of {} by {by}", claim.table)?,
                Some(other) => {
                    let other = self.full_name(other);
                    writeln!(
                        f,
                        "not claimed: rows of {} by {by}, as {other} accesses them without a claim",
                        claim.table
                    )?;
                }
            }
        }
        let (edges, before) = (self.edges(), self.edges_before());
        writeln!(f, "edges: {} S, {} C; before merging {} S, {} C", edges.s, edges.c, before.s, before.c)
    }
}

impl Chopping {
    fn full_name(&self, piece: PieceId) -> String {
        format!("{}/{}", self.program().transactions[piece.transaction].name, self.program().piece_name(piece))
    }

    fn write_transaction(&self, f: &mut fmt::Formatter<'_>, chopped: &Chopped) -> fmt::Result {
        match chopped.execution() {
            Execution::TwoRounds { after_publication: false } => {
                return writeln!(f, "{}: read as a whole, by two rounds", chopped.name());
            }
            Execution::TwoRounds { after_publication: true } => {
                return writeln!(f, "{}: read as a whole, by two rounds, after a publication", chopped.name());
            }
            Execution::Pieces => {}
        }
        let count = chopped.pieces().len();
        writeln!(f, "{}: {count} {}", chopped.name(), if count == 1 { "piece" } else { "pieces" })?;
        for (place, piece) in chopped.pieces().iter().enumerate() {
            let names: Vec<_> = piece.members().iter().map(|&member| self.program().piece_name(member)).collect();
            let mut notes = Vec::new();
            if !piece.conflicts() {
                notes.push("conflicts with nothing");
            }
            if piece.may_abort() {
                notes.push("may abort");
            }
            let notes = if notes.is_empty() { String::new() } else { format!("  ({})", notes.join(", ")) };
            writeln!(f, "  {}. {}{notes}", place + 1, names.join(" + "))?;
            for &member in piece.members() {
                writeln!(f, "       {}: {}", self.program().piece_name(member), self.program().operations(member))?;
            }
            for merge in chopped.merges().iter().filter(|merge| piece.members().contains(&merge.first)) {
                let name = |piece| self.program().piece_name(piece);
                writeln!(f, "     {} with {}: {}", name(merge.second), name(merge.first), merge.why)?;
            }
        }
        Ok(())
    }
}
