//! Populations of numbered rows: divides them into pieces, and reads them.

use std::ops::Range;

use crate::{Error, scatter::scatter};

/// Rows of a piece.
const PIECE: u64 = 4_096;

/// Returns the number of pieces of that many rows.
pub fn pieces(rows: u64) -> u64 {
    rows.div_ceil(PIECE)
}

/// Returns the numbers of a piece's rows, from zero.
pub fn rows_of_piece(piece: u64, rows: u64) -> Range<u64> {
    piece * PIECE..rows.min((piece + 1) * PIECE)
}

/// Returns the seed of a thread's inputs.
pub fn spread(seed: u64, thread: usize) -> u64 {
    scatter(seed ^ scatter(thread as u64 + 1))
}

/// Returns a row that must exist. `ok_or` would construct and drop the error for every row.
#[inline(always)]
pub fn expect_row<T>(row: Option<T>, table: &'static str) -> Result<T, drtm_txn::Error> {
    match row {
        Some(row) => Ok(row),
        None => Err(drtm_txn::Error::Missing { table }),
    }
}

/// Pairs a row with its key. `None` if the row is missing: checks detect that themselves.
pub fn row_with_key<K, R>(key: K, row: Result<Option<R>, drtm_txn::Error>) -> Option<Result<(K, R), Error>> {
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
            assert!((0..pieces(rows)).flat_map(|piece| rows_of_piece(piece, rows)).eq(0..rows), "{rows}");
        }
    }
}
