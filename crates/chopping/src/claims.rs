//! Rows that a transaction has claimed: which claims hold.

use crate::{
    describe::Kind,
    mutation::{self, Mutation},
    program::{KnownAccess, PieceId, Program},
};

/// Accesses of one transaction to rows of a table that an earlier piece has claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The piece that removes the rows' keys from another table.
    pub by: PieceId,
    /// The table whose rows are claimed.
    pub table: String,
    /// The piece that makes the claim void: it accesses rows of the table, and neither claims them
    /// nor inserts them together with what is removed. `None` if the claim holds.
    pub void_by: Option<PieceId>,
    pub(crate) table_number: usize,
}

/// Returns all claims of transactions that run in pieces, which `runs` tells.
pub(crate) fn find(program: &Program, runs: impl Fn(usize) -> bool) -> Vec<Claim> {
    let mut claims: Vec<Claim> = Vec::new();
    for (transaction, known) in program.transactions.iter().enumerate().filter(|(place, _)| runs(*place)) {
        for access in known.pieces.iter().flat_map(|piece| &piece.accesses) {
            let Some(by) = access.claimed_by.map(|piece| PieceId { transaction, piece }) else { continue };
            let table_number = access.table;
            if !claims.iter().any(|claim| claim.by == by && claim.table_number == table_number) {
                let void_by = voids(program, &runs, by, table_number);
                let table = program.tables[table_number].name.clone();
                claims.push(Claim { by, table, void_by, table_number });
            }
        }
    }
    claims
}

/// Returns the first piece that makes a claim void.
fn voids(program: &Program, runs: impl Fn(usize) -> bool, by: PieceId, table: usize) -> Option<PieceId> {
    if mutation::includes(Mutation::ClaimWithoutPremise) {
        return None;
    }
    let keys = program.at(by).claims()?;
    for (transaction, known) in program.transactions.iter().enumerate().filter(|(place, _)| runs(*place)) {
        let accesses = || {
            known.pieces.iter().enumerate().flat_map(move |(piece, known)| {
                known.accesses.iter().map(move |access| (PieceId { transaction, piece }, access))
            })
        };
        // A row and its key are inserted together: both pieces conflict with the one that claims,
        // so the analysis merges them.
        let inserts_keys = accesses().any(|(_, access)| access.table == keys && inserts(access.kind));
        let is_allowed = |access: &KnownAccess| match access.claimed_by {
            _ if inserts_keys => inserts(access.kind),
            Some(claim) => known.pieces[claim].claims() == Some(keys),
            None => false,
        };
        if let Some((piece, _)) = accesses().find(|(_, access)| access.table == table && !is_allowed(access)) {
            return Some(piece);
        }
    }
    None
}

fn inserts(kind: Kind) -> bool {
    matches!(kind, Kind::Insert | Kind::Append)
}
