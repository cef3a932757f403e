//! Letters over TCP: a thread of their own, with connections of their own.
//!
//! A connection for letters begins with the handshake of any other (`handshake`), and is then given
//! to this thread, which reads it. Each node dials the ones that it has letters for, so a
//! connection carries letters in one direction, and nothing is said in the other. No endpoint and
//! no worker takes part, and the node's own thread has the handshake only.
//!
//! Letters are the frames of messages (`wire`), of which the last one of a letter is marked as
//! signaled. What a peer can take is bounded: one connection for each node of the directory, and
//! one letter for each connection. Where letters cannot be sent as fast as they come, the newest
//! are dropped.

mod incoming;
mod outgoing;

use std::{
    collections::HashMap,
    fmt,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use drtm_htm::Engine;
use parking_lot::Mutex;

use crate::{FabricError, Incarnation, LONGEST_LETTER, Letters, NodeId, TakeLetter, sync::time};

use super::{
    bell::{Bell, Ready},
    dial::Wire,
    hello::Hello,
    shared::Shared,
};
use incoming::Incoming;
use outgoing::Outgoing;

/// Bytes of letters that wait for one node.
const MOST_WAITING: usize = 2 * LONGEST_LETTER;

/// Letters that wait for one node.
const MOST_LETTERS: usize = 1024;

/// In a token: that the connection is one that this node was dialled by.
const INCOMING: u64 = 1 << 32;

/// A connection that a peer has made for its letters.
pub(super) struct Arrival {
    node: NodeId,
    incarnation: Incarnation,
    /// Where the directory had the peer then.
    at: SocketAddr,
    wire: Wire,
}

/// What waits for the thread.
#[derive(Default)]
struct Waiting {
    letters: HashMap<NodeId, Vec<Vec<u8>>>,
    /// Letters and bytes of them that wait for a node, here or with the thread.
    sizes: HashMap<NodeId, (usize, usize)>,
    arrivals: Vec<Arrival>,
}

/// What other threads leave for the thread that carries a node's letters.
pub(super) struct Post {
    bell: Bell,
    waiting: Mutex<Waiting>,
    is_closed: AtomicBool,
}

impl fmt::Debug for Post {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Post(..)")
    }
}

impl Post {
    /// Leaves a letter. Returns false if there are as many as there may be, or the node has left.
    fn leave(&self, to: NodeId, letter: Vec<u8>) -> bool {
        if self.is_closed.load(SeqCst) {
            return false;
        }
        {
            let mut waiting = self.waiting.lock();
            let (count, bytes) = waiting.sizes.entry(to).or_default();
            if *count >= MOST_LETTERS || *bytes + letter.len() > MOST_WAITING {
                return false;
            }
            (*count, *bytes) = (*count + 1, *bytes + letter.len());
            waiting.letters.entry(to).or_default().push(letter);
        }
        self.bell.rouse();
        true
    }

    /// Leaves a connection whose handshake is done.
    pub(super) fn accept(&self, hello: &Hello, at: SocketAddr, wire: Wire) {
        let arrival = Arrival { node: hello.from, incarnation: hello.incarnation, at, wire };
        self.waiting.lock().arrivals.push(arrival);
        self.bell.rouse();
    }

    /// Ends the thread.
    pub(super) fn close(&self) {
        self.is_closed.store(true, SeqCst);
        self.bell.insist();
    }

    /// Returns whether nothing waits for the thread.
    fn is_quiet(&self) -> bool {
        let waiting = self.waiting.lock();
        waiting.arrivals.is_empty() && waiting.letters.is_empty() && !self.is_closed.load(SeqCst)
    }

    /// Makes room for as many letters as were sent or dropped.
    fn made_room(&self, to: NodeId, (letters, bytes): (usize, usize)) {
        if letters > 0
            && let Some(size) = self.waiting.lock().sizes.get_mut(&to)
        {
            *size = (size.0.saturating_sub(letters), size.1.saturating_sub(bytes));
        }
    }
}

/// A node's handle of its letters.
pub(super) struct PostBox<E: Engine> {
    shared: Arc<Shared<E>>,
    post: Arc<Post>,
    thread: Option<JoinHandle<()>>,
}

impl<E: Engine> PostBox<E> {
    /// Starts the thread that carries the letters of a node.
    pub(super) fn open(shared: &Arc<Shared<E>>, take: TakeLetter) -> Result<Self, FabricError> {
        let node = shared.node;
        let bell = Bell::new().map_err(|_| FabricError::NoDescriptors { node })?;
        let post = Arc::new(Post { bell, waiting: Mutex::default(), is_closed: AtomicBool::new(false) });
        {
            let mut open = shared.post.lock();
            if shared.leaving.load(SeqCst) {
                return Err(FabricError::Closed { node });
            }
            if open.is_some() {
                return Err(FabricError::LettersTaken { node });
            }
            *open = Some(Arc::clone(&post));
        }
        let mut postman = Postman {
            shared: Arc::clone(shared),
            post: Arc::clone(&post),
            take,
            outgoing: HashMap::new(),
            incoming: HashMap::new(),
        };
        let name = format!("drtm-letters-{}", node.0);
        let mut opened = Self { shared: Arc::clone(shared), post, thread: None };
        let thread = thread::Builder::new().name(name).spawn(move || postman.run());
        opened.thread = Some(thread.map_err(|_| FabricError::NoThread { node })?);
        Ok(opened)
    }
}

impl<E: Engine> Letters for PostBox<E> {
    fn send(&self, to: NodeId, letter: Vec<u8>) -> bool {
        let is_other = to != self.shared.node && self.shared.directory.place(to).is_some();
        is_other && letter.len() <= LONGEST_LETTER && self.post.leave(to, letter)
    }
}

impl<E: Engine> Drop for PostBox<E> {
    fn drop(&mut self) {
        self.post.close();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            // A panic of it has been reported by then.
            let _ = thread.join();
        }
        self.shared.post.lock().take();
    }
}

impl<E: Engine> fmt::Debug for PostBox<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostBox").field("node", &self.shared.node).finish_non_exhaustive()
    }
}

/// What carries a node's letters.
struct Postman<E: Engine> {
    shared: Arc<Shared<E>>,
    post: Arc<Post>,
    take: TakeLetter,
    outgoing: HashMap<NodeId, Outgoing>,
    incoming: HashMap<NodeId, Incoming>,
}

impl<E: Engine> Postman<E> {
    fn run(&mut self) {
        let mut ready = Vec::new();
        while !self.post.is_closed.load(SeqCst) {
            self.collect();
            for Ready { token, .. } in std::mem::take(&mut ready) {
                if token & INCOMING != 0 {
                    self.hear(NodeId(token as u16));
                }
            }
            let next = self.send();
            self.post.bell.sleep(&mut ready, next, || self.post.is_quiet());
        }
    }

    /// Takes what other threads have left.
    fn collect(&mut self) {
        let (letters, arrivals) = {
            let mut waiting = self.post.waiting.lock();
            (std::mem::take(&mut waiting.letters), std::mem::take(&mut waiting.arrivals))
        };
        for (node, letters) in letters {
            self.outgoing.entry(node).or_insert_with(|| Outgoing::new(node)).push(letters);
        }
        for arrival in arrivals {
            let node = arrival.node;
            // An older life of the node may have come late.
            if self.incoming.get(&node).is_some_and(|known| known.incarnation > arrival.incarnation) {
                continue;
            }
            if let Some(before) = self.incoming.remove(&node) {
                self.post.bell.forget(&before.wire.socket);
            }
            if let Some(incoming) = Incoming::new(arrival, &self.post.bell) {
                self.incoming.insert(node, incoming);
                // It is here, so it can be dialled.
                if let Some(outgoing) = self.outgoing.get_mut(&node) {
                    outgoing.dial_at_once();
                }
                // Some may have come with the end of the handshake.
                self.hear(node);
            }
        }
    }

    /// Delivers what has come on a connection.
    fn hear(&mut self, node: NodeId) {
        let Some(incoming) = self.incoming.get_mut(&node) else { return };
        // What is at another address by now is not the node any more.
        let is_there = self.shared.directory.address(node) == Some(incoming.at);
        let heard = if is_there { incoming.hear(&mut self.take) } else { Ok(false) };
        match heard {
            Ok(true) => return,
            Ok(false) => {}
            Err(refusal) => self.shared.refusals.count(refusal),
        }
        if let Some(ended) = self.incoming.remove(&node) {
            self.post.bell.forget(&ended.wire.socket);
        }
    }

    /// Sends what can be sent. Returns after how long there is more to do.
    fn send(&mut self) -> Option<Duration> {
        let now = time::of_this_machine();
        let mut next = None;
        for (node, outgoing) in &mut self.outgoing {
            let due = outgoing.advance(&self.shared, &self.post.bell, now);
            self.post.made_room(*node, outgoing.take_gone());
            next = next.into_iter().chain(due.map(|due| due.since(now))).min();
        }
        next
    }
}
