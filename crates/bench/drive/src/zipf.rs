//! Exact Zipf draws, cheap enough for a driver of millions of transactions per second.
//!
//! Ranks are gathered into ranges. Each of the first 64 ranks is its own range; later ranges are
//! about 1/64 as long as their first rank. Walker's alias method draws a range as if all its ranks
//! were as likely as the first. Then a rank of the range is drawn uniformly, and rejected with the
//! excess probability; a rejected draw starts over. Few draws compute a power: most are accepted
//! because even the last rank of their range would be.

use crate::Random;

/// The ratio of a range's first rank to its length.
const FINENESS: u64 = 64;

/// Two to the 64th.
const WHOLE: f64 = 18_446_744_073_709_551_616.0;

/// A Zipf distribution of numbers below a limit. The probability of rank `r`, counted from one, is
/// proportional to `r` to the power of minus the exponent.
///
/// # Example
///
/// ```
/// use drtm_drive::{Random, zipf::Zipf};
///
/// let zipf = Zipf::new(1_000_000, 0.99)?;
/// let mut random = Random::seeded(1);
/// let hottest = (0..10_000).filter(|_| zipf.draw(&mut random) == 0).count();
/// assert!((500..800).contains(&hottest), "the first of a million has 6 % of all draws");
/// # Ok::<(), drtm_drive::zipf::ZipfError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Zipf {
    exponent: f64,
    ranges: Vec<Range>,
    /// The alias method's columns, one for each range.
    columns: Vec<Column>,
}

#[derive(Clone, Copy, Debug)]
struct Range {
    first: u64,
    length: u64,
    /// Every rank of the range is accepted below this, of 2^64.
    sure: u64,
}

#[derive(Clone, Copy, Debug)]
struct Column {
    /// The column's own share of 2^64; the rest belongs to its alias.
    own: u64,
    other: u32,
}

/// The parameters do not define a distribution.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ZipfError {
    /// The limit is zero.
    #[error("Zipf's distribution over no numbers: ask for one at least")]
    Empty,
    /// The exponent is negative, infinite or not a number.
    #[error("Zipf's distribution with an exponent of {0}: ask for 0 (uniform) or a positive number")]
    Exponent(f64),
}

impl Range {
    fn new(first: u64, length: u64, exponent: f64) -> Self {
        let last = first + length - 1;
        Self { first, length, sure: ((first as f64 / last as f64).powf(exponent) * WHOLE) as u64 }
    }
}

impl Zipf {
    /// Creates the distribution of numbers below `limit`, with this exponent. Zero is the uniform
    /// distribution.
    ///
    /// # Errors
    ///
    /// Returns an error if the limit is zero, or the exponent is negative or not finite.
    pub fn new(limit: u64, exponent: f64) -> Result<Self, ZipfError> {
        if limit == 0 {
            return Err(ZipfError::Empty);
        }
        if !exponent.is_finite() || exponent < 0.0 {
            return Err(ZipfError::Exponent(exponent));
        }
        let mut ranges = Vec::new();
        let mut weights = Vec::new();
        let mut first = 1;
        while first <= limit {
            let length = (first / FINENESS).max(1).min(limit - first + 1);
            ranges.push(Range::new(first, length, exponent));
            weights.push(length as f64 * (first as f64).powf(-exponent));
            first += length;
        }
        Ok(Self { exponent, ranges, columns: columns(weights) })
    }

    /// Draws the next number; 0 is the likeliest.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let (column, rest) = split(random, self.columns.len() as u64);
            let Column { own, other } = self.columns[column as usize];
            let Range { first, length, sure } = self.ranges[if rest < own { column as usize } else { other as usize }];
            if length == 1 {
                return first - 1;
            }
            let (offset, rest) = split(random, length);
            if rest < sure || self.is_accepted(first, offset, rest) {
                return first + offset - 1;
            }
        }
    }

    /// Draws the next number below a smaller `limit`, distributed as if made for that limit.
    /// `limit` is at least one.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_drive::{Random, zipf::Zipf};
    ///
    /// let mut random = Random::seeded(1);
    /// let zipf = Zipf::new(1_000_000, 0.99)?;
    /// assert!((0..1_000).all(|_| zipf.draw_below(500_000, &mut random) < 500_000));
    /// # Ok::<(), drtm_drive::zipf::ZipfError>(())
    /// ```
    #[inline]
    pub fn draw_below(&self, limit: u64, random: &mut Random) -> u64 {
        loop {
            let number = self.draw(random);
            if number < limit.max(1) {
                return number;
            }
        }
    }

    #[cold]
    fn is_accepted(&self, first: u64, offset: u64, rest: u64) -> bool {
        rest as f64 / WHOLE < (first as f64 / (first + offset) as f64).powf(self.exponent)
    }
}

/// Draws a number below this, and returns the draw's remainder: a fraction of 2^64.
#[inline]
fn split(random: &mut Random, below: u64) -> (u64, u64) {
    let product = u128::from(random.within(0, u64::MAX)) * u128::from(below);
    ((product >> 64) as u64, product as u64)
}

/// Builds the alias method's columns of these weights by Vose's construction: a column's excess
/// fills another up.
fn columns(mut weights: Vec<f64>) -> Vec<Column> {
    let mean = weights.iter().sum::<f64>() / weights.len() as f64;
    let mut columns: Vec<Column> = (0..weights.len()).map(|at| Column { own: u64::MAX, other: at as u32 }).collect();
    let (mut poor, mut rich): (Vec<usize>, Vec<usize>) = (0..weights.len()).partition(|at| weights[*at] < mean);
    while let (Some(needs), Some(gives)) = (poor.pop(), rich.pop()) {
        columns[needs] = Column { own: (weights[needs] / mean * WHOLE) as u64, other: gives as u32 };
        weights[gives] -= mean - weights[needs];
        if weights[gives] < mean { poor.push(gives) } else { rich.push(gives) }
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;
    use drtm_testing::chance::{assert_distribution, assert_share};

    fn shares(limit: u64, exponent: f64) -> Vec<f64> {
        let powers: Vec<f64> = (1..=limit).map(|rank| (rank as f64).powf(-exponent)).collect();
        let whole: f64 = powers.iter().sum();
        powers.iter().map(|power| power / whole).collect()
    }

    #[test]
    fn every_rank_is_as_likely_as_it_should_be() {
        for (seed, exponent) in (1..).zip([0.0, 0.5, 0.99, 1.0, 1.2]) {
            let mut random = Random::seeded(seed);
            for limit in [1, 2, 63, 64, 65, 128, 500] {
                let zipf = Zipf::new(limit, exponent).expect("it exists");
                let mut counts = vec![0; limit as usize];
                for _ in 0..400_000 {
                    counts[zipf.draw(&mut random) as usize] += 1;
                }
                assert_distribution(&counts, &shares(limit, exponent));
            }
        }
    }

    #[test]
    fn the_ranks_of_a_long_range_are_as_likely_as_they_should_be() {
        // The last ranks of a large distribution, in 100 equal parts. A part may be longer or
        // shorter than a range, but never equal to one.
        let (limit, parts, draws) = (100_000, 100, 1_000_000);
        let zipf = Zipf::new(limit, 0.99).expect("it exists");
        let mut random = Random::seeded(6);
        let mut counts = vec![0; parts];
        for _ in 0..draws {
            counts[(zipf.draw(&mut random) * parts as u64 / limit) as usize] += 1;
        }
        let expected: Vec<f64> =
            shares(limit, 0.99).chunks(limit as usize / parts).map(|part| part.iter().sum()).collect();
        assert_distribution(&counts, &expected);
    }

    #[test]
    fn what_is_too_likely_is_rejected_as_often() {
        // Ranges longer than any real one, and an exponent at which their ranks differ much more.
        let ranges = vec![Range::new(100, 100, 20.0), Range::new(200, 50, 20.0)];
        let weights = vec![100.0, 50.0 * 0.5_f64.powi(20)];
        let zipf = Zipf { exponent: 20.0, ranges, columns: columns(weights) };
        let mut random = Random::seeded(10);
        let mut counts = vec![0; 41];
        for _ in 0..400_000 {
            let rank = zipf.draw(&mut random) + 1;
            counts[(rank as usize - 100).min(40)] += 1;
        }
        let whole: f64 = (100..250).map(|rank| (f64::from(rank) / 100.0).powi(-20)).sum();
        let mut expected: Vec<f64> = (100..140).map(|rank| (f64::from(rank) / 100.0).powi(-20) / whole).collect();
        expected.push(1.0 - expected.iter().sum::<f64>());
        assert_distribution(&counts, &expected);
    }

    #[test]
    fn columns_have_the_shares_of_their_weights() {
        let weights = vec![0.3, 5.0, 0.0, 1.0, 1.0, 2.7];
        let (whole, columns) = (weights.iter().sum::<f64>(), columns(weights.clone()));
        let mut shares = vec![0.0; weights.len()];
        for (at, Column { own, other }) in columns.iter().enumerate() {
            let own = *own as f64 / WHOLE;
            shares[at] += own / columns.len() as f64;
            shares[*other as usize] += (1.0 - own) / columns.len() as f64;
        }
        for (share, weight) in shares.iter().zip(weights) {
            assert!((share - weight / whole).abs() < 1e-12, "{share} for {weight} of {whole}");
        }
    }

    #[test]
    fn below_a_limit_it_is_the_distribution_of_that_limit() {
        let zipf = Zipf::new(1_000, 0.99).expect("it exists");
        let mut random = Random::seeded(7);
        let mut counts = vec![0; 300];
        for _ in 0..300_000 {
            counts[zipf.draw_below(300, &mut random) as usize] += 1;
        }
        assert_distribution(&counts, &shares(300, 0.99));
        assert_eq!(zipf.draw_below(0, &mut random), 0);
    }

    #[test]
    fn it_can_be_as_large_as_ycsb_asks() {
        let zipf = Zipf::new(10_000_000_000, 0.99).expect("it exists");
        assert!(zipf.ranges.len() < 1_400, "{} ranges", zipf.ranges.len());
        let mut random = Random::seeded(8);
        let draws: Vec<u64> = (0..200_000).map(|_| zipf.draw(&mut random)).collect();
        // The sum of all powers, a constant in YCSB.
        let whole = 26.469_028_201_783_02;
        for rank in [1_u64, 2, 3, 10] {
            let count = draws.iter().filter(|number| **number == rank - 1).count();
            assert_share(count, draws.len(), (rank as f64).powf(-0.99) / whole);
        }
        assert!(draws.iter().all(|number| *number < 10_000_000_000));
        assert!(draws.iter().any(|number| *number > 9_000_000_000));
    }

    #[test]
    fn impossible_ones_are_refused() {
        assert_eq!(Zipf::new(0, 0.99).err(), Some(ZipfError::Empty));
        for exponent in [-0.1, f64::INFINITY, f64::NAN] {
            assert!(matches!(Zipf::new(1, exponent), Err(ZipfError::Exponent(_))));
        }
    }

    #[test]
    fn a_seed_s_draws_stay_what_they_are() {
        let zipf = Zipf::new(1_000_000, 0.99).expect("it exists");
        let mut random = Random::seeded(9);
        let draws: Vec<u64> = (0..8).map(|_| zipf.draw(&mut random)).collect();
        assert_eq!(draws, [11_376, 0, 19, 49, 0, 3, 0, 14]);
    }
}
