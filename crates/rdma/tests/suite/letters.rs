//! Letters over TCP: they come in order and whole, whatever nodes think of each other, and peers
//! that mean harm are refused.

use std::{
    sync::mpsc::{self, Receiver},
    thread,
    time::Instant,
};

use drtm_htm::NoHtm;
use drtm_rdma::{
    Fabric, FabricError, Incarnation, LONGEST_LETTER, Letters, LocalConfig, LocalFabric, NodeId, Refusal, TcpFabric,
};

use crate::{
    agent::PATIENCE,
    hostile::{Hello, Insider, LINK, is_closed, read, until_refused},
    machines::{Addresses, join},
};

/// An introduction for letters.
const LETTERS: Hello = Hello { kind: 4, ..LINK };

/// Bytes of the longest frame.
const FRAME: usize = 64 << 10;

/// A node with its letters.
struct Node {
    fabric: TcpFabric<NoHtm>,
    letters: std::sync::Arc<dyn Letters>,
    came: Receiver<(NodeId, Vec<u8>)>,
}

impl Node {
    fn start(addresses: Addresses, node: u16, incarnation: u32) -> Self {
        let fabric = join(&NoHtm, &addresses.config(NodeId(node), incarnation));
        let (come, came) = mpsc::channel();
        let take = move |from, letter: &[u8]| {
            // A test may have what it wants.
            let _ = come.send((from, letter.to_vec()));
        };
        let letters = fabric.letters(NodeId(node), Box::new(take)).expect("it has some");
        Self { fabric, letters, came }
    }

    fn next(&self) -> (NodeId, Vec<u8>) {
        self.came.recv_timeout(PATIENCE).expect("a letter")
    }

    /// Sends a letter until it has come: others may be lost.
    fn reaches(&self, other: &Self, to: u16, letter: &[u8]) {
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < PATIENCE, "no letter comes");
            self.letters.send(NodeId(to), letter.to_vec());
            match other.came.recv_timeout(std::time::Duration::from_millis(100)) {
                Ok((_, came)) if came == letter => return,
                Ok(_) | Err(_) => {}
            }
        }
    }
}

/// A frame of a message.
fn message(is_last: bool, bytes: &[u8]) -> Vec<u8> {
    let mut frame = vec![5, u8::from(is_last), 0, 0];
    frame.extend((bytes.len() as u32).to_le_bytes());
    frame.extend([0; 8]);
    frame.extend(bytes);
    frame
}

#[test]
fn letters_of_any_length_come_whole_and_in_order() {
    let addresses = Addresses::new();
    let [one, two] = [0, 1].map(|node| Node::start(addresses, node, 1));
    let lengths = [0, 1, 100, FRAME - 1, FRAME, FRAME + 1, 3 * FRAME, 0, LONGEST_LETTER];
    let letter = |number: usize, length: usize| {
        let random = &mut fastrand::Rng::with_seed(number as u64);
        (0..length).map(|_| random.u8(..)).collect::<Vec<u8>>()
    };
    for (number, length) in lengths.into_iter().enumerate() {
        assert!(one.letters.send(NodeId(1), letter(number, length)), "{length}");
    }
    for (number, length) in lengths.into_iter().enumerate() {
        let (from, came) = two.next();
        assert!(from == NodeId(0) && came == letter(number, length), "{number}: {length} bytes, {} came", came.len());
    }
    // The other way, by another connection.
    assert!(two.letters.send(NodeId(0), b"back".to_vec()));
    assert_eq!(one.next(), (NodeId(1), b"back".to_vec()));
}

#[test]
fn what_cannot_be_sent_is_dropped() {
    let addresses = Addresses::new();
    let one = Node::start(addresses, 0, 1);
    let sends = |node, length| one.letters.send(NodeId(node), vec![7; length]);
    assert!(!sends(0, 1), "its own");
    assert!(!sends(900, 1), "no node of the directory");
    assert!(!sends(1, LONGEST_LETTER + 1), "too long");
    // Nothing is there.
    let sent = (0..100).filter(|_| sends(1, LONGEST_LETTER)).count();
    assert!((1..100).contains(&sent), "{sent} letters wait");
    let two = Node::start(addresses, 1, 1);
    one.reaches(&two, 1, b"now it is here");
    two.reaches(&one, 0, b"and this one");
}

#[test]
fn a_node_has_its_letters_once_and_none_when_it_has_left() {
    let addresses = Addresses::new();
    let one = Node::start(addresses, 0, 1);
    let again = |node| one.fabric.letters(NodeId(node), Box::new(|_, _| {})).map(drop);
    assert_eq!(again(0), Err(FabricError::LettersTaken { node: NodeId(0) }));
    assert_eq!(again(1), Err(FabricError::Foreign { node: NodeId(1) }));
    let Node { fabric, letters, .. } = one;
    drop(letters);
    let letters = fabric.letters(NodeId(0), Box::new(|_, _| {})).expect("they are free");
    fabric.leave();
    assert!(!letters.send(NodeId(1), b"it has left".to_vec()));
    drop(letters);
    let closed = fabric.letters(NodeId(0), Box::new(|_, _| {})).map(drop);
    assert_eq!(closed, Err(FabricError::Closed { node: NodeId(0) }));
    let local = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect());
    let none = local.letters(NodeId(0), Box::new(|_, _| {})).map(drop);
    assert_eq!(none, Err(FabricError::NoLetters { node: NodeId(0) }));
}

#[test]
fn letters_go_on_between_nodes_that_take_each_other_for_dead() {
    let addresses = Addresses::new();
    let [one, two] = [0, 1].map(|node| Node::start(addresses, node, 1));
    one.reaches(&two, 1, b"before");
    assert_eq!(one.fabric.revoke(NodeId(0), NodeId(1), Incarnation(1)), Ok(true));
    one.reaches(&two, 1, b"after");
    two.reaches(&one, 0, b"and back");
    // Its next life is reached, too, and the letters of the one before do not take its place.
    drop(two);
    let two = Node::start(addresses, 1, 2);
    one.reaches(&two, 1, b"again");
    two.reaches(&one, 0, b"and back again");
}

#[test]
fn letters_go_to_the_address_of_a_node_that_was_replaced() {
    let (addresses, others) = (Addresses::new(), Addresses::new());
    let one = Node::start(addresses, 0, 1);
    let before = Node::start(addresses, 1, 1);
    one.reaches(&before, 1, b"before");
    before.reaches(&one, 0, b"before");
    one.fabric.relocate(NodeId(0), NodeId(1), others.of(NodeId(1))).expect("it is a node");
    let config = drtm_rdma::TcpConfig::new(NodeId(1), others.of(NodeId(1)), crate::machines::KEY)
        .incarnation(Incarnation(2))
        .peer(NodeId(0), addresses.of(NodeId(0)));
    let fabric = join(&NoHtm, &config);
    let (come, came) = mpsc::channel();
    let take = move |from, letter: &[u8]| {
        let _ = come.send((from, letter.to_vec()));
    };
    let letters = fabric.letters(NodeId(1), Box::new(take)).expect("it has some");
    let after = Node { fabric, letters, came };
    one.reaches(&after, 1, b"after");
    after.reaches(&one, 0, b"after");
    // What was there before is refused.
    let refused = one.fabric.refusals().of(Refusal::Elsewhere);
    let start = Instant::now();
    while one.fabric.refusals().of(Refusal::Elsewhere) == refused {
        assert!(start.elapsed() < PATIENCE, "it is not refused");
        before.letters.send(NodeId(0), b"stale".to_vec());
        thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(one.came.try_iter().all(|(_, letter)| letter != b"stale"));
}

#[test]
fn peers_that_mean_harm_are_refused_and_others_get_their_letters() {
    let addresses = Addresses::new();
    let one = Node::start(addresses, 0, 1);
    let mut refused = 0;
    let mut ends = |say: &dyn Fn(&mut Insider)| {
        let mut insider = Insider::enter(&one.fabric, LETTERS).expect("it has the key");
        say(&mut insider);
        assert!(is_closed(&mut insider.stream));
        refused += 1;
        until_refused(&one.fabric, Refusal::Malformed, refused);
    };
    // Something else than letters, no frames, a frame that is too long, and a letter that is.
    ends(&|insider| insider.say(&read(0, 0, 1)));
    ends(&|insider| insider.say(&[0xFF; 40]));
    ends(&|insider| {
        let mut frame = message(true, &[]);
        frame[4..8].copy_from_slice(&(FRAME as u32 + 1).to_le_bytes());
        insider.say(&frame);
    });
    ends(&|insider| {
        let part = vec![7; 32 << 10];
        for _ in 0..=LONGEST_LETTER / part.len() {
            insider.say(&message(false, &part));
        }
    });
    // Half a letter, and another connection in its place.
    let mut half = Insider::enter(&one.fabric, LETTERS).expect("it has the key");
    half.say(&message(false, b"half"));
    let mut whole = Insider::enter(&one.fabric, LETTERS).expect("it has the key");
    assert!(is_closed(&mut half.stream));
    whole.say(&message(true, b"whole"));
    assert_eq!(one.next(), (NodeId(3), b"whole".to_vec()));
    // One of an earlier life does not.
    let mut late = Insider::enter(&one.fabric, Hello { incarnation: 4, ..LETTERS }).expect("it has the key");
    assert!(is_closed(&mut late.stream));
    // A forged record.
    let mut forged = whole.sealed(&message(true, b"forged"));
    *forged.last_mut().expect("bytes") ^= 1;
    std::io::Write::write_all(&mut whole.stream, &forged).expect("it listens");
    assert!(is_closed(&mut whole.stream));
    until_refused(&one.fabric, Refusal::Forged, 1);
    // Others flood it, and letters come.
    let two = Node::start(addresses, 1, 1);
    let mut flood = Insider::enter(&one.fabric, LETTERS).expect("it has the key");
    let (stop, stopped) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
                flood.say(&[message(true, b""), message(true, b"flood")].concat());
            }
        });
        for _ in 0..20 {
            two.letters.send(NodeId(0), b"honest".to_vec());
            while one.next() != (NodeId(1), b"honest".to_vec()) {}
        }
        drop(stop);
    });
}

#[test]
fn a_node_that_wants_no_letters_refuses_them() {
    let fabric = join(&NoHtm, &Addresses::new().config(NodeId(0), 1));
    assert!(Insider::enter(&fabric, LETTERS).is_err());
    until_refused(&fabric, Refusal::Unknown, 1);
    let _letters = fabric.letters(NodeId(0), Box::new(|_, _| {})).expect("it has some");
    for hello in [Hello { from: 0, ..LETTERS }, Hello { from: 900, ..LETTERS }, Hello { to: 1, ..LETTERS }] {
        assert!(Insider::enter(&fabric, hello).is_err());
    }
    until_refused(&fabric, Refusal::Unknown, 4);
    let moved = LETTERS.bytes_from([10, 0, 0, 9].into(), fabric.address().port() + 3);
    assert!(Insider::enter_saying(fabric.address(), &moved).is_err());
    until_refused(&fabric, Refusal::Elsewhere, 1);
}
