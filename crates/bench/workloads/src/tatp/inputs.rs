//! Inputs of the transactions.

use drtm_drive::{Random, cluster::Nearby, mix::Mix};

use super::{
    AccessInfoKey, CallForwarding, CallForwardingKey, Register, SpecialFacilityKey, SubscriberKey, SubscriberNumber,
    subscriber_number,
};

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
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::GetSubscriberData,
        Self::GetNewDestination,
        Self::GetAccessData,
        Self::UpdateSubscriberData,
        Self::UpdateLocation,
        Self::InsertCallForwarding,
        Self::DeleteCallForwarding,
    ];

    /// Returns the percentage that find their rows, in the initial population. The others read as
    /// far as they get and *fail*. Failing is part of the workload, so they count as done.
    ///
    /// A facility of a random type exists in 62.5 % of cases, and 85 % of these are active. Each of
    /// a facility's three forwardings exists in half of all cases. The conditions on times leave
    /// 27.8 % of GET-NEW-DESTINATIONs on active facilities, so 14.8 % in all. (The specification
    /// says 23.9 %. That does not follow from its population and query as implemented here.) An
    /// insertion fails if the forwarding exists already, or its facility does not. A deletion fails
    /// if the forwarding does not exist.
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
/// The last existing forwarding ends last. One that starts at 0, 8 or 16 ends within eight hours
/// after, so it ends after a random end time in 3.5, 11.5 or 19.5 of 24 cases. Any single one
/// exists in 1/2 of cases. Of two given ones, the later is absent and the earlier exists in 1/6. Of
/// three, only the first one exists in 1/12.
const MATCHING_TIMES: f64 = {
    let [first, second, third] = [3.5 / 24.0, 11.5 / 24.0, 19.5 / 24.0];
    let from_0 = first / 2.0;
    let from_8 = second / 2.0 + first / 6.0;
    let from_16 = third / 2.0 + second / 6.0 + first / 12.0;
    (from_0 + from_8 + from_16) / 3.0
};

/// The specification's mix: 80 % read, 16 % update, 2 % insert and 2 % delete.
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
    /// Reads a facility and, if it is active, its forwardings that start by `start_time`; finds
    /// those that end after `end_time`.
    GetNewDestination { facility: SpecialFacilityKey, start_time: u8, end_time: u8 },
    /// Reads an access.
    GetAccessData { key: AccessInfoKey },
    /// Writes the first of a subscriber's bits, and a facility's first data field; neither if the
    /// facility does not exist.
    UpdateSubscriberData { facility: SpecialFacilityKey, bit: u8, data_a: u8 },
    /// Finds a subscriber by its number, and writes its location.
    UpdateLocation { number: SubscriberNumber, vlr_location: u32 },
    /// Finds a subscriber by its number, reads its facilities, and inserts a forwarding for one,
    /// unless the facility does not exist or the forwarding does.
    InsertCallForwarding { number: SubscriberNumber, facility: u8, start_time: u8, row: CallForwarding },
    /// Finds a subscriber by its number, and removes a forwarding.
    DeleteCallForwarding { number: SubscriberNumber, facility: u8, start_time: u8 },
}

impl Transaction {
    /// Returns the kind.
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

    /// Returns the keys of the forwardings that a GET-NEW-DESTINATION reads: those of a facility
    /// that start by a time.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_workloads::tatp::Transaction;
    ///
    /// assert!(Transaction::forwardings((7, 2), 8).eq([(7, 2, 0), (7, 2, 8)]));
    /// ```
    pub fn forwardings(
        (subscriber, kind): SpecialFacilityKey,
        start_time: u8,
    ) -> impl Iterator<Item = CallForwardingKey> + Clone {
        (0..=start_time).step_by(8).map(move |start| (subscriber, kind, start))
    }
}

/// The distribution of subscribers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Not uniform, as specified: TPC-C's NURand with a constant of zero.
    NonUniform,
    /// Uniform.
    Uniform,
}

/// The inputs of one worker, determined by a seed.
///
/// # Example
///
/// ```
/// use drtm_workloads::tatp::{Choice, Inputs, Kind, Register, STANDARD_MIX};
///
/// let mut inputs = Inputs::new(Register::new(1_000, 42)?, STANDARD_MIX, Choice::Uniform, 1);
/// assert_eq!(inputs.of(Kind::UpdateLocation).kind(), Kind::UpdateLocation);
/// # Ok::<(), drtm_workloads::tatp::RegisterError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Inputs {
    mix: Mix<Kind>,
    subscribers: u32,
    /// The A of NURand; `None` for uniform values.
    spread: Option<u32>,
    random: Random,
    nearby: Option<Nearby>,
}

impl Inputs {
    /// Creates inputs over a register. Each worker needs a seed of its own.
    pub fn new(register: Register, mix: Mix<Kind>, choice: Choice, seed: u64) -> Self {
        let subscribers = register.subscribers();
        // The specification's A, by the size of the population.
        let spread = match subscribers {
            ..=1_000_000 => (1 << 16) - 1,
            1_000_001..=10_000_000 => (1 << 20) - 1,
            _ => (1 << 21) - 1,
        };
        let spread = (choice == Choice::NonUniform).then_some(spread);
        Self { mix, subscribers, spread, random: Random::seeded(seed), nearby: None }
    }

    /// Chooses subscribers by whether they are on the client's own node.
    #[must_use]
    pub fn near(self, nearby: Option<Nearby>) -> Self {
        Self { nearby, ..self }
    }

    /// Draws the next transaction.
    #[inline]
    pub fn draw(&mut self) -> Transaction {
        let kind = self.mix.draw(&mut self.random);
        self.of(kind)
    }

    /// Draws the next transaction of a kind.
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
        let drawn = match self.spread {
            Some(spread) => self.random.non_uniform(spread, 0, 1, self.subscribers),
            None => self.random.within(1, self.subscribers),
        };
        match &mut self.nearby {
            // It is within the subscribers, which are counted from one.
            Some(nearby) => nearby.of(drawn.into(), 1..=self.subscribers.into()) as u32,
            None => drawn,
        }
    }
}

fn start_time(random: &mut Random) -> u8 {
    random.within(0, 2) * 8
}
