//! What endpoints and nodes tell each other, over TCP, so that their NICs can communicate.
//!
//! ```text
//! connect    1 | end                                    an endpoint's end of a connection
//! ask        2 | region u16                             what of a region can be accessed
//! open       3 | contact                                where an endpoint gets datagrams
//!
//! connected  1 | end                                    the node's end of it
//! region     2 | allocated u64 | (start u64 | end u64 | key u32)...
//! unknown    3                                          no such region
//! refused    4 | why, as text
//! opened     5 | contact                                where the node gets the endpoint's
//!
//! end        pair u32 | first packet u32 | gid 16 bytes | lid u16 | mtu u8 | reads in u8 | reads out u8
//! contact    token u64 | pair u32 | key u32 | gid 16 bytes | lid u16 | mtu u8
//! ```
//!
//! All numbers are little-endian. It is said on a connection whose peer has the cluster's key, and
//! sealed as everything there is. What is malformed is refused all the same.

use crate::RegionId;

use super::sys::End;

const END: usize = 29;
const EXTENT: usize = 20;

/// What the library calls the smallest and the largest packets.
const MTUS: std::ops::RangeInclusive<u8> = 1..=5;

/// Queue pairs and packets have numbers of 24 bits.
const NUMBERS: u32 = 1 << 24;

/// A part of a region, as its owner's NIC knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) key: u32,
}

/// Where one side of a session gets its datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Contact {
    /// What they begin with.
    pub(super) token: u64,
    pub(super) pair: u32,
    /// The queue pair's key.
    pub(super) key: u32,
    pub(super) gid: [u8; 16],
    pub(super) lid: u16,
    pub(super) mtu: u8,
}

impl Contact {
    /// Returns the bytes of the largest datagram.
    pub(super) fn datagram(&self) -> usize {
        128 << self.mtu
    }
}

/// What an endpoint wants of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Connect(End),
    Ask(RegionId),
    OpenSession(Contact),
}

/// What a node answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Connected(End),
    Region { allocated: u64, extents: Vec<Extent> },
    UnknownRegion,
    Refused(String),
    SessionOpened(Contact),
}

fn put_end(end: &End, into: &mut Vec<u8>) {
    into.extend(end.pair.to_le_bytes());
    into.extend(end.first_packet.to_le_bytes());
    into.extend(end.gid);
    into.extend(end.lid.to_le_bytes());
    into.extend([end.mtu, end.reads_in, end.reads_out]);
}

fn end_of(bytes: &[u8]) -> Option<End> {
    let bytes: &[u8; END] = bytes.try_into().ok()?;
    let (pair, rest) = bytes.split_first_chunk()?;
    let (first_packet, rest) = rest.split_first_chunk()?;
    let (gid, rest) = rest.split_first_chunk()?;
    let (lid, rest) = rest.split_first_chunk()?;
    let [mtu, reads_in, reads_out] = *rest else { return None };
    let (pair, first_packet) = (u32::from_le_bytes(*pair), u32::from_le_bytes(*first_packet));
    let end = End { pair, first_packet, gid: *gid, lid: u16::from_le_bytes(*lid), mtu, reads_in, reads_out };
    (pair < NUMBERS && first_packet < NUMBERS && MTUS.contains(&mtu)).then_some(end)
}

fn put_contact(contact: &Contact, into: &mut Vec<u8>) {
    into.extend(contact.token.to_le_bytes());
    into.extend(contact.pair.to_le_bytes());
    into.extend(contact.key.to_le_bytes());
    into.extend(contact.gid);
    into.extend(contact.lid.to_le_bytes());
    into.push(contact.mtu);
}

fn contact_of(bytes: &[u8]) -> Option<Contact> {
    let (token, rest) = bytes.split_first_chunk()?;
    let (pair, rest) = rest.split_first_chunk()?;
    let (key, rest) = rest.split_first_chunk()?;
    let (gid, rest) = rest.split_first_chunk()?;
    let (lid, rest) = rest.split_first_chunk()?;
    let [mtu] = *rest else { return None };
    let (token, pair, key) = (u64::from_le_bytes(*token), u32::from_le_bytes(*pair), u32::from_le_bytes(*key));
    let contact = Contact { token, pair, key, gid: *gid, lid: u16::from_le_bytes(*lid), mtu };
    (pair < NUMBERS && MTUS.contains(&mtu)).then_some(contact)
}

impl Request {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(1 + END);
        match self {
            Self::Connect(end) => {
                bytes.push(1);
                put_end(end, &mut bytes);
            }
            Self::Ask(region) => {
                bytes.push(2);
                bytes.extend(region.0.to_le_bytes());
            }
            Self::OpenSession(contact) => {
                bytes.push(3);
                put_contact(contact, &mut bytes);
            }
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes.split_first()? {
            (1, end) => end_of(end).map(Self::Connect),
            (2, region) => Some(Self::Ask(RegionId(u16::from_le_bytes(region.try_into().ok()?)))),
            (3, contact) => contact_of(contact).map(Self::OpenSession),
            _ => None,
        }
    }
}

impl Answer {
    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Connected(end) => {
                bytes.push(1);
                put_end(end, bytes);
            }
            Self::Region { allocated, extents } => {
                bytes.push(2);
                bytes.extend(allocated.to_le_bytes());
                for extent in extents {
                    bytes.extend(extent.start.to_le_bytes());
                    bytes.extend(extent.end.to_le_bytes());
                    bytes.extend(extent.key.to_le_bytes());
                }
            }
            Self::UnknownRegion => bytes.push(3),
            Self::Refused(why) => {
                bytes.push(4);
                bytes.extend(why.as_bytes());
            }
            Self::SessionOpened(contact) => {
                bytes.push(5);
                put_contact(contact, bytes);
            }
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes.split_first()? {
            (1, end) => end_of(end).map(Self::Connected),
            (2, rest) => {
                let (allocated, rest) = rest.split_first_chunk()?;
                let (extents, rest) = rest.as_chunks::<EXTENT>();
                let extents = extents.iter().map(extent_of).collect::<Option<Vec<_>>>()?;
                let allocated = u64::from_le_bytes(*allocated);
                rest.is_empty().then_some(Self::Region { allocated, extents })
            }
            (3, []) => Some(Self::UnknownRegion),
            (4, why) => Some(Self::Refused(std::str::from_utf8(why).ok()?.into())),
            (5, contact) => contact_of(contact).map(Self::SessionOpened),
            _ => None,
        }
    }
}

fn extent_of(bytes: &[u8; EXTENT]) -> Option<Extent> {
    let (start, rest) = bytes.split_first_chunk()?;
    let (end, key) = rest.split_first_chunk()?;
    let (start, end) = (u64::from_le_bytes(*start), u64::from_le_bytes(*end));
    let key = u32::from_le_bytes(key.try_into().ok()?);
    (start < end).then_some(Extent { start, end, key })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ends() -> impl Strategy<Value = End> {
        let numbers = (0..NUMBERS, 0..NUMBERS, any::<[u8; 16]>(), any::<u16>(), MTUS, any::<u8>(), any::<u8>());
        numbers.prop_map(|(pair, first_packet, gid, lid, mtu, reads_in, reads_out)| End {
            pair,
            first_packet,
            gid,
            lid,
            mtu,
            reads_in,
            reads_out,
        })
    }

    fn contacts() -> impl Strategy<Value = Contact> {
        let numbers = (any::<u64>(), 0..NUMBERS, any::<u32>(), any::<[u8; 16]>(), any::<u16>(), MTUS);
        numbers.prop_map(|(token, pair, key, gid, lid, mtu)| Contact { token, pair, key, gid, lid, mtu })
    }

    fn extents() -> impl Strategy<Value = Vec<Extent>> {
        let extent = (any::<u32>(), 1..u64::from(u32::MAX), any::<u32>()).prop_map(|(start, bytes, key)| Extent {
            start: start.into(),
            end: u64::from(start) + bytes,
            key,
        });
        proptest::collection::vec(extent, 0..5)
    }

    proptest! {
        #[test]
        fn requests_are_what_they_were(end in ends(), region in any::<u16>(), contact in contacts()) {
            for request in [Request::Connect(end), Request::Ask(RegionId(region)), Request::OpenSession(contact)] {
                let bytes = request.encode();
                prop_assert_eq!(Request::decode(&bytes), Some(request));
                prop_assert_eq!(Request::decode(&bytes[..bytes.len() - 1]), None);
            }
        }

        #[test]
        fn answers_are_what_they_were(
            end in ends(),
            allocated in any::<u64>(),
            extents in extents(),
            why in ".*",
            contact in contacts(),
        ) {
            let region = Answer::Region { allocated, extents };
            let refused = Answer::Refused(why);
            for answer in [Answer::Connected(end), region, Answer::UnknownRegion, refused, Answer::SessionOpened(contact)] {
                let mut bytes = Vec::new();
                answer.encode(&mut bytes);
                prop_assert_eq!(Answer::decode(&bytes), Some(answer));
            }
        }

        /// Any bytes are one message or none, and of each there is one encoding.
        #[test]
        fn nothing_else_is_understood(bytes in proptest::collection::vec(any::<u8>(), 0..80), kind in 0..7_u8) {
            let bytes = [&[kind], &bytes[..]].concat();
            if let Some(request) = Request::decode(&bytes) {
                prop_assert_eq!(request.encode(), bytes.clone());
            }
            if let Some(answer) = Answer::decode(&bytes) {
                let mut again = Vec::new();
                answer.encode(&mut again);
                prop_assert_eq!(again, bytes);
            }
        }
    }
}
