//! The floor: what the same memory accesses take without any fabric, and what two threads take to
//! say something and answer, by memory or by sockets.

use std::{
    hint::{black_box, spin_loop},
    io::{self, ErrorKind, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Release},
    },
    thread,
    time::Instant,
};

use crossbeam_utils::CachePadded;
use drtm_drive::FabricName;
use drtm_htm::{Engine, NoHtm};
use drtm_rdma::Region;
use hdrhistogram::Histogram;

use super::{
    testbed::{BYTES, Pace, START, Window, new_histogram},
    verb::VerbName,
};
use crate::Error;

/// Turns of so many operations, one turn after the other, each timed: as on a fabric, the clock is
/// read once for each turn.
pub(super) fn measure(
    fabric: FabricName,
    (verb, bytes): (VerbName, usize),
    operations: usize,
    window: Window,
    seed: u64,
) -> Result<Pace, Error> {
    if matches!(fabric, FabricName::Tcp | FabricName::TcpClear) {
        return ping_pong((verb, bytes), operations, window)
            .map_err(|error| drtm_drive::Error::RawSocket(error).into());
    }
    #[cfg(feature = "verbs")]
    if fabric == FabricName::Verbs {
        return queue_pairs((verb, bytes), operations, window, seed);
    }
    if verb == VerbName::Message {
        return Ok(ring(operations, window));
    }
    let memory = Region::anonymous(NoHtm, BYTES + (1 << 20))?;
    let start = memory.extend(BYTES, START.bytes())?;
    memory.populate(BYTES)?;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut into = vec![0_u64; bytes.div_ceil(8)];
    let mut access = || -> Result<(), Error> {
        let slots = (BYTES - bytes as u64) / 64;
        let words = memory.words(start + 64 * random.u64(0..slots), bytes.div_ceil(8))?;
        match verb {
            VerbName::Read => {
                for (word, value) in words.iter().zip(&mut into) {
                    *value = NoHtm.load(word);
                }
                black_box(&mut into);
            }
            VerbName::Write => words.iter().zip(&into).for_each(|(word, value)| NoHtm.store(word, *value)),
            VerbName::Cas => drop(black_box(NoHtm.compare_exchange(&words[0], 0, 0))),
            VerbName::Faa => drop(black_box(NoHtm.fetch_add(&words[0], 1))),
            VerbName::Message => {}
        }
        Ok(())
    };
    let mut took = new_histogram();
    let (begin, mut before) = (Instant::now(), Instant::now());
    while before.duration_since(begin) < window.counted {
        for _ in 0..operations {
            access()?;
        }
        let now = Instant::now();
        took.saturating_record(now.duration_since(before).as_nanos() as u64);
        before = now;
    }
    Ok(paced(begin, &took))
}

fn paced(begin: Instant, took: &Histogram<u64>) -> Pace {
    Pace::new(took.len() as f64 / begin.elapsed().as_secs_f64(), took)
}

/// Measures two threads that spin: one publishes a number, the other answers with it.
fn ring(operations: usize, window: Window) -> Pace {
    let (question, answer) = (CachePadded::new(AtomicU64::new(0)), CachePadded::new(AtomicU64::new(0)));
    let mut took = new_histogram();
    let begin = Instant::now();
    let mut number = 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut last = 0;
            while last != u64::MAX {
                let now = question.load(Acquire);
                if now == last {
                    spin_loop();
                    continue;
                }
                last = now;
                answer.store(now, Release);
            }
        });
        let mut before = begin;
        while before.duration_since(begin) < window.counted {
            for _ in 0..operations {
                number += 1;
                question.store(number, Release);
                while answer.load(Acquire) != number {
                    spin_loop();
                }
            }
            let now = Instant::now();
            took.saturating_record(now.duration_since(before).as_nanos() as u64);
            before = now;
        }
        question.store(u64::MAX, Release);
    });
    paced(begin, &took)
}

/// Measures two bare queue pairs of the device, of one thread, with as many operations posted at
/// once.
#[cfg(feature = "verbs")]
fn queue_pairs((verb, bytes): (VerbName, usize), operations: usize, window: Window, seed: u64) -> Result<Pace, Error> {
    use drtm_rdma::{FloorVerb, NodeId, TcpConfig, VerbsFloor};

    let memory = std::sync::Arc::new(Region::anonymous(NoHtm, BYTES + (1 << 20))?);
    let start = memory.extend(BYTES, START.bytes())?;
    memory.populate(BYTES)?;
    // Nothing listens there: only the device's part counts.
    let config = super::testbed::nic_config(TcpConfig::new(NodeId(0), (Ipv4Addr::LOCALHOST, 0).into(), [0; 32]));
    let mut floor = VerbsFloor::new(&config, &memory, operations)?;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut took = new_histogram();
    let (begin, mut before) = (Instant::now(), Instant::now());
    while before.duration_since(begin) < window.counted {
        let one = |_| {
            let at = start.bytes() + 64 * random.u64(0..(BYTES - bytes as u64) / 64);
            match verb {
                VerbName::Read => FloorVerb::Read(at),
                VerbName::Write => FloorVerb::Write(at),
                VerbName::Cas => FloorVerb::CompareSwap(at),
                VerbName::Faa => FloorVerb::FetchAdd(at),
                VerbName::Message => FloorVerb::Message,
            }
        };
        floor.turn((0..operations).map(one), bytes)?;
        let now = Instant::now();
        took.saturating_record(now.duration_since(before).as_nanos() as u64);
        before = now;
    }
    Ok(paced(begin, &took))
}

/// Returns the bytes that an operation takes on the wire, to and fro, without encryption.
fn on_the_wire(verb: VerbName, bytes: usize) -> (usize, usize) {
    match verb {
        VerbName::Read => (16, 8 + bytes),
        VerbName::Write => (16 + bytes, 8),
        VerbName::Cas => (32, 16),
        VerbName::Faa => (24, 16),
        VerbName::Message => (16 + bytes, 24 + bytes),
    }
}

/// Measures two threads that poll sockets: one sends as many bytes as the operations' requests, in
/// one go, and the other, when it has them all, as many as their responses.
fn ping_pong((verb, bytes): (VerbName, usize), operations: usize, window: Window) -> io::Result<Pace> {
    let (to, fro) = on_the_wire(verb, bytes);
    let (mut request, mut response) = (vec![1; to * operations], vec![2; fro * operations]);
    let (mut asked, mut answered) = (request.clone(), response.clone());
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    let (server, _) = listener.accept()?;
    for socket in [&client, &server] {
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
    }
    let mut took = new_histogram();
    let begin = Instant::now();
    thread::scope(|scope| {
        // It ends with the client's side.
        scope.spawn(|| {
            while exchange(&server, &mut [], &mut asked).is_ok() && exchange(&server, &mut response, &mut []).is_ok() {}
        });
        let mut before = begin;
        let outcome = loop {
            if before.duration_since(begin) >= window.counted {
                break Ok(());
            }
            if let Err(error) = exchange(&client, &mut request, &mut answered) {
                break Err(error);
            }
            let now = Instant::now();
            took.saturating_record(now.duration_since(before).as_nanos() as u64);
            before = now;
        };
        client.shutdown(std::net::Shutdown::Both).and(outcome)
    })?;
    Ok(paced(begin, &took))
}

/// Says all of one, while it hears all of the other.
fn exchange(mut socket: &TcpStream, say: &mut [u8], hear: &mut [u8]) -> io::Result<()> {
    let (mut said, mut heard) = (0, 0);
    while said < say.len() || heard < hear.len() {
        if said < say.len() {
            match socket.write(&say[said..]) {
                Ok(count) => said += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        if heard < hear.len() {
            match socket.read(&mut hear[heard..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => heard += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => spin_loop(),
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}
