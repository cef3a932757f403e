//! Verbs beside emulated regions: what a NIC does to memory aborts the regions that it conflicts
//! with.

use drtm_htm::{Access, Cause, Emulated, Htm, Outcome, Policy};
use drtm_rdma::{LocalConfig, Phase, block_on};

use crate::support::{Emulation, rounds, with, word};

const ONCE: Policy = Policy::DBX.divided_by(u32::MAX);

/// A region reads a word, a verb of another thread comes between, and the region reads and writes
/// once more.
fn region_meets(config: LocalConfig, verb: impl Fn(&Emulation) + Sync) -> Outcome<u64> {
    let world = Emulation::new(2, config);
    let mut worker = Htm::new(world.region(1).engine().clone()).worker();
    let words = world.region(1).words(word(1, 0).offset, 16).expect("words");
    worker.attempt(ONCE, |tx| {
        let value = tx.load(&words[0])?;
        std::thread::scope(|scope| scope.spawn(|| verb(&world)).join().expect("no panic"));
        tx.store(&words[8], 1)?;
        Ok(value)
    })
}

#[test]
fn a_verb_that_writes_aborts_the_region_that_has_read() {
    for config in [LocalConfig::perfect(), LocalConfig::harsh(5)] {
        let write = |world: &Emulation| with(&world.endpoint(0), async |verbs| verbs.write(word(1, 0), &[1; 4]).await);
        assert_eq!(region_meets(config.clone(), write), Outcome::Fallback(Cause::Conflict));
        let add = |world: &Emulation| {
            with(&world.endpoint(0), async |verbs| verbs.fetch_add(word(1, 0), 1).await);
        };
        assert_eq!(region_meets(config.clone(), add), Outcome::Fallback(Cause::Conflict));
        let swap = |world: &Emulation| {
            with(&world.endpoint(0), async |verbs| verbs.compare_swap(word(1, 0), 0, 1).await);
        };
        assert_eq!(region_meets(config, swap), Outcome::Fallback(Cause::Conflict));
    }
}

#[test]
fn a_verb_that_reads_or_goes_elsewhere_does_not() {
    for config in [LocalConfig::perfect(), LocalConfig::harsh(5)] {
        let read = |world: &Emulation| {
            with(&world.endpoint(0), async |verbs| verbs.read(word(1, 0), 4).await.map(drop));
        };
        assert_eq!(region_meets(config.clone(), read), Outcome::Committed(0));
        let elsewhere =
            |world: &Emulation| with(&world.endpoint(0), async |verbs| verbs.write(word(1, 64), &[1; 4]).await);
        assert_eq!(region_meets(config, elsewhere), Outcome::Committed(0));
    }
}

/// Regions of the owner and verbs of a peer change the same counter: nothing is lost, at the global
/// level.
#[test]
fn regions_and_global_atomics_lose_nothing() {
    let world = Emulation::new(2, LocalConfig::perfect());
    let count = rounds(2_000);
    let at = word(1, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let htm: Htm<Emulated> = Htm::new(world.region(1).engine().clone());
            let mut worker = htm.worker();
            let words = world.region(1).words(at.offset, 1).expect("words");
            for _ in 0..count {
                let increment = worker.attempt(Policy::DBX, |tx| {
                    let value = tx.load(&words[0])?;
                    tx.store(&words[0], value + 1)
                });
                if increment.committed().is_none() {
                    world.cpu_add(at, 1);
                }
            }
        });
        let endpoint = world.endpoint(0);
        let verbs = endpoint.during(Phase::Other);
        block_on(&endpoint, async {
            for _ in 0..count {
                verbs.fetch_add(at, 1).await.expect("the word is there");
            }
        });
    });
    assert_eq!(world.load(at), 2 * count);
}
