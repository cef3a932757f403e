//! The four tables: rows as plain data, without the columns that are their keys. A row is the same
//! bytes on every machine.

use drtm_txn::Key;
use zerocopy::{FromBytes, Immutable, IntoBytes, little_endian::U32};

/// A subscriber's identity, from one.
pub type SubscriberKey = u32;
/// A subscriber's number in digits: the key of the index of subscribers by number, whose values are
/// [`SubscriberKey`]s.
pub type SubscriberNumber = [u8; 15];
/// Subscriber, type of access from 1 to 4.
pub type AccessInfoKey = (u32, u8);
/// Subscriber, type of facility from 1 to 4.
pub type SpecialFacilityKey = (u32, u8);
/// Subscriber, type of facility, start time: 0, 8 or 16. A facility's forwardings are adjacent.
pub type CallForwardingKey = (u32, u8, u8);

/// A subscriber with a telephone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
#[allow(missing_docs, reason = "the specification's columns")]
pub struct Subscriber {
    pub number: SubscriberNumber,
    /// 0 or 1 each.
    pub bits: [u8; 10],
    /// 0 to 15 each.
    pub hexes: [u8; 10],
    pub bytes: [u8; 10],
    pub msc_location: U32,
    pub vlr_location: U32,
}

/// How a subscriber may access the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
#[allow(missing_docs, reason = "the specification's columns")]
pub struct AccessInfo {
    pub data_1: u8,
    pub data_2: u8,
    pub data_3: [u8; 3],
    pub data_4: [u8; 5],
}

/// A special facility of a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
#[allow(missing_docs, reason = "the specification's columns")]
pub struct SpecialFacility {
    /// 1 or 0.
    pub is_active: u8,
    pub error_control: u8,
    pub data_a: u8,
    pub data_b: [u8; 5],
}

/// Where calls are forwarded to, starting at the key's start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
#[allow(missing_docs, reason = "the specification's columns")]
pub struct CallForwarding {
    /// 1 to 24.
    pub end_time: u8,
    pub number: SubscriberNumber,
}

// The size of each record's value. A changed size makes existing tables unreadable.
const _: () = {
    assert!(size_of::<Subscriber>() == 53);
    assert!(size_of::<AccessInfo>() == 10);
    assert!(size_of::<SpecialFacility>() == 8);
    assert!(size_of::<CallForwarding>() == 16);
    assert!(SubscriberKey::FITS && AccessInfoKey::FITS && SpecialFacilityKey::FITS && CallForwardingKey::FITS);
    assert!(!SubscriberNumber::FITS);
};

/// Returns a subscriber's number: its identity in fifteen digits.
///
/// # Example
///
/// ```
/// use drtm_workloads::tatp::subscriber_number;
///
/// assert_eq!(&subscriber_number(4_711), b"000000000004711");
/// ```
pub fn subscriber_number(subscriber: SubscriberKey) -> SubscriberNumber {
    let mut number = [b'0'; 15];
    let mut rest = subscriber;
    for digit in number.iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    number
}
