//! Holder names in locks.

use std::collections::HashSet;

use drtm_htm::NoHtm;
use drtm_kv::{Acquire, Current, KvTable, Locking, NoValue, Store};

/// Workers are created and dropped, and no two live workers have the same name.
#[test]
fn no_two_live_workers_have_one_name() {
    let store = Store::in_memory(NoHtm, 16 << 20).expect("memory");
    let mut random = fastrand::Rng::with_seed(1);
    let mut alive = Vec::new();
    for _ in 0..2_000 {
        if random.bool() || alive.is_empty() {
            alive.push(store.worker().expect("a worker"));
        } else {
            drop(alive.swap_remove(random.usize(0..alive.len())));
        }
        // The slots of a worker have distinct names, too.
        let names = alive.iter().flat_map(|worker| [0, 255].map(|slot| worker.holder().in_slot(slot)));
        let distinct: HashSet<_> = names.map(|holder| (holder.worker(), holder.slot())).collect();
        assert_eq!(distinct.len(), 2 * alive.len());
    }
}

/// A stalled holder keeps its lock, however often other workers try, and whatever happens to memory
/// meanwhile. A worker that is never dropped keeps its number, so that its lock is not mistaken for
/// another's.
#[test]
fn a_lock_is_kept_by_a_holder_that_is_stalled() {
    let store = Store::in_memory(NoHtm, 16 << 20).expect("memory");
    let tree = store.tree().expect("memory");
    let mut worker = store.worker().expect("a worker");
    tree.insert(&mut worker, 1, &[1; 8]).expect("room");
    let seen = tree.read(1, Current, &mut NoValue).expect("sound").expect("it is there");
    let stalled = store.worker().expect("a worker");
    let holder = stalled.holder();
    assert!(matches!(store.records().lock(seen.at, holder).expect("in memory"), Locking::Taken { .. }));
    std::mem::forget(stalled);
    // More often than the former limit of waiting for a record under construction.
    for _ in 0..(1 << 20) + 10 {
        let locked = store.records().lock(seen.at, worker.holder()).expect("in memory");
        assert!(matches!(locked, Locking::Held(Acquire::Locked(by)) if by == holder), "{locked:?}");
    }
    for _ in 0..100 {
        tree.insert(&mut worker, 2, &[2; 8]).expect("room").expect("it is new");
        tree.remove(&mut worker, 2).expect("sound").expect("it is there");
        let other = store.worker().expect("a worker");
        let locked = store.records().lock(seen.at, other.holder()).expect("in memory");
        assert!(matches!(locked, Locking::Held(Acquire::Locked(by)) if by == holder), "{locked:?}");
    }
    store.records().unlock_if_held(seen.at, worker.holder());
    assert!(matches!(store.records().lock(seen.at, worker.holder()).expect("in memory"), Locking::Held(_)));
}
