//! The emulation's limits lie where its cache, its tracker and its timer put them.

use std::time::Duration;

use drtm_htm::{Profile, Stats};
use drtm_paper::htm::{Load, Machine, Order, Setup, Testbed, abort_rate};

const K: usize = 1 << 10;
const M: usize = 1 << 20;
const LINE: usize = 64;

fn setup(profile: Profile) -> Setup {
    Setup::on(Machine::Emulated(profile))
}

fn run(setup: Setup, load: Load, attempts: u64) -> Stats {
    let stats =
        Testbed::new(setup, &[load]).and_then(|testbed| testbed.run(load, attempts)).expect("an emulation always runs");
    assert_eq!(stats.attempts(), attempts * setup.threads as u64, "every region begun is counted once");
    assert_eq!(stats.aborts(), stats.capacity + stats.system, "threads that share nothing do not conflict");
    stats
}

#[test]
fn sequential_writes_end_with_the_cache() {
    for (profile, fits) in [
        (Profile::L1_32K_8, 32 * K),
        (Profile::L1_48K_12, 48 * K),
        (Profile::L1_32K_8.hyperthreaded(), 16 * K),
        (Profile::L1_48K_12.hyperthreaded(), 24 * K),
    ] {
        let setup = setup(profile);
        for bytes in [K, fits - K, fits] {
            assert_eq!(run(setup, Load::write(bytes), 200).capacity, 0, "{profile:?}, {bytes} bytes");
        }
        for bytes in [fits + LINE, 2 * fits] {
            assert_eq!(run(setup, Load::write(bytes), 200).commits, 0, "{profile:?}, {bytes} bytes");
        }
    }
}

#[test]
fn random_writes_end_where_a_set_has_bad_luck() {
    let at_random = Setup { order: Order::Random, seed: 1, ..setup(Profile::L1_32K_8) };
    let sizes = [768, 144 * LINE, 228 * LINE, 512 * LINE].map(Load::write);
    let testbed = Testbed::new(at_random, &sizes).expect("64 MB");
    let overflows = sizes.map(|load| {
        let stats = testbed.run(load, 4000).expect("runs");
        stats.capacity as f64 / stats.attempts() as f64
    });
    assert_eq!(overflows[0], 0.0, "12 lines");
    assert!((0.015..0.05).contains(&overflows[1]), "144 lines: {}", overflows[1]);
    assert!((0.42..0.58).contains(&overflows[2]), "228 lines: {}", overflows[2]);
    assert!(overflows[3] > 0.999, "as many lines as the cache has: {}", overflows[3]);
}

#[test]
fn reads_end_with_the_tracker_and_never_before() {
    for (profile, fits) in [(Profile::L1_32K_8, 4 * M), (Profile::L1_32K_8.hyperthreaded(), 2 * M)] {
        for order in [Order::Sequential, Order::Random] {
            let setup = Setup { order, ..setup(profile) };
            for bytes in [64 * K, fits] {
                assert_eq!(run(setup, Load::read(bytes), 12).capacity, 0, "{order:?}, {bytes} bytes");
            }
            assert_eq!(run(setup, Load::read(fits + LINE), 12).commits, 0, "{order:?}");
        }
    }
}

#[test]
fn reads_before_writes_tolerate_whatever_writes_before_reads_do_and_more() {
    let setup = setup(Profile::L1_32K_8);
    let overflows = |load| run(setup, load, 6).capacity > 0;
    for written in [4 * K, 16 * K, 28 * K, 32 * K] {
        for read in [0, 4 * K, 16 * K, 64 * K, M, 3 * M] {
            let (ahead, behind) = (Load::read_then_write(read, written), Load::write_then_read(written, read));
            assert!(!overflows(ahead), "{read} bytes read ahead of {written}");
            assert_eq!(overflows(behind), read + written > 32 * K, "{read} bytes read behind {written}");
        }
    }
    assert!(overflows(Load::read_then_write(3 * M, 33 * K)));
}

#[test]
fn the_longer_a_region_the_likelier_its_end_and_from_the_period_on_it_is_certain() {
    let setup = setup(Profile::L1_32K_8);
    let rates: Vec<f64> = [100, 500, 1000, 2000, 3000, 3990, 4000, 6000]
        .map(|us| abort_rate(&run(setup, Load::spin(Duration::from_micros(us)), 1000)))
        .to_vec();
    assert!(rates.windows(2).all(|pair| pair[0] <= pair[1] + 0.002), "{rates:?}");
    assert!(rates[0] > 0.0 && rates[..6].iter().all(|&rate| rate <= 0.502), "{rates:?}");
    assert_eq!(rates[6..], [1.0, 1.0]);
}

#[test]
fn threads_change_nothing_but_the_counts_and_the_seed_decides_everything() {
    let at_random = Setup { order: Order::Random, threads: 3, seed: 7, ..setup(Profile::L1_32K_8) };
    let load = Load::read_then_write(16 * K, 9 * K);
    let once = run(at_random, load, 300);
    assert_eq!(run(at_random, load, 300), once);
    assert_ne!(run(Setup { seed: 8, ..at_random }, load, 300), once);
}

#[test]
fn no_threads_run_no_regions() {
    let none = Setup { threads: 0, ..setup(Profile::L1_32K_8) };
    assert_eq!(run(none, Load::write(K), 5), Stats::default());
}
