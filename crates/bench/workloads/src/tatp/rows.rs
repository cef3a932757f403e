//! A register in ordinary maps of this process: tests of the checks use it, and stores are compared
//! with it.

use std::{collections::BTreeMap, convert::Infallible};

use super::{
    AccessInfo, AccessInfoKey, CallForwarding, CallForwardingKey, Register, SpecialFacility, SpecialFacilityKey,
    Subscriber, SubscriberKey, SubscriberNumber, View,
};

/// The rows of all tables, and the index.
///
/// # Example
///
/// See [`check`](super::check).
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs, reason = "one for each table, and the index")]
pub struct Population {
    pub subscribers: BTreeMap<SubscriberKey, Subscriber>,
    pub numbers: BTreeMap<SubscriberNumber, SubscriberKey>,
    pub access_infos: BTreeMap<AccessInfoKey, AccessInfo>,
    pub special_facilities: BTreeMap<SpecialFacilityKey, SpecialFacility>,
    pub call_forwardings: BTreeMap<CallForwardingKey, CallForwarding>,
}

impl Population {
    /// Returns the initial rows of a register.
    pub fn of(register: &Register) -> Self {
        let mut rows = Self::default();
        for profile in register.profiles(1..=register.subscribers()) {
            rows.subscribers.insert(profile.key, profile.subscriber);
            rows.numbers.insert(profile.subscriber.number, profile.key);
            rows.access_infos.extend(profile.access_infos());
            rows.special_facilities.extend(profile.special_facilities());
            rows.call_forwardings.extend(profile.call_forwardings());
        }
        rows
    }
}

/// Wraps a lookup that cannot fail as one that can.
fn sure<'r, K: Copy, R: Copy>(
    table: &'r BTreeMap<K, R>,
) -> impl Iterator<Item = Result<(K, R), Infallible>> + use<'r, K, R> {
    table.iter().map(|(key, row)| Ok((*key, *row)))
}

impl View for Population {
    type Error = Infallible;

    fn subscribers(&self) -> impl Iterator<Item = Result<(SubscriberKey, Subscriber), Infallible>> {
        sure(&self.subscribers)
    }
    fn numbers(&self) -> impl Iterator<Item = Result<(SubscriberNumber, SubscriberKey), Infallible>> {
        sure(&self.numbers)
    }
    fn access_infos(&self) -> impl Iterator<Item = Result<(AccessInfoKey, AccessInfo), Infallible>> {
        sure(&self.access_infos)
    }
    fn special_facilities(&self) -> impl Iterator<Item = Result<(SpecialFacilityKey, SpecialFacility), Infallible>> {
        sure(&self.special_facilities)
    }
    fn call_forwardings(&self) -> impl Iterator<Item = Result<(CallForwardingKey, CallForwarding), Infallible>> {
        sure(&self.call_forwardings)
    }
}
