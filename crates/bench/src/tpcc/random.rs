//! The specification's random values (2.1.5, 2.1.6, 4.3.2), determined by a seed.

use rand::{RngExt, SeedableRng, distr::uniform::SampleUniform, rngs::SmallRng, seq::SliceRandom};

use super::{Scale, Text};

/// The A of NURand for last names; the next constants are for customers and items (2.1.6).
const A_LAST_NAME: u32 = 255;
const A_CUSTOMER: u32 = 1_023;
const A_ITEM: u32 = 8_191;

/// A seeded generator of values.
///
/// # Example
///
/// ```
/// use drtm_bench::tpcc::{Random, last_name};
///
/// let mut random = Random::seeded(1);
/// let dice: u8 = random.within(1, 6);
/// assert!((1..=6).contains(&dice));
/// assert_eq!(Random::seeded(1).within(1, 6), dice, "the same seed, the same value");
/// assert_eq!(last_name(371).as_bytes(), b"PRICALLYOUGHT");
/// ```
#[derive(Clone, Debug)]
pub struct Random(SmallRng);

impl Random {
    /// Creates the generator of a seed.
    pub fn seeded(seed: u64) -> Self {
        Self(SmallRng::seed_from_u64(seed))
    }

    /// Creates one of many independent generators of a seed. A [`Loader`](super::Loader) uses the
    /// one of each warehouse's number, and number 0. Use another seed for other draws.
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
        (u64::from(self.0.random::<u32>()) * 100) >> u32::BITS < chance.into()
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

/// Returns the last name of a number below 1000: a syllable for each of its digits (4.3.2.3).
pub fn last_name(number: u32) -> Text<16> {
    const SYLLABLES: [&[u8]; 10] =
        [b"BAR", b"OUGHT", b"ABLE", b"PRI", b"PRES", b"ESE", b"ANTI", b"CALLY", b"ATION", b"EING"];
    let syllable = |place: u32| SYLLABLES[(number / place % 10) as usize];
    let front: Text<16> = Text::joined(syllable(100), syllable(10));
    Text::joined(front.as_bytes(), syllable(1))
}

/// NURand's constants C (2.1.6).
///
/// # Example
///
/// ```
/// use drtm_bench::tpcc::{Constants, Random, Scale};
///
/// let mut random = Random::seeded(1);
/// let load = Constants::for_load(&mut random);
/// let run = Constants::for_run(load, &mut random);
/// assert!((65..=119).contains(&run.last_name.abs_diff(load.last_name)));
/// let scale = Scale::new(1)?;
/// assert!((1..=3_000).contains(&run.customer(&scale, &mut random)));
/// # Ok::<(), drtm_bench::tpcc::ScaleError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constants {
    /// For C_LAST, up to 255.
    pub last_name: u32,
    /// For C_ID, up to 1023.
    pub customer: u32,
    /// For OL_I_ID, up to 8191.
    pub item: u32,
}

impl Constants {
    /// Draws the constants of the initial population.
    pub fn for_load(random: &mut Random) -> Self {
        Self {
            last_name: random.within(0, A_LAST_NAME),
            customer: random.within(0, A_CUSTOMER),
            item: random.within(0, A_ITEM),
        }
    }

    /// Draws the constants of a run over a population. The constants for last names differ by 65 to
    /// 119, but not by 96 or 112 (2.1.6.1).
    pub fn for_run(load: Self, random: &mut Random) -> Self {
        loop {
            let run = Self::for_load(random);
            let delta = run.last_name.abs_diff(load.last_name);
            if (65..=119).contains(&delta) && delta != 96 && delta != 112 {
                return run;
            }
        }
    }

    /// Draws a customer's last name.
    pub fn last_name(&self, scale: &Scale, random: &mut Random) -> Text<16> {
        last_name(random.non_uniform(A_LAST_NAME, self.last_name, 0, scale.last_names() - 1))
    }

    /// Draws a customer's number.
    pub fn customer(&self, scale: &Scale, random: &mut Random) -> u32 {
        random.non_uniform(A_CUSTOMER, self.customer, 1, scale.customers())
    }

    /// Draws an item's number.
    pub fn item(&self, scale: &Scale, random: &mut Random) -> u32 {
        random.non_uniform(A_ITEM, self.item, 1, scale.items())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_names_are_syllables() {
        let name = |number| String::from_utf8(last_name(number).as_bytes().to_vec()).expect("letters");
        assert_eq!((name(0), name(371)), ("BARBARBAR".into(), "PRICALLYOUGHT".into()));
        assert_eq!((name(999), name(40)), ("EINGEINGEING".into(), "BARPRESBAR".into()));
        let mut all: Vec<String> = (0..1_000).map(name).collect();
        assert!(all.iter().all(|name| name.len() <= 15), "the longest is CALLYCALLYCALLY");
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 1_000);
    }

    #[test]
    fn the_constants_of_load_and_run_are_apart() {
        let mut random = Random::seeded(2);
        let mut deltas: Vec<u32> = (0..20_000)
            .map(|_| {
                let load = Constants::for_load(&mut random);
                let run = Constants::for_run(load, &mut random);
                assert!(run.last_name <= 255 && run.customer <= 1_023 && run.item <= 8_191);
                run.last_name.abs_diff(load.last_name)
            })
            .collect();
        deltas.sort_unstable();
        deltas.dedup();
        assert_eq!(deltas, (65..=119).filter(|delta| ![96, 112].contains(delta)).collect::<Vec<_>>());
    }

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
