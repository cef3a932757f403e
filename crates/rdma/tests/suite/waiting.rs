//! Waiting: executors that sleep, what wakes them, and time.

use std::{
    cell::Cell,
    future::poll_fn,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    task::{Poll, Waker},
    thread,
    time::Duration,
};

use drtm_htm::NoHtm;
use drtm_rdma::{Executor, Fabric as _, LocalConfig, LocalFabric, NodeId, Phase, Round, block_on};

use crate::{
    agent::{Agent, Order, PATIENCE, Service},
    support::{Plain, Testbed, World, on_every_fabric, rounds, with, word},
};

on_every_fabric!(
    a_call_wakes_an_endpoint_that_sleeps,
    a_reply_wakes_an_endpoint_that_sleeps,
    the_clock_goes_on_and_sleeps_last,
    a_deadline_ends_a_wait_and_nothing_else,
    an_idle_worker_sleeps,
);

/// The server has slept for long when the call comes.
fn a_call_wakes_an_endpoint_that_sleeps<R: Testbed>(mood: R::Mood) {
    let world = World::<R>::new(2, mood);
    world.agent(1).ask(Order::Serve(Service::Backwards));
    let endpoint = world.endpoint();
    for _ in 0..10 {
        thread::sleep(Duration::from_millis(3));
        with(&endpoint, async |verbs| {
            assert_eq!(verbs.call(NodeId(1), b"drtm").await?[..], *b"mtrd");
            Ok(())
        });
    }
    world.agent(1).ask(Order::Halt);
}

/// The caller sleeps when the reply comes: no endpoint serves yet when it calls.
fn a_reply_wakes_an_endpoint_that_sleeps<R: Testbed>(mood: R::Mood) {
    let world = World::<R>::new(2, mood);
    let endpoint = world.endpoint();
    let verbs = endpoint.during(Phase::Other);
    let agent = world.agent(1);
    let mut executor = Executor::new(&endpoint).patience(PATIENCE);
    executor.spawn(async {
        let reply = verbs.call(NodeId(1), b"drtm").await.expect("a reply");
        assert_eq!(reply[..], *b"mtrd");
    });
    // Until the call is out, and everything waits.
    while endpoint.naps() == 0 {
        assert_ne!(executor.round(), Round::Done);
        executor.park(Some(Duration::from_micros(100)));
    }
    agent.ask(Order::Serve(Service::Backwards));
    executor.run();
    agent.ask(Order::Halt);
}

fn the_clock_goes_on_and_sleeps_last<R: Testbed>(mood: R::Mood) {
    let world = World::<R>::new(1, mood);
    let endpoint = world.endpoint();
    let start = endpoint.now();
    let woken = Cell::new(0);
    let mut executor = Executor::new(&endpoint);
    for index in 0..70_u64 {
        let (endpoint, woken) = (&endpoint, &woken);
        executor.spawn(async move {
            let at = start + Duration::from_micros(100 * (70 - index));
            endpoint.sleep_until(at).await;
            assert!(endpoint.now() >= at);
            woken.set(woken.get() + 1);
        });
    }
    executor.run();
    assert_eq!(woken.get(), 70);
    // A moment that is past is no wait.
    block_on(&endpoint, endpoint.sleep_until(start));
}

fn a_deadline_ends_a_wait_and_nothing_else<R: Testbed>(mood: R::Mood) {
    let world = World::<R>::new(2, mood);
    let endpoint = world.endpoint();
    let verbs = endpoint.during(Phase::Other);
    block_on(&endpoint, async {
        let soon = endpoint.now() + Duration::from_millis(2);
        let late = endpoint.before(soon, verbs.call(NodeId(1), b"1 is not served")).await;
        assert!(late.is_err_and(|elapsed| elapsed.deadline == soon));
        assert!(endpoint.now() >= soon);
        let far = endpoint.now() + PATIENCE;
        for _ in 0..1000 {
            let added = endpoint.before(far, verbs.fetch_add(word(1, 0), 1)).await;
            added.expect("in time").expect("the word is there");
        }
    });
    // The call goes on, and its answer is dropped.
    world.agent(1).ask(Order::Serve(Service::Backwards));
    with(&endpoint, async |verbs| verbs.call(NodeId(1), b"another").await.map(drop));
    world.agent(1).ask(Order::Halt);
    assert_eq!(world.load(word(1, 0)), 1000);
}

/// One that serves, has served, and waits.
fn an_idle_worker_sleeps<R: Testbed>(mood: R::Mood) {
    let world = World::<R>::new(1, mood);
    let endpoint = world.endpoint();
    let verbs = endpoint.during(Phase::Other);
    let mut executor = Executor::new(&endpoint);
    executor.serve(verbs.serve(|_, request, reply| reply.extend_from_slice(request)));
    executor.spawn(async {
        assert!(verbs.call(NodeId(0), b"to myself").await.is_ok());
        endpoint.sleep(Duration::from_millis(300)).await;
    });
    let cpu = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let before = cpu();
    executor.run();
    let spent = cpu() - before;
    println!("an idle worker spent {spent:?} of 300 ms");
    assert!(endpoint.naps() > 0);
    assert!(endpoint.naps() < 100, "it is woken by nothing: {} naps", endpoint.naps());
}

#[test]
fn a_waker_of_another_thread_wakes_a_sleeper() {
    let world = Plain::new(1, LocalConfig::perfect());
    let endpoint = world.endpoint(0);
    // On a busy machine the waker may come before the sleep: then once more.
    let slept = (0..200).any(|_| {
        let before = endpoint.naps();
        let shared: Arc<Mutex<(Option<Waker>, bool)>> = Arc::default();
        let theirs = Arc::clone(&shared);
        let (waits, when_it_waits) = mpsc::channel::<()>();
        let waker = thread::spawn(move || {
            when_it_waits.recv().expect("no panic");
            thread::sleep(Duration::from_millis(5));
            let (waker, done) = &mut *theirs.lock().expect("no panic");
            *done = true;
            waker.take().expect("it waits").wake();
        });
        block_on(
            &endpoint,
            poll_fn(|context| {
                let (waker, done) = &mut *shared.lock().expect("no panic");
                if *done {
                    return Poll::Ready(());
                }
                *waker = Some(context.waker().clone());
                let _ = waits.send(());
                Poll::Pending
            }),
        );
        waker.join().expect("no panic");
        endpoint.naps() > before
    });
    assert!(slept, "it never slept");
}

/// Threads inject while the executor sleeps, runs and ends: each coroutine runs exactly once, or
/// its thread is told that it will not.
#[test]
fn injected_coroutines_run_exactly_once() {
    for round in 0..rounds(20) {
        let world = Plain::new(2, LocalConfig::perfect());
        let (ran, accepted) = (AtomicU64::new(0), AtomicU64::new(0));
        let (ran, accepted) = (&ran, &accepted);
        let endpoint = world.endpoint(0);
        let mut executor = Executor::new(&endpoint).patience(PATIENCE);
        executor.spawn(endpoint.sleep(Duration::from_micros(200 * (round % 5))));
        thread::scope(|scope| {
            for _ in 0..3 {
                let injector = executor.injector();
                scope.spawn(move || {
                    for index in 0..200 {
                        let outcome = injector.inject(move |worker| async move {
                            let endpoint = worker.endpoint();
                            let added = endpoint.during(Phase::Other).fetch_add(word(1, 0), 1).await;
                            added.expect("the word is there");
                            let second_half = async move {
                                endpoint.yield_now().await;
                                ran.fetch_add(1, Relaxed);
                            };
                            worker.spawn(second_half).expect("it runs");
                        });
                        accepted.fetch_add(u64::from(outcome.is_ok()), Relaxed);
                        if index % 50 == 0 {
                            thread::sleep(Duration::from_micros(100));
                        }
                    }
                });
            }
            executor.run();
        });
        assert_eq!(ran.load(Relaxed), accepted.load(Relaxed));
        assert_eq!(world.load(word(1, 0)), accepted.load(Relaxed));
    }
}

#[test]
fn an_executor_stays_while_there_are_injectors_and_a_coroutine_waits() {
    let world = Plain::new(1, LocalConfig::perfect());
    let endpoint = world.endpoint(0);
    let stop = Cell::new(false);
    let waits = Arc::new(Mutex::new(None::<Waker>));
    let mut executor = Executor::new(&endpoint).patience(PATIENCE);
    let injector = executor.injector();
    executor.spawn(poll_fn(|context| {
        *waits.lock().expect("no panic") = Some(context.waker().clone());
        if stop.get() { Poll::Ready(()) } else { Poll::Pending }
    }));
    let (stop, waits) = (&stop, &waits);
    let sender = thread::scope(|scope| {
        let handle = scope.spawn(|| thread::sleep(Duration::from_millis(10)));
        handle.join().expect("no panic");
        // On this thread, before the run: the executor takes it in when it begins.
        injector.inject(|worker| async move {
            worker.endpoint().sleep(Duration::from_millis(5)).await;
        })
    });
    sender.expect("it has not ended");
    let spawner = executor.spawner();
    executor.spawn(async move {
        let endpoint = spawner.endpoint();
        spawner
            .spawn(async move {
                endpoint.sleep(Duration::from_millis(10)).await;
                stop.set(true);
                if let Some(waker) = waits.lock().expect("no panic").take() {
                    waker.wake();
                }
            })
            .expect("it runs");
    });
    executor.run();
}

/// What is spawned takes the places of what has ended, and none of it is lost.
#[test]
fn spawning_while_running_uses_places_again() {
    let world = Plain::new(2, LocalConfig::harsh(7));
    let endpoint = world.endpoint(0);
    let verbs = endpoint.during(Phase::Other);
    let mut executor = Executor::new(&endpoint);
    let spawner = executor.spawner();
    let within = spawner.clone();
    executor.spawn(async move {
        let spawner = within;
        for _ in 0..200 {
            for _ in 0..3 {
                spawner.spawn(async move { assert!(verbs.fetch_add(word(1, 0), 1).await.is_ok()) }).expect("it runs");
            }
            verbs.endpoint().yield_now().await;
        }
    });
    executor.run();
    assert_eq!(world.load(word(1, 0)), 600);
    assert!(spawner.spawn(async {}).is_err(), "it has ended");
}

#[test]
fn two_executors_on_one_endpoint_are_a_mistake_that_shows() {
    let world = Plain::new(1, LocalConfig::perfect());
    let endpoint = world.endpoint(0);
    let mut first = Executor::new(&endpoint);
    first.spawn(std::future::pending());
    assert_eq!(first.round(), Round::Ran);
    let second = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| block_on(&endpoint, async {})));
    assert!(second.is_err());
    drop(first);
    assert_eq!(block_on(&endpoint, async { 1 }), 1, "the first has given up");
}

/// The waker that a coroutine waits by is with another thread, which uses it up: at no moment is
/// nothing left that wakes the coroutine.
#[test]
fn a_waker_that_is_used_up_has_woken() {
    let fabric = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect());
    let endpoint = fabric.endpoint(NodeId(0)).expect("room for an endpoint");
    let times = rounds(20_000);
    let slot = &Mutex::new((None::<Waker>, 0_u64));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut woken = 0;
            while woken < times {
                let waker = {
                    let mut slot = slot.lock().expect("no thread panics");
                    let waker = slot.0.take();
                    woken += u64::from(waker.is_some());
                    slot.1 = woken;
                    waker
                };
                match waker {
                    Some(waker) => waker.wake(),
                    None => thread::yield_now(),
                }
            }
        });
        block_on(&endpoint, async {
            for time in 1..=times {
                poll_fn(|context| {
                    let mut slot = slot.lock().expect("no thread panics");
                    if slot.1 >= time {
                        return Poll::Ready(());
                    }
                    slot.0 = Some(context.waker().clone());
                    Poll::Pending
                })
                .await;
            }
        });
    });
}
