//! Checks that no write is lost or torn, when no transaction is in progress.

use std::fmt;

use super::{Row, number};

/// A violation found in the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A field is torn, or the row is another record's.
    Torn {
        /// The record's number.
        number: u64,
    },
    /// There are more or fewer rows than were inserted.
    Rows {
        /// The actual number.
        found: u64,
        /// The expected number.
        expected: u64,
    },
    /// The rows' write counts differ from the committed writes.
    Writes {
        /// The sum of the rows' write counts.
        found: u64,
        /// The number of committed writes.
        expected: u64,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Torn { number } => write!(f, "record {number} is not as any write has left it"),
            Self::Rows { found, expected } => write!(f, "there are {found} records where {expected} are expected"),
            Self::Writes { found, expected } => {
                write!(f, "the records were written {found} times where {expected} are expected")
            }
        }
    }
}

/// Checks all rows, each given once, and returns the violations. `inserted` is the expected number
/// of records, `written` the committed writes of fields since the insertions.
///
/// # Errors
///
/// Returns an error if a row cannot be read.
///
/// # Example
///
/// ```
/// use drtm_workloads::ycsb::{Row, Violation, check, population};
///
/// let rows: Vec<(u64, Row<1>)> = population(0..100).collect();
/// let as_read = || rows.iter().map(|row| Ok::<_, std::io::Error>(*row));
/// assert_eq!(check(as_read(), 100, 0)?, []);
/// assert_eq!(check(as_read(), 100, 1)?, [Violation::Writes { found: 0, expected: 1 }]);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn check<E, const FIELDS: usize>(
    rows: impl Iterator<Item = Result<(u64, Row<FIELDS>), E>>,
    inserted: u64,
    written: u64,
) -> Result<Vec<Violation>, E> {
    let mut violations = Vec::new();
    let (mut found, mut writes) = (0, 0_u64);
    for row in rows {
        let (key, row) = row?;
        let number = number(key);
        found += 1;
        match row.writes(number) {
            Some(of_row) => writes = writes.wrapping_add(of_row),
            None => violations.push(Violation::Torn { number }),
        }
    }
    if found != inserted {
        violations.push(Violation::Rows { found, expected: inserted });
    }
    if writes != written {
        violations.push(Violation::Writes { found: writes, expected: written });
    }
    Ok(violations)
}
