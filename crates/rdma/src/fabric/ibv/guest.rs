//! A node's side of a talk by datagrams with one endpoint of a peer.

use std::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};

use parking_lot::Mutex;

use crate::fabric::{
    datagrams::{PREFIX, Talk, WINDOW},
    die,
    tcp::Caller,
};

use super::{
    Posted, VerbsError,
    lane::{Owner, Sent},
    letters::{HEAD, Head},
    mouth::Mouth,
    setup::Contact,
};

#[derive(Debug)]
pub(super) struct Guest {
    pub(super) owner: Owner,
    /// Where it gets its datagrams.
    pub(super) contact: Contact,
    closed: AtomicBool,
    pub(super) talk: Mutex<Talk>,
}

impl Guest {
    /// A talk with the endpoint of a caller, which sends datagrams with the token that the node's
    /// contact has.
    pub(super) fn new(caller: &Caller, theirs: Contact, mine: &Contact, message_bytes: usize) -> Self {
        let parcel = mine.datagram().min(theirs.datagram()) - PREFIX;
        let talk = Talk::new(theirs.token, mine.token, parcel, HEAD + message_bytes);
        Self { owner: Owner::of(caller), contact: theirs, closed: AtomicBool::new(false), talk: Mutex::new(talk) }
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Release);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Acquire)
    }

    /// Sends a reply, or a refusal, by a mouth of the node.
    pub(super) fn send(
        &self,
        head: Head,
        bytes: &[u8],
        mouth: &mut Mouth,
        posted: &mut Posted,
    ) -> Result<Sent, VerbsError> {
        if self.is_closed() {
            return Ok(Sent::Done);
        }
        let Some(mut talk) = self.talk.try_lock() else { return Ok(Sent::Busy) };
        // What is beyond the window is sent when the endpoint has acknowledged what is before it.
        if !mouth.has_room(talk.parcels(HEAD + bytes.len()).min(WINDOW))? {
            return Ok(Sent::Busy);
        }
        talk.post(&head.encode(), bytes, false);
        mouth.speak(&mut talk, &self.contact)?;
        mouth.flush(posted)?;
        die::site("nic.replied");
        Ok(Sent::Done)
    }
}
