//! Rows whose fields show whether they are torn, and how often they were written.
//!
//! ```text
//! bytes   0..8    stamp: how often the field was written since the record was inserted
//!         8..100  filler: a function of the record's number, the field's and the stamp
//! ```

use std::ops::Range;

use drtm_drive::scatter::scatter;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::U64};

/// Bytes of a field.
pub const FIELD: usize = 100;

const FILLER: usize = FIELD - 8;

/// A field of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Field {
    stamp: U64,
    filler: [u8; FILLER],
}

/// A record's fields.
///
/// # Example
///
/// ```
/// use drtm_workloads::ycsb::StandardRow;
///
/// let mut row = StandardRow::inserted(7);
/// row.write(7, 3);
/// assert_eq!(row.writes(7), Some(1));
/// assert_eq!(row.writes(8), None, "it is not that record's");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(transparent)]
pub struct Row<const FIELDS: usize> {
    fields: [Field; FIELDS],
}

/// The core package's row: ten fields, a thousand bytes.
pub type StandardRow = Row<10>;

/// The row of papers on transaction processing: a hundred bytes, as one field.
pub type SmallRow = Row<1>;

// The size of a record's value.
const _: () = assert!(size_of::<StandardRow>() == 1_000 && size_of::<SmallRow>() == 100);

impl Field {
    fn new(number: u64, field: u64, stamp: u64) -> Self {
        // Any different input changes all bits. Each word of filler contains its index.
        let word = scatter(stamp ^ scatter(number ^ field << 56));
        let mut filler = [0; FILLER];
        for (part, turn) in filler.chunks_mut(8).zip(0..) {
            part.copy_from_slice(&word.rotate_left(5 * turn).to_le_bytes()[..part.len()]);
        }
        Self { stamp: U64::new(stamp), filler }
    }
}

impl<const FIELDS: usize> Row<FIELDS> {
    /// Creates the row of a new record with this number.
    pub fn inserted(number: u64) -> Self {
        let mut fields = 0..;
        Self { fields: [(); FIELDS].map(|()| Field::new(number, fields.next().unwrap_or_default(), 0)) }
    }

    /// Writes a field once more. Field numbers wrap around.
    #[inline]
    pub fn write(&mut self, number: u64, field: u8) {
        let field = usize::from(field) % FIELDS;
        let stamp = self.fields[field].stamp.get().wrapping_add(1);
        self.fields[field] = Field::new(number, field as u64, stamp);
    }

    /// Returns how often the fields of this record were written. `None` if a field is torn, or the
    /// row is another record's.
    pub fn writes(&self, number: u64) -> Option<u64> {
        let mut writes: u64 = 0;
        for (field, at) in self.fields.iter().zip(0..) {
            let stamp = field.stamp.get();
            if *field != Field::new(number, at, stamp) {
                return None;
            }
            writes = writes.wrapping_add(stamp);
        }
        Some(writes)
    }
}

/// An odd number, and its multiplicative inverse.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
const GATHER: u64 = {
    // Each Newton step doubles the number of correct bits, which is three initially.
    let mut inverse = SPREAD;
    let mut step = 0;
    while step < 5 {
        inverse = inverse.wrapping_mul(2_u64.wrapping_sub(SPREAD.wrapping_mul(inverse)));
        step += 1;
    }
    assert!(SPREAD.wrapping_mul(inverse) == 1);
    inverse
};

/// Returns a record's key: its number spread over 64 bits, so that records inserted in sequence are
/// far apart, as in the core package. The core package hashes numbers, which can collide; these
/// keys cannot.
///
/// # Example
///
/// ```
/// use drtm_workloads::ycsb::{key, number};
///
/// assert!(key(1) > key(2));
/// assert_eq!(number(key(4_711)), 4_711);
/// ```
#[inline]
pub const fn key(number: u64) -> u64 {
    number.wrapping_mul(SPREAD)
}

/// Returns the number of the record with a key.
#[inline]
pub const fn number(key: u64) -> u64 {
    key.wrapping_mul(GATHER)
}

/// Returns the initial keys and rows of these records. Threads can share the work.
///
/// # Example
///
/// ```
/// use drtm_workloads::ycsb::{key, population};
///
/// let (first, row) = population::<10>(7..9).next().expect("two records");
/// assert_eq!((first, row.writes(7)), (key(7), Some(0)));
/// ```
pub fn population<const FIELDS: usize>(numbers: Range<u64>) -> impl Iterator<Item = (u64, Row<FIELDS>)> {
    numbers.map(|number| (key(number), Row::inserted(number)))
}
