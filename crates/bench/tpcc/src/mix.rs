//! Draws the next transaction (5.2.3): cards from a shuffled deck, which is reshuffled when it is
//! used up (5.2.4.2).

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::Random;

/// The five transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the specification's names")]
pub enum Kind {
    NewOrder,
    Payment,
    OrderStatus,
    Delivery,
    StockLevel,
}

impl Kind {
    /// All kinds, in the order of a mix's cards.
    pub const ALL: [Self; 5] = [Self::NewOrder, Self::Payment, Self::OrderStatus, Self::Delivery, Self::StockLevel];
}

/// The number of cards of each kind in a deck.
///
/// # Example
///
/// ```
/// use drtm_tpcc::{Mix, MixError};
///
/// assert_eq!(Mix::new([45, 43, 4, 4, 4])?, Mix::STANDARD);
/// assert_eq!(Mix::new([0; 5]), Err(MixError::Empty));
/// # Ok::<(), MixError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix([u8; 5]);

/// A mix that cannot be drawn from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MixError {
    /// There are no cards.
    #[error("a mix of no transactions: give one kind a card at least")]
    Empty,
}

impl Mix {
    /// 45 % NEW-ORDER, 43 % PAYMENT, and 4 % of each of the others. Clause 5.2.3 gives these as
    /// minimums, except for NEW-ORDER.
    pub const STANDARD: Self = Self([45, 43, 4, 4, 4]);

    /// Half NEW-ORDER, half STOCK-LEVEL: the most conflicts of writes and long reads.
    pub const STOCK_LEVEL_HALF: Self = Self([50, 0, 0, 0, 50]);

    /// Ten NEW-ORDERs to a DELIVERY, so that each order is delivered.
    pub const DELIVERED: Self = Self([10, 0, 0, 1, 0]);

    /// Creates a mix of this many cards of each of [`Kind::ALL`].
    ///
    /// # Errors
    ///
    /// Returns an error if there are no cards.
    pub fn new(cards: [u8; 5]) -> Result<Self, MixError> {
        if cards == [0; 5] { Err(MixError::Empty) } else { Ok(Self(cards)) }
    }

    /// Creates a mix of one kind only.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_tpcc::{Kind, Mix};
    ///
    /// assert_eq!(Ok(Mix::of_one(Kind::Payment)), Mix::new([0, 1, 0, 0, 0]));
    /// ```
    pub fn of_one(kind: Kind) -> Self {
        Self(Kind::ALL.map(|each| (each == kind).into()))
    }
}

/// The mix of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum MixName {
    /// 45 % NEW-ORDER, 43 % PAYMENT, 4 % of each of the others
    Standard,
    /// NEW-ORDER only
    NewOrder,
    /// PAYMENT only
    Payment,
    /// ORDER-STATUS only
    OrderStatus,
    /// DELIVERY only
    Delivery,
    /// STOCK-LEVEL only
    StockLevel,
    /// Half NEW-ORDER, half STOCK-LEVEL: long reads among writes
    StockLevelHalf,
    /// Ten NEW-ORDERs to a DELIVERY, which delivers as many orders
    Delivered,
}

impl MixName {
    pub(super) fn mix(self) -> Mix {
        match self {
            Self::Standard => Mix::STANDARD,
            Self::NewOrder => Mix::of_one(Kind::NewOrder),
            Self::Payment => Mix::of_one(Kind::Payment),
            Self::OrderStatus => Mix::of_one(Kind::OrderStatus),
            Self::Delivery => Mix::of_one(Kind::Delivery),
            Self::StockLevel => Mix::of_one(Kind::StockLevel),
            Self::StockLevelHalf => Mix::STOCK_LEVEL_HALF,
            Self::Delivered => Mix::DELIVERED,
        }
    }
}

/// A terminal's deck.
///
/// # Example
///
/// ```
/// use drtm_tpcc::{Deck, Kind, Mix};
/// use drtm_drive::Random;
///
/// let mut random = Random::seeded(1);
/// let mut deck = Deck::new(Mix::STANDARD);
/// let payments = (0..100).filter(|_| deck.draw(&mut random) == Kind::Payment).count();
/// assert_eq!(payments, 43, "of each hundred");
/// ```
#[derive(Clone, Debug)]
pub struct Deck {
    /// Never empty, because no mix is.
    cards: Vec<Kind>,
    drawn: usize,
}

impl Deck {
    /// Creates a deck that is not shuffled yet.
    pub fn new(Mix(counts): Mix) -> Self {
        let of_kind = |(kind, count): (Kind, u8)| std::iter::repeat_n(kind, count.into());
        Self { cards: Kind::ALL.into_iter().zip(counts).flat_map(of_kind).collect(), drawn: 0 }
    }

    /// Draws the next card.
    pub fn draw(&mut self, random: &mut Random) -> Kind {
        if self.drawn == 0 {
            random.shuffle(&mut self.cards);
        }
        let card = self.cards[self.drawn];
        self.drawn = (self.drawn + 1) % self.cards.len();
        card
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_deck_has_the_mix_in_another_order() {
        let mut random = Random::seeded(8);
        let mut deck = Deck::new(Mix::STANDARD);
        let mut last = Vec::new();
        for _ in 0..50 {
            let drawn: Vec<Kind> = (0..100).map(|_| deck.draw(&mut random)).collect();
            assert_ne!(drawn, last);
            let count = |kind| drawn.iter().filter(|card| **card == kind).count();
            assert_eq!(Kind::ALL.map(count), [45, 43, 4, 4, 4]);
            last = drawn;
        }
    }

    #[test]
    fn a_mix_can_be_of_one_kind() {
        let mut deck = Deck::new(Mix::new([0, 0, 0, 1, 0]).expect("one card"));
        let mut random = Random::seeded(9);
        assert!((0..10).all(|_| deck.draw(&mut random) == Kind::Delivery));
    }
}
