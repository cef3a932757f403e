//! What two nodes agree on before anything else.
//!
//! ```text
//! preamble   "drtm" | version u16 | zero u16                                       in the clear
//! hello      kind u8 | sealed u8 | engine u8 | zero u8 | from u16 | to u16 | incarnation u32
//!            | expected incarnation u32 | endpoint u16 | zero u16 | life u32
//!            | address 16 bytes, as of IPv6 | port u16 | zero u16                  sealed by the handshake
//! answer     verdict u8 | zero u8 | zero u16 | incarnation u32                     sealed by the handshake
//! ```
//!
//! The preamble goes into the handshake's transcript, so that a changed one is found. The hello is
//! only acted on when the handshake is [confirmed](super::noise): until then it may be a copy of
//! an earlier one.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::{Incarnation, NodeId};

/// The version of everything that is said.
pub(crate) const VERSION: u16 = 5;

pub(crate) const PREAMBLE: usize = 8;
pub(crate) const HELLO: usize = 44;
pub(crate) const ANSWER: usize = 8;

pub(crate) fn preamble_of(version: u16) -> [u8; PREAMBLE] {
    let [low, high] = version.to_le_bytes();
    [b'd', b'r', b't', b'm', low, high, 0, 0]
}

/// Returns the version that a preamble names. `None` if it is no preamble.
pub(crate) fn version_of(preamble: &[u8; PREAMBLE]) -> Option<u16> {
    let version = u16::from_le_bytes([preamble[4], preamble[5]]);
    (*preamble == preamble_of(version)).then_some(version)
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Each node's knowing of the other.
    Link,
    /// The operations of one endpoint, in one of its lives, on the incarnation that it expects.
    Endpoint { endpoint: u16, life: u32, expected: Incarnation },
    /// The calls of a [visitor](NodeId::VISITOR) on whichever node listens.
    Visit,
    /// [Letters](crate::Letters) of one node to another, whatever they know of each other's lives.
    Letters,
}

/// How a node introduces itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) purpose: Purpose,
    /// Whether what follows the handshake is sealed.
    pub(crate) sealed: bool,
    pub(crate) engine: u8,
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) incarnation: Incarnation,
    /// Where the sender is reached. Without an address where it listens at all that its machine
    /// has.
    pub(crate) at: SocketAddr,
}

impl Hello {
    pub(crate) fn encode(&self) -> [u8; HELLO] {
        let (kind, endpoint, life, expected) = match self.purpose {
            Purpose::Link => (1, 0, 0, Incarnation(0)),
            Purpose::Endpoint { endpoint, life, expected } => (2, endpoint, life, expected),
            Purpose::Visit => (3, 0, 0, Incarnation(0)),
            Purpose::Letters => (4, 0, 0, Incarnation(0)),
        };
        let mut bytes = [0; HELLO];
        bytes[..4].copy_from_slice(&[kind, u8::from(self.sealed), self.engine, 0]);
        bytes[4..6].copy_from_slice(&self.from.0.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.to.0.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.incarnation.0.to_le_bytes());
        bytes[12..16].copy_from_slice(&expected.0.to_le_bytes());
        bytes[16..18].copy_from_slice(&endpoint.to_le_bytes());
        bytes[20..24].copy_from_slice(&life.to_le_bytes());
        let address = match self.at.ip() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        bytes[24..40].copy_from_slice(&address.octets());
        bytes[40..42].copy_from_slice(&self.at.port().to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HELLO] = bytes.try_into().ok()?;
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let u32_at = |at: usize| u32::from(u16_at(at)) | u32::from(u16_at(at + 2)) << 16;
        let purpose = match bytes[0] {
            1 => Purpose::Link,
            2 => Purpose::Endpoint { endpoint: u16_at(16), life: u32_at(20), expected: Incarnation(u32_at(12)) },
            3 => Purpose::Visit,
            4 => Purpose::Letters,
            _ => return None,
        };
        let address: [u8; 16] = bytes[24..40].try_into().ok()?;
        let hello = Self {
            purpose,
            sealed: bytes[1] == 1,
            engine: bytes[2],
            from: NodeId(u16_at(4)),
            to: NodeId(u16_at(6)),
            incarnation: Incarnation(u32_at(8)),
            at: (Ipv6Addr::from(address).to_canonical(), u16_at(40)).into(),
        };
        // One encoding of each.
        (hello.encode() == *bytes).then_some(hello)
    }

    /// Returns whether the sender is another process than the one that is reached at the `known`
    /// address, judged by the address that its connection comes from.
    ///
    /// A machine may have several addresses. So where a node listens at all of them, the one that
    /// its connection comes from says nothing, unless another process `has_its_number` here, or had
    /// it at another address.
    pub(crate) fn is_elsewhere(&self, known: SocketAddr, source: Option<IpAddr>, has_its_number: bool) -> bool {
        let is_known = |ip: IpAddr| ip.to_canonical() == known.ip().to_canonical();
        let is_there = match self.at.ip() {
            ip if ip.is_unspecified() => !has_its_number || source.is_some_and(is_known),
            ip => is_known(ip),
        };
        !is_there || self.at.port() != known.port()
    }
}

/// What becomes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Welcome,
    /// The hello is for another node.
    Addressee,
    /// The sender is not in this node's directory, or not known to be here.
    Unknown,
    /// A later incarnation of the sender is known, or the end of this one.
    Stale,
    Engine,
    /// One side wants what follows sealed, and the other does not.
    Sealing,
    /// This node connects to the sender already.
    Duplicate,
    /// There are as many connections as there may be.
    Full,
    /// The expected incarnation of this node is not this one.
    Incarnation,
    /// The sender is not where this node's directory has it.
    Elsewhere,
}

impl Verdict {
    const ALL: [Self; 10] = [
        Self::Welcome,
        Self::Addressee,
        Self::Unknown,
        Self::Stale,
        Self::Engine,
        Self::Sealing,
        Self::Duplicate,
        Self::Full,
        Self::Incarnation,
        Self::Elsewhere,
    ];
}

/// The answer to a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) verdict: Verdict,
    pub(crate) incarnation: Incarnation,
}

impl Answer {
    pub(crate) fn encode(&self) -> [u8; ANSWER] {
        let mut bytes = [0; ANSWER];
        bytes[0] = self.verdict as u8;
        bytes[4..].copy_from_slice(&self.incarnation.0.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; ANSWER] = bytes.try_into().ok()?;
        let verdict = *Verdict::ALL.get(usize::from(bytes[0]))?;
        let incarnation = Incarnation(u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]));
        let answer = Self { verdict, incarnation };
        (answer.encode() == *bytes).then_some(answer)
    }
}

/// The first byte of what the initiator says when the handshake is done.
pub(crate) const CONFIRM: u8 = 0xC0;

/// What is said on a link, a byte each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkMessage {
    /// The confirmed hello is acted on: each node is there for the other.
    Welcome = 1,
    /// Still there.
    Ping = 2,
    /// Leaves in good order.
    Goodbye = 3,
    /// The other side was silent for too long.
    Suspicion = 4,
    /// This incarnation of the other side is over here, and is not met again.
    Refusal = 5,
}

impl LinkMessage {
    pub(crate) fn decode(byte: u8) -> Option<Self> {
        let all = [Self::Welcome, Self::Ping, Self::Goodbye, Self::Suspicion, Self::Refusal];
        all.into_iter().find(|message| *message as u8 == byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_is_where_the_directory_has_it_or_elsewhere() {
        let known = "10.0.0.1:7000".parse().expect("an address");
        let [here, there] = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().expect("an address"));
        let is_elsewhere = |at: &str, source: IpAddr, has_its_number| {
            let at = at.parse().expect("an address");
            let hello = Hello {
                purpose: Purpose::Link,
                sealed: true,
                engine: 1,
                from: NodeId(1),
                to: NodeId(0),
                incarnation: Incarnation(2),
                at,
            };
            assert_eq!(Hello::decode(&hello.encode()), Some(hello));
            hello.is_elsewhere(known, Some(source), has_its_number)
        };
        for has_its_number in [false, true] {
            // What it says decides, and not where the packets come from.
            assert!(!is_elsewhere("10.0.0.1:7000", there, has_its_number));
            assert!(is_elsewhere("10.0.0.2:7000", here, has_its_number));
            assert!(is_elsewhere("10.0.0.1:7001", here, has_its_number));
            assert!(!is_elsewhere("0.0.0.0:7000", here, has_its_number));
            assert!(is_elsewhere("[::]:7001", here, has_its_number));
        }
        // It listens everywhere, and its machine may have several addresses.
        assert!(!is_elsewhere("[::]:7000", there, false));
        assert!(is_elsewhere("[::]:7000", there, true));
    }
}
