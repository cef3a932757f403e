//! Shares of many inputs and rows, and a register in ordinary maps.

use std::collections::BTreeMap;

use drtm_testing::chance::{assert_distribution, assert_share, assert_uniform};

use super::*;

const SUBSCRIBERS: u32 = 4_000;

fn register() -> Register {
    Register::new(SUBSCRIBERS, 42).expect("some subscribers")
}

fn inputs(choice: Choice, seed: u64) -> Inputs {
    Inputs::new(register(), STANDARD_MIX, choice, seed)
}

/// A population that transactions change.
#[derive(Clone)]
struct Rows {
    of: Population,
    /// Forwardings inserted, less those deleted.
    inserted: i64,
}

impl Rows {
    fn of(register: &Register) -> Self {
        Self { of: Population::of(register), inserted: 0 }
    }

    /// Runs a transaction. Returns whether it found its rows.
    fn run(&mut self, transaction: Transaction) -> bool {
        match transaction {
            Transaction::GetSubscriberData { subscriber } => self.of.subscribers.contains_key(&subscriber),
            Transaction::GetNewDestination { facility, start_time, end_time } => {
                let ends_after = |key: CallForwardingKey| {
                    self.of.call_forwardings.get(&key).is_some_and(|row| end_time < row.end_time)
                };
                self.of.special_facilities.get(&facility).is_some_and(|row| row.is_active == 1)
                    && Transaction::forwardings(facility, start_time).any(ends_after)
            }
            Transaction::GetAccessData { key } => self.of.access_infos.contains_key(&key),
            Transaction::UpdateSubscriberData { facility, bit, data_a } => {
                let Some(row) = self.of.special_facilities.get_mut(&facility) else { return false };
                row.data_a = data_a;
                self.of.subscribers.get_mut(&facility.0).expect("it has a facility").bits[0] = bit;
                true
            }
            Transaction::UpdateLocation { number, vlr_location } => {
                let Some(row) = self.of.numbers.get(&number).and_then(|key| self.of.subscribers.get_mut(key)) else {
                    return false;
                };
                row.vlr_location.set(vlr_location);
                true
            }
            Transaction::InsertCallForwarding { number, facility, start_time, row } => {
                let Some(subscriber) = self.of.numbers.get(&number) else { return false };
                let key = (*subscriber, facility, start_time);
                let can = self.of.special_facilities.contains_key(&(*subscriber, facility))
                    && !self.of.call_forwardings.contains_key(&key);
                if can {
                    self.of.call_forwardings.insert(key, row);
                    self.inserted += 1;
                }
                can
            }
            Transaction::DeleteCallForwarding { number, facility, start_time } => {
                let Some(subscriber) = self.of.numbers.get(&number) else { return false };
                let was_there = self.of.call_forwardings.remove(&(*subscriber, facility, start_time)).is_some();
                self.inserted -= i64::from(was_there);
                was_there
            }
        }
    }

    fn check(&self) -> Vec<Violation> {
        let Ok(violations) = check(&self.of, &register(), self.inserted);
        violations
    }
}

#[test]
fn the_mix_is_what_it_says() {
    let mut inputs = inputs(Choice::NonUniform, 1);
    let mut counts = [0; 7];
    for _ in 0..100_000 {
        counts[inputs.draw().kind() as usize] += 1;
    }
    assert_distribution(&counts, &Kind::ALL.map(|kind| f64::from(STANDARD_MIX.share(kind)) / 100.0));
    assert_eq!(Kind::ALL.map(|kind| STANDARD_MIX.share(kind)), [35, 10, 35, 2, 14, 2, 2]);
}

#[test]
fn rows_are_as_many_as_specified() {
    let profiles: Vec<Profile> = register().profiles(1..=SUBSCRIBERS).collect();
    assert_uniform(profiles.iter().map(|profile| profile.access_infos().count() as u64), 1, 4);
    assert_uniform(profiles.iter().map(|profile| profile.special_facilities().count() as u64), 1, 4);
    let accesses = profiles.iter().flat_map(Profile::access_infos);
    assert_uniform(accesses.map(|((_, kind), _)| kind.into()), 1, 4);
    let facilities: Vec<_> = profiles.iter().flat_map(Profile::special_facilities).collect();
    assert_share(facilities.iter().filter(|(_, row)| row.is_active == 1).count(), facilities.len(), 0.85);
    let forwardings: Vec<_> = profiles.iter().flat_map(Profile::call_forwardings).collect();
    let mut of_facility = BTreeMap::from_iter(facilities.iter().map(|(key, _)| (*key, 0)));
    for ((subscriber, facility, start), row) in &forwardings {
        *of_facility.get_mut(&(*subscriber, *facility)).expect("only facilities have forwardings") += 1;
        assert!(row.end_time > *start && row.number.iter().all(u8::is_ascii_digit));
    }
    assert_uniform(of_facility.into_values(), 0, 3);
    assert_uniform(forwardings.iter().map(|((.., start), _)| u64::from(*start) / 8), 0, 2);
    assert_uniform(forwardings.iter().map(|((.., start), row)| (row.end_time - start).into()), 1, 8);
}

#[test]
fn as_many_fail_as_are_said_to() {
    for (kind, seed) in Kind::ALL.into_iter().zip(10..) {
        let (mut inputs, fresh) = (inputs(Choice::Uniform, seed), Rows::of(&register()));
        // Few transactions have changed the population. It has randomly more or fewer rows than
        // expected, so the bound is wider than that of the draws alone.
        let mut done = 0;
        for _ in 0..20 {
            let mut rows = fresh.clone();
            done += (0..1_000).filter(|_| rows.run(inputs.of(kind))).count();
        }
        let share = done as f64 / 20_000.0;
        assert!((share - kind.success() / 100.0).abs() < 0.02, "{kind:?}: {share}");
    }
}

#[test]
fn some_subscribers_are_asked_for_more_often() {
    let counts = |choice| {
        let mut inputs = inputs(choice, 3);
        let mut counts = vec![0; SUBSCRIBERS as usize];
        for _ in 0..400_000 {
            let Transaction::GetSubscriberData { subscriber } = inputs.of(Kind::GetSubscriberData) else {
                panic!("as asked for");
            };
            counts[subscriber as usize - 1] += 1;
        }
        counts
    };
    let uniform = vec![1.0 / f64::from(SUBSCRIBERS); SUBSCRIBERS as usize];
    assert_distribution(&counts(Choice::Uniform), &uniform);
    // The formula's result for all pairs of uniform numbers that differ in the relevant bits.
    let (all, mut expected) = (u64::from(SUBSCRIBERS), vec![0.0; SUBSCRIBERS as usize]);
    for subscriber in 1..=all {
        for other in 0..4_096 {
            // The draw has sixteen times as many numbers, by four further bits.
            for further in 0..16 {
                expected[(((further << 12 | other) | subscriber) % all) as usize] += 1.0 / (all * 65_536) as f64;
            }
        }
    }
    assert_distribution(&counts(Choice::NonUniform), &expected);
    assert!(expected.iter().any(|share| *share > 2.0 * uniform[0]), "it is not uniform");
}

#[test]
fn conditions_hold_at_first_and_after_a_run() {
    let (mut inputs, mut rows) = (inputs(Choice::NonUniform, 4), Rows::of(&register()));
    assert_eq!(rows.check(), []);
    let (mut inserted, mut deleted) = (0, 0);
    for _ in 0..50_000 {
        let transaction = inputs.draw();
        let is_done = rows.run(transaction);
        inserted += u32::from(is_done && transaction.kind() == Kind::InsertCallForwarding);
        deleted += u32::from(is_done && transaction.kind() == Kind::DeleteCallForwarding);
    }
    assert!(inserted > 200 && deleted > 200);
    assert_eq!(rows.check(), []);
}

#[test]
fn what_is_wrong_is_found() {
    let rows = Rows::of(&register());
    let facility = *rows.of.special_facilities.keys().next().expect("one");
    let forwarding = *rows.of.call_forwardings.keys().next().expect("one");
    let access = *rows.of.access_infos.keys().next().expect("one");
    let is_found = |condition: Condition, place: Place, change: &dyn Fn(&mut Rows)| {
        let mut rows = rows.clone();
        change(&mut rows);
        let found = rows.check();
        assert!(found.contains(&Violation { condition, place }), "{condition:?} at {place:?}: {found:?}");
    };
    is_found(Condition::Subscribers, Place::Subscriber(7), &|rows| {
        rows.of.subscribers.remove(&7);
    });
    is_found(Condition::Subscribers, Place::Subscriber(7), &|rows| {
        rows.of.subscribers.get_mut(&7).expect("one").hexes[3] = 16
    });
    for stranger in [0, SUBSCRIBERS + 1] {
        is_found(Condition::Subscribers, Place::Subscriber(stranger), &|rows| {
            rows.of
                .subscribers
                .insert(stranger, Subscriber { number: subscriber_number(stranger), ..rows.of.subscribers[&1] });
        });
    }
    is_found(Condition::Numbers, Place::Number(subscriber_number(7)), &|rows| {
        rows.of.numbers.insert(subscriber_number(7), 8);
    });
    is_found(Condition::AccessInfos, Place::AccessInfo(access), &|rows| {
        rows.of.access_infos.remove(&access);
    });
    is_found(Condition::AccessInfos, Place::AccessInfo((1, 5)), &|rows| {
        rows.of.access_infos.insert((1, 5), rows.of.access_infos[&access]);
    });
    is_found(Condition::SpecialFacilities, Place::SpecialFacility(facility), &|rows| {
        rows.of.special_facilities.remove(&facility);
    });
    let is_absent = |key: &SpecialFacilityKey| !rows.of.special_facilities.contains_key(key);
    let absent = (1..).flat_map(|who| (1..=4).map(move |kind| (who, kind))).find(is_absent).expect("one");
    is_found(Condition::SpecialFacilities, Place::SpecialFacility(absent), &|rows| {
        rows.of.special_facilities.insert(absent, rows.of.special_facilities[&facility]);
    });
    let (subscriber, kind, _) = forwarding;
    is_found(Condition::CallForwardings, Place::CallForwarding(forwarding), &|rows| {
        rows.of.special_facilities.remove(&(subscriber, kind));
    });
    for start in [3, 24] {
        is_found(Condition::CallForwardings, Place::CallForwarding((subscriber, kind, start)), &|rows| {
            rows.of.call_forwardings.insert((subscriber, kind, start), rows.of.call_forwardings[&forwarding]);
        });
    }
    is_found(Condition::CallForwardings, Place::CallForwarding(forwarding), &|rows| {
        rows.of.call_forwardings.get_mut(&forwarding).expect("one").end_time = 25;
    });
    let count = rows.of.call_forwardings.len() as u64;
    let place = Place::CallForwardings { found: count - 1, expected: count.into() };
    is_found(Condition::ForwardingsAreCounted, place, &|rows| {
        rows.of.call_forwardings.remove(&forwarding);
    });
}

#[test]
fn a_seed_s_rows_and_inputs_stay_what_they_are() {
    assert_eq!(Register::new(0, 1), Err(RegisterError::Empty));
    let profile = register().profiles(3..=3).next().expect("one");
    assert_eq!(Some(profile), register().profiles(1..=3).last());
    assert_ne!(Some(profile), Register::new(9, 43).expect("some").profiles(3..=3).next());
    assert_eq!(profile.subscriber.hexes, [8, 9, 5, 7, 5, 6, 5, 10, 14, 11]);
    assert_eq!(profile.subscriber.vlr_location.get(), 2_418_929_131);
    let mut inputs = inputs(Choice::NonUniform, 5);
    let drawn: Vec<Transaction> = (0..3).map(|_| inputs.draw()).collect();
    let expected = [
        Transaction::GetSubscriberData { subscriber: 336 },
        Transaction::GetSubscriberData { subscriber: 606 },
        Transaction::GetAccessData { key: (3_664, 4) },
    ];
    assert_eq!(drawn, expected);
}
