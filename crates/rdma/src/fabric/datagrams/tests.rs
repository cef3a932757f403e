//! Two sides of a stream over a network that loses, duplicates and reorders datagrams.

use std::collections::HashSet;

use proptest::{
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

use super::{
    PREFIX, Prefix, Stream, WINDOW,
    mutation::{CHOSEN, Mutation},
};

const PARCEL: usize = 8;
const MESSAGE: usize = 400;
const HEAD: usize = 2;

/// An endpoint, a node, and what is on its way from each to the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Net {
    sides: [Stream; 2],
    /// By receiver.
    flying: [Vec<Vec<u8>>; 2],
    posted: [Vec<Vec<u8>>; 2],
    /// By receiver.
    delivered: [Vec<Vec<u8>>; 2],
    /// Messages whose delivery was acknowledged, by sender.
    complete: [usize; 2],
}

impl Net {
    fn new() -> Self {
        let sides = [Stream::new(1, 2, PARCEL, MESSAGE), Stream::new(2, 1, PARCEL, MESSAGE)];
        let (flying, posted, delivered) = Default::default();
        Self { sides, flying, posted, delivered, complete: [0; 2] }
    }

    fn post(&mut self, side: usize, length: usize, asks: bool) {
        let number = self.posted[side].len() as u8;
        let bytes: Vec<u8> = (0..length).map(|at| number ^ (at as u8).wrapping_mul(7)).collect();
        self.sides[side].post(&[number; HEAD], &bytes, asks);
        self.posted[side].push([&[number; HEAD][..], &bytes].concat());
    }

    /// Sends what a side has to say, up to so many datagrams.
    fn send(&mut self, side: usize, most: usize) -> usize {
        for count in 0..most {
            let Some((prefix, bytes)) = self.sides[side].next() else { return count };
            assert!(bytes.len() <= PARCEL);
            let datagram = [&prefix.encode(), bytes].concat();
            self.flying[1 - side].push(datagram);
            self.sides[side].sent();
        }
        most
    }

    /// A datagram arrives, and is still on its way if it is duplicated.
    fn arrive(&mut self, side: usize, place: usize, again: bool, room: bool) {
        let datagram = if again { self.flying[side][place].clone() } else { self.flying[side].swap_remove(place) };
        let (prefix, bytes) = datagram.split_first_chunk::<PREFIX>().expect("a prefix");
        let delivered = &mut self.delivered[side];
        let heard = self.sides[side].hear(&Prefix::decode(prefix), bytes, room, |message| {
            delivered.push(message.to_vec());
        });
        self.complete[side] += heard.expect("both are correct").complete;
        self.check();
    }

    fn check(&self) {
        for side in [0, 1] {
            let (posted, delivered) = (&self.posted[side], &self.delivered[1 - side]);
            assert!(delivered.len() <= posted.len() && delivered[..] == posted[..delivered.len()], "once and in order");
            assert!(self.complete[side] <= delivered.len(), "what is acknowledged has arrived");
        }
    }

    /// From now on nothing is lost, and the endpoint sends probes: all arrives.
    fn settle(&mut self) {
        for _ in 0..200 {
            while self.send(0, 64) + self.send(1, 64) > 0 || self.flying.iter().any(|flying| !flying.is_empty()) {
                for side in [0, 1] {
                    while !self.flying[side].is_empty() {
                        self.arrive(side, 0, false, true);
                    }
                }
            }
            if self.is_over() {
                return;
            }
            self.sides[0].probe();
        }
        panic!("this does not end: {self:?}");
    }

    fn is_over(&self) -> bool {
        [0, 1].iter().all(|side| self.complete[*side] == self.posted[*side].len())
    }
}

#[derive(Clone, Debug)]
enum Event {
    Post { side: usize, length: usize, asks: bool },
    Send { side: usize, most: usize },
    Arrive { side: usize, place: prop::sample::Index, again: bool, room: bool },
    Lose { side: usize, place: prop::sample::Index },
    Probe,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let side = 0..2_usize;
    let event = prop_oneof![
        2 => (side.clone(), 0..60_usize, any::<bool>()).prop_map(|(side, length, asks)| Event::Post { side, length, asks }),
        4 => (side.clone(), 1..40_usize).prop_map(|(side, most)| Event::Send { side, most }),
        9 => (side.clone(), any::<prop::sample::Index>(), prop::bool::weighted(0.2), prop::bool::weighted(0.9))
            .prop_map(|(side, place, again, room)| Event::Arrive { side, place, again, room }),
        3 => (side, any::<prop::sample::Index>()).prop_map(|(side, place)| Event::Lose { side, place }),
        2 => Just(Event::Probe),
    ];
    prop::collection::vec(event, 0..250)
}

/// Lets events happen, and then all that is left arrive.
fn run(events: Vec<Event>) {
    let mut net = Net::new();
    for event in events {
        match event {
            Event::Post { side, length, asks } => net.post(side, length, asks),
            Event::Send { side, most } => drop(net.send(side, most)),
            Event::Probe => net.sides[0].probe(),
            Event::Arrive { side, place, again, room } if !net.flying[side].is_empty() => {
                net.arrive(side, place.index(net.flying[side].len()), again, room);
            }
            Event::Lose { side, place } if !net.flying[side].is_empty() => {
                let place = place.index(net.flying[side].len());
                net.flying[side].swap_remove(place);
            }
            Event::Arrive { .. } | Event::Lose { .. } => {}
        }
    }
    net.settle();
    assert_eq!(net.delivered[1], net.posted[0]);
    assert_eq!(net.delivered[0], net.posted[1]);
    assert!(net.sides.iter().all(Stream::is_quiet));
}

proptest! {
    #[test]
    fn messages_arrive_once_and_in_order_whatever_the_network_does(events in events()) {
        run(events);
    }

    /// A peer that has the token and sends anything is refused, or changes nothing that a correct
    /// one could not: no more memory is taken than a window.
    #[test]
    fn any_datagram_is_taken_or_refused(datagrams in prop::collection::vec((0..80_u64, any::<bool>(), 0..40_u64, any::<bool>(), 0..20_usize), 0..200)) {
        let mut net = Net::new();
        net.post(0, 30, false);
        net.send(0, 9);
        let mut bytes_delivered = 0;
        for (number, more, taken, asks, length) in datagrams {
            let prefix = Prefix { token: 2, number, more, taken, asks };
            prop_assert_eq!(Prefix::decode(&prefix.encode()), prefix);
            let heard = net.sides[0].hear(&prefix, &vec![1; length], true, |message| bytes_delivered += message.len());
            if taken > 4 || number > WINDOW as u64 + 80 {
                prop_assert!(heard.is_err());
            }
            let forged = Prefix { token: 3, ..prefix };
            prop_assert!(net.sides[0].hear(&forged, &[], true, |_| unreachable!("it is forged")).is_err());
            if heard.is_err() {
                break;
            }
        }
        prop_assert!(bytes_delivered <= 20 * 80);
    }
}

/// Everything that can happen to a call of two parcels and its reply, with at most two losses, one
/// duplicate and two probes, in any order.
#[test]
fn every_order_of_events_ends_well() {
    let mut net = Net::new();
    net.post(0, PARCEL, false);
    let mut seen = HashSet::new();
    let mut open = vec![(net, 2, 1, 2)];
    let mut ends = 0;
    while let Some((net, losses, doubles, probes)) = open.pop() {
        if !seen.insert((net.clone(), losses, doubles, probes)) {
            continue;
        }
        let mut settled = net.clone();
        // The handler replies to what has arrived.
        if settled.delivered[1].len() == 1 && settled.posted[1].is_empty() {
            settled.post(1, 3, false);
        }
        settled.settle();
        ends += 1;
        let mut go = |next: Net, losses, doubles, probes| open.push((next, losses, doubles, probes));
        if net.delivered[1].len() == 1 && net.posted[1].is_empty() {
            let mut next = net.clone();
            next.post(1, 3, false);
            go(next, losses, doubles, probes);
        }
        for side in [0, 1] {
            let mut next = net.clone();
            if next.send(side, 1) == 1 {
                go(next, losses, doubles, probes);
            }
            for place in 0..net.flying[side].len() {
                let mut next = net.clone();
                next.arrive(side, place, false, true);
                go(next, losses, doubles, probes);
                if losses > 0 {
                    let mut next = net.clone();
                    next.flying[side].swap_remove(place);
                    go(next, losses - 1, doubles, probes);
                }
                if doubles > 0 {
                    let mut next = net.clone();
                    next.arrive(side, place, true, true);
                    go(next, losses, doubles - 1, probes);
                }
            }
        }
        if probes > 0 {
            let mut next = net.clone();
            next.sides[0].probe();
            go(next, losses, doubles, probes - 1);
        }
    }
    assert!(ends > 10_000, "{ends} states");
    println!("{ends} states");
}

/// Searches for a run that a fault breaks.
#[test]
fn deliberate_faults_are_found() {
    let finds = |mutation| {
        let mut runner = TestRunner::new_with_rng(
            Config { max_shrink_iters: 0, failure_persistence: None, ..Config::default() },
            TestRng::deterministic_rng(RngAlgorithm::ChaCha),
        );
        CHOSEN.set(mutation);
        let found = runner.run(&events(), |events| {
            run(events);
            Ok(())
        });
        CHOSEN.set(None);
        found.is_err()
    };
    assert!(!finds(None));
    for mutation in [Mutation::TakeTwice, Mutation::TakeEarly, Mutation::BelieveEarly, Mutation::RepeatNothing] {
        assert!(finds(Some(mutation)), "{mutation:?}");
    }
    // Nothing is wrong without that one, but a message waits for a probe.
    CHOSEN.set(Some(Mutation::OweNothing));
    assert!(std::panic::catch_unwind(datagrams_are_as_few_as_designed).is_err());
    CHOSEN.set(None);
}

/// A call and its reply are two datagrams where nothing is lost, and a message two.
#[test]
fn datagrams_are_as_few_as_designed() {
    let mut net = Net::new();
    for _ in 0..100 {
        net.post(0, 4, false);
        assert_eq!(net.send(0, 9), 1);
        net.arrive(1, 0, false, true);
        net.post(1, 4, false);
        assert_eq!(net.send(1, 9), 1);
        net.arrive(0, 0, false, true);
        assert_eq!(net.complete[0], net.posted[0].len(), "the reply has acknowledged the call");
    }
    assert_eq!(net.complete[1], 99, "the next call acknowledges a reply");
    net.post(0, 4, true);
    assert_eq!(net.send(0, 9), 1);
    net.arrive(1, 0, false, true);
    assert_eq!(net.send(1, 9), 1, "one that asks");
    net.arrive(0, 0, false, true);
    assert!(net.is_over());
    assert_eq!((net.send(0, 9), net.send(1, 9)), (0, 0));
}

/// A sender stays within the window, and asks before it is full.
#[test]
fn a_window_is_kept_and_moves_on_without_probes() {
    let mut net = Net::new();
    for _ in 0..10 * WINDOW {
        net.post(0, 4, false);
    }
    assert_eq!(net.send(0, 1000), WINDOW);
    let mut sent = WINDOW;
    while !net.flying[1].is_empty() {
        net.arrive(1, 0, false, true);
        net.send(1, 9);
        while !net.flying[0].is_empty() {
            net.arrive(0, 0, false, true);
        }
        sent += net.send(0, 1000);
        assert!(net.flying[1].len() <= WINDOW);
    }
    assert_eq!(sent, 10 * WINDOW, "none was sent twice");
    assert_eq!(net.delivered[1].len(), 10 * WINDOW);
}

/// A message that has no room is sent again when there is some.
#[test]
fn without_room_nothing_is_lost() {
    let mut net = Net::new();
    net.post(0, 4, true);
    for _ in 0..5 {
        net.send(0, 9);
        while !net.flying[1].is_empty() {
            net.arrive(1, 0, false, false);
        }
        assert_eq!(net.send(1, 9), 1, "the node says that it is alive");
        net.arrive(0, 0, false, true);
        assert_eq!(net.complete[0], 0);
        net.sides[0].probe();
    }
    net.settle();
    assert_eq!(net.delivered[1], net.posted[0]);
}
