//! Several threads at once, and something that must hold all the time.

use std::{
    sync::atomic::{
        AtomicBool,
        Ordering::{Acquire, Release},
    },
    thread,
};

use drtm_htm::{Engine, NoHtm};
use drtm_rdma::{LocalConfig, NodeId, Phase, Port, Remote, VerbError, Verbs, run};

use crate::support::{Plain, Sets, rounds, word};

const THREADS: u16 = 3;
const COROUTINES: usize = 4;

fn configs() -> [LocalConfig; 3] {
    [LocalConfig::perfect(), LocalConfig::perfect().atomicity(drtm_rdma::Atomicity::Hca), LocalConfig::harsh(11)]
}

/// Fewer rounds where every operation takes many polls.
fn rounds_for(config: &LocalConfig, base: u64) -> u64 {
    let perfect = config.capabilities().ordering == drtm_rdma::Order::Posted;
    rounds(if perfect { base } else { base / 10 })
}

#[test]
fn remote_additions_are_all_counted() {
    for config in configs() {
        let count = rounds_for(&config, 5_000);
        let world = Plain::new(THREADS, config);
        thread::scope(|scope| {
            for node in 0..THREADS {
                let world = &world;
                scope.spawn(move || {
                    let endpoint = world.endpoint(node);
                    let verbs = endpoint.during(Phase::Other);
                    run(&endpoint, COROUTINES, |_| async move {
                        for _ in 0..count {
                            verbs.fetch_add(word(0, 0), 1).await.expect("the word is there");
                        }
                    });
                });
            }
        });
        assert_eq!(world.load(word(0, 0)), u64::from(THREADS) * COROUTINES as u64 * count);
    }
}

/// A lock that is taken by compare-and-swap and given back by a write, and two values on two lines
/// that it protects.
struct Guarded {
    lock: Remote,
    values: [Remote; 2],
}

impl Guarded {
    /// Adds to both under the lock, in the least number of round trips.
    async fn add<P: Port>(&self, verbs: Verbs<'_, P>, me: u64) -> Result<(), VerbError> {
        loop {
            let mut batch = verbs.batch();
            let found = batch.compare_swap(self.lock, 0, me)?;
            let values = [batch.read(self.values[0], 1)?, batch.read(self.values[1], 1)?];
            batch.ring();
            let found = found.await?;
            let [one, other] = values;
            let (one, other) = (one.await?, other.await?);
            if found != 0 {
                continue;
            }
            assert_eq!(one[0], other[0], "both were written under the lock");
            let mut batch = verbs.batch();
            batch.write(self.values[0], &[one[0] + 1])?.unsignaled();
            batch.write(self.values[1], &[other[0] + 1])?.unsignaled();
            // Writes are not passed, so the lock is given back after both.
            let unlocked = batch.write(self.lock, &[0])?;
            batch.ring();
            return unlocked.await;
        }
    }
}

#[test]
fn a_lock_by_verbs_protects_two_words() {
    for config in configs() {
        let count = rounds_for(&config, 1_000);
        let world = Plain::new(THREADS, config);
        let guarded = Guarded { lock: word(0, 0), values: [word(0, 8), word(0, 16)] };
        thread::scope(|scope| {
            for node in 0..THREADS {
                let (world, guarded) = (&world, &guarded);
                scope.spawn(move || {
                    let endpoint = world.endpoint(node);
                    let verbs = endpoint.during(Phase::Other);
                    let outcomes = run(&endpoint, COROUTINES, |index| async move {
                        let me = u64::from(node) << 32 | (index as u64 + 1);
                        for _ in 0..count {
                            guarded.add(verbs, me).await?;
                        }
                        Ok::<_, VerbError>(())
                    });
                    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
                });
            }
        });
        let total = u64::from(THREADS) * COROUTINES as u64 * count;
        assert_eq!(guarded.values.map(|value| world.load(value)), [total; 2]);
        assert_eq!(world.load(guarded.lock), 0);
    }
}

/// An owner writes lines whose words are all the same, under a version in each line that is odd
/// meanwhile. Readers take what the versions say is whole, and it must be.
fn read_under_versions(config: LocalConfig, lines: u64, count: u64) {
    let world = Plain::new(2, config);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let words = world.region(1).words(word(1, 0).offset, 8 * lines as usize).expect("words");
            let mut version = 0;
            while !over.load(Acquire) {
                for line in words.chunks(8) {
                    NoHtm.store(&line[0], version + 1);
                }
                for line in words.chunks(8) {
                    for word in &line[1..] {
                        NoHtm.store(word, version + 2);
                    }
                }
                for line in words.chunks(8) {
                    NoHtm.store(&line[0], version + 2);
                }
                version += 2;
            }
        });
        let _over = Sets(&over);
        let endpoint = world.endpoint(0);
        let verbs = endpoint.during(Phase::Other);
        let whole: Vec<u64> = run(&endpoint, COROUTINES, |_| async {
            let mut whole = 0;
            for _ in 0..count {
                let words = verbs.read(word(1, 0), 8 * lines as usize).await.expect("the words are there");
                let version = words[0];
                if version % 2 == 0 && words.chunks(8).all(|line| line[0] == version) {
                    for line in words.chunks(8) {
                        assert_eq!(line, [version; 8], "torn, and not detected");
                    }
                    whole += 1;
                }
            }
            whole
        });
        println!("{} of {} reads were whole", whole.iter().sum::<u64>(), count * COROUTINES as u64);
    });
}

#[test]
fn versions_in_lines_detect_every_torn_read() {
    let [perfect, _, harsh] = configs();
    read_under_versions(perfect.clone(), 1, rounds(500_000));
    read_under_versions(perfect, 4, rounds(20_000));
    read_under_versions(harsh, 4, rounds(1_000));
}

/// Threads that call each other in a ring while each also serves.
#[test]
fn calls_around_a_ring() {
    for config in configs() {
        let count = rounds_for(&config, 1_000);
        let world = Plain::new(THREADS, config);
        let done: [AtomicBool; THREADS as usize] = Default::default();
        thread::scope(|scope| {
            for node in 0..THREADS {
                let (world, done) = (&world, &done);
                scope.spawn(move || {
                    let endpoint = world.endpoint(node);
                    let verbs = endpoint.during(Phase::Other);
                    let next = NodeId((node + 1) % THREADS);
                    let mut executor = drtm_rdma::Executor::new(&endpoint);
                    executor.serve(verbs.serve(|_, request, reply| reply.extend_from_slice(request)));
                    executor.spawn(async move {
                        for number in 0..count {
                            let reply = verbs.call(next, &number.to_le_bytes()).await.expect("a reply");
                            assert_eq!(reply[..], number.to_le_bytes());
                        }
                        done[usize::from(node)].store(true, Release);
                    });
                    executor.spawn(endpoint.until(|| done.iter().all(|done| done.load(Acquire))));
                    executor.run();
                });
            }
        });
    }
}
