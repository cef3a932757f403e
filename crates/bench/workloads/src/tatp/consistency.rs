//! The conditions that hold whenever no transaction is in progress.
//!
//! Transactions insert and remove only forwardings. All other rows are those of the initial
//! population, whose keys follow from the seed.

use std::fmt;

use super::{
    AccessInfo, AccessInfoKey, CallForwarding, CallForwardingKey, Register, SpecialFacility, SpecialFacilityKey,
    Subscriber, SubscriberKey, SubscriberNumber, subscriber_number,
};

/// The rows, in any order, all as of one time.
#[allow(missing_docs, reason = "one for each table, and the index")]
pub trait View {
    /// The error of reading a row.
    type Error;

    fn subscribers(&self) -> impl Iterator<Item = Result<(SubscriberKey, Subscriber), Self::Error>>;
    fn numbers(&self) -> impl Iterator<Item = Result<(SubscriberNumber, SubscriberKey), Self::Error>>;
    fn access_infos(&self) -> impl Iterator<Item = Result<(AccessInfoKey, AccessInfo), Self::Error>>;
    fn special_facilities(&self) -> impl Iterator<Item = Result<(SpecialFacilityKey, SpecialFacility), Self::Error>>;
    fn call_forwardings(&self) -> impl Iterator<Item = Result<(CallForwardingKey, CallForwarding), Self::Error>>;
}

/// A consistency condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Condition {
    /// Each subscriber exists once, with its own number and columns within their ranges, and no
    /// other subscriber exists.
    Subscribers,
    /// Each subscriber's number is in the index once and refers to it, and the index has no other
    /// entry.
    Numbers,
    /// Each initial access of a subscriber exists once, and no other.
    AccessInfos,
    /// Each initial facility of a subscriber exists once, is active as initially, and no other
    /// exists.
    SpecialFacilities,
    /// A forwarding belongs to an existing facility, starts at 0, 8 or 16, ends at 1 to 24, and
    /// exists once.
    CallForwardings,
    /// The number of forwardings is the initial number plus insertions, less deletions.
    ForwardingsAreCounted,
}

/// Where a condition does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the rows that keys are of")]
pub enum Place {
    Subscriber(SubscriberKey),
    Number(SubscriberNumber),
    AccessInfo(AccessInfoKey),
    SpecialFacility(SpecialFacilityKey),
    CallForwarding(CallForwardingKey),
    /// The whole table.
    CallForwardings {
        found: u64,
        expected: i128,
    },
}

/// A violation of a condition at a place: a row is missing, superfluous, duplicate or wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The condition.
    pub condition: Condition,
    /// The place.
    pub place: Place,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { condition, place } = self;
        write!(f, "{condition:?}: what is specified does not hold at {place:?}")
    }
}

/// Checks all conditions, and returns the violations. `inserted` is the number of committed,
/// successful INSERT-CALL-FORWARDINGs, less that of DELETE-CALL-FORWARDINGs.
///
/// # Example
///
/// ```
/// use drtm_workloads::tatp::{Condition, Place, Population, Register, check};
///
/// let register = Register::new(100, 42)?;
/// let mut rows = Population::of(&register);
/// assert_eq!(check(&rows, &register, 0)?, []);
///
/// rows.subscribers.remove(&7);
/// let violations = check(&rows, &register, 0)?;
/// assert_eq!((violations[0].condition, violations[0].place), (Condition::Subscribers, Place::Subscriber(7)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// Returns an error if a row cannot be read.
pub fn check<V: View>(view: &V, register: &Register, inserted: i64) -> Result<Vec<Violation>, V::Error> {
    let mut found = Found::nothing(register);
    for row in view.subscribers() {
        let (key, row) = row?;
        let is_right = row.number == subscriber_number(key)
            && row.bits.iter().all(|bit| *bit <= 1)
            && row.hexes.iter().all(|hex| *hex <= 15);
        found.tick(key, SUBSCRIBER, is_right, Condition::Subscribers, Place::Subscriber(key));
    }
    for row in view.numbers() {
        let (number, key) = row?;
        found.tick(key, NUMBER, number == subscriber_number(key), Condition::Numbers, Place::Number(number));
    }
    for row in view.access_infos() {
        let (key, _) = row?;
        found.tick(key.0, one_of_four(ACCESSES, key.1), true, Condition::AccessInfos, Place::AccessInfo(key));
    }
    for row in view.special_facilities() {
        let (key, row) = row?;
        let bit = one_of_four(FACILITIES, key.1);
        let place = Place::SpecialFacility(key);
        found.tick(key.0, bit, row.is_active <= 1, Condition::SpecialFacilities, place);
    }
    let mut forwardings = 0;
    for row in view.call_forwardings() {
        let (key, row) = row?;
        let (subscriber, facility, start) = key;
        forwardings += 1;
        let is_right = start.is_multiple_of(8) && (1..=24).contains(&row.end_time);
        // Three bits for each facility.
        let bit = match start / 8 {
            part @ 0..3 => one_of_four(FORWARDINGS + 4 * u32::from(part), facility),
            _ => None,
        };
        let is_right = is_right && found.has(subscriber, one_of_four(FACILITIES, facility));
        found.tick(subscriber, bit, is_right, Condition::CallForwardings, Place::CallForwarding(key));
    }
    let at_first = found.compare(register);
    let expected = i128::from(at_first) + i128::from(inserted);
    let mut violations = found.violations;
    if i128::from(forwardings) != expected {
        let place = Place::CallForwardings { found: forwardings, expected };
        violations.push(Violation { condition: Condition::ForwardingsAreCounted, place });
    }
    violations.sort_by_key(|violation| (violation.condition, violation.place));
    Ok(violations)
}

// The bits of the rows found of a subscriber.
const SUBSCRIBER: Option<u32> = Some(0);
const NUMBER: Option<u32> = Some(1);
/// Four bits, one for each type. The next constants are alike.
const ACCESSES: u32 = 2;
const FACILITIES: u32 = 6;
const FORWARDINGS: u32 = 10;

/// Returns the bit of a type from 1 to 4; `None` for another type.
fn one_of_four(from: u32, kind: u8) -> Option<u32> {
    matches!(kind, 1..=4).then(|| from + u32::from(kind) - 1)
}

/// The rows found of each subscriber.
struct Found {
    bits: Vec<u32>,
    violations: Vec<Violation>,
}

impl Found {
    fn nothing(register: &Register) -> Self {
        Self { bits: vec![0; register.subscribers() as usize], violations: Vec::new() }
    }

    fn bits(&mut self, subscriber: SubscriberKey) -> Option<&mut u32> {
        self.bits.get_mut((subscriber as usize).checked_sub(1)?)
    }

    fn has(&mut self, subscriber: SubscriberKey, bit: Option<u32>) -> bool {
        matches!((self.bits(subscriber), bit), (Some(bits), Some(bit)) if *bits >> bit & 1 == 1)
    }

    /// Marks a row as found. It is a violation if the row is wrong or duplicate, or if its
    /// subscriber or type does not exist.
    fn tick(
        &mut self,
        subscriber: SubscriberKey,
        bit: Option<u32>,
        is_right: bool,
        condition: Condition,
        place: Place,
    ) {
        let is_new = match (self.bits(subscriber), bit) {
            (Some(bits), Some(bit)) => {
                let is_new = *bits >> bit & 1 == 0;
                *bits |= 1 << bit;
                is_new
            }
            _ => false,
        };
        if !is_right || !is_new {
            self.violations.push(Violation { condition, place });
        }
    }

    /// Compares the unchanging rows with the initial population, and returns its number of
    /// forwardings.
    fn compare(&mut self, register: &Register) -> u64 {
        let mut forwardings = 0;
        for profile in register.profiles(1..=register.subscribers()) {
            let key = profile.key;
            forwardings += profile.call_forwardings().count() as u64;
            let mut expect = |bit: Option<u32>, is_expected: bool, condition, place| {
                // A superfluous row has been marked as found if its type exists.
                if self.has(key, bit) != is_expected {
                    self.violations.push(Violation { condition, place });
                }
            };
            expect(SUBSCRIBER, true, Condition::Subscribers, Place::Subscriber(key));
            expect(NUMBER, true, Condition::Numbers, Place::Number(subscriber_number(key)));
            for kind in 1..=4 {
                let row = (key, kind);
                let is_there = profile.access_infos().any(|(key, _)| key == row);
                expect(one_of_four(ACCESSES, kind), is_there, Condition::AccessInfos, Place::AccessInfo(row));
                let is_there = profile.special_facilities().any(|(key, _)| key == row);
                let place = Place::SpecialFacility(row);
                expect(one_of_four(FACILITIES, kind), is_there, Condition::SpecialFacilities, place);
            }
        }
        forwardings
    }
}
