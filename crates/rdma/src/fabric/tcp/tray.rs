//! What other threads leave for the thread that carries a node's letters (`post`): letters, and
//! connections on which others come.

use std::{
    collections::HashMap,
    fmt,
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
};

use parking_lot::Mutex;

use crate::{Incarnation, LONGEST_LETTER, NodeId};

use super::{bell::Bell, dial::Wire, hello::Hello};

/// Bytes of letters that wait for one node.
const MOST_WAITING: usize = 2 * LONGEST_LETTER;

/// Letters that wait for one node.
const MOST_LETTERS: usize = 1024;

/// A connection that a peer has made for its letters.
pub(super) struct Arrival {
    pub(super) node: NodeId,
    pub(super) incarnation: Incarnation,
    /// Where the directory had the peer then.
    pub(super) at: SocketAddr,
    pub(super) wire: Wire,
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
pub(super) struct Tray {
    pub(super) bell: Bell,
    waiting: Mutex<Waiting>,
    is_closed: AtomicBool,
}

impl fmt::Debug for Tray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tray(..)")
    }
}

impl Tray {
    pub(super) fn new(bell: Bell) -> Self {
        Self { bell, waiting: Mutex::default(), is_closed: AtomicBool::new(false) }
    }

    /// Returns whether the thread is to end.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(SeqCst)
    }

    /// Takes what is here: letters for each node, and connections.
    pub(super) fn take(&self) -> (HashMap<NodeId, Vec<Vec<u8>>>, Vec<Arrival>) {
        let mut waiting = self.waiting.lock();
        (std::mem::take(&mut waiting.letters), std::mem::take(&mut waiting.arrivals))
    }

    /// Leaves a letter. Returns false if there are as many as there may be, or the node has left.
    pub(super) fn leave(&self, to: NodeId, letter: Vec<u8>) -> bool {
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
    pub(super) fn is_quiet(&self) -> bool {
        let waiting = self.waiting.lock();
        waiting.arrivals.is_empty() && waiting.letters.is_empty() && !self.is_closed.load(SeqCst)
    }

    /// Makes room for as many letters as were sent or dropped.
    pub(super) fn made_room(&self, to: NodeId, (letters, bytes): (usize, usize)) {
        if letters > 0
            && let Some(size) = self.waiting.lock().sizes.get_mut(&to)
        {
            *size = (size.0.saturating_sub(letters), size.1.saturating_sub(bytes));
        }
    }
}
