//! What the network asks for.

use super::{
    AccessInfoKey, CallForwarding, CallForwardingKey, Register, SpecialFacilityKey, SubscriberKey, SubscriberNumber,
    subscriber_number,
};
use crate::{mix::Mix, tpcc::Random};

/// The seven transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the specification's names")]
pub enum Kind {
    GetSubscriberData,
    GetNewDestination,
    GetAccessData,
    UpdateSubscriberData,
    UpdateLocation,
    InsertCallForwarding,
    DeleteCallForwarding,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::GetSubscriberData,
        Self::GetNewDestination,
        Self::GetAccessData,
        Self::UpdateSubscriberData,
        Self::UpdateLocation,
        Self::InsertCallForwarding,
        Self::DeleteCallForwarding,
    ];

    /// How many percent of them find what they need, in the initial population. The others read as
    /// far as they get and have *failed*, which is as it should be: they count as done.
    ///
    /// A facility of a random type is there in 62.5 % of cases, and active in 85 % of these; each
    /// of a facility's three forwardings is there in half of all cases. What is asked of times
    /// leaves 27.8 % of GET-NEW-DESTINATIONs on active facilities, so 14.8 % in all. (The
    /// specification says 23.9 %. That does not follow from its population and query as they are
    /// here.) Insertions fail when the forwarding is there already, or there is no facility;
    /// deletions when there is no forwarding.
    pub fn success(self) -> f64 {
        match self {
            Self::GetSubscriberData | Self::UpdateLocation => 100.0,
            Self::GetAccessData | Self::UpdateSubscriberData => 62.5,
            Self::InsertCallForwarding | Self::DeleteCallForwarding => 31.25,
            Self::GetNewDestination => 62.5 * 0.85 * MATCHING_TIMES,
        }
    }
}

/// The share of GET-NEW-DESTINATIONs on an active facility that find a forwarding which starts by
/// the start time and ends after the end time.
///
/// What ends last is the last one that is there. One from 0, 8 or 16 on ends within eight hours
/// after, so it ends after a random end time in 3.5, 11.5 or 19.5 of 24 cases. Any one is there in
/// 1/2 of cases; two that are given, the later absent and the earlier there, in 1/6; and of three
/// the first one alone in 1/12.
const MATCHING_TIMES: f64 = {
    let [first, second, third] = [3.5 / 24.0, 11.5 / 24.0, 19.5 / 24.0];
    let from_0 = first / 2.0;
    let from_8 = second / 2.0 + first / 6.0;
    let from_16 = third / 2.0 + second / 6.0 + first / 12.0;
    (from_0 + from_8 + from_16) / 3.0
};

/// The specification's: 80 % read, 16 % update, 2 % insert and 2 % delete.
pub const STANDARD_MIX: Mix<Kind> = Mix::constant([
    (Kind::GetSubscriberData, 35),
    (Kind::GetNewDestination, 10),
    (Kind::GetAccessData, 35),
    (Kind::UpdateSubscriberData, 2),
    (Kind::UpdateLocation, 14),
    (Kind::InsertCallForwarding, 2),
    (Kind::DeleteCallForwarding, 2),
]);

/// A transaction's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the specification's inputs")]
pub enum Transaction {
    /// Reads a subscriber.
    GetSubscriberData { subscriber: SubscriberKey },
    /// Reads a facility and, if it is active, those of its forwardings that start by `start_time`;
    /// finds those that end after `end_time`.
    GetNewDestination { facility: SpecialFacilityKey, start_time: u8, end_time: u8 },
    /// Reads an access.
    GetAccessData { key: AccessInfoKey },
    /// Writes the first of a subscriber's bits, and a facility's first data; neither if there is no
    /// such facility.
    UpdateSubscriberData { facility: SpecialFacilityKey, bit: u8, data_a: u8 },
    /// Finds a subscriber by its number, and writes where it is.
    UpdateLocation { number: SubscriberNumber, vlr_location: u32 },
    /// Finds a subscriber by its number, reads which facilities it has, and inserts a forwarding
    /// for one, unless there is no such facility or the forwarding is already there.
    InsertCallForwarding { number: SubscriberNumber, facility: u8, start_time: u8, row: CallForwarding },
    /// Finds a subscriber by its number, and removes a forwarding.
    DeleteCallForwarding { number: SubscriberNumber, facility: u8, start_time: u8 },
}

impl Transaction {
    /// Which of the seven.
    pub fn kind(&self) -> Kind {
        match self {
            Self::GetSubscriberData { .. } => Kind::GetSubscriberData,
            Self::GetNewDestination { .. } => Kind::GetNewDestination,
            Self::GetAccessData { .. } => Kind::GetAccessData,
            Self::UpdateSubscriberData { .. } => Kind::UpdateSubscriberData,
            Self::UpdateLocation { .. } => Kind::UpdateLocation,
            Self::InsertCallForwarding { .. } => Kind::InsertCallForwarding,
            Self::DeleteCallForwarding { .. } => Kind::DeleteCallForwarding,
        }
    }

    /// The keys of the forwardings that a GET-NEW-DESTINATION reads: those of a facility that start
    /// by a time.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_bench::tatp::Transaction;
    ///
    /// assert!(Transaction::forwardings((7, 2), 8).eq([(7, 2, 0), (7, 2, 8)]));
    /// ```
    pub fn forwardings(
        (subscriber, kind): SpecialFacilityKey,
        start_time: u8,
    ) -> impl Iterator<Item = CallForwardingKey> {
        (0..=start_time).step_by(8).map(move |start| (subscriber, kind, start))
    }
}

/// Which subscribers are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Some more often than others, as specified: by TPC-C's NURand with a constant of zero.
    NonUniform,
    /// Each as often as any other.
    Uniform,
}

/// What one worker is asked for: a function of a seed.
///
/// # Example
///
/// ```
/// use drtm_bench::tatp::{Choice, Inputs, Kind, Register, STANDARD_MIX};
///
/// let mut inputs = Inputs::new(Register::new(1_000, 42)?, STANDARD_MIX, Choice::Uniform, 1);
/// assert_eq!(inputs.of(Kind::UpdateLocation).kind(), Kind::UpdateLocation);
/// # Ok::<(), drtm_bench::tatp::RegisterError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Inputs {
    mix: Mix<Kind>,
    subscribers: u32,
    /// The A of the random values that are not uniform, if they are not.
    spread: Option<u32>,
    random: Random,
}

impl Inputs {
    /// Inputs over a register. Each worker has a seed of its own.
    pub fn new(register: Register, mix: Mix<Kind>, choice: Choice, seed: u64) -> Self {
        let subscribers = register.subscribers();
        // The specification's A, by the size of the population.
        let spread = match subscribers {
            ..=1_000_000 => (1 << 16) - 1,
            1_000_001..=10_000_000 => (1 << 20) - 1,
            _ => (1 << 21) - 1,
        };
        let spread = (choice == Choice::NonUniform).then_some(spread);
        Self { mix, subscribers, spread, random: Random::seeded(seed) }
    }

    /// The next transaction.
    #[inline]
    pub fn draw(&mut self) -> Transaction {
        let kind = self.mix.draw(&mut self.random);
        self.of(kind)
    }

    /// The next transaction of a kind.
    #[inline]
    pub fn of(&mut self, kind: Kind) -> Transaction {
        let subscriber = self.subscriber();
        let random = &mut self.random;
        match kind {
            Kind::GetSubscriberData => Transaction::GetSubscriberData { subscriber },
            Kind::GetNewDestination => Transaction::GetNewDestination {
                facility: (subscriber, random.within(1, 4)),
                start_time: start_time(random),
                end_time: random.within(1, 24),
            },
            Kind::GetAccessData => Transaction::GetAccessData { key: (subscriber, random.within(1, 4)) },
            Kind::UpdateSubscriberData => Transaction::UpdateSubscriberData {
                facility: (subscriber, random.within(1, 4)),
                bit: random.within(0, 1),
                data_a: random.within(0, 255),
            },
            Kind::UpdateLocation => Transaction::UpdateLocation {
                number: subscriber_number(subscriber),
                vlr_location: random.within(1, u32::MAX),
            },
            Kind::InsertCallForwarding => Transaction::InsertCallForwarding {
                number: subscriber_number(subscriber),
                facility: random.within(1, 4),
                start_time: start_time(random),
                row: CallForwarding { end_time: random.within(1, 24), number: random.digits() },
            },
            Kind::DeleteCallForwarding => Transaction::DeleteCallForwarding {
                number: subscriber_number(subscriber),
                facility: random.within(1, 4),
                start_time: start_time(random),
            },
        }
    }

    #[inline]
    fn subscriber(&mut self) -> SubscriberKey {
        match self.spread {
            Some(spread) => self.random.non_uniform(spread, 0, 1, self.subscribers),
            None => self.random.within(1, self.subscribers),
        }
    }
}

fn start_time(random: &mut Random) -> u8 {
    random.within(0, 2) * 8
}
