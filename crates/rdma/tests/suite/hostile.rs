//! Peers over TCP that mean harm, or are broken: refused by a cause that is counted, in bounded
//! memory, and without harm to honest ones.
//!
//! `DRTM_CONNECTS` says how many connect at a time; a few hundred where it says nothing.

use std::{
    io::{ErrorKind, Read, Write},
    net::{IpAddr, Shutdown, SocketAddr, TcpStream},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use drtm_htm::NoHtm;
use drtm_rdma::{
    Fabric, Incarnation, NodeId, Phase, Port, Presence, Refusal, Region, TcpConfig, TcpFabric, TcpLimits, block_on, run,
};
use snow::{Builder, HandshakeState, StatelessTransportState};

use crate::{
    agent::PATIENCE,
    machines::{Addresses, KEY, TcpMood, join, start_agent},
    processes::Directory,
    support::{BASE, Sets, fresh, word},
};

const VERSION: u16 = 5;
const CONFIRM: u8 = 0xC0;
const PING: u8 = 2;

fn preamble(version: u16) -> Vec<u8> {
    let mut bytes = b"drtm".to_vec();
    bytes.extend(version.to_le_bytes());
    bytes.extend([0, 0]);
    bytes
}

/// What an introduction says.
#[derive(Clone, Copy)]
pub(crate) struct Hello {
    pub(crate) kind: u8,
    pub(crate) engine: u8,
    pub(crate) sealed: u8,
    pub(crate) from: u16,
    pub(crate) to: u16,
    pub(crate) incarnation: u32,
    pub(crate) expected: u32,
    pub(crate) endpoint: u16,
}

/// An honest one.
pub(crate) const LINK: Hello =
    Hello { kind: 1, engine: 1, sealed: 1, from: 3, to: 0, incarnation: 5, expected: 0, endpoint: 0 };
const ENDPOINT: Hello = Hello { kind: 2, expected: 1, ..LINK };
const VISIT: Hello = Hello { kind: 3, engine: 0, from: u16::MAX, to: u16::MAX, incarnation: 0, ..LINK };

impl Hello {
    /// Its bytes, to a node at this address.
    fn bytes(self, address: SocketAddr) -> Vec<u8> {
        self.bytes_from(address.ip(), address.port() - self.to + self.from)
    }

    /// Its bytes, of a node that says that it is at this address.
    pub(crate) fn bytes_from(self, ip: IpAddr, port: u16) -> Vec<u8> {
        let IpAddr::V4(ip) = ip else { panic!("{ip} is none of these tests'") };
        let mut bytes = vec![self.kind, self.sealed, self.engine, 0];
        bytes.extend(self.from.to_le_bytes());
        bytes.extend(self.to.to_le_bytes());
        bytes.extend(self.incarnation.to_le_bytes());
        bytes.extend(self.expected.to_le_bytes());
        bytes.extend(self.endpoint.to_le_bytes());
        bytes.extend([0; 6]);
        bytes.extend(ip.to_ipv6_mapped().octets());
        bytes.extend(port.to_le_bytes());
        bytes.extend([0; 2]);
        bytes
    }
}

fn record(bytes: &[u8]) -> Vec<u8> {
    let mut record = (bytes.len() as u16).to_le_bytes().to_vec();
    record.extend(bytes);
    record
}

/// The first thing that a node says, and what it needs for the next.
fn introduction(key: &[u8; 32], version: u16, hello: &[u8]) -> (HandshakeState, Vec<u8>) {
    let mut bytes = preamble(version);
    let mut state = Builder::new("Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s".parse().expect("a protocol"))
        .prologue(&preamble(VERSION))
        .and_then(|builder| builder.psk(0, key))
        .and_then(Builder::build_initiator)
        .expect("an initiator");
    let mut message = [0; 256];
    let length = state.write_message(hello, &mut message).expect("room");
    bytes.extend(record(&message[..length]));
    (state, bytes)
}

/// A stranger's connection.
fn connect(fabric: &TcpFabric<NoHtm>) -> TcpStream {
    connect_to(fabric.address())
}

fn connect_to(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.set_nodelay(true).expect("no delay");
    stream
}

/// Whether the other side has closed a connection, having said whatever it says.
pub(crate) fn is_closed(stream: &mut TcpStream) -> bool {
    let mut bytes = [0; 4096];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::ConnectionReset,
        }
    }
}

/// A holder of the key that says whatever it likes.
pub(crate) struct Insider {
    pub(crate) stream: TcpStream,
    session: StatelessTransportState,
    sent: u64,
    heard: u64,
}

impl Insider {
    /// Goes through the handshake. The verdict where it is not welcome.
    pub(crate) fn enter(fabric: &TcpFabric<NoHtm>, hello: Hello) -> Result<Self, u8> {
        Self::enter_at(fabric.address(), hello)
    }

    fn enter_at(address: SocketAddr, hello: Hello) -> Result<Self, u8> {
        Self::enter_saying(address, &hello.bytes(address))
    }

    pub(crate) fn enter_saying(address: SocketAddr, hello: &[u8]) -> Result<Self, u8> {
        let mut stream = connect_to(address);
        let (mut state, bytes) = introduction(&KEY, VERSION, hello);
        stream.write_all(&bytes).expect("it listens");
        let mut head = [0; 10];
        stream.read_exact(&mut head).expect("an answer");
        assert_eq!(head[..8], preamble(VERSION));
        let mut answer = vec![0; usize::from(u16::from_le_bytes([head[8], head[9]]))];
        stream.read_exact(&mut answer).expect("an answer");
        let mut verdict = [0; 256];
        state.read_message(&answer, &mut verdict).expect("the node has the key");
        if verdict[0] != 0 {
            assert!(is_closed(&mut stream));
            return Err(verdict[0]);
        }
        let session = state.into_stateless_transport_mode().expect("a session");
        let mut insider = Self { stream, session, sent: 0, heard: 0 };
        insider.say(&[CONFIRM]);
        Ok(insider)
    }

    pub(crate) fn sealed(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut message = vec![0; bytes.len() + 16];
        let length = self.session.write_message(self.sent, bytes, &mut message).expect("room");
        self.sent += 1;
        record(&message[..length])
    }

    pub(crate) fn say(&mut self, bytes: &[u8]) {
        let record = self.sealed(bytes);
        // What was closed meanwhile is found by the next read.
        let _ = self.stream.write_all(&record);
    }

    fn hear(&mut self) -> Vec<u8> {
        let mut length = [0; 2];
        self.stream.read_exact(&mut length).expect("a record");
        let mut record = vec![0; usize::from(u16::from_le_bytes(length))];
        self.stream.read_exact(&mut record).expect("a record");
        let mut bytes = vec![0; record.len()];
        let length = self.session.read_message(self.heard, &record, &mut bytes).expect("sealed");
        self.heard += 1;
        bytes.truncate(length);
        bytes
    }
}

/// A READ, as its frame.
pub(crate) fn read(region: u16, offset: u64, words: u32) -> Vec<u8> {
    let mut frame = vec![1, 1];
    frame.extend(region.to_le_bytes());
    frame.extend(words.to_le_bytes());
    frame.extend(offset.to_le_bytes());
    frame
}

fn config(limits: TcpLimits) -> (Addresses, TcpConfig) {
    let addresses = Addresses::new();
    (addresses, addresses.config(NodeId(0), 1).limits(limits))
}

/// Node 0, with a region.
fn node(config: &TcpConfig) -> TcpFabric<NoHtm> {
    let fabric = join(&NoHtm, config);
    let memory = fresh(Region::anonymous(NoHtm, 1 << 20).expect("a region"));
    fabric.register(NodeId(0), memory).expect("room");
    fabric
}

/// Waits until a cause has been counted so often.
pub(crate) fn until_refused(fabric: &TcpFabric<NoHtm>, refusal: Refusal, count: u64) {
    let start = Instant::now();
    while fabric.refusals().of(refusal) < count {
        assert!(start.elapsed() < PATIENCE, "{refusal:?} is not counted: {:?}", fabric.refusals());
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(fabric.refusals().of(refusal), count, "{refusal:?}");
}

/// An honest use of the node's memory, through its own endpoint.
fn is_served<P: Port>(endpoint: &drtm_rdma::Endpoint<P>) {
    let verbs = endpoint.during(Phase::Other);
    let added =
        block_on(endpoint, async { endpoint.before(endpoint.now() + PATIENCE, verbs.fetch_add(word(0, 0), 1)).await });
    added.expect("in time").expect("honest ones are served");
}

#[test]
fn strangers_are_refused_and_counted_by_cause() {
    let fabric = node(&config(TcpLimits { handshake_time: Duration::from_millis(300), ..TcpLimits::default() }).1);
    let refused = |bytes: &[u8], refusal| {
        let before = fabric.refusals().of(refusal);
        let mut stream = connect(&fabric);
        stream.write_all(bytes).expect("it listens");
        stream.shutdown(Shutdown::Write).expect("a socket");
        assert!(is_closed(&mut stream));
        until_refused(&fabric, refusal, before + 1);
    };
    let honest = introduction(&KEY, VERSION, &LINK.bytes(fabric.address())).1;
    refused(b"GET / HTTP/1.1\r\n\r\n", Refusal::Format);
    refused(b"drtm\x01\0\x07\0", Refusal::Format);
    refused(&introduction(&KEY, VERSION + 1, &LINK.bytes(fabric.address())).1, Refusal::Version);
    refused(&introduction(&[8; 32], VERSION, &LINK.bytes(fabric.address())).1, Refusal::Key);
    let mut changed = honest.clone();
    *changed.last_mut().expect("bytes") ^= 1;
    refused(&changed, Refusal::Key);
    refused(&introduction(&KEY, VERSION, b"hello").1, Refusal::Malformed);
    refused(&[&preamble(VERSION)[..], &60_000_u16.to_le_bytes(), &[0; 400]].concat(), Refusal::Malformed);
    for length in [0, 1, 7, 9, 30, honest.len() - 1] {
        refused(&honest[..length], Refusal::Truncated);
    }
    // Whole, and never confirmed.
    refused(&honest, Refusal::Truncated);
    // Slowly, and not at all.
    let mut slow = connect(&fabric);
    let silent = connect(&fabric);
    for byte in &honest {
        if slow.write_all(&[*byte]).is_err() {
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    assert!(is_closed(&mut slow));
    until_refused(&fabric, Refusal::Slow, 2);
    drop(silent);
    is_served(&fabric.endpoint(NodeId(0)).expect("room"));
}

#[test]
fn holders_of_the_key_are_refused_by_what_they_say_they_are() {
    let fabric = node(&config(TcpLimits::default()).1);
    let refused = |hello: Hello, refusal: Refusal| {
        let before = fabric.refusals().of(refusal);
        assert!(Insider::enter(&fabric, hello).is_err());
        until_refused(&fabric, refusal, before + 1);
    };
    refused(Hello { to: 1, ..LINK }, Refusal::Unknown);
    refused(Hello { from: 900, ..LINK }, Refusal::Unknown);
    refused(Hello { from: 0, ..LINK }, Refusal::Unknown);
    refused(Hello { engine: 3, ..LINK }, Refusal::Mismatch);
    refused(Hello { sealed: 0, ..LINK }, Refusal::Mismatch);
    refused(ENDPOINT, Refusal::Unknown);
    refused(Hello { expected: 9, ..ENDPOINT }, Refusal::Stale);
    let mut link = Insider::enter(&fabric, LINK).expect("honest so far");
    assert_eq!(link.hear(), [1], "welcome");
    // This node dials it from now on, if it must.
    refused(LINK, Refusal::Duplicate);
    refused(Hello { incarnation: 4, ..LINK }, Refusal::Stale);
    refused(Hello { incarnation: 4, ..ENDPOINT }, Refusal::Stale);
    refused(Hello { incarnation: 6, ..ENDPOINT }, Refusal::Unknown);
    let endpoint = fabric.endpoint(NodeId(0)).expect("room");
    assert_eq!(endpoint.presence(NodeId(3)), Presence::Here(Incarnation(5)));
    // Another process with its number: it is not where the directory has it.
    let before = fabric.refusals().of(Refusal::Elsewhere);
    let home = fabric.address();
    for (ip, port) in [(home.ip(), home.port() + 5), ([10, 0, 0, 9].into(), home.port() + 3)] {
        let stray = Hello { incarnation: 6, ..LINK }.bytes_from(ip, port);
        assert!(Insider::enter_saying(home, &stray).is_err());
    }
    until_refused(&fabric, Refusal::Elsewhere, before + 2);
    // Another incarnation takes its place, and the connection of the one before ends.
    let mut queue = Insider::enter(&fabric, ENDPOINT).expect("it is linked");
    queue.say(&read(0, BASE.bytes(), 1));
    assert_eq!(queue.hear().len(), 16);
    let mut next = Insider::enter(&fabric, Hello { incarnation: 6, ..LINK }).expect("a restart");
    assert_eq!(next.hear(), [1], "welcome");
    assert!(is_closed(&mut queue.stream) && is_closed(&mut link.stream));
    assert_eq!(endpoint.presence(NodeId(3)), Presence::Here(Incarnation(6)));
    refused(ENDPOINT, Refusal::Stale);
    // One that ends without a goodbye has died, and that incarnation does not come back.
    drop(next);
    let start = Instant::now();
    while endpoint.presence(NodeId(3)) != Presence::Died(Incarnation(6)) {
        assert!(start.elapsed() < PATIENCE);
        thread::yield_now();
    }
    refused(Hello { incarnation: 6, ..LINK }, Refusal::Stale);
    is_served(&endpoint);
}

#[test]
fn visitors_may_call_and_nothing_else() {
    let fabric = node(&config(TcpLimits::default()).1);
    let home = fabric.address();
    let visit = |hello: Hello| Insider::enter_saying(home, &hello.bytes_from([0, 0, 0, 0].into(), 0));
    // One that says that it is a node, or wants a certain one, or no encryption.
    for (hello, refusal) in [
        (Hello { from: 3, ..VISIT }, Refusal::Unknown),
        (Hello { to: 0, ..VISIT }, Refusal::Unknown),
        (Hello { sealed: 0, ..VISIT }, Refusal::Mismatch),
    ] {
        let before = fabric.refusals().of(refusal);
        assert!(visit(hello).is_err());
        until_refused(&fabric, refusal, before + 1);
    }
    let mut head = read(0, BASE.bytes(), 0);
    let mut frame = |kind: u8, carried: usize| {
        head[0] = kind;
        [&head[..], &vec![0; carried]].concat()
    };
    let (swap, add, message) = (frame(3, 16), frame(4, 8), [&[5, 1][..], &[0; 14]].concat());
    for (count, refused) in (1..).zip([read(0, BASE.bytes(), 1), swap, add, message]) {
        let mut visitor = visit(VISIT).expect("it has the key");
        visitor.say(&refused);
        let response = visitor.hear();
        assert_eq!((response[0], response[2]), (4, 1), "a failure: nothing is registered for it");
        until_refused(&fabric, Refusal::OutOfGrant, count);
    }
    // None of them was met, and there are so many at a time.
    let endpoint = fabric.endpoint(NodeId(0)).expect("room");
    assert_eq!(endpoint.presence(NodeId::VISITOR), Presence::Never);
    let start = Instant::now();
    let mut all = Vec::new();
    while all.len() < 16 {
        assert!(start.elapsed() < PATIENCE, "the ends of earlier ones are not seen");
        all.extend(visit(VISIT).map(|mut visitor| {
            // It has its place when it is served.
            visitor.say(&read(0, BASE.bytes(), 1));
            visitor.hear();
            visitor
        }));
    }
    assert_eq!(visit(VISIT).err(), Some(7), "full");
    all.pop();
    while visit(VISIT).is_err() {
        assert!(start.elapsed() < PATIENCE, "the end of one is not seen");
    }
    is_served(&endpoint);
}

#[test]
fn what_is_replayed_changed_or_malformed_ends_its_connection() {
    let fabric = node(&config(TcpLimits::default()).1);
    let mut link = Insider::enter(&fabric, LINK).expect("honest so far");
    assert_eq!(link.hear(), [1], "welcome");

    // A copy of a handshake is answered, and cannot be confirmed.
    let (_, honest) = introduction(&KEY, VERSION, &Hello { from: 2, ..LINK }.bytes(fabric.address()));
    let mut copy = connect(&fabric);
    copy.write_all(&honest).expect("it listens");
    copy.write_all(&record(&[0x55; 17])).expect("it listens");
    assert!(is_closed(&mut copy));
    until_refused(&fabric, Refusal::Forged, 1);
    let endpoint = fabric.endpoint(NodeId(0)).expect("room");
    assert_eq!(endpoint.presence(NodeId(2)), Presence::Never, "it is not acted on");

    let good = read(0, BASE.bytes(), 4);
    // The same record twice, one that was left out, and a changed one.
    let spoil: [fn(&mut Insider, &[u8]); 3] = [
        |insider, good| {
            let record = insider.sealed(good);
            insider.stream.write_all(&[&record[..], &record].concat()).expect("it listens");
        },
        |insider, good| {
            insider.sealed(good);
            insider.say(good);
        },
        |insider, good| {
            let mut record = insider.sealed(good);
            record[5] ^= 4;
            insider.stream.write_all(&record).expect("it listens");
        },
    ];
    for (spoil, count) in spoil.into_iter().zip(2..) {
        let mut insider = Insider::enter(&fabric, ENDPOINT).expect("it is linked");
        insider.say(&good);
        assert_eq!(insider.hear().len(), 8 + 32);
        spoil(&mut insider, &good);
        assert!(is_closed(&mut insider.stream));
        until_refused(&fabric, Refusal::Forged, count);
    }

    let mut oversized = read(0, 0, 8193);
    oversized[0] = 2;
    let misaligned = read(0, BASE.bytes() + 4, 1);
    let nonsense = [vec![99; 16], oversized, misaligned, [&[6, 0][..], &[0; 14]].concat()];
    for (frame, count) in nonsense.into_iter().zip(1..) {
        let mut insider = Insider::enter(&fabric, ENDPOINT).expect("it is linked");
        insider.say(&frame);
        assert!(is_closed(&mut insider.stream));
        until_refused(&fabric, Refusal::Malformed, count);
    }
    // Truncated: the end comes in the middle of a frame, which does nothing.
    let mut insider = Insider::enter(&fabric, ENDPOINT).expect("it is linked");
    insider.say(&good[..9]);
    insider.stream.shutdown(Shutdown::Write).expect("a socket");
    assert!(is_closed(&mut insider.stream));
    // The link was not concerned by any of that.
    link.say(&[PING]);
    is_served(&endpoint);
    assert_eq!(endpoint.presence(NodeId(3)), Presence::Here(Incarnation(5)));
    // On a link, anything but a letter ends it, and with it the peer.
    link.say(&[77]);
    assert!(is_closed(&mut link.stream));
    until_refused(&fabric, Refusal::Malformed, 5);
}

#[test]
fn an_access_outside_of_what_is_granted_fails_and_the_connection_goes_on() {
    let fabric = node(&config(TcpLimits::default()).1);
    let mut link = Insider::enter(&fabric, LINK).expect("honest so far");
    assert_eq!(link.hear(), [1], "welcome");
    let mut insider = Insider::enter(&fabric, ENDPOINT).expect("it is linked");
    let end = BASE.bytes() + crate::support::BYTES;
    let outside = [(0, end, 1), (0, end - 8, 2), (0, !7, 1), (1, BASE.bytes(), 1), (u16::MAX, 0, 8192)];
    for ((region, offset, words), count) in outside.into_iter().zip(1..) {
        insider.say(&read(region, offset, words));
        let answer = insider.hear();
        assert_eq!((answer[0], answer[2]), (4, if region == 0 { 2 } else { 1 }), "failed, and why");
        until_refused(&fabric, Refusal::OutOfGrant, count);
    }
    insider.say(&read(0, BASE.bytes(), 2));
    assert_eq!(insider.hear(), [&[3, 0, 0, 0, 2, 0, 0, 0][..], &[0; 16]].concat());
}

#[test]
fn a_flood_of_connects_leaves_room_for_honest_ones() {
    let connects = connects(300);
    let (addresses, config) = config(TcpLimits { pending_handshakes: 16, ..TcpLimits::default() });
    let fabric = node(&config);
    let endpoint = fabric.endpoint(NodeId(0)).expect("room");
    // One that is connected before.
    is_served(&endpoint);
    let over = AtomicBool::new(false);
    let rounds = thread::scope(|scope| {
        scope.spawn(|| {
            let _over = Sets(&over);
            let mut open = Vec::new();
            for number in 0..connects {
                let mut stream = connect(&fabric);
                if number % 3 == 0 {
                    // It may have been cut off already.
                    let _ = stream.write_all(b"drt");
                }
                open.push(stream);
                // As many as this process has descriptors for.
                if open.len() > 100 {
                    open.remove(0);
                }
            }
            until_refused_at_least(&fabric, connects - 16);
        });
        let mut rounds = 0;
        while !over.load(Acquire) {
            is_served(&endpoint);
            rounds += 1;
        }
        rounds
    });
    println!("{rounds} operations during {connects} connects; {:?}", fabric.refusals());
    let refusals = fabric.refusals();
    assert_eq!(refusals.total(), refusals.of(Refusal::Crowded) + refusals.of(Refusal::Truncated), "{refusals:?}");
    // A new node comes in all the same.
    let late = join(&NoHtm, &addresses.config(NodeId(1), 1));
    assert_eq!(endpoint.presence(NodeId(1)), Presence::Here(Incarnation(1)));
    drop(late);
}

/// How many connect at a time.
fn connects(usual: u64) -> u64 {
    std::env::var("DRTM_CONNECTS").map_or(usual, |count| count.parse().expect("DRTM_CONNECTS is a number"))
}

fn until_refused_at_least(fabric: &TcpFabric<NoHtm>, count: u64) {
    let start = Instant::now();
    while fabric.refusals().total() < count {
        assert!(start.elapsed() < PATIENCE, "{:?}", fabric.refusals());
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn handshakes_are_answered_at_a_bounded_rate() {
    let fabric = node(&config(TcpLimits { handshakes_per_second: 2, ..TcpLimits::default() }).1);
    // Copies of one that was overheard.
    let honest = introduction(&KEY, VERSION, &LINK.bytes(fabric.address())).1;
    let streams: Vec<TcpStream> = (0..20)
        .map(|_| {
            let mut stream = connect(&fabric);
            stream.write_all(&honest).expect("it listens");
            stream
        })
        .collect();
    // A second lasts longer on a busy machine.
    let start = Instant::now();
    while fabric.refusals().of(Refusal::Rate) == 0 {
        assert!(start.elapsed() < PATIENCE, "{:?}", fabric.refusals());
        thread::sleep(Duration::from_millis(1));
    }
    drop(streams);
}

#[test]
fn a_flood_of_reads_that_are_never_taken_is_stopped_by_a_bound() {
    let fabric = node(&config(TcpLimits { held_bytes: 256 << 10, ..TcpLimits::default() }).1);
    let mut link = Insider::enter(&fabric, LINK).expect("honest so far");
    assert_eq!(link.hear(), [1], "welcome");
    let mut insider = Insider::enter(&fabric, ENDPOINT).expect("it is linked");
    let endpoint = fabric.endpoint(NodeId(0)).expect("room");
    // Each asks for 64 KiB, and nothing is read of the answers.
    insider.stream.set_nonblocking(true).expect("a socket");
    let burst = [&read(0, BASE.bytes(), 8192)[..]; 64].concat();
    let (mut sent, mut last) = (0_u64, Instant::now());
    'flood: loop {
        let record = insider.sealed(&burst);
        let mut written = 0;
        while written < record.len() {
            match insider.stream.write(&record[written..]) {
                Ok(count) => {
                    written += count;
                    last = Instant::now();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    is_served(&endpoint);
                    if last.elapsed() > Duration::from_millis(500) {
                        break 'flood;
                    }
                }
                Err(error) => panic!("{error}"),
            }
        }
        sent += 64;
        assert!(sent < 1 << 22, "nothing stops it");
    }
    println!("{sent} READs of 64 KiB were taken in, and no more");
    assert!(fabric.held_bytes() < 2 << 20, "{} bytes are held", fabric.held_bytes());
    is_served(&endpoint);
}

/// A peer that was replied to dies, and leaves the beginning of a frame. The endpoint that has
/// replied remembers it, and does not poll; the node's thread is not woken for that socket again.
#[test]
fn a_peer_that_dies_within_a_frame_costs_nothing_afterwards() {
    let fabric = node(&config(TcpLimits::default()).1);
    let replier = fabric.endpoint(NodeId(0)).expect("room");
    let honest = fabric.endpoint(NodeId(0)).expect("room");
    for end in [Shutdown::Write, Shutdown::Both] {
        let incarnation = if end == Shutdown::Write { 5 } else { 6 };
        let mut link = Insider::enter(&fabric, Hello { incarnation, ..LINK }).expect("honest so far");
        assert_eq!(link.hear(), [1], "welcome");
        let mut insider = Insider::enter(&fabric, Hello { incarnation, ..ENDPOINT }).expect("it is linked");
        let mut call = message(4);
        call[0] = 6;
        insider.say(&call);
        block_on(&replier, async {
            let call = replier.during(Phase::Other).recv().await;
            assert!(call.is_call());
            call.reply(&[8; 4]).expect("it is a call");
        });
        let mut heard = Vec::new();
        while !heard.ends_with(&[8; 4]) {
            replier.progress();
            heard.extend(insider.hear());
        }
        let record = insider.sealed(&call);
        insider.stream.write_all(&record[..record.len() - 1]).expect("it listens");
        insider.stream.shutdown(end).expect("a socket");
        drop((insider, link));
        let start = Instant::now();
        while honest.presence(NodeId(3)) != Presence::Died(Incarnation(incarnation)) {
            assert!(start.elapsed() < PATIENCE);
            thread::yield_now();
        }
        let before = fabric.work().strays;
        for _ in 0..400 {
            is_served(&honest);
        }
        // What was reported together with the end of its connection.
        let strays = fabric.work().strays - before;
        assert!(strays < 4, "woken {strays} times by a dead peer's socket");
    }
}

/// More connections than are read without a look ask for as much as they can, and take it.
#[test]
fn busy_connections_leave_turns_to_others() {
    let fabric = node(&config(TcpLimits::default()).1);
    let mut link = Insider::enter(&fabric, LINK).expect("honest so far");
    assert_eq!(link.hear(), [1], "welcome");
    let endpoint = fabric.endpoint(NodeId(0)).expect("room");
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..6 {
            let mut insider = Insider::enter(&fabric, Hello { endpoint: number, ..ENDPOINT }).expect("it is linked");
            let over = &over;
            scope.spawn(move || {
                let burst = read(0, BASE.bytes(), 512).repeat(64);
                while !over.load(Acquire) {
                    // The next is there before the answer to this one is taken.
                    insider.say(&burst);
                    insider.say(&burst);
                    let mut left = 2 * 64 * (8 + 8 * 512);
                    while left > 0 {
                        left -= insider.hear().len();
                    }
                }
            });
        }
        let _over = Sets(&over);
        for _ in 0..20 {
            is_served(&endpoint);
            link.say(&[PING]);
        }
    });
    // A turn is 256 KiB, and the operation that it ends with.
    let longest = fabric.work().longest_turn;
    assert!((1..=(256 << 10) / 64 + (64 << 10) / 64 + 1).contains(&longest), "{longest} units in one turn");
}

/// Strangers of every kind come as fast as they can, while honest peers have more to do than can be
/// done: four parts in five of the thread's work are theirs. `DRTM_CONNECTS` says how many come at
/// a time.
#[test]
fn members_have_their_share_under_a_flood_of_strangers() {
    let connects = connects(400);
    let limits = TcpLimits { handshakes_per_second: u32::MAX, ..TcpLimits::default() };
    let fabric = node(&config(limits).1);
    let endpoint = fabric.endpoint(NodeId(0)).expect("room");
    is_served(&endpoint);
    let verbs = endpoint.during(Phase::Other);
    let (over, left, done) = (AtomicBool::new(false), AtomicU64::new(3), AtomicU64::new(0));
    thread::scope(|scope| {
        // Copies, which are answered and cannot be confirmed; wrong keys; noise.
        let copies = introduction(&KEY, VERSION, &LINK.bytes(fabric.address())).1;
        let keyless = introduction(&[8; 32], VERSION, &LINK.bytes(fabric.address())).1;
        for bytes in [copies, keyless, b"GET / HTTP/1.1\r\n\r\n".to_vec()] {
            let (fabric, over, left) = (&fabric, &over, &left);
            scope.spawn(move || {
                let _over = Ends { left, over };
                for _ in 0..connects / 3 {
                    // What is closed while it speaks is refused.
                    let _ = connect(fabric).write_all(&bytes);
                }
                until_refused_at_least(fabric, connects / 3);
            });
        }
        let (verbs, over, done) = (&verbs, &over, &done);
        let outcomes = run(&endpoint, 64, async |index| {
            while !over.load(Acquire) {
                verbs.read(word(0, index as u64), 64).await?;
                done.fetch_add(1, Relaxed);
            }
            Ok::<_, drtm_rdma::VerbError>(())
        });
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    });
    let (work, done) = (fabric.work(), done.load(Relaxed));
    println!("{done} READs of honest peers beside {connects} connects: {work:?}; {:?}", fabric.refusals());
    assert!(work.handshakes + work.aside > 0, "there was a flood");
    assert!(4 * work.handshakes <= work.members, "{work:?}");
    // All of it has been dealt with.
    until_refused_at_least(&fabric, 3 * (connects / 3));
}

/// Sets a flag when the last of several ends.
struct Ends<'a> {
    left: &'a AtomicU64,
    over: &'a AtomicBool,
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if self.left.fetch_sub(1, Relaxed) == 1 {
            drop(Sets(self.over));
        }
    }
}

/// A message, as its frame.
fn message(bytes: u32) -> Vec<u8> {
    let mut frame = vec![5, 1, 0, 0];
    frame.extend(bytes.to_le_bytes());
    frame.extend([0; 8]);
    frame.extend(vec![7; bytes as usize]);
    frame
}

/// Connections of strangers and of peers that take as much of another process's memory as they can:
/// the most that it ever has is what the limits allow. `DRTM_CONNECTS` says how many come at a
/// time.
#[test]
fn what_a_process_holds_for_peers_is_bounded() {
    const GREEDY: u16 = 8;
    let connects = connects(300);
    let (directory, addresses) = (Directory::new(), Addresses::new());
    // The link may be silent for as long as this takes.
    let target = start_agent(&directory, addresses, TcpMood::default().deadline(120_000), 1, 1);
    let address = addresses.of(NodeId(1));
    let to_it = |hello: Hello| Hello { to: 1, ..hello };
    let before = target.resident();
    target.forget_peak();
    // Halves of an introduction, and what comes after a copy of one.
    let (_, honest) = introduction(&KEY, VERSION, &to_it(LINK).bytes(address));
    let mut open = std::collections::VecDeque::new();
    for number in 0..connects {
        let mut stream = connect_to(address);
        let long = [&honest[..honest.len() - 1], &[0x55; 64 << 10]].concat();
        let said = if number % 2 == 0 { &honest[..honest.len() / 2] } else { &long[..] };
        stream.set_nonblocking(true).expect("a socket");
        // It may be cut off already.
        let _ = stream.write(said);
        open.push_back(stream);
        if open.len() > 200 {
            open.pop_front();
        }
    }
    let strangers = target.peak();
    let link = Insider::enter_at(address, to_it(LINK)).map(|mut link| {
        assert_eq!(link.hear(), [1], "welcome");
        link
    });
    let _link = link.expect("honest so far");
    // READs whose results are not taken; messages that are not received; and beginnings of frames.
    let frames = [read(0, BASE.bytes(), 8192).repeat(32), message(60_000), message(60_000)[..50_000].to_vec()];
    let mut greedy: Vec<_> = (0..GREEDY)
        .map(|endpoint| {
            let hello = Hello { endpoint, ..to_it(ENDPOINT) };
            Insider::enter_at(address, hello).expect("it is linked")
        })
        .collect();
    for (index, insider) in greedy.iter_mut().enumerate() {
        insider.stream.set_nonblocking(true).expect("a socket");
        let (mut record, mut written) = (insider.sealed(&frames[index % 3]), 0);
        let (mut last, mut taken) = (Instant::now(), 0_u64);
        while last.elapsed() < Duration::from_millis(300) {
            match insider.stream.write(&record[written..]) {
                Ok(count) => (written, last) = (written + count, Instant::now()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(Duration::from_millis(1)),
                Err(error) => panic!("{error}"),
            }
            if written == record.len() {
                taken += written as u64;
                assert!(taken < 1 << 30, "nothing stops it");
                // A frame that never ends is begun once.
                if index % 3 == 2 {
                    break;
                }
                (record, written) = (insider.sealed(&frames[index % 3]), 0);
            }
        }
    }
    let peak = target.peak();
    println!("{before} KiB at rest, {strangers} KiB with strangers, {peak} KiB with {GREEDY} greedy peers");
    // Of the limits: for each stranger a socket's worth of input and two ciphers; for each peer's
    // connection what it does not read, one result, and input; the mailbox.
    let TcpLimits { pending_handshakes: most, held_bytes, .. } = TcpLimits::default();
    let of_strangers = most as u64 * 32;
    let of_peers = u64::from(GREEDY) * (2 * held_bytes as u64 / 1024 + 3 * 384);
    let mailbox = 256 * 64;
    let slack = 4 << 10;
    assert!(strangers <= before + of_strangers + slack, "{strangers} KiB after {before} KiB");
    assert!(peak <= before + of_strangers + of_peers + mailbox + slack, "{peak} KiB after {before} KiB");
}
