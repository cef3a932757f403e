//! Regions: bounds, limits, sharing between mappings, and everything that a file can have wrong
//! with it.

use std::{fs::File, os::unix::fs::FileExt, thread};

use drtm_htm::{Emulated, Engine, EngineError, NoHtm, Word};
use drtm_rdma::{Offset, OutOfBounds, ROOTS, Region, RegionError, read_bytes, write_bytes};
use proptest::prelude::*;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

const MIB: u64 = 1 << 20;

/// An empty file in memory.
fn file() -> File {
    memfd_create("drtm-test", MemfdFlags::ALLOW_SEALING).expect("memory files").into()
}

fn again(file: &File) -> File {
    file.try_clone().expect("another handle")
}

fn shared(capacity: u64) -> (Region<NoHtm>, File) {
    let file = file();
    (Region::create(NoHtm, again(&file), capacity).expect("a region"), file)
}

fn opening(file: &File) -> RegionError {
    Region::open(NoHtm, again(file)).expect_err("must be refused")
}

fn address(word: &Word) -> usize {
    std::ptr::from_ref(word).addr()
}

#[test]
fn what_is_allocated_is_zero_and_apart_and_aligned() {
    let region = Region::anonymous(NoHtm, 64 * MIB).expect("a region");
    let mut end = 0;
    for (bytes, align) in [(8, 8), (1, 64), (128, 128), (4096, 4096), (24, 8), (3 * MIB, 2 * MIB)] {
        let at = region.extend(bytes, align).expect("room");
        assert!(at.bytes() >= end && at.bytes().is_multiple_of(align), "{at}");
        end = at.bytes() + bytes;
        let words = region.words(at, bytes.div_ceil(8) as usize).expect("in bounds");
        assert_eq!(address(&words[0]) as u64 % align, 0, "aligned in memory as in the region");
        assert!(words.iter().all(|word| region.engine().swap(word, 7) == 0));
    }
}

#[test]
fn nothing_beyond_what_is_allocated_can_be_reached() {
    let region = Region::anonymous(NoHtm, MIB).expect("a region");
    let at = region.extend(64, 64).expect("room");
    assert!(region.words(at, 8).is_ok() && region.words(at + 64, 0).is_ok());
    assert_eq!(region.words(at, 9).unwrap_err(), OutOfBounds { at, words: 9 });
    for offset in [at.bytes() + 64, MIB, MIB - 8, u64::MAX - 7, u64::MAX, 1 << 63, at.bytes() + 1, at.bytes() + 4] {
        assert!(region.words(Offset::new(offset), 1).is_err(), "{offset:#x}");
    }
    assert!(region.words(at, usize::MAX).is_err() && region.words(Offset::new(u64::MAX), usize::MAX).is_err());
    assert!(region.array::<8>(at).is_ok() && region.array::<9>(at).is_err());
    assert!(region.root(ROOTS - 1).is_some() && region.root(ROOTS).is_none());
}

#[test]
fn a_full_region_says_so_and_goes_on() {
    let region = Region::anonymous(NoHtm, 4096).expect("a region");
    let left = region.capacity() - region.allocated();
    assert!(matches!(region.extend(left + 1, 8), Err(RegionError::Full { asked, left: found, capacity: 4096 })
        if asked == left + 1 && found == left));
    assert!(matches!(region.extend(u64::MAX, 8), Err(RegionError::Full { .. })));
    let at = region.extend(left, 8).expect("exactly what is left");
    assert!(matches!(region.extend(1, 8), Err(RegionError::Full { left: 0, .. })));
    region.engine().store(&region.words(at, 1).expect("in bounds")[0], 1);
    for capacity in [0, 1, 1 << 49, u64::MAX] {
        let refused = Region::anonymous(NoHtm, capacity).expect_err("no region's capacity");
        assert!(matches!(refused, RegionError::Capacity { .. }), "{refused}");
    }
}

#[test]
fn threads_extend_at_once_without_overlap() {
    let region = Region::anonymous(NoHtm, 8 * MIB).expect("a region");
    let mut places: Vec<Offset> = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..3).map(|_| scope.spawn(|| (0..500).map(|_| region.extend(40, 8).expect("room")).collect())).collect();
        threads.into_iter().flat_map(|thread| -> Vec<Offset> { thread.join().expect("no panic") }).collect()
    });
    places.sort_unstable();
    assert!(places.windows(2).all(|pair| pair[1].bytes() - pair[0].bytes() >= 40));
}

#[test]
fn two_mappings_are_one_memory_at_two_addresses() {
    let (one, file) = shared(64 * MIB);
    let two = Region::open(NoHtm, again(&file)).expect("a region");
    assert_eq!(two.capacity(), one.capacity());
    // Allocated after the other had opened: it finds out by itself.
    let at = one.extend(5 * MIB, 64).expect("room");
    let last = at + (5 * MIB - 8);
    let here = &one.words(last, 1).expect("in bounds")[0];
    let there = &two.words(last, 1).expect("in bounds")[0];
    assert_ne!(address(here), address(there));
    one.engine().store(here, 42);
    assert_eq!(two.engine().fetch_add(there, 1), 42);
    assert_eq!(one.engine().load(here), 43);
    // Either may allocate, and neither gets what the other has.
    let next = two.extend(MIB, 64).expect("room");
    assert!(next.bytes() >= at.bytes() + 5 * MIB);
    assert!(one.words(next, 1).is_ok());
    assert_eq!(one.allocated(), two.allocated());
    one.engine().store(one.root(3).expect("a root"), next.bytes());
    assert_eq!(two.engine().load(two.root(3).expect("a root")), next.bytes());
}

#[test]
fn the_emulated_engine_is_refused_for_shared_memory() {
    let refused = Region::create(Emulated::default(), file(), MIB).expect_err("its tracking is this process's");
    assert!(matches!(refused, RegionError::Engine(EngineError::ForeignMemory)));
    let (_region, file) = shared(MIB);
    let refused = Region::open(Emulated::default(), file).expect_err("likewise");
    assert!(matches!(refused, RegionError::Engine(EngineError::ForeignMemory)));
    assert!(Region::anonymous(Emulated::default(), MIB).is_ok());
}

#[test]
fn files_that_are_no_regions_are_refused_by_name() {
    let (region, file) = shared(MIB);
    region.extend(1000, 8).expect("room");

    let word = |at: u64| {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, at * 8).expect("a superblock");
        u64::from_le_bytes(bytes)
    };
    let with = |at: u64, value: u64, check: &dyn Fn(RegionError)| {
        let was = word(at);
        file.write_all_at(&value.to_le_bytes(), at * 8).expect("written");
        check(opening(&file));
        file.write_all_at(&was.to_le_bytes(), at * 8).expect("written");
        assert!(Region::open(NoHtm, again(&file)).is_ok(), "as good as before");
    };
    with(0, 0x1234, &|error| assert!(matches!(error, RegionError::Magic { found: 0x1234 }), "{error}"));
    with(1, 1, &|error| assert!(matches!(error, RegionError::Format { found: 1, known: 6 }), "{error}"));
    with(5, 2, &|error| assert!(matches!(error, RegionError::Checksum { .. }), "{error}"));
    with(2, 1 << 40, &|error| assert!(matches!(error, RegionError::Checksum { .. }), "{error}"));
    with(3, 99, &|error| assert!(matches!(error, RegionError::Checksum { found: 99, .. }), "{error}"));
    with(4, 1 << 30, &|error| {
        assert!(matches!(error, RegionError::Size { promised, .. } if promised == 1 << 30), "{error}")
    });

    assert!(matches!(opening(&self::file()), RegionError::Size { found: 0, .. }));
    let noise = self::file();
    noise.write_all_at(&[0xA5; 4096], 0).expect("written");
    assert!(matches!(opening(&noise), RegionError::Magic { .. }));
    let used = Region::create(NoHtm, noise, MIB).expect_err("the file is not empty");
    assert!(matches!(used, RegionError::Size { found: 4096, promised: 0 }), "{used}");
}

#[test]
fn a_peer_that_lies_about_what_is_allocated_gets_nobody_killed() {
    let (region, file) = shared(16 * MIB);
    let other = Region::open(NoHtm, again(&file)).expect("a region");
    // More than the file holds: believed, it would be a signal.
    file.write_all_at(&(16 * MIB).to_le_bytes(), 4 * 8).expect("written");
    assert!(other.words(Offset::new(8 * MIB), 1).is_err());
    assert!(region.words(Offset::new(8 * MIB), 1).is_err());
}

#[test]
fn a_file_that_cannot_grow_is_an_error() {
    let (region, file) = shared(64 * MIB);
    fcntl_add_seals(&file, SealFlags::GROW).expect("sealed");
    let refused = (0..64).find_map(|_| region.extend(MIB, 8).err()).expect("the file is too small");
    assert!(matches!(refused, RegionError::Allocate { .. }), "{refused}");
    // What there is goes on working.
    assert!(region.words(Offset::new(320), 1).is_ok());
}

proptest! {
    #[test]
    fn no_offset_whatever_is_more_than_an_error(at: u64, count in 0..10_000usize) {
        let region = Region::anonymous(NoHtm, MIB).expect("a region");
        let end = region.extend(1000, 8).expect("room").bytes() + 1000;
        for at in [at, at % (2 * MIB), at % 2048] {
            let inside = at.is_multiple_of(8) && at.checked_add(8 * count as u64).is_some_and(|last| last <= end);
            match region.words(Offset::new(at), count) {
                Ok(words) => prop_assert!(inside && words.len() == count),
                Err(_) => prop_assert!(!inside),
            }
        }
    }

    #[test]
    fn bytes_come_back_as_they_went_in(bytes in prop::collection::vec(any::<u8>(), 0..300), noise: u64) {
        let words: Vec<Word> = (0..40).map(|_| Word::new(noise)).collect();
        write_bytes(&NoHtm, &words, &bytes);
        let mut back = vec![0xEE; bytes.len()];
        read_bytes(&NoHtm, &words, &mut back);
        prop_assert_eq!(&back, &bytes);
        // Words beyond the last one reached are left alone.
        prop_assert!(words[bytes.len().div_ceil(8)..].iter().all(|word| NoHtm.load(word) == noise));
    }
}

/// Pages that were set aside are used, and stay with the region; or it is said that there are none.
#[test]
fn a_region_in_huge_pages_has_them_or_says_that_there_are_none() {
    match Region::in_huge_pages(NoHtm, 3 << 20) {
        Ok(region) => {
            assert!(region.huge_pages());
            let at = region.extend(2 << 20, 4096).expect("room");
            let last = &region.words(at + ((2 << 20) - 8), 1).expect("a word")[0];
            NoHtm.store(last, 7);
            assert_eq!(region.discard(at, 2 << 20).expect("it is allocated"), 0);
            assert_eq!(NoHtm.load(last), 7, "it keeps its memory");
        }
        Err(error) => {
            assert!(matches!(error, RegionError::HugePages { bytes: 3_145_728, pages: 2, .. }), "{error}");
            assert!(error.to_string().contains("vm.nr_hugepages"), "{error}");
        }
    }
}

/// Returns the resident bytes of the mapping that an address is in, as the system lists it.
fn listed(address: usize) -> u64 {
    let listed = std::fs::read_to_string("/proc/self/smaps").expect("a system with /proc");
    let mut is_it = false;
    for line in listed.lines() {
        let first = line.split_whitespace().next().unwrap_or_default();
        if let Some((begin, end)) = first.split_once('-') {
            let bounds = [begin, end].map(|bound| usize::from_str_radix(bound, 16).unwrap_or_default());
            is_it = (bounds[0]..bounds[1]).contains(&address);
        } else if is_it && first == "Rss:" {
            let kib: u64 = line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number");
            return kib << 10;
        }
    }
    panic!("no mapping has {address:#x}");
}

#[test]
fn resident_pages_are_counted_as_the_system_lists_them() {
    let region = Region::anonymous(NoHtm, 256 << 20).expect("memory");
    let first = std::ptr::from_ref(&region.words(Offset::new(0), 1).expect("the superblock")[0]).addr();
    for megabytes in [1, 7, 40] {
        let at = region.extend(megabytes << 20, 4096).expect("room");
        let words = region.words(at, 1 << 16).expect("it is allocated");
        words.iter().for_each(|word| NoHtm.store(word, 1));
        let (told, listed) = (region.resident().expect("it is told"), listed(first));
        assert!(told.abs_diff(listed) <= listed / 10, "told {told}, listed {listed}");
        assert!(told >= 512 << 10, "{told}");
    }
    region.populate(100 << 20).expect("memory");
    let (told, listed) = (region.resident().expect("it is told"), listed(first));
    assert!(told >= 100 << 20 && told.abs_diff(listed) <= listed / 10, "told {told}, listed {listed}");
}
