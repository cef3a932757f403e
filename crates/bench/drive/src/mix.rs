//! Draws each next transaction independently, with chances in percent.

use crate::Random;

/// Kinds of transactions, each with its share of all.
///
/// # Example
///
/// ```
/// use drtm_drive::{mix::{Mix, MixError}, Random};
///
/// let mix = Mix::new([("read", 80), ("write", 20)])?;
/// assert_eq!(mix.share("write"), 20);
/// let mut random = Random::seeded(1);
/// let writes = (0..1_000).filter(|_| mix.draw(&mut random) == "write").count();
/// assert!((150..250).contains(&writes));
/// assert_eq!(Mix::new([("read", 80)]).err(), Some(MixError { sum: 80 }));
/// # Ok::<(), MixError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix<K> {
    /// One card for each percent.
    cards: [K; 100],
}

/// The shares do not add up to 100 percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a mix of {sum} percent: let the shares be 100 together")]
pub struct MixError {
    /// The sum of the shares.
    pub sum: u32,
}

impl<K: Copy> Mix<K> {
    /// Creates a mix of kinds with their shares in percent.
    ///
    /// # Errors
    ///
    /// Returns an error if the shares do not add up to 100.
    pub const fn new<const N: usize>(shares: [(K, u8); N]) -> Result<Self, MixError> {
        // A loop, because iterators cannot run in constants.
        let mut sum = 0;
        let mut kind = 0;
        while kind < N {
            sum += shares[kind].1 as u32;
            kind += 1;
        }
        if sum != 100 {
            return Err(MixError { sum });
        }
        let mut cards = [shares[0].0; 100];
        let (mut kind, mut card) = (0, 0);
        while kind < N {
            let mut left = shares[kind].1;
            while left > 0 {
                cards[card] = shares[kind].0;
                card += 1;
                left -= 1;
            }
            kind += 1;
        }
        Ok(Self { cards })
    }

    /// Creates a mix in a constant. Shares that do not add up to 100 do not compile.
    pub const fn constant<const N: usize>(shares: [(K, u8); N]) -> Self {
        match Self::new(shares) {
            Ok(mix) => mix,
            Err(_) => panic!("the shares of a mix are 100 together"),
        }
    }

    /// Draws the next kind.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> K {
        self.cards[random.within(0, self.cards.len() - 1)]
    }

    /// Returns a kind's share in percent.
    pub fn share(&self, kind: K) -> u8
    where
        K: PartialEq,
    {
        // At most 100.
        self.cards.iter().filter(|card| **card == kind).count() as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_that_are_not_all_are_refused() {
        assert_eq!(Mix::<u8>::new([]).err(), Some(MixError { sum: 0 }));
        assert_eq!(Mix::new([(1, 100), (2, 1)]).err(), Some(MixError { sum: 101 }));
        assert_eq!(Mix::new([(1, 255), (2, 255)]).err(), Some(MixError { sum: 510 }));
    }

    #[test]
    fn a_kind_may_have_nothing_or_all() {
        let mix = Mix::new([(1, 0), (2, 100)]).expect("100 percent");
        let mut random = Random::seeded(1);
        assert!((0..1_000).all(|_| mix.draw(&mut random) == 2));
        assert_eq!((mix.share(1), mix.share(2)), (0, 100));
    }
}
