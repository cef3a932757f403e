//! The threads that drive a node's sockets: its own, and an endpoint that polls anyway.
//!
//! An endpoint that spins for messages, or sleeps until one comes, would otherwise be handed each
//! by another thread: one more switch of threads, and one more thread that spins. So the node's
//! thread offers the lead (`lead`) where members have had something, an endpoint that waits for
//! messages takes it, and keeps it. A verb does not wait for long where that endpoint's coroutines
//! take their time: the thread looks every [`WATCH`] whether the endpoint still takes turns, and
//! takes over where it does not.
//!
//! An endpoint serves members only. Where a connection is to be accepted, or a node to be dialed,
//! it gives the lead back: handshakes take long, and the thread divides their share (`shares`).

use std::{
    net::TcpListener,
    sync::{
        Arc,
        atomic::{
            Ordering::{Relaxed, SeqCst},
            fence,
        },
    },
    thread::JoinHandle,
    time::Duration,
};

use drtm_htm::Engine;
use parking_lot::Mutex;

use crate::{
    executor::idle::Idle,
    sync::{lead::Leader, time},
};

use super::{
    TcpError,
    bell::{Interest, Ready},
    service::{CHANNEL, Joining, LISTENER, Service},
    shared::Shared,
};

/// What is driven, until the node leaves.
pub(super) type Work<E> = Arc<Mutex<Option<Service<E>>>>;

/// From one look of the thread at an endpoint that leads to the next. A verb waits twice as long at
/// the most.
const WATCH: Duration = Duration::from_micros(200);

/// Looks at an endpoint that rests before the thread sleeps for longer.
const LOOKS: u32 = 4;

/// Starts the thread of a node, which begins to connect to its peers.
pub(super) fn start<E: Engine>(
    shared: Arc<Shared<E>>,
    listener: TcpListener,
    joining: Arc<Joining>,
) -> Result<(JoinHandle<()>, Work<E>), TcpError> {
    listener.set_nonblocking(true).map_err(TcpError::io("listen"))?;
    shared.service.watch(&listener, LISTENER, Interest::INPUT).map_err(TcpError::system("watch the listener"))?;
    if let Some(channel) = shared.handler.as_ref().and_then(|handler| handler.channel()) {
        shared.service.watch(channel, CHANNEL, Interest::INPUT).map_err(TcpError::system("watch a channel"))?;
    }
    let name = format!("drtm-tcp-{}", shared.node.0);
    let service = Service::new(Arc::clone(&shared), listener, joining);
    let work = Arc::new(Mutex::new(Some(service)));
    let driven = Arc::clone(&work);
    let thread = std::thread::Builder::new().name(name).spawn(move || run(&driven, &shared));
    Ok((thread.map_err(TcpError::io("start the node's thread"))?, work))
}

/// Runs the node's thread.
fn run<E: Engine>(work: &Mutex<Option<Service<E>>>, shared: &Shared<E>) {
    if let Some(service) = &mut *work.lock() {
        service.dial_all();
    }
    while !shared.leaving.load(SeqCst) {
        match shared.lead.leader() {
            Leader::Thread => lead(work, shared),
            Leader::Endpoint | Leader::Resting => {
                shared.lead.watch(true);
                watch(work, shared);
                // Before it next has the sockets: see `Service::attend`.
                shared.lead.watch(false);
            }
        }
    }
    let service = work.lock().take();
    if let Some(mut service) = service {
        service.say_goodbye();
    }
}

/// Drives the sockets until an endpoint has taken over. It has them only while it does something,
/// so that an endpoint that takes over need not wait for the system to wake it.
fn lead<E: Engine>(work: &Mutex<Option<Service<E>>>, shared: &Shared<E>) {
    let leads = || !shared.leaving.load(SeqCst) && shared.lead.leader() == Leader::Thread;
    let (mut idle, mut ready) = (Idle::default(), Vec::new());
    if let Some(service) = work.lock().as_mut() {
        service.tell_deliveries();
    }
    while leads() {
        let mut driven = work.lock();
        let Some(service) = driven.as_mut() else { return };
        service.begin(false, false);
        if service.round() {
            service.offer();
            idle.end();
        } else if !idle.is_due(time::of_this_machine, false) {
            drop(driven);
            idle.spin(false);
        } else {
            let before = time::of_this_machine();
            let at_most = [service.next_tick(), service.tend()].into_iter().flatten().min();
            service.lie_down();
            drop(driven);
            shared.service.sleep(&mut ready, at_most, || shared.is_quiet() && leads());
            // Otherwise it is an endpoint's.
            if let Some(service) = work.lock().as_mut()
                && leads()
            {
                service.get_up(&ready);
            }
            idle.napped(time::of_this_machine().since(before));
        }
    }
}

/// Looks after an endpoint that leads, and does what is to be done by the clock.
fn watch<E: Engine>(work: &Mutex<Option<Service<E>>>, shared: &Shared<E>) {
    let (mut turns, mut rests) = (shared.lead.turns(), 0);
    while !shared.leaving.load(SeqCst) {
        match shared.lead.leader() {
            Leader::Thread => return,
            Leader::Resting => rests += 1,
            Leader::Endpoint => rests = 0,
        }
        if rests > LOOKS {
            let next = work.lock().as_mut().and_then(Service::keep_time);
            shared.lead.sleep(next, || !shared.leaving.load(SeqCst));
        } else {
            // Where the endpoint has it at the moment, it is the next time.
            if let Some(mut work) = work.try_lock() {
                work.as_mut().and_then(Service::keep_time);
            }
            std::thread::sleep(WATCH);
        }
        turns = shared.lead.take_over(turns);
    }
}

impl<E: Engine> Service<E> {
    /// Lets an endpoint take over that polls anyway, unless handshakes are pending.
    fn offer(&self) {
        if self.shares.had_members() && self.shared.handler.is_none() {
            self.shared.lead.offer(self.handshakes.is_empty());
        }
    }

    /// Handles what has woken the thread.
    fn get_up(&mut self, ready: &[Ready]) {
        self.begin(false, false);
        self.shared.starved.store(false, Relaxed);
        self.shares.begin_round(&self.shared.totals);
        self.handle(ready);
        self.look_after();
        self.offer();
    }

    /// Prepares for a sleep on the sockets. Returns false if there is still something to do.
    pub(super) fn lie_down(&mut self) -> bool {
        self.hot.clear();
        self.shared.starved.store(!self.stalled.is_empty(), Relaxed);
        fence(SeqCst);
        self.unfinished.is_empty()
    }

    /// Does what is due, by the thread while an endpoint leads. Returns after how long there is
    /// more.
    fn keep_time(&mut self) -> Option<Duration> {
        self.begin(false, false);
        self.shares.begin_round(&self.shared.totals);
        self.look_after();
        self.next_tick()
    }

    /// Takes a turn at the sockets, by an endpoint that leads. Returns whether there was something.
    ///
    /// It may put off telling of deliveries only while the thread looks after it: when it takes no
    /// turns any more, the thread tells of them, as the next that has the sockets.
    pub(super) fn attend(&mut self, receiving: bool) -> bool {
        self.begin(true, receiving);
        self.hand.replies = receiving && self.shared.lead.is_watched();
        self.round()
    }

    fn begin(&mut self, is_guest: bool, receiving: bool) {
        (self.is_guest, self.needs_thread) = (is_guest, false);
        self.hand.begin(receiving);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::{Ipv4Addr, SocketAddr, TcpListener},
        sync::{Arc, mpsc},
        thread,
    };

    use drtm_htm::NoHtm;

    use super::*;
    use crate::{Endpoint, Executor, Fabric, NodeId, Phase, Region, Remote, TcpConfig, TcpFabric, TcpPort, block_on};

    const SERVER: NodeId = NodeId(1);
    const TURNS: u64 = 20;

    /// Two nodes, and a word of the second.
    fn nodes() -> ([TcpFabric<NoHtm>; 2], Remote) {
        let free = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port"));
        let at = free.each_ref().map(|listener| listener.local_addr().expect("an address"));
        drop(free);
        let join = |node: u16, at: [SocketAddr; 2]| {
            let config = TcpConfig::new(NodeId(node), at[usize::from(node)], [7; 32]);
            TcpFabric::join(NoHtm, config.peer(NodeId(1 - node), at[1 - usize::from(node)])).expect("it joins")
        };
        let fabrics = [join(0, at), join(1, at)];
        let memory = Arc::new(Region::anonymous(NoHtm, 1 << 16).expect("memory"));
        let offset = memory.extend(8, 8).expect("room");
        let region = fabrics[1].register(SERVER, memory).expect("it registers");
        (fabrics, Remote { node: SERVER, region, offset })
    }

    /// Calls the server until its endpoint leads.
    fn call_until_it_leads(endpoint: &Endpoint<TcpPort<NoHtm>>, fabric: &TcpFabric<NoHtm>) {
        while fabric.member.shared.lead.leader() == Leader::Thread {
            let call = endpoint.during(Phase::Other).call(SERVER, b"");
            block_on(endpoint, call).expect("it answers");
        }
    }

    fn add(fabric: &TcpFabric<NoHtm>, word: Remote) -> u64 {
        // Its connection begins with a handshake.
        let endpoint = fabric.endpoint(NodeId(0)).expect("an endpoint");
        block_on(&endpoint, endpoint.during(Phase::Other).fetch_add(word, 1)).expect("it is there")
    }

    /// Serves until node 0 has left. What is called with something blocks the thread until it is
    /// told to go on.
    fn serve(fabric: &TcpFabric<NoHtm>, go_on: &mpsc::Receiver<()>) {
        let endpoint = fabric.endpoint(SERVER).expect("an endpoint");
        let mut executor = Executor::new(&endpoint);
        executor.serve(endpoint.during(Phase::Other).serve(|_, request, _| {
            if !request.is_empty() {
                go_on.recv().expect("it is told");
            }
        }));
        executor.spawn(async {
            while endpoint.presence(NodeId(0)).here().is_some() {
                endpoint.next_event().await;
            }
        });
        executor.run();
    }

    #[test]
    fn verbs_do_not_wait_for_an_endpoint_that_leads_and_is_busy() {
        let ([one, two], word) = nodes();
        let (tell, go_on) = mpsc::channel();
        thread::scope(|scope| {
            let server = two.clone();
            scope.spawn(move || serve(&server, &go_on));
            let endpoint = one.endpoint(NodeId(0)).expect("an endpoint");
            for turn in 0..TURNS {
                call_until_it_leads(&endpoint, &two);
                let verbs = endpoint.during(Phase::Other);
                let mut batch = verbs.batch();
                let blocked = batch.call(SERVER, b"stay").expect("room");
                batch.ring();
                block_on(&endpoint, async {
                    // On the connection of the call, behind it, and on one that is new.
                    assert_eq!(verbs.fetch_add(word, 1).await, Ok(2 * turn));
                });
                assert_eq!(add(&one, word), 2 * turn + 1);
                tell.send(()).expect("it waits");
                block_on(&endpoint, blocked).expect("it answers");
            }
            drop(endpoint);
            one.leave();
        });
    }

    /// That a message was delivered is told with the reply to it, or by the thread.
    #[test]
    fn a_delivery_is_told_while_the_endpoint_that_led_is_busy() {
        let ([one, two], _) = nodes();
        let (tell, go_on) = mpsc::channel();
        thread::scope(|scope| {
            let server = two.clone();
            scope.spawn(move || {
                let endpoint = server.endpoint(SERVER).expect("an endpoint");
                block_on(&endpoint, async {
                    for _ in 0..TURNS {
                        // Until the endpoint leads. Then nothing polls it, and the other end waits.
                        while endpoint.during(Phase::Other).recv().await.is_empty() {}
                        go_on.recv().expect("it is told");
                    }
                });
            });
            let endpoint = one.endpoint(NodeId(0)).expect("an endpoint");
            let send = |bytes: &'static [u8]| {
                block_on(&endpoint, endpoint.during(Phase::Other).send(SERVER, bytes)).expect("it is delivered");
            };
            for _ in 0..TURNS {
                while two.member.shared.lead.leader() == Leader::Thread {
                    send(b"");
                }
                send(b"stay");
                tell.send(()).expect("it waits");
            }
        });
    }

    #[test]
    fn an_endpoint_that_rests_is_woken_for_all_that_comes() {
        let ([one, two], word) = nodes();
        let (_tell, go_on) = mpsc::channel();
        thread::scope(|scope| {
            let server = two.clone();
            scope.spawn(move || serve(&server, &go_on));
            let endpoint = one.endpoint(NodeId(0)).expect("an endpoint");
            for turn in 0..TURNS {
                call_until_it_leads(&endpoint, &two);
                while two.member.shared.lead.leader() == Leader::Endpoint {
                    thread::yield_now();
                }
                if turn % 2 == 0 {
                    assert_eq!(add(&one, word), turn / 2);
                } else {
                    block_on(&endpoint, endpoint.during(Phase::Other).call(SERVER, b"")).expect("it answers");
                }
            }
            drop(endpoint);
            one.leave();
        });
    }

    #[test]
    fn an_endpoint_that_leads_may_be_dropped() {
        let ([one, two], word) = nodes();
        for turn in 0..TURNS {
            let server = two.endpoint(SERVER).expect("an endpoint");
            let endpoint = one.endpoint(NodeId(0)).expect("an endpoint");
            thread::scope(|scope| {
                scope.spawn(move || {
                    let mut executor = Executor::new(&server);
                    let stop = std::cell::Cell::new(false);
                    executor.serve(server.during(Phase::Other).serve(|_, request, _| stop.set(!request.is_empty())));
                    executor.spawn(server.until(|| stop.get()));
                    executor.run();
                });
                call_until_it_leads(&endpoint, &two);
                block_on(&endpoint, endpoint.during(Phase::Other).call(SERVER, b"stop")).expect("it answers");
            });
            assert_eq!(add(&one, word), turn);
        }
    }
}
