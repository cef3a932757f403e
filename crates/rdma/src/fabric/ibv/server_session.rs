//! A node's side of a session by datagrams with one endpoint of a peer.

use std::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};

use parking_lot::Mutex;

use crate::fabric::{
    datagrams::{PREFIX, Stream, WINDOW},
    die,
    header::{HEADER, Header},
    tcp::Caller,
};

use super::{
    Posted, VerbsError,
    datagram_pair::DatagramPair,
    responder::{Owner, Sent},
    setup::Contact,
};

#[derive(Debug)]
pub(super) struct ServerSession {
    pub(super) owner: Owner,
    /// Where it gets its datagrams.
    pub(super) contact: Contact,
    closed: AtomicBool,
    pub(super) stream: Mutex<Stream>,
}

impl ServerSession {
    /// Creates a session with the endpoint of a caller, which sends datagrams with the token of the
    /// node's contact.
    pub(super) fn new(caller: &Caller, theirs: Contact, mine: &Contact, message_bytes: usize) -> Self {
        let parcel = mine.datagram().min(theirs.datagram()) - PREFIX;
        let stream = Stream::new(theirs.token, mine.token, parcel, HEADER + message_bytes);
        Self { owner: Owner::of(caller), contact: theirs, closed: AtomicBool::new(false), stream: Mutex::new(stream) }
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Release);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Acquire)
    }

    /// Sends a reply, or a refusal, by a queue pair for datagrams of the node.
    pub(super) fn send(
        &self,
        head: Header,
        bytes: &[u8],
        datagrams: &mut DatagramPair,
        posted: &mut Posted,
    ) -> Result<Sent, VerbsError> {
        if self.is_closed() {
            return Ok(Sent::Done);
        }
        let Some(mut stream) = self.stream.try_lock() else { return Ok(Sent::Busy) };
        // What is beyond the window is sent when the endpoint has acknowledged what is before it.
        if !datagrams.has_room(stream.parcels(HEADER + bytes.len()).min(WINDOW))? {
            return Ok(Sent::Busy);
        }
        stream.post(&head.encode(), bytes, false);
        datagrams.send_datagrams(&mut stream, &self.contact)?;
        datagrams.flush(posted)?;
        die::site("nic.replied");
        Ok(Sent::Done)
    }
}
