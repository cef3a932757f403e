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
    sync::{Arc, atomic::Ordering::SeqCst},
    thread::{self, JoinHandle},
    time::Duration,
};

use drtm_htm::Engine;

use crate::{FabricError, LONGEST_LETTER, Letters, NodeId, TakeLetter, sync::time};

use super::{
    bell::{Bell, Ready},
    shared::Shared,
    tray::Tray,
};
use incoming::Incoming;
use outgoing::Outgoing;

/// In a token: that the connection is one that this node was dialled by.
const INCOMING: u64 = 1 << 32;

/// A node's handle of its letters.
pub(super) struct PostBox<E: Engine> {
    shared: Arc<Shared<E>>,
    post: Arc<Tray>,
    thread: Option<JoinHandle<()>>,
}

impl<E: Engine> PostBox<E> {
    /// Starts the thread that carries the letters of a node.
    pub(super) fn open(shared: &Arc<Shared<E>>, take: TakeLetter) -> Result<Self, FabricError> {
        let node = shared.node;
        let bell = Bell::new().map_err(|_| FabricError::NoDescriptors { node })?;
        let post = Arc::new(Tray::new(bell));
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
    post: Arc<Tray>,
    take: TakeLetter,
    outgoing: HashMap<NodeId, Outgoing>,
    incoming: HashMap<NodeId, Incoming>,
}

impl<E: Engine> Postman<E> {
    fn run(&mut self) {
        let mut ready = Vec::new();
        while !self.post.is_closed() {
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
        let (letters, arrivals) = self.post.take();
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
