//! Populations of numbered rows: how they are divided, and read again.

use std::ops::Range;

use crate::{Error, scatter::scatter};

/// Rows of a piece.
const PIECE: u64 = 4_096;

/// How many pieces so many rows have.
pub(crate) fn pieces(rows: u64) -> u64 {
    rows.div_ceil(PIECE)
}

/// The numbers of a piece's rows, from zero.
pub(crate) fn of_piece(piece: u64, rows: u64) -> Range<u64> {
    piece * PIECE..rows.min((piece + 1) * PIECE)
}

/// The seed of a thread's inputs.
pub(crate) fn spread(seed: u64, thread: usize) -> u64 {
    scatter(seed ^ scatter(thread as u64 + 1))
}

/// A row of a table that must be there. Not by `ok_or`, which would make the error, and drop it,
/// for every row.
#[inline(always)]
pub(crate) fn there<T>(row: Option<T>, table: &'static str) -> Result<T, drtm_txn::Error> {
    match row {
        Some(row) => Ok(row),
        None => Err(drtm_txn::Error::Missing { table }),
    }
}

/// A row that was looked up by its key, for checks, which see for themselves that one is missing.
pub(crate) fn if_there<K, R>(key: K, row: Result<Option<R>, drtm_txn::Error>) -> Option<Result<(K, R), Error>> {
    match row {
        Ok(row) => row.map(|row| Ok((key, row))),
        Err(error) => Some(Err(error.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_is_in_one_piece() {
        for rows in [0, 1, 4_095, 4_096, 4_097, 10_000] {
            assert!((0..pieces(rows)).flat_map(|piece| of_piece(piece, rows)).eq(0..rows), "{rows}");
        }
    }
}
