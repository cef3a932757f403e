//! The packets that processes of a group send over their sockets: of a fixed size, received whole
//! or not at all, some with a file.
//!
//! ```text
//! byte   0..4    "drtm"
//!        4..6    format
//!        6..8    kind: 1 hello, 2 welcome, 3 region, 4 goodbye, 5 refusal
//!        8..10   node
//!       10..12   region
//!       12..16   incarnation
//!       16..20   kind of engine
//!       20..36   version of the library, padded with zeros
//!       36..64   zero
//! ```
//!
//! All numbers are little-endian. A packet comes from another process of the same user, and is
//! checked all the same.

use std::{
    fs::File,
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    io::Errno,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
        recvmsg, sendmsg,
    },
};

use crate::{Incarnation, NodeId, RegionId};

const BYTES: usize = 64;
const MAGIC: [u8; 4] = *b"drtm";
const FORMAT: u16 = 1;

/// The version that both sides must share.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// From a joining process, with its control memory.
    Hello,
    /// The answer of an existing process, with its control memory.
    Welcome,
    /// A region, with its file.
    Region,
    /// The node leaves.
    Goodbye,
    /// The joining process does not match.
    Refusal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) kind: Kind,
    pub(super) node: NodeId,
    pub(super) region: RegionId,
    pub(super) incarnation: Incarnation,
    pub(super) engine: u32,
    pub(super) version: [u8; 16],
}

impl Packet {
    pub(super) fn new(kind: Kind, node: NodeId, incarnation: Incarnation, engine: u64) -> Self {
        let mut version = [0; 16];
        let length = VERSION.len().min(version.len());
        version[..length].copy_from_slice(&VERSION.as_bytes()[..length]);
        Self { kind, node, region: RegionId(0), incarnation, engine: engine as u32, version }
    }

    fn packed(&self) -> [u8; BYTES] {
        let kind: u16 = match self.kind {
            Kind::Hello => 1,
            Kind::Welcome => 2,
            Kind::Region => 3,
            Kind::Goodbye => 4,
            Kind::Refusal => 5,
        };
        let mut bytes = [0; BYTES];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[6..8].copy_from_slice(&kind.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.node.0.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.region.0.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.incarnation.0.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.engine.to_le_bytes());
        bytes[20..36].copy_from_slice(&self.version);
        bytes
    }

    fn unpacked(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; BYTES] = bytes.try_into().ok()?;
        let two = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let four = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if bytes[0..4] != MAGIC || two(4) != FORMAT || bytes[36..].iter().any(|byte| *byte != 0) {
            return None;
        }
        let kind = match two(6) {
            1 => Kind::Hello,
            2 => Kind::Welcome,
            3 => Kind::Region,
            4 => Kind::Goodbye,
            5 => Kind::Refusal,
            _ => return None,
        };
        let mut version = [0; 16];
        version.copy_from_slice(&bytes[20..36]);
        Some(Self {
            kind,
            node: NodeId(two(8)),
            region: RegionId(two(10)),
            incarnation: Incarnation(four(12)),
            engine: four(16),
            version,
        })
    }

    /// Returns whether a process that sends this can be a peer of one that would send `ours`.
    pub(super) fn fits(&self, ours: &Self) -> bool {
        self.version == ours.version && self.engine == ours.engine
    }
}

/// The result of receiving from a socket.
#[derive(Debug)]
pub(super) enum Post {
    Packet(Packet, Option<File>),
    /// No packet is there yet.
    Nothing,
    /// The other side is gone, or violates the protocol.
    Over,
}

/// Sends a packet. It never blocks: a socket has room for all that is ever sent at a time.
pub(super) fn send(socket: impl AsFd, packet: &Packet, file: Option<BorrowedFd<'_>>) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = file.as_slice();
    if !files.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(files));
    }
    let bytes = packet.packed();
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, flags).map(drop)
}

/// Takes the next packet, if there is one. Unexpected files are closed.
pub(super) fn receive(socket: impl AsFd) -> Post {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; BYTES + 1];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut was_reset = false;
    let received = loop {
        match recvmsg(&socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
            Ok(received) => break received.bytes,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Post::Nothing,
            // The error is reported once, if the peer closed before it took all packets. It comes
            // before the packets of the peer itself, such as its goodbye.
            Err(Errno::CONNRESET) if !was_reset => was_reset = true,
            Err(_) => return Post::Over,
        }
    };
    let files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let file: Option<OwnedFd> = files.flatten().last();
    match Packet::unpacked(&bytes[..received]) {
        Some(packet) => Post::Packet(packet, file.map(File::from)),
        None => Post::Over,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn letters_survive_the_way() {
        for kind in [Kind::Hello, Kind::Welcome, Kind::Region, Kind::Goodbye, Kind::Refusal] {
            let mut packet = Packet::new(kind, NodeId(9), Incarnation(77), 2);
            packet.region = RegionId(3);
            assert_eq!(Packet::unpacked(&packet.packed()), Some(packet));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_whatever_are_more_than_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..80), magic: bool) {
            if magic && bytes.len() >= 6 {
                bytes[0..4].copy_from_slice(&MAGIC);
                bytes[4..6].copy_from_slice(&FORMAT.to_le_bytes());
            }
            if let Some(packet) = Packet::unpacked(&bytes) {
                prop_assert_eq!(&packet.packed()[..], &bytes[..]);
            }
        }
    }
}
