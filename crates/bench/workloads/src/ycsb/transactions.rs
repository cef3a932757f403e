//! Transactions of several operations on different records, as in Silo, DBX1000 and Cicada.

use drtm_drive::{
    Random,
    cluster::Nearby,
    zipf::{Zipf, ZipfError},
};
use serde::{Deserialize, Serialize};

/// Operations of a short transaction.
pub const SHORT: u8 = 4;
/// Operations of a long one.
pub const LONG: u8 = 16;
/// The most operations that a transaction can have.
pub const MOST: u8 = 16;

/// The shape of transactions.
///
/// # Example
///
/// ```
/// use drtm_workloads::ycsb::{LONG, Shape};
///
/// let long = Shape { accesses: LONG, ..Shape::STANDARD };
/// assert_eq!((long.reads, long.exponent), (80, 0.99));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// Operations of a transaction.
    pub accesses: u8,
    /// The percentage of reads; the other operations read and write. 100 and above is all.
    pub reads: u8,
    /// The exponent of Zipf's distribution; 0 is uniform.
    pub exponent: f64,
}

impl Shape {
    /// Four operations, of which 80 % are reads, and an exponent of 0.99.
    pub const STANDARD: Self = Self { accesses: SHORT, reads: 80, exponent: 0.99 };
}

/// An invalid shape.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// Too few or too many operations.
    #[error("transactions of {0} operations: ask for 1 to {MOST}")]
    Accesses(u8),
    /// Too few records: drawing distinct ones could take forever.
    #[error("{records} records for {accesses} different ones in a transaction: ask for {} at least", 2 * u64::from(*accesses))]
    Records {
        /// The number of records.
        records: u64,
        /// The records of a transaction.
        accesses: u8,
    },
    /// The exponent is so large that most records are hardly ever drawn, and drawing distinct ones
    /// could take forever.
    #[error("an exponent of {0}: ask for 0 to 2")]
    Exponent(f64),
    /// Zipf's distribution does not exist.
    #[error(transparent)]
    Zipf(#[from] ZipfError),
}

impl From<ShapeError> for drtm_drive::Error {
    fn from(error: ShapeError) -> Self {
        Self::size(error)
    }
}

/// An operation on a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The record's number.
    pub number: u64,
    /// Whether it is written after it is read.
    pub writes: bool,
}

/// Operations on different records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transaction {
    accesses: [Access; MOST as usize],
    count: u8,
}

impl Transaction {
    /// Returns the operations, in order.
    #[inline]
    pub fn accesses(&self) -> &[Access] {
        &self.accesses[..self.count.into()]
    }

    /// Returns the number of writes.
    pub fn writes(&self) -> usize {
        self.accesses().iter().filter(|access| access.writes).count()
    }
}

/// One worker's transactions, determined by a seed.
///
/// # Example
///
/// ```
/// use drtm_workloads::ycsb::{Shape, Transactions};
///
/// let mut transactions = Transactions::new(1_000_000, Shape::STANDARD, 42)?;
/// let transaction = transactions.draw();
/// assert_eq!(transaction.accesses().len(), 4);
/// # Ok::<(), drtm_workloads::ycsb::ShapeError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Transactions {
    records: u64,
    shape: Shape,
    zipf: Zipf,
    random: Random,
    nearby: Option<Nearby>,
    drawn: Transaction,
}

impl Transactions {
    /// Creates transactions over this many records. Each worker needs a seed of its own.
    ///
    /// # Errors
    ///
    /// Returns an error if there are not enough records, if a transaction would be too short or too
    /// long, or if the exponent is not between 0 and 2.
    pub fn new(records: u64, shape: Shape, seed: u64) -> Result<Self, ShapeError> {
        let Shape { accesses, exponent, .. } = shape;
        if !(1..=MOST).contains(&accesses) {
            return Err(ShapeError::Accesses(accesses));
        }
        if records < 2 * u64::from(accesses) {
            return Err(ShapeError::Records { records, accesses });
        }
        if exponent > 2.0 {
            return Err(ShapeError::Exponent(exponent));
        }
        let drawn = Transaction { accesses: [Access::default(); MOST as usize], count: 0 };
        Ok(Self {
            records,
            shape,
            zipf: Zipf::new(records, exponent)?,
            random: Random::seeded(seed),
            nearby: None,
            drawn,
        })
    }

    /// Chooses records by whether they are on the client's own node.
    #[must_use]
    pub fn near(self, nearby: Option<Nearby>) -> Self {
        Self { nearby, ..self }
    }

    /// Draws the next transaction.
    #[inline]
    pub fn draw(&mut self) -> &Transaction {
        let Self { records, shape, zipf, random, nearby, drawn } = self;
        drawn.count = 0;
        while drawn.count < shape.accesses {
            let mut number = zipf.draw(random);
            if let Some(nearby) = nearby {
                number = nearby.of(number, 0..=*records - 1);
            }
            if drawn.accesses().iter().all(|access| access.number != number) {
                let writes = !random.percent(shape.reads);
                drawn.accesses[usize::from(drawn.count)] = Access { number, writes };
                drawn.count += 1;
            }
        }
        drawn
    }
}
