//! Transactions that end in unusual ways, or never: by a panic in any application code, on another
//! thread, or with their thread. All others continue.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    mem,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::Pin,
    sync::{Arc, Mutex, mpsc},
    task::{Context, Poll, Waker},
    thread,
};

use drtm_testing::rounds;
use drtm_txn::{Builder, Codec, CodecError, Commit, Db, Error, IndexDef, Ordered, Pod, Sink, SinkError, TableDef, Tx};

use crate::waits::ends;

const ACCOUNTS: TableDef<u64, Pod<i64>> = TableDef::hash("accounts");
const SORTED: TableDef<u64, Pod<u64>, Ordered> = TableDef::ordered("sorted");

/// The place where the application's code fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Encode,
    Decode,
    Index,
    Sink,
}

thread_local! {
    /// Where this thread fails next, whether by a panic, and after how many calls.
    static FAILING: Cell<Option<(Step, bool, u32)>> = const { Cell::new(None) };
}

/// Panics if it is time to. Returns whether it is time to fail with an error.
fn fails(step: Step) -> bool {
    match FAILING.get() {
        Some((at, panics, 0)) if at == step => {
            FAILING.set(None);
            if panics { resume_unwind(Box::new("on purpose")) } else { true }
        }
        Some((at, panics, calls)) if at == step => {
            FAILING.set(Some((at, panics, calls - 1)));
            false
        }
        _ => false,
    }
}

/// Numbers of varying encoded length.
struct Failing;

impl Codec for Failing {
    type Value = i64;
    type Given = i64;
    type View<'b> = i64;
    const FAMILY: &'static str = "failing";

    fn encode(value: &i64, bytes: &mut Vec<u8>) -> Result<(), CodecError> {
        bytes.extend(value.to_le_bytes());
        if fails(Step::Encode) {
            return Err(CodecError::Size { found: 0, expected: 8 });
        }
        bytes.extend(std::iter::repeat_n(7, value.unsigned_abs() as usize % 90));
        Ok(())
    }

    fn decode(bytes: &[u8]) -> Result<i64, CodecError> {
        let expected = CodecError::Size { found: bytes.len(), expected: 8 };
        if fails(Step::Decode) {
            return Err(expected);
        }
        Ok(i64::from_le_bytes(*bytes.first_chunk().ok_or(expected)?))
    }

    fn view(bytes: &[u8]) -> Result<i64, CodecError> {
        Self::decode(bytes)
    }
}

const MONEY: TableDef<u64, Failing> = TableDef::hash("money");
const SAVINGS: TableDef<u64, Failing, Ordered> = TableDef::ordered("savings");
const BY_AMOUNT: IndexDef<u64, Failing, (i64, u64)> = IndexDef::unique("savings by amount", |key, amount| {
    // An index function must be deterministic, so it fails by panics only.
    fails(Step::Index);
    Some((amount, *key))
});

#[derive(Debug)]
struct FailingSink;

impl Sink for FailingSink {
    fn commit(&self, _: &Commit<'_>) -> Result<(), SinkError> {
        if fails(Step::Sink) { Err("on purpose".into()) } else { Ok(()) }
    }
}

/// Threads pay each other, and fail at every step, by errors and by panics. No money is lost, and
/// all threads end.
#[test]
fn failures_at_every_step_leave_others_live() {
    const ROWS: u64 = 8;
    ends(|| {
        let db = Builder::new().memory(64 << 20).sink(Arc::new(FailingSink)).build().expect("memory");
        let (money, savings) = (db.table(MONEY).expect("memory"), db.table(SAVINGS).expect("memory"));
        let _by_amount = db.index(savings, BY_AMOUNT).expect("memory");
        let filled = db.transact(|tx| {
            (0..ROWS).try_for_each(|key| tx.put(money, key, &100).and_then(|()| tx.put(savings, key, &100)))
        });
        filled.expect("memory");
        thread::scope(|scope| {
            for number in 0..3 {
                let db = &db;
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(number);
                    for _ in 0..rounds(1_000) {
                        let (from, to, amount) = (random.u64(..ROWS), random.u64(..ROWS), random.i64(1..120));
                        let step = random.choice([Step::Encode, Step::Decode, Step::Index, Step::Sink]);
                        FAILING.set(step.map(|step| (step, random.bool(), random.u32(..4))));
                        let pay = |tx: &mut Tx<'_>| {
                            tx.update(money, from, |money| *money -= amount)?;
                            tx.update(savings, to, |money| *money += amount)?;
                            let mut rows = tx.range_mut(savings, ..)?;
                            rows.update_each(|_, money| {
                                *money += 1;
                            })?;
                            tx.update(money, to, |money| *money -= ROWS as i64).map(drop)
                        };
                        let ended = catch_unwind(AssertUnwindSafe(|| match random.u8(..4) {
                            0 => db.begin().and_then(|mut tx| pay(&mut tx).and_then(|()| tx.commit())),
                            1 => db.read(|tx| tx.range(savings, ..)?.view_each(|_, _| ())),
                            _ => db.transact(pay),
                        }));
                        FAILING.set(None);
                        match ended {
                            Ok(
                                Ok(())
                                | Err(
                                    Error::Codec { .. }
                                    | Error::Refused { .. }
                                    | Error::Conflict(_)
                                    | Error::Index { .. },
                                ),
                            ) => {}
                            Ok(Err(error)) => panic!("{error}"),
                            Err(panic) => assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose")),
                        }
                    }
                });
            }
        });
        let sum = db.read(|tx| {
            let mut sum = 0;
            for key in 0..ROWS {
                sum += tx.get(money, key)?.unwrap_or(0) + tx.get(savings, key)?.unwrap_or(0);
            }
            Ok(sum)
        });
        assert_eq!(sum.expect("sound"), 200 * ROWS as i64, "a transaction in part");
        // No lock is left: every row can be written.
        let written = db.transact(|tx| {
            (0..ROWS).try_for_each(|key| {
                tx.put(money, key, &1)?;
                tx.put(savings, key, &(key as i64))
            })
        });
        written.expect("nothing is locked");
        db.close().expect("no thread is inside");
    });
}

/// A value that cannot be encoded is detected before any lock is taken.
#[test]
fn a_codec_that_fails_leaves_neither_a_lock_nor_a_part() {
    ends(|| {
        let db = Builder::new().memory(16 << 20).build().expect("memory");
        let money = db.table(MONEY).expect("memory");
        db.transact(|tx| (0..4).try_for_each(|key| tx.put(money, key, &1))).expect("memory");
        for calls in 0..4 {
            for panics in [false, true] {
                FAILING.set(Some((Step::Encode, panics, calls)));
                let failed = catch_unwind(AssertUnwindSafe(|| {
                    db.transact(|tx| (0..4).try_for_each(|key| tx.put(money, key, &80)))
                }));
                assert!(matches!(failed, Err(_) | Ok(Err(Error::Codec { .. }))), "{failed:?}");
                // The application ignores the error: the row is unchanged.
                FAILING.set(Some((Step::Encode, panics, calls)));
                let ignored = db.transact(|tx| {
                    for key in 0..4 {
                        let _ = catch_unwind(AssertUnwindSafe(|| tx.update(money, key, |value| *value = -*value)));
                    }
                    Ok(())
                });
                ignored.expect("all that it has written can be written");
                let values = db.transact(|tx| tx.get_many(money, [0, 1, 2, 3])).expect("sound");
                let left: Vec<u64> = (0..4).filter(|key| values[*key as usize] == Some(1)).collect();
                assert_eq!(left, [u64::from(calls)], "{values:?}");
                db.transact(|tx| (0..4).try_for_each(|key| tx.put(money, key, &1))).expect("no lock is left");
            }
        }
    });
}

/// Retries until there is no panic.
fn until_no_panic(mut go_on: impl FnMut() -> Result<(), Error>) -> Result<(), Error> {
    loop {
        if let Ok(ended) = catch_unwind(AssertUnwindSafe(&mut go_on)) {
            return ended;
        }
    }
}

/// A closure that visits a range panics, and the panic is caught: the range continues behind that
/// row.
#[test]
fn a_range_goes_on_behind_a_caught_panic() -> Result<(), Error> {
    let db = Builder::new().memory(16 << 20).build()?;
    let sorted = db.table(SORTED)?;
    db.transact(|tx| (0..100).try_for_each(|key| tx.insert(sorted, key, &0)))?;
    let panics_at = |key: u64| {
        if key == 5 || key == 40 {
            resume_unwind(Box::new("on purpose"))
        }
    };
    for is_up in [true, false] {
        let seen = db.transact(|tx| {
            let mut seen = Vec::new();
            let mut rows = if is_up { tx.range(sorted, ..)? } else { tx.range(sorted, ..)?.rev() };
            until_no_panic(|| {
                rows.view_each(|key, _| {
                    panics_at(key);
                    seen.push(key);
                })
            })?;
            Ok(seen)
        })?;
        let mut wanted: Vec<u64> = (0..100).filter(|key| ![5, 40].contains(key)).collect();
        if !is_up {
            wanted.reverse();
        }
        assert_eq!(seen, wanted);
        db.transact(|tx| {
            let mut rows = if is_up { tx.range_mut(sorted, ..)? } else { tx.range_mut(sorted, ..)?.rev() };
            until_no_panic(|| {
                rows.update_each(|key, value| {
                    panics_at(*key);
                    *value += 1;
                })
            })
        })?;
    }
    let values: Vec<u64> = db.read(|tx| tx.range(sorted, ..)?.rows().map(|row| Ok(row?.1)).collect())?;
    let wanted: Vec<u64> = (0..100).map(|key| if [5, 40].contains(&key) { 0 } else { 2 }).collect();
    assert_eq!(values, wanted, "no row is changed twice, and none is left out");
    Ok(())
}

/// Transactions that begin on one thread and end on another leak no memory.
#[test]
fn a_transaction_that_ends_on_another_thread_takes_nothing_with_it() {
    ends(|| {
        let db = Builder::new().memory(64 << 20).build().expect("memory");
        let accounts = db.table(ACCOUNTS).expect("memory");
        // The previous transaction may not have ended yet.
        let ends_well =
            |ended: Result<(), Error>| assert!(matches!(ended, Ok(()) | Err(Error::Conflict(_))), "{ended:?}");
        let turn = |count: u64| {
            thread::scope(|scope| {
                let (send, receive) = mpsc::sync_channel::<Tx<'_>>(1);
                scope.spawn(move || receive.into_iter().for_each(|tx| ends_well(tx.commit())));
                for round in 0..count {
                    let mut tx = db.begin().expect("memory");
                    let key = round % 2;
                    let toggled = tx.remove(accounts, key).and_then(|removed| match removed {
                        Some(_) => Ok(()),
                        None => tx.insert(accounts, key, &1),
                    });
                    ends_well(toggled);
                    send.send(tx).expect("it goes on");
                }
            });
        };
        turn(100);
        let before = db.memory().tables;
        turn(2_000);
        // One more transaction may have been open at once.
        assert!(db.memory().tables - before < 1 << 20, "{before:?} {:?}", db.memory());
    });
}

/// A leaked transaction, and one whose thread has ended, block only the close of the database,
/// which returns an error.
#[test]
fn what_is_leaked_holds_up_nobody() {
    ends(|| {
        let db: &'static Db = Box::leak(Box::new(Builder::new().memory(32 << 20).build().expect("memory")));
        let accounts = db.table(ACCOUNTS).expect("memory");
        let sorted = db.table(SORTED).expect("memory");
        db.transact(|tx| (0..8).try_for_each(|key| tx.put(accounts, key, &0))).expect("memory");
        thread_local!(static HELD: RefCell<Vec<Tx<'static>>> = const { RefCell::new(Vec::new()) });
        let begun = move |key: u64| {
            let mut tx = db.begin().expect("memory");
            tx.put(accounts, key, &7).expect("memory");
            tx.get(accounts, key + 1).expect("nothing is in the way");
            tx.insert(sorted, key, &7).expect("memory");
            tx
        };
        for round in 0..20 {
            // Leaked with its insertion, whose record stays as an absent key.
            mem::forget(begun(round % 4));
            mem::forget(db.snapshot().expect("memory"));
            // A thread exits while it holds one in a variable, and one in a thread-local that is
            // dropped last.
            thread::spawn(move || {
                HELD.with_borrow_mut(|held| held.push(begun(4)));
                let _held = begun(5);
            })
            .join()
            .expect("it ends");
            let written = db.transact(|tx| {
                (0..8).try_for_each(|key| tx.update(accounts, key, |count| *count += 1).map(drop))?;
                assert_eq!(tx.range(sorted, ..)?.count()?, 0);
                tx.put(sorted, 100, &1)?;
                tx.remove(sorted, 100).map(drop)
            });
            written.expect("nothing is locked");
        }
        assert_eq!(db.read(|tx| tx.get(accounts, 4)).expect("sound"), Some(20));
        // This thread began the leaked transactions.
        assert!(matches!(db.close(), Err(Error::InTransaction)));
        let closed = thread::spawn(|| db.close()).join().expect("it ends");
        assert!(matches!(closed, Err(Error::StillRunning { transactions: 40 })), "{closed:?}");
    });
}

/// A thread that holds another thread's transaction would wait for itself: it gets an error.
#[test]
fn a_thread_that_holds_the_transaction_of_another_cannot_close() {
    ends(|| {
        let db = Builder::new().memory(16 << 20).build().expect("memory");
        thread::scope(|scope| {
            let begun = scope.spawn(|| db.begin()).join().expect("no panic").expect("memory");
            assert!(matches!(db.close(), Err(Error::StillRunning { transactions: 1 })));
            drop(begun);
            db.close().expect("it is over");
        });
    });
}

/// Yields to its executor once.
#[derive(Default)]
struct Yield(bool);

impl Future for Yield {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if mem::replace(&mut self.0, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Tasks hold transactions and snapshots across `.await`; two threads poll them in turns.
#[test]
fn transactions_are_held_across_await() {
    const TASKS: u64 = 20;
    ends(|| {
        let db = Builder::new().memory(32 << 20).build().expect("memory");
        let accounts = db.table(ACCOUNTS).expect("memory");
        db.transact(|tx| (0..TASKS).try_for_each(|key| tx.put(accounts, key, &0))).expect("memory");
        let count = |key: u64| {
            let db = &db;
            async move {
                let mut done = 0;
                while done < 20 {
                    let mut tx = db.begin().expect("memory");
                    let snapshot = db.snapshot().expect("memory");
                    Yield::default().await;
                    // A row of its own, and a shared one.
                    let counted = tx.update(accounts, key, |count| *count += 1);
                    Yield::default().await;
                    drop(snapshot);
                    let shared = counted.and_then(|_| tx.update(accounts, 0, |count| *count += 1));
                    Yield::default().await;
                    match shared.and_then(|_| tx.commit()) {
                        Ok(()) => done += 1,
                        Err(Error::Conflict(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        };
        type Task<'t> = Pin<Box<dyn Future<Output = ()> + Send + 't>>;
        let tasks: Queue<Task<'_>> = Queue(Mutex::default());
        (1..TASKS).for_each(|key| tasks.push(Box::pin(count(key))));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while let Some(mut task) = tasks.pop() {
                        if task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
                            tasks.push(task);
                        }
                    }
                });
            }
        });
        let counts = db.read(|tx| (0..TASKS).map(|key| tx.get(accounts, key)).collect::<Result<Vec<_>, _>>());
        let counts = counts.expect("sound");
        assert_eq!(counts[0], Some(20 * (TASKS as i64 - 1)));
        assert!(counts[1..].iter().all(|count| *count == Some(20)), "{counts:?}");
        db.close().expect("no thread is inside");
    });
}

/// A queue of tasks.
struct Queue<T>(Mutex<VecDeque<T>>);

impl<T> Queue<T> {
    fn push(&self, task: T) {
        self.0.lock().expect("no panic").push_back(task);
    }

    fn pop(&self) -> Option<T> {
        self.0.lock().expect("no panic").pop_front()
    }
}
