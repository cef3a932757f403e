//! Each call to the disk fails in turn, while the machine continues. What a failing device may have
//! done is not known, so it poisons the log; a full disk does not, except in a sync.

use drtm_testing::rounds;
use drtm_txn::{
    Error, LogError,
    durability::storage::{Fault, Image},
};

use super::{Rows, Tables, open};

/// Runs with a fault at a call. Returns whether anything failed.
fn check(seed: u64, call: u64, fault: Fault) -> bool {
    let disk = Image::default();
    disk.fail_at(call, fault);
    let mut possible = vec![Rows::none()];
    let mut has_failed = false;
    match open(&disk) {
        Err(Error::Log(LogError::Io { .. })) => has_failed = true,
        Err(error) => panic!("{error}"),
        Ok(db) => match Tables::of(&db) {
            Err(Error::OutcomeUnknown { .. } | Error::Poisoned { .. }) => has_failed = true,
            Err(error) if is_full(&error) => assert_eq!(fault, Fault::NoSpace),
            Err(error) => panic!("{error}"),
            Ok(tables) => {
                let mut rows = Rows::none();
                for number in 0..10 {
                    let before = rows.clone();
                    match tables.run(seed * 100 + number, &mut rows) {
                        Ok(()) if has_failed && before != rows => panic!("committed to a log that has failed"),
                        // A transaction without changes logs nothing.
                        Ok(()) => possible = if has_failed { possible } else { vec![rows.clone()] },
                        Err(Error::NotYetDurable { full: Some(_), .. }) => {
                            assert!(fault == Fault::NoSpace && !has_failed);
                            possible.push(rows.clone());
                        }
                        Err(Error::DiskFull { .. }) => {
                            assert!(fault == Fault::NoSpace && !has_failed);
                            rows = before;
                        }
                        Err(Error::OutcomeUnknown { .. }) => {
                            assert!(!has_failed);
                            has_failed = true;
                            possible = vec![before, rows.clone()];
                            let kept = tables.db.snapshot().and_then(|tx| tx.get(tables.pairs, 0));
                            assert_eq!(kept.expect("snapshots read memory"), rows.pairs[0]);
                        }
                        // A flush may have failed behind a commit that it had made durable.
                        Err(Error::Poisoned { .. }) => {
                            has_failed = true;
                            rows = before;
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        },
    }
    let mut random = fastrand::Rng::with_seed(seed + call);
    for disk in [disk.after_kill(), disk.after_crash(&mut |most| random.u64(0..most))] {
        let db = open(&disk).expect("the disk has no fault any more");
        let rows = Tables::of(&db).and_then(|tables| tables.rows()).expect("it can be read");
        assert!(possible.contains(&rows), "seed {seed}, call {call}, {fault:?}: {rows:?}\nis none of {possible:?}");
    }
    has_failed
}

fn is_full(error: &Error) -> bool {
    matches!(error, Error::DiskFull { .. } | Error::NotYetDurable { full: Some(_), .. })
}

#[test]
fn a_call_that_fails_poisons_the_log_and_loses_nothing_that_was_acknowledged() {
    for seed in 0..rounds(3) {
        let disk = Image::default();
        let db = open(&disk).expect("a database");
        let tables = Tables::of(&db).expect("tables");
        let mut rows = Rows::none();
        (0..10).for_each(|number| tables.run(seed * 100 + number, &mut rows).expect("there is no fault"));
        let calls = disk.calls();
        let failed = |fault| (0..calls).filter(|call| check(seed, *call, fault)).count() as u64;
        let [device, full] = [Fault::Device, Fault::NoSpace].map(failed);
        assert!(device > calls / 2 && full < device, "{device} and {full} of {calls}");
        for call in 0..calls {
            assert!(!check(seed, call, Fault::Short), "what is written in two parts is written");
        }
    }
}
