//! What fuzzing does with bytes that another process could have written: frames in a ring of shared
//! memory, what is said over TCP, messages of calls and of results, and a region's superblock.
//!
//! A reader must not panic nor reach beyond what it was given, and what it accepts must be what its
//! writer writes.

use std::{
    env,
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use drtm_htm::{Engine, NoHtm};
use drtm_rdma::{
    Offset, ROOTS, Region,
    rpc::{Decode, DecodeError, Encode, Reader, decode},
    untrusted::{self, Said},
};
use xxhash_rust::xxh3::xxh3_64;

/// The words of a ring: its counts, and then frames.
pub(crate) fn ring(bytes: &[u8]) {
    let mut words: Vec<u64> = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
    read_ring(&words);
    // Counts that make sense, wherever they are: noise has none.
    let Some(data) = words.len().checked_sub(untrusted::RING_HEAD).filter(|data| *data >= LINE) else { return };
    let size = 1_u64 << data.ilog2();
    let whole_lines = |word: u64| word & !(LINE as u64 - 1);
    words[8] = whole_lines(words[8]);
    words[0] = words[8].wrapping_add(whole_lines(words[0] % (size + 1)));
    read_ring(&words);
    words[8] = 0_u64.wrapping_sub(words[8] % size);
    words[0] = words[8].wrapping_add(whole_lines(words[1] % (size + 1)));
    read_ring(&words);
}

/// The least words of a ring.
const LINE: usize = 8;

fn read_ring(words: &[u64]) {
    let (frames, is_sound) = untrusted::frames(words);
    let Some(data) = words.len().checked_sub(untrusted::RING_HEAD).filter(|data| *data >= LINE) else { return };
    // Written again in the same place, they are found again.
    let Some(again) = untrusted::ring(1 << data.ilog2(), words[8], &frames) else {
        panic!("what was in a ring of this size fits one: {frames:?}");
    };
    assert_eq!(untrusted::frames(&again), (frames, true));
    if is_sound {
        assert_eq!(again[0], words[0], "the counts agree");
    }
}

/// What peers say on the fabric of machines, to each of its readers.
pub(crate) fn tcp(bytes: &[u8]) {
    for kind in [Said::Requests, Said::Responses, Said::Hello, Said::Answer] {
        let (again, frames, more) = untrusted::said(kind, bytes);
        assert!(bytes.starts_with(&again), "there is one encoding");
        assert!(frames > 0 || again.is_empty());
        if more && matches!(kind, Said::Requests | Said::Responses) {
            // What is asked for is never more than a frame can have.
            let rest = bytes.len() - again.len();
            assert!(rest < MOST_OF_A_FRAME, "{rest} bytes wait for the end of a frame");
            // A frame that is there in part is refused or found when the rest has come.
            for cut in [again.len() / 3, again.len() / 2, again.len().saturating_sub(1)] {
                let (first, _, sound) = untrusted::said(kind, &again[..cut]);
                assert!(sound && again.starts_with(&first));
            }
        }
    }
}

/// A head, a ticket, and 64 KiB.
const MOST_OF_A_FRAME: usize = 16 + (64 << 10);

/// A message of the protocol of calls.
pub(crate) fn rpc(bytes: &[u8]) {
    read_message(bytes);
    // With a head that is right, of either kind.
    for kind in [0xD741_u16, 0xD742] {
        let mut sealed = bytes.to_vec();
        sealed.resize(sealed.len().max(4), 0);
        sealed[..2].copy_from_slice(&kind.to_le_bytes());
        sealed[2] = 3;
        read_message(&sealed);
    }
}

fn read_message(bytes: &[u8]) {
    if let Ok(requests) = decode(bytes) {
        let (budget, tag) = (requests.budget, requests.tag);
        let calls: Vec<_> = requests.map(|call| (call.procedure, call.bytes.to_vec())).collect();
        assert_eq!(calls.len(), usize::from(bytes[3]), "none is lost");
        assert_eq!(untrusted::requests(budget, tag, &calls), bytes, "there is one encoding");
        calls.iter().for_each(|(_, request)| read_values(request));
    }
    let mut results = Vec::new();
    let end = (0..=u8::MAX).find_map(|place| match untrusted::result(bytes, place) {
        Ok((status, reply)) => {
            results.push((status, reply.to_vec()));
            None
        }
        Err(error) => Some(error),
    });
    results.iter().for_each(|(_, reply)| read_values(reply));
    // A message may have more results than it says, which are not looked at.
    if matches!(end, Some(DecodeError::Invalid { what: "number of results" })) {
        let tag = untrusted::tag(bytes).expect("a message that has results");
        assert!(bytes.starts_with(&untrusted::replies(tag, &results)), "there is one encoding");
    }
}

/// Values of any type are decoded or refused, and encoded as they were.
fn read_values(bytes: &[u8]) {
    fn read<'a, T: Decode<'a> + Encode>(bytes: &'a [u8]) {
        let mut reader = Reader::new(bytes);
        if let Ok(value) = T::decode(&mut reader) {
            let mut again = Vec::new();
            value.encode(&mut again);
            assert!(bytes.starts_with(&again), "there is one encoding of a value");
            assert_eq!(reader.finish().is_ok(), bytes.len() == again.len());
        }
    }
    read::<(u8, (u16, i64), bool)>(bytes);
    read::<(&[u8], &str)>(bytes);
    read::<(Option<u32>, Option<&str>)>(bytes);
    read::<([u8; 3], u128)>(bytes);
    read::<()>(bytes);
}

/// The beginning of a region's file.
pub(crate) fn superblock(bytes: &[u8]) {
    open_region(bytes);
    // Believed, whatever it says of capacity, allocation and roots.
    const CHECKED: [usize; 4] = [0, 1, 2, 5];
    let mut sealed = bytes.to_vec();
    sealed.resize(sealed.len().max(SUPERBLOCK), 0);
    static MODEL: OnceLock<Vec<u8>> = OnceLock::new();
    let model = MODEL.get_or_init(|| superblock_of(1 << 20));
    for word in [0, 1, 5] {
        sealed[8 * word..8 * word + 8].copy_from_slice(&model[8 * word..8 * word + 8]);
    }
    let checked: Vec<u8> = CHECKED.iter().flat_map(|word| sealed[8 * word..8 * word + 8].to_vec()).collect();
    let checksum = xxh3_64(&checked) as u32;
    sealed[24..32].copy_from_slice(&u64::from(checksum).to_le_bytes());
    open_region(&sealed);
}

const SUPERBLOCK: usize = 256;
/// Where it says how much is allocated.
const ALLOCATED: u64 = 32;

/// What a new region begins with.
pub(crate) fn superblock_of(capacity: u64) -> Vec<u8> {
    let region = Region::create(NoHtm, file_of(&[]), capacity).expect("a region");
    let words = region.words(Offset::new(0), SUPERBLOCK / 8).expect("the superblock");
    words.iter().flat_map(|word| NoHtm.load(word).to_le_bytes()).collect()
}

/// A file without a name, which is this thread's: nothing else is read of it any more.
fn file_of(bytes: &[u8]) -> File {
    thread_local!(static FILE: File = nameless());
    let file = FILE.with(File::try_clone).expect("a handle");
    file.set_len(0).expect("no bytes");
    file.write_all_at(bytes, 0).expect("space");
    file
}

fn nameless() -> File {
    let memory = Some(Path::new("/dev/shm")).filter(|path| path.is_dir());
    let directory = memory.map_or_else(env::temp_dir, PathBuf::from);
    let path = directory.join(format!("drtm-fuzz-{}-{:?}", std::process::id(), std::thread::current().id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path).expect("a file");
    fs::remove_file(path).expect("its name");
    file
}

fn open_region(bytes: &[u8]) {
    let file = file_of(bytes);
    let size = || file.metadata().expect("a size").len();
    let Ok(region) = Region::open(NoHtm, file.try_clone().expect("a handle")) else { return };
    let check = |region: &Region<NoHtm>| {
        for at in [0, 8, 248, 256, bytes.len() as u64, region.allocated(), region.capacity(), u64::MAX - 7] {
            for count in [1, 32, 1 << 20] {
                if let Ok(words) = region.words(Offset::new(at & ((1 << 48) - 1)), count) {
                    let end = (at & ((1 << 48) - 1)) + 8 * count as u64;
                    assert!(end <= size() && end <= region.capacity(), "{at} and {count} words");
                    NoHtm.load(&words[0]);
                    NoHtm.load(&words[count - 1]);
                }
            }
        }
        assert!((0..=ROOTS).all(|root| region.root(root).is_some() == (root < ROOTS)));
    };
    check(&region);
    // The file grows with a region: not to a terabyte here.
    if region.capacity() > 1 << 20 {
        return;
    }
    // Another process may damage what is allocated later, too.
    let first = bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
    for allocated in [region.allocated(), 0, 257, region.capacity(), region.capacity() + 8, u64::MAX, first] {
        NoHtm.store(&region.words(Offset::new(ALLOCATED), 1).expect("the superblock")[0], allocated);
        if let Ok(at) = region.extend(64, 64) {
            assert!(at.bytes() >= allocated.max(SUPERBLOCK as u64) && at.bytes() + 64 <= region.capacity());
            NoHtm.store(&region.words(at, 8).expect("it was allocated")[7], 1);
        }
        check(&region);
    }
}
