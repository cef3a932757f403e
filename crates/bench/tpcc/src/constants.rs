//! The specification's last names and NURand's constants (2.1.6, 4.3.2.3).

use drtm_drive::{Random, Text};

use super::Scale;

/// The A of NURand for last names; the next constants are for customers and items (2.1.6).
const A_LAST_NAME: u32 = 255;
const A_CUSTOMER: u32 = 1_023;
const A_ITEM: u32 = 8_191;

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
/// use drtm_drive::Random;
/// use drtm_tpcc::{Constants, Scale};
///
/// let mut random = Random::seeded(1);
/// let load = Constants::for_load(&mut random);
/// let run = Constants::for_run(load, &mut random);
/// assert!((65..=119).contains(&run.last_name.abs_diff(load.last_name)));
/// let scale = Scale::new(1)?;
/// assert!((1..=3_000).contains(&run.customer(&scale, &mut random)));
/// # Ok::<(), drtm_tpcc::ScaleError>(())
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
}
