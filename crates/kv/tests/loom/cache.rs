//! Model checking of a cache's set: every interleaving, and every value that weak memory lets a
//! load return, of small cases.
//!
//! The code is the production code; only the words are loom's, and a set has two entries of two
//! words.

use std::sync::Arc;

use drtm_kv::Cache;
use drtm_rdma::{NodeId, Offset, RegionId, Remote};
use loom::thread;

use crate::explore::model;

type Tiny = Cache<2>;

/// A stamp, two keys, and two entries of two words.
const SET_BYTES: u64 = 8 * (1 + 2 + 2 * 2);

fn place(number: u64) -> Remote {
    Remote { node: NodeId(0), region: RegionId(0), offset: Offset::new(64 * number) }
}

fn put(cache: &Tiny, number: u64, time: u64) {
    cache.put(place(number), &[10 * number + time; 2]);
}

/// Returns the time of a place's cached content. Asserts that it is not torn, and is of this place.
fn get(cache: &Tiny, number: u64) -> Option<u64> {
    let [one, two] = cache.get(place(number))?;
    assert_eq!(one, two, "half of two entries");
    assert_eq!(one / 10, number, "another place's");
    Some(one % 10)
}

/// Explores all interleavings of `first` and `second` on a cache of one set that has places 1 and
/// 2, then runs `check`.
///
/// Each is once on the model's first thread, because loom's exploration depends on it.
fn explore(
    first: impl Fn(&Tiny) -> Option<u64> + Copy + Send + Sync + 'static,
    second: impl Fn(&Tiny) -> Option<u64> + Copy + Send + Sync + 'static,
    check: impl Fn(&Tiny, Option<u64>, Option<u64>) + Copy + Send + Sync + 'static,
) {
    once(first, second, check);
    once(second, first, move |cache, two, one| check(cache, one, two));
}

/// Like [`explore`], with the second on the spawned thread.
fn once(
    first: impl Fn(&Tiny) -> Option<u64> + Copy + Send + Sync + 'static,
    second: impl Fn(&Tiny) -> Option<u64> + Copy + Send + Sync + 'static,
    check: impl Fn(&Tiny, Option<u64>, Option<u64>) + Copy + Send + Sync + 'static,
) {
    model(3).check(move || {
        let cache = Arc::new(Tiny::new(SET_BYTES).expect("a set"));
        assert_eq!(cache.capacity(), 2, "one set");
        put(&cache, 1, 0);
        put(&cache, 2, 0);
        let other = Arc::clone(&cache);
        let thread = thread::spawn(move || second(&other));
        let one = first(&cache);
        check(&cache, one, thread.join().expect("no panic"));
    });
}

#[test]
fn a_reader_sees_one_entry_or_none_while_it_is_replaced() {
    explore(
        |cache| get(cache, 1),
        |cache| {
            put(cache, 3, 1);
            None
        },
        |cache, read, _| {
            assert!(matches!(read, None | Some(0)));
            assert!(get(cache, 3).is_some() || read.is_some(), "what has no hits makes room");
        },
    );
}

#[test]
fn a_reader_sees_one_entry_or_none_while_it_is_refreshed() {
    explore(
        |cache| get(cache, 1),
        |cache| {
            put(cache, 1, 1);
            None
        },
        |cache, read, _| {
            assert!(matches!(read, None | Some(0 | 1)));
            assert!(get(cache, 1).is_some());
        },
    );
}

#[test]
fn a_reader_is_not_deceived_by_an_entry_that_goes_and_comes_again() {
    explore(
        |cache| get(cache, 1),
        |cache| {
            put(cache, 3, 0);
            put(cache, 1, 1);
            None
        },
        |cache, read, _| {
            assert!(matches!(read, None | Some(0 | 1)));
            assert!(matches!(get(cache, 1), None | Some(0 | 1)));
        },
    );
}

#[test]
fn two_writers_leave_whole_entries_behind() {
    explore(
        |cache| {
            put(cache, 1, 1);
            get(cache, 1)
        },
        |cache| {
            put(cache, 3, 1);
            get(cache, 3)
        },
        |cache, _, _| {
            let kept = [1, 2, 3].map(|number| get(cache, number).is_some());
            assert_eq!(
                kept.into_iter().filter(|kept| *kept).count(),
                2,
                "no place is there twice, and none is lost: {kept:?}"
            );
        },
    );
}

#[test]
fn two_writers_of_one_place_do_not_put_it_there_twice() {
    once(
        |cache| {
            put(cache, 3, 1);
            None
        },
        |cache| {
            put(cache, 3, 2);
            None
        },
        |cache, _, _| {
            assert!(matches!(get(cache, 3), Some(1 | 2)));
            assert!(get(cache, 1).is_some() != get(cache, 2).is_some(), "it is there twice");
        },
    );
}
