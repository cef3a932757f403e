//! The initial population: subscribers with all their rows.

use std::ops::RangeInclusive;

use drtm_drive::{Random, scatter::of_row};
use serde::{Deserialize, Serialize};
use zerocopy::little_endian::U32;

use super::{
    AccessInfo, AccessInfoKey, CallForwarding, CallForwardingKey, SpecialFacility, SpecialFacilityKey, Subscriber,
    SubscriberKey, subscriber_number,
};

/// The number of types of access, and of facilities.
const TYPES: usize = 4;

/// The number of start times of call forwarding: every eighth hour.
const STARTS: usize = 3;

/// A register of subscribers, determined by their number and a seed.
///
/// # Example
///
/// ```
/// use drtm_workloads::tatp::Register;
///
/// let register = Register::new(1_000, 42)?;
/// let profile = register.profiles(7..=7).next().expect("one");
/// assert_eq!(&profile.subscriber.number, b"000000000000007");
/// assert!((1..=4).contains(&profile.access_infos().count()));
/// # Ok::<(), drtm_workloads::tatp::RegisterError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Register {
    subscribers: u32,
    seed: u64,
}

/// An invalid register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// There are no subscribers.
    #[error("a register of no subscribers: ask for one at least; the specification has 100000 as its smallest")]
    Empty,
}

impl From<RegisterError> for drtm_drive::Error {
    fn from(error: RegisterError) -> Self {
        Self::size(error)
    }
}

impl Register {
    /// Creates a register.
    ///
    /// # Errors
    ///
    /// Returns an error if there are no subscribers.
    pub fn new(subscribers: u32, seed: u64) -> Result<Self, RegisterError> {
        if subscribers == 0 { Err(RegisterError::Empty) } else { Ok(Self { subscribers, seed }) }
    }

    /// Returns the number of subscribers. They are numbered from one.
    pub fn subscribers(&self) -> u32 {
        self.subscribers
    }

    /// Returns these subscribers with all their rows. A profile is the same whichever thread makes
    /// it, so threads can share the work.
    pub fn profiles(&self, subscribers: RangeInclusive<SubscriberKey>) -> impl Iterator<Item = Profile> + use<> {
        let seed = self.seed;
        subscribers.map(move |key| Profile::drawn(key, &mut of_row(seed, key.into())))
    }
}

/// All initial rows of a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Its identity.
    pub key: SubscriberKey,
    /// Its own row.
    pub subscriber: Subscriber,
    accesses: [Option<AccessInfo>; TYPES],
    facilities: [Option<Facility>; TYPES],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Facility {
    row: SpecialFacility,
    forwardings: [Option<CallForwarding>; STARTS],
}

impl Profile {
    /// Returns one to four rows.
    pub fn access_infos(&self) -> impl Iterator<Item = (AccessInfoKey, AccessInfo)> {
        (1..).zip(self.accesses).filter_map(|(kind, row)| Some(((self.key, kind), row?)))
    }

    /// Returns one to four rows.
    pub fn special_facilities(&self) -> impl Iterator<Item = (SpecialFacilityKey, SpecialFacility)> {
        (1..).zip(self.facilities).filter_map(|(kind, facility)| Some(((self.key, kind), facility?.row)))
    }

    /// Returns none to three rows of each facility.
    pub fn call_forwardings(&self) -> impl Iterator<Item = (CallForwardingKey, CallForwarding)> {
        (1..).zip(self.facilities).flat_map(move |(kind, facility)| {
            let forwardings = facility.map_or([None; STARTS], |facility| facility.forwardings);
            (0..).step_by(8).zip(forwardings).filter_map(move |(start, row)| Some(((self.key, kind, start), row?)))
        })
    }

    fn drawn(key: SubscriberKey, random: &mut Random) -> Self {
        let subscriber = Subscriber {
            number: subscriber_number(key),
            bits: [(); 10].map(|()| random.within(0, 1)),
            hexes: [(); 10].map(|()| random.within(0, 15)),
            bytes: [(); 10].map(|()| random.within(0, 255)),
            msc_location: U32::new(random.within(1, u32::MAX)),
            vlr_location: U32::new(random.within(1, u32::MAX)),
        };
        let accesses = some(1, random).map(|is_there| is_there.then(|| access_info(random)));
        let facilities = some(1, random).map(|is_there| is_there.then(|| facility(random)));
        Self { key, subscriber, accesses, facilities }
    }
}

/// Draws a subset of at least `least` elements. Every size is equally likely, and every subset of a
/// size.
fn some<const N: usize>(least: usize, random: &mut Random) -> [bool; N] {
    let count = random.within(least, N);
    let mut are_there = [false; N];
    are_there[..count].fill(true);
    random.shuffle(&mut are_there);
    are_there
}

fn letters<const N: usize>(random: &mut Random) -> [u8; N] {
    [(); N].map(|()| random.within(b'A', b'Z'))
}

fn access_info(random: &mut Random) -> AccessInfo {
    AccessInfo {
        data_1: random.within(0, 255),
        data_2: random.within(0, 255),
        data_3: letters(random),
        data_4: letters(random),
    }
}

fn facility(random: &mut Random) -> Facility {
    let row = SpecialFacility {
        is_active: random.percent(85).into(),
        error_control: random.within(0, 255),
        data_a: random.within(0, 255),
        data_b: letters(random),
    };
    let mut start = 0;
    let forwardings = some(0, random).map(|is_there| {
        let end_time = start + random.within(1, 8);
        start += 8;
        is_there.then(|| CallForwarding { end_time, number: random.digits() })
    });
    Facility { row, forwardings }
}
