//! That no write is lost or torn, whenever none is under way.

use std::fmt;

use super::{Row, number};

/// What does not hold of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A field is not as any write has left it, or the row is another record's.
    Torn {
        /// The record's number.
        number: u64,
    },
    /// There are more or fewer rows than were inserted.
    Rows {
        /// How many there are.
        found: u64,
        /// How many there should be.
        expected: u64,
    },
    /// The rows were written more or less often than was committed.
    Writes {
        /// How often they say that they were written.
        found: u64,
        /// How often they should have been.
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

/// Checks all rows, of which each key comes once, and tells what does not hold. `inserted` is the
/// number of records there should be, `written` how many writes of fields were committed since each
/// was inserted.
///
/// # Errors
///
/// When a row cannot be read.
///
/// # Example
///
/// ```
/// use drtm_bench::ycsb::{Row, Violation, check, population};
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
