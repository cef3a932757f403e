//! The entry functions of the fuzz targets, on a stable compiler: over the corpus, and seeded
//! mutations of it. `DRTM_WRITE_CORPUS=1` writes the corpus again.

#[path = "../../../../fuzz/wire.rs"]
mod wire;

use drtm_rdma::{
    rpc::{Encode, decode},
    untrusted::{self, Frame, Said},
};
use drtm_testing::corpus::{corpus, fuzz, is_rewritten, write};

#[test]
fn the_reader_of_rings_stands_mutations() {
    fuzz("ring", wire::ring, 1);
}

#[test]
fn the_readers_of_calls_and_results_stand_mutations() {
    fuzz("rpc", wire::rpc, 2);
}

#[test]
fn the_readers_of_what_is_said_over_tcp_stand_mutations() {
    fuzz("tcp", wire::tcp, 4);
}

#[test]
fn the_reader_of_superblocks_stands_mutations() {
    fuzz("superblock", wire::superblock, 3);
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes"))).collect()
}

/// What the corpus is for: whole rings and messages of each kind, and superblocks that are opened.
#[test]
fn the_corpus_is_of_this_format() {
    if is_rewritten() {
        write_corpus();
    }
    let rings = corpus("ring");
    let read: Vec<_> = rings.iter().map(|ring| untrusted::frames(&words(ring))).collect();
    assert!(read.iter().any(|(_, is_sound)| !is_sound), "a ring that is corrupt");
    assert!(read.iter().filter(|(frames, is_sound)| *is_sound && frames.len() >= 3).count() >= 2);
    let said = corpus("tcp");
    let found = |kind, frames| {
        said.iter().any(|bytes| {
            let (again, count, _) = untrusted::said(kind, bytes);
            count >= frames && again == *bytes
        })
    };
    assert!(found(Said::Requests, 11) && found(Said::Responses, 8) && found(Said::Hello, 1) && found(Said::Answer, 1));
    let messages = corpus("rpc");
    let calls: usize = messages.iter().filter_map(|message| Some(decode(message).ok()?.count())).sum();
    let results = messages.iter().filter(|message| untrusted::result(message, 2).is_ok()).count();
    assert!(calls >= 8 && results >= 1, "{calls} calls, {results} messages of results");
    let current = wire::superblock_of(1 << 20);
    assert!(corpus("superblock").iter().any(|block| block[..16] == current[..16]), "magic and format are today's");
}

fn write_corpus() {
    let ring = |name: &str, size, position, frames: &[Frame]| {
        let words = untrusted::ring(size, position, frames).expect("room");
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        write("ring", name, &bytes);
        bytes
    };
    let frames = |lengths: &[usize]| -> Vec<Frame> {
        let numbered = lengths.iter().zip(1..);
        numbered.map(|(length, number)| Frame::new(number, vec![number as u8; *length])).collect()
    };
    ring("empty", 32, 0, &[]);
    ring("whole", 32, 8, &frames(&[0, 8, 30, 1]));
    ring("wraps", 64, 3 * 64 + 48, &frames(&[5, 60, 17, 0]));
    ring("full", 32, 8, &frames(&[0, 0, 56]));
    ring("late", 32, u64::MAX - 7, &frames(&[20, 20, 20]));
    let mut torn = ring("torn", 32, 0, &frames(&[40, 8]));
    torn[8 * untrusted::RING_HEAD..][..4].copy_from_slice(&4000_u32.to_le_bytes());
    write("ring", "torn", &torn);

    for (name, carried) in [("empty", 0), ("short", 24), ("long", 3000)] {
        write("tcp", &format!("requests-{name}"), &untrusted::samples(Said::Requests, carried));
        write("tcp", &format!("responses-{name}"), &untrusted::samples(Said::Responses, carried));
    }
    for carried in [0, 1] {
        write("tcp", &format!("hello-{carried}"), &untrusted::samples(Said::Hello, carried));
        write("tcp", &format!("answer-{carried}"), &untrusted::samples(Said::Answer, carried));
    }

    let bytes_of = |value: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = Vec::new();
        value(&mut bytes);
        bytes
    };
    let transfer = bytes_of(&|into| (&b"account"[..], "Ada").encode(into));
    let numbers = bytes_of(&|into| (7_u8, (300_u16, -5_i64), true).encode(into));
    let options = bytes_of(&|into| (Some(9_u32), None::<&str>).encode(into));
    write("rpc", "calls-none", &untrusted::requests(u64::MAX, 0, &[]));
    write("rpc", "calls-one", &untrusted::requests(1_000, u64::MAX, &[(1, transfer.clone())]));
    let several = [(1, transfer.clone()), (2, numbers.clone()), (3, options.clone()), (u16::MAX, Vec::new())];
    write("rpc", "calls-several", &untrusted::requests(0, 1 << 32 | 1, &several));
    let many: Vec<_> = (0..200).map(|call| (call, vec![call as u8; usize::from(call % 5)])).collect();
    write("rpc", "calls-many", &untrusted::requests(9, 7, &many));
    let statuses: Vec<_> = (0..6_u8).map(|status| (status, numbers.clone())).collect();
    write("rpc", "results", &untrusted::replies(3, &statuses));
    write("rpc", "results-one", &untrusted::replies(u64::MAX, &[(0, options)]));

    for (name, capacity) in [("small", 4096), ("usual", 1 << 20), ("large", 1 << 40)] {
        let block = wire::superblock_of(capacity);
        write("superblock", name, &block);
        let mut longer = block;
        longer.resize(4096, 7);
        longer[32..40].copy_from_slice(&4096_u64.to_le_bytes());
        write("superblock", &format!("{name}-used"), &longer);
    }
}
