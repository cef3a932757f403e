//! Random values, determined by a seed: uniform ones, and those of TPC-C's specification (2.1.5,
//! 2.1.6, 4.3.2).

use rand::{RngExt, SeedableRng, distr::uniform::SampleUniform, rngs::SmallRng, seq::SliceRandom};

use super::Text;

/// A seeded generator of values.
///
/// # Example
///
/// ```
/// use drtm_drive::Random;
///
/// let mut random = Random::seeded(1);
/// let dice: u8 = random.within(1, 6);
/// assert!((1..=6).contains(&dice));
/// assert_eq!(Random::seeded(1).within(1, 6), dice, "the same seed, the same value");
/// ```
#[derive(Clone, Debug)]
pub struct Random(SmallRng);

impl Random {
    /// Creates the generator of a seed.
    pub fn seeded(seed: u64) -> Self {
        Self(SmallRng::seed_from_u64(seed))
    }

    /// Creates one of many independent generators of a seed. TPC-C's population uses the one of
    /// each warehouse's number, and number 0. Use another seed for other draws.
    pub fn stream(seed: u64, stream: u64) -> Self {
        // The seed is mixed first: states that are made from neighbouring seeds could have words in
        // common.
        let mix = |seed| Self::seeded(seed).0.random::<u64>();
        Self::seeded(mix(mix(seed) ^ stream))
    }

    /// Draws uniformly between these two, inclusive.
    pub fn within<T: SampleUniform + PartialOrd>(&mut self, low: T, high: T) -> T {
        self.0.random_range(low..=high)
    }

    /// Returns true in `chance` of 100 cases.
    #[inline]
    pub fn percent(&mut self, chance: u8) -> bool {
        // A single draw, without rejection: the probabilities differ by one in 40 million.
        (u64::from(self.0.random::<u32>()) * 100) >> u32::BITS < u64::from(chance)
    }

    /// Draws NURand(A, low, high) with the constant C (2.1.6).
    pub fn non_uniform(&mut self, a: u32, c: u32, low: u32, high: u32) -> u32 {
        ((self.within(0, a) | self.within(low, high)) + c) % (high - low + 1) + low
    }

    /// Draws a random number of letters and digits between `low` and `high` (4.3.2.2: a-string).
    pub fn text<const N: usize>(&mut self, low: usize, high: usize) -> Text<N> {
        let mut bytes = [0; N];
        let length = self.within(low, high).min(N);
        bytes[..length].fill_with(|| self.alphanumeric());
        Text::new(&bytes[..length])
    }

    /// Draws exactly `N` letters and digits.
    pub fn characters<const N: usize>(&mut self) -> [u8; N] {
        [(); N].map(|()| self.alphanumeric())
    }

    /// Draws exactly `N` digits (4.3.2.2: n-string).
    pub fn digits<const N: usize>(&mut self) -> [u8; N] {
        [(); N].map(|()| self.within(b'0', b'9'))
    }

    /// Draws four digits, then appends 11111 (4.3.2.7).
    pub fn zip(&mut self) -> [u8; 9] {
        let mut zip = *b"000011111";
        zip[..4].copy_from_slice(&self.digits::<4>());
        zip
    }

    /// Draws I_DATA and S_DATA: 26 to 50 characters. A tenth of the rows contain ORIGINAL
    /// (4.3.3.1).
    pub fn data(&mut self) -> Text<50> {
        const ORIGINAL: &[u8] = b"ORIGINAL";
        let length = self.within(26, 50);
        let mut bytes = self.characters::<50>();
        if self.percent(10) {
            let from = self.within(0, length - ORIGINAL.len());
            bytes[from..from + ORIGINAL.len()].copy_from_slice(ORIGINAL);
        }
        Text::new(&bytes[..length])
    }

    /// Returns the numbers from one to `count`, in random order.
    pub fn permutation(&mut self, count: u32) -> Vec<u32> {
        let mut numbers: Vec<u32> = (1..=count).collect();
        self.shuffle(&mut numbers);
        numbers
    }

    /// Shuffles a slice.
    #[inline(never)]
    pub fn shuffle<T>(&mut self, all: &mut [T]) {
        all.shuffle(&mut self.0);
    }

    fn alphanumeric(&mut self) -> u8 {
        const ALL: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
        ALL[self.within(0, ALL.len() - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn non_uniform_values_are_the_formula_s() {
        // All pairs of uniform values are equally likely, so the expected share of each value can
        // be counted.
        let (a, c, low, high) = (15, 9, 1, 30);
        let mut expected = [0_f64; 31];
        for x in 0..=a {
            for y in low..=high {
                expected[(((x | y) + c) % 30 + 1) as usize] += 1.0 / 480.0;
            }
        }
        let mut random = Random::seeded(3);
        let mut found = [0_f64; 31];
        for _ in 0..100_000 {
            found[random.non_uniform(a, c, low, high) as usize] += 1e-5;
        }
        for (value, (found, expected)) in found.iter().zip(expected).enumerate() {
            assert!((found - expected).abs() < 0.005, "{value}: {found} of {expected}");
        }
        assert!(expected.iter().any(|share| *share > 0.08), "it is not uniform");
    }

    #[test]
    fn text_is_of_the_lengths_and_letters_asked_for() {
        let mut random = Random::seeded(4);
        let mut lengths = [0; 17];
        for _ in 0..1_000 {
            let text: Text<16> = random.text(8, 16);
            assert!(text.as_bytes().iter().all(u8::is_ascii_alphanumeric));
            lengths[text.as_bytes().len()] += 1;
            let zip = random.zip();
            assert!(zip.ends_with(b"11111") && zip.iter().all(u8::is_ascii_digit));
        }
        assert!(lengths[..8].iter().all(|count| *count == 0) && lengths[8..].iter().all(|count| *count > 50));
    }

    #[test]
    fn a_tenth_of_data_is_original() {
        let mut random = Random::seeded(5);
        let original = (0..20_000)
            .filter(|_| {
                let data = random.data();
                assert!((26..=50).contains(&data.as_bytes().len()));
                data.as_bytes().windows(8).any(|window| window == b"ORIGINAL")
            })
            .count();
        assert!((1_850..2_150).contains(&original), "{original}");
    }

    #[test]
    fn permutations_have_every_number_once() {
        let mut numbers = Random::seeded(6).permutation(3_000);
        assert!(!numbers.is_sorted());
        numbers.sort_unstable();
        assert!(numbers.iter().copied().eq(1..=3_000));
    }

    #[test]
    fn streams_are_independent() {
        let state = |stream| Random::stream(7, stream);
        let draw = |stream| state(stream).within(0, u64::MAX);
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        // Generators with a word in common would be in step for a while.
        let words = |stream| -> Vec<String> {
            let state = format!("{:?}", state(stream).0);
            let numbers = state.split(|letter: char| !letter.is_ascii_digit()).filter(|number| number.len() > 9);
            numbers.map(Into::into).collect()
        };
        let mut all: Vec<String> = (0..1_000).flat_map(words).collect();
        assert!(all.len() > 3_990, "a generator shows its four words: {}", all.len());
        let shown = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), shown);
    }
}
