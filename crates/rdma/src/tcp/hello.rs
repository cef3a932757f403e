//! What two nodes agree on before anything else.
//!
//! ```text
//! preamble   "drtm" | version u16 | zero u16                                       in the clear
//! hello      kind u8 | sealed u8 | engine u8 | zero u8 | from u16 | to u16 | incarnation u32
//!            | expected incarnation u32 | endpoint u16 | zero u16 | life u32       sealed by the handshake
//! answer     verdict u8 | zero u8 | zero u16 | incarnation u32                     sealed by the handshake
//! ```
//!
//! The preamble goes into the handshake's transcript, so that a changed one is found. The hello is
//! only acted on when the handshake is [confirmed](super::noise): until then it may be a copy of
//! an earlier one.

use crate::{Incarnation, NodeId};

/// The version of everything that is said.
pub(crate) const VERSION: u16 = 1;

pub(crate) const PREAMBLE: usize = 8;
pub(crate) const HELLO: usize = 24;
pub(crate) const ANSWER: usize = 8;

pub(crate) fn preamble_of(version: u16) -> [u8; PREAMBLE] {
    let [low, high] = version.to_le_bytes();
    [b'd', b'r', b't', b'm', low, high, 0, 0]
}

/// The version that a preamble names, if it is one.
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
}

impl Hello {
    pub(crate) fn encode(&self) -> [u8; HELLO] {
        let (kind, endpoint, life, expected) = match self.purpose {
            Purpose::Link => (1, 0, 0, Incarnation(0)),
            Purpose::Endpoint { endpoint, life, expected } => (2, endpoint, life, expected),
        };
        let mut bytes = [0; HELLO];
        bytes[..4].copy_from_slice(&[kind, u8::from(self.sealed), self.engine, 0]);
        bytes[4..6].copy_from_slice(&self.from.0.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.to.0.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.incarnation.0.to_le_bytes());
        bytes[12..16].copy_from_slice(&expected.0.to_le_bytes());
        bytes[16..18].copy_from_slice(&endpoint.to_le_bytes());
        bytes[20..24].copy_from_slice(&life.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HELLO] = bytes.try_into().ok()?;
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let u32_at = |at: usize| u32::from(u16_at(at)) | u32::from(u16_at(at + 2)) << 16;
        let purpose = match bytes[0] {
            1 => Purpose::Link,
            2 => Purpose::Endpoint { endpoint: u16_at(16), life: u32_at(20), expected: Incarnation(u32_at(12)) },
            _ => return None,
        };
        let hello = Self {
            purpose,
            sealed: bytes[1] == 1,
            engine: bytes[2],
            from: NodeId(u16_at(4)),
            to: NodeId(u16_at(6)),
            incarnation: Incarnation(u32_at(8)),
        };
        // One encoding of each.
        (hello.encode() == *bytes).then_some(hello)
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
}

impl Verdict {
    const ALL: [Self; 9] = [
        Self::Welcome,
        Self::Addressee,
        Self::Unknown,
        Self::Stale,
        Self::Engine,
        Self::Sealing,
        Self::Duplicate,
        Self::Full,
        Self::Incarnation,
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
pub(crate) enum Letter {
    /// The confirmed hello is acted on: each node is there for the other.
    Welcome = 1,
    /// Still there.
    Ping = 2,
    /// Leaves in good order.
    Goodbye = 3,
    /// The other side was silent for too long.
    Suspicion = 4,
}

impl Letter {
    pub(crate) fn decode(byte: u8) -> Option<Self> {
        [Self::Welcome, Self::Ping, Self::Goodbye, Self::Suspicion].into_iter().find(|letter| *letter as u8 == byte)
    }
}
