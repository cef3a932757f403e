//! The executor: everyone runs, everyone ends, and mistakes show.

use std::{
    cell::{Cell, RefCell},
    future::{pending, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
    task::{Poll, Waker},
    thread,
    time::Duration,
};

use drtm_rdma::{Executor, LocalConfig, NodeId, Phase, block_on, run};

use crate::support::{Plain, word};

fn message(panic: Box<dyn std::any::Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(other) => other.downcast::<&str>().map_or_else(|_| String::new(), |message| (*message).to_owned()),
    }
}

#[test]
fn coroutines_take_turns() {
    let world = Plain::new(1, LocalConfig::perfect());
    let endpoint = world.endpoint(0);
    let log = RefCell::new(Vec::new());
    run(&endpoint, 70, |index| {
        let (log, endpoint) = (&log, &endpoint);
        async move {
            for turn in 0..3 {
                log.borrow_mut().push((turn, index));
                endpoint.yield_now().await;
            }
        }
    });
    let fair: Vec<_> = (0..3).flat_map(|turn| (0..70).map(move |index| (turn, index))).collect();
    assert_eq!(log.into_inner(), fair, "nobody has two turns before everybody has one");
}

#[test]
fn a_busy_coroutine_does_not_keep_others_from_their_completions() {
    for config in [LocalConfig::perfect(), LocalConfig::harsh(1)] {
        let world = Plain::new(2, config);
        let endpoint = world.endpoint(0);
        let verbs = endpoint.during(Phase::Other);
        let done = Cell::new(0);
        run(&endpoint, 5, |index| {
            let (done, endpoint) = (&done, &endpoint);
            async move {
                if index == 0 {
                    return endpoint.until(|| done.get() == 4).await;
                }
                for _ in 0..10 {
                    verbs.fetch_add(word(1, 0), 1).await.expect("the word is there");
                }
                done.set(done.get() + 1);
            }
        });
        assert_eq!(world.load(word(1, 0)), 40);
    }
}

#[test]
fn other_threads_may_wake_a_coroutine() {
    let world = Plain::new(1, LocalConfig::perfect());
    let endpoint = world.endpoint(0);
    let shared: Arc<Mutex<(Option<Waker>, bool)>> = Arc::default();
    let theirs = Arc::clone(&shared);
    let waker = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        let (waker, done) = &mut *theirs.lock().expect("no panic");
        *done = true;
        if let Some(waker) = waker.take() {
            waker.wake();
        }
    });
    block_on(
        &endpoint,
        poll_fn(|context| {
            let (waker, done) = &mut *shared.lock().expect("no panic");
            if *done {
                return Poll::Ready(());
            }
            *waker = Some(context.waker().clone());
            Poll::Pending
        }),
    );
    waker.join().expect("no panic");
}

#[test]
fn a_panic_surfaces_after_the_others_have_ended() {
    for config in [LocalConfig::perfect(), LocalConfig::harsh(1)] {
        let world = Plain::new(2, config);
        let endpoint = world.endpoint(0);
        let rest = endpoint.at_rest();
        let verbs = endpoint.during(Phase::Other);
        let panic = catch_unwind(AssertUnwindSafe(|| {
            run(&endpoint, 5, |index| async move {
                for turn in 0..10 {
                    assert!(index != 2 || turn != 5, "the third breaks");
                    let held = verbs.read(word(1, 0), 8).await.expect("the words are there");
                    verbs.fetch_add(word(1, 0), 1).await.expect("the word is there");
                    drop(held);
                }
            })
        }))
        .expect_err("a panic");
        assert!(message(panic).contains("the third breaks"));
        assert_eq!(world.load(word(1, 0)), 45);
        assert_eq!(endpoint.at_rest(), rest);
        assert_eq!(block_on(&endpoint, verbs.read_word(word(1, 0))), Ok(45), "the endpoint is as good as before");
    }
}

#[test]
fn a_panic_of_a_service_ends_those_who_may_wait_for_it() {
    let world = Plain::new(1, LocalConfig::perfect());
    let endpoint = world.endpoint(0);
    let verbs = endpoint.during(Phase::Other);
    let mut executor = Executor::new(&endpoint);
    executor.serve(async {
        let _first = verbs.recv().await;
        panic!("the service breaks");
    });
    for _ in 0..3 {
        executor.spawn(async { drop(verbs.call(NodeId(0), b"hello").await) });
    }
    // Ends in the round in which the service breaks, or thereabouts.
    for turns in 0..6 {
        let endpoint = &endpoint;
        executor.spawn(async move {
            for _ in 0..turns {
                endpoint.yield_now().await;
            }
        });
    }
    let panic = catch_unwind(AssertUnwindSafe(|| executor.run())).expect_err("a panic");
    assert!(message(panic).contains("the service breaks"));
}

#[test]
fn waiting_for_nothing_is_a_panic_and_not_for_ever() {
    let world = Plain::new(2, LocalConfig::harsh(1));
    let endpoint = world.endpoint(0);
    let panic = catch_unwind(AssertUnwindSafe(|| block_on(&endpoint, pending::<()>()))).expect_err("a panic");
    assert!(message(panic).contains("nothing is under way"));

    let verbs = endpoint.during(Phase::Other);
    let mut executor = Executor::new(&endpoint).patience(Duration::from_millis(50));
    executor.spawn(async { drop(verbs.call(NodeId(1), b"nobody is there").await) });
    let panic = catch_unwind(AssertUnwindSafe(|| executor.run())).expect_err("a panic");
    assert!(message(panic).contains("nothing is under way"));
    assert_eq!(block_on(&endpoint, async { 1 }), 1, "the endpoint is as good as before");
}

#[test]
fn running_within_a_run_is_a_mistake_that_shows() {
    let world = Plain::new(1, LocalConfig::perfect());
    let endpoint = world.endpoint(0);
    let nested = async { block_on(&endpoint, async {}) };
    let panic = catch_unwind(AssertUnwindSafe(|| block_on(&endpoint, nested))).expect_err("a panic");
    assert!(message(panic).contains("own endpoint"));
}

#[test]
fn an_endpoint_may_move_to_another_thread() {
    let world = Plain::new(2, LocalConfig::perfect());
    let endpoint = world.endpoint(0);
    block_on(&endpoint, endpoint.during(Phase::Other).fetch_add(word(1, 0), 1)).expect("the word is there");
    let endpoint = thread::spawn(move || {
        block_on(&endpoint, endpoint.during(Phase::Other).fetch_add(word(1, 0), 1)).expect("the word is there");
        endpoint
    })
    .join()
    .expect("no panic");
    assert_eq!(endpoint.counters().total().fetch_adds, 2);
}

#[test]
fn more_coroutines_than_a_word_has_bits_and_none_at_all() {
    let world = Plain::new(2, LocalConfig::harsh(3));
    let endpoint = world.endpoint(0);
    let verbs = endpoint.during(Phase::Other);
    assert!(run(&endpoint, 0, |_| async {}).is_empty());
    Executor::new(&endpoint).run();
    let olds = run(&endpoint, 300, |_| verbs.fetch_add(word(1, 0), 1));
    let mut olds: Vec<_> = olds.into_iter().map(|old| old.expect("the word is there")).collect();
    olds.sort_unstable();
    assert_eq!(olds, (0..300).collect::<Vec<_>>());
}
