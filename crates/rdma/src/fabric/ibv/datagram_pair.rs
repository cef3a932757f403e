//! A queue pair for datagrams (UD), of an endpoint or of a node, to and from all peers.

use std::{collections::HashMap, sync::Arc};

use crate::fabric::datagrams::{PREFIX, Prefix, Stream};

use super::{
    Posted, VerbsError,
    number::Number,
    setup::Contact,
    sys::{Action, Address, Completion, CompletionQueue, Device, End, Exit, QueuePair, Requests, Shape, Slab},
};

/// The most datagrams that may be under way. They are on the wire in a moment, so more are of no
/// use.
const DEPTH: usize = 128;

/// Every so many of them one is signaled.
const SIGNALED: u64 = 16;

/// What the NIC puts before a datagram that it has received: where it came from.
const ROUTE: usize = 40;

/// In place of a queue's number: what completes is a datagram that has come.
pub(super) const DATAGRAMS: u16 = u16::MAX;

pub(super) struct DatagramPair {
    /// The pair goes first, then what it uses.
    pair: QueuePair,
    sends: Arc<CompletionQueue>,
    /// A buffer for each datagram that may be under way, used in turns.
    from: Slab,
    into: Slab,
    /// Bytes of the largest datagram.
    most: usize,
    inline: usize,
    /// The number of datagrams that were posted, and of those that are known to be sent.
    begun: u64,
    over: u64,
    requests: Requests,
    completions: Vec<Completion>,
    /// By the address of the port. They are kept, since requests name them.
    addresses: HashMap<([u8; 16], u16), Address>,
    /// Where it gets datagrams, but for the token.
    contact: Contact,
    device: Arc<Device>,
    exit: Exit,
}

impl DatagramPair {
    /// Makes a queue pair that receives as many datagrams as `count`, by completions of `received`.
    pub(super) fn new(
        device: &Arc<Device>,
        exit: Exit,
        end: &End,
        received: &Arc<CompletionQueue>,
        count: usize,
        inline: usize,
    ) -> Result<Self, VerbsError> {
        let sends = Arc::new(CompletionQueue::new(device, DEPTH, false)?);
        // A datagram names its address, for which some devices take room of what is inline.
        let (pair, inline) = match open(device, &sends, received, count, inline) {
            Ok(pair) => (pair, inline),
            Err(_) => (open(device, &sends, received, count, 0)?, 0),
        };
        // Unprivileged keys have no high bit.
        let key = (super::random() >> 33) as u32;
        pair.open(exit, key)?;
        let contact = Contact { token: 0, pair: pair.number(), key, gid: end.gid, lid: end.lid, mtu: end.mtu };
        let most = contact.datagram();
        let (requests, completions, addresses) = Default::default();
        let mut made = Self {
            pair,
            sends,
            from: Slab::new(device, DEPTH * most, false)?,
            into: Slab::new(device, count * (ROUTE + most), false)?,
            most,
            inline,
            begun: 0,
            over: 0,
            requests,
            completions,
            addresses,
            contact,
            device: Arc::clone(device),
            exit,
        };
        for place in 0..count {
            made.repost(place as u32)?;
        }
        Ok(made)
    }

    /// Returns where it gets datagrams with a token.
    pub(super) fn contact(&self, token: u64) -> Contact {
        Contact { token, ..self.contact }
    }

    /// Returns whether so many datagrams can be sent.
    pub(super) fn has_room(&mut self, count: usize) -> Result<bool, VerbsError> {
        let has = |pair: &Self| (pair.begun - pair.over) as usize + count <= DEPTH;
        if !has(self) {
            self.reclaim()?;
        }
        Ok(has(self))
    }

    /// Prepares the datagrams that one side of a stream has to send, as far as there is room.
    /// [`flush`](Self::flush) sends them.
    pub(super) fn send_datagrams(&mut self, stream: &mut Stream, to: &Contact) -> Result<(), VerbsError> {
        while let Some((prefix, parcel)) = stream.next() {
            if !self.has_room(1)? {
                break;
            }
            self.prepare(to, &prefix, parcel)?;
            stream.sent();
        }
        Ok(())
    }

    fn prepare(&mut self, to: &Contact, prefix: &Prefix, parcel: &[u8]) -> Result<(), VerbsError> {
        if !self.addresses.contains_key(&(to.gid, to.lid)) {
            let address = Address::new(&self.device, self.exit, to.gid, to.lid)?;
            self.addresses.insert((to.gid, to.lid), address);
        }
        let (id, length) = (self.begun, PREFIX + parcel.len());
        let at = id as usize % DEPTH * self.most;
        self.from.write(at, &prefix.encode());
        self.from.write(at + PREFIX, parcel);
        self.requests.push(id, Action::Send, self.from.span(at, length), length <= self.inline);
        if let Some(address) = self.addresses.get(&(to.gid, to.lid)) {
            self.requests.direct_last(address, to.pair, to.key);
        }
        self.begun += 1;
        if self.begun.is_multiple_of(SIGNALED) {
            self.requests.signal_last();
        }
        Ok(())
    }

    /// Sends what is prepared, by one doorbell.
    pub(super) fn flush(&mut self, posted: &mut Posted) -> Result<(), VerbsError> {
        let count = self.requests.len() as u64;
        if count == 0 {
            return Ok(());
        }
        posted.doorbells += 1;
        posted.requests += count;
        posted.signaled += self.begun / SIGNALED - (self.begun - count) / SIGNALED;
        posted.inlined += self.requests.inlined();
        self.pair.post(&mut self.requests)
    }

    fn reclaim(&mut self) -> Result<(), VerbsError> {
        while self.sends.take(&mut self.completions) {}
        for completion in self.completions.drain(..) {
            if let Some(status) = completion.failure {
                return Err(VerbsError::Failed { status });
            }
            self.over = completion.id + 1;
        }
        Ok(())
    }

    /// Reads a datagram that was received: its prefix, and a parcel that replaces `parcel`. `None`
    /// if it has no prefix.
    pub(super) fn read(&self, place: u32, length: usize, parcel: &mut Vec<u8>) -> Option<Prefix> {
        let bytes = length.checked_sub(ROUTE + PREFIX)?;
        let at = place as usize * (ROUTE + self.most) + ROUTE;
        let mut prefix = [0; PREFIX];
        self.into.read(at, &mut prefix);
        parcel.resize(bytes, 0);
        self.into.read(at + PREFIX, parcel);
        Some(Prefix::decode(&prefix))
    }

    /// Gives the memory of a datagram to the next.
    pub(super) fn repost(&mut self, place: u32) -> Result<(), VerbsError> {
        let number = Number { queue: DATAGRAMS, connection: 0, request: place };
        let size = ROUTE + self.most;
        self.pair.post_receive(number.encode(), self.into.span(place as usize * size, size))
    }
}

fn open(
    device: &Arc<Device>,
    sends: &Arc<CompletionQueue>,
    receives: &Arc<CompletionQueue>,
    count: usize,
    inline: usize,
) -> Result<QueuePair, VerbsError> {
    let (most_sends, most_receives) = (DEPTH, count);
    QueuePair::new(device, &Shape { sends, receives, shared: None, most_sends, most_receives, inline, datagrams: true })
}

impl std::fmt::Debug for DatagramPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DatagramPair").field("contact", &self.contact).finish_non_exhaustive()
    }
}
