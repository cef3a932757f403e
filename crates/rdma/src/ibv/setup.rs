//! What endpoints and nodes tell each other, over TCP, so that their NICs can talk.
//!
//! ```text
//! connect    1 | end                                    an endpoint's end of a connection
//! ask        2 | region u16                             what of a region can be accessed
//!
//! connected  1 | end                                    the node's end of it
//! region     2 | allocated u64 | (start u64 | end u64 | key u32)...
//! unknown    3                                          no such region
//! refused    4 | why, as text
//!
//! end        pair u32 | first packet u32 | gid 16 bytes | lid u16 | mtu u8 | reads in u8 | reads out u8
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

/// What an endpoint wants of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Connect(End),
    Ask(RegionId),
}

/// What a node answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Connected(End),
    Region { allocated: u64, extents: Vec<Extent> },
    UnknownRegion,
    Refused(String),
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
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes.split_first()? {
            (1, end) => end_of(end).map(Self::Connect),
            (2, region) => Some(Self::Ask(RegionId(u16::from_le_bytes(region.try_into().ok()?)))),
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
        fn requests_are_what_they_were(end in ends(), region in any::<u16>()) {
            for request in [Request::Connect(end), Request::Ask(RegionId(region))] {
                let bytes = request.encode();
                prop_assert_eq!(Request::decode(&bytes), Some(request));
                prop_assert_eq!(Request::decode(&bytes[..bytes.len() - 1]), None);
            }
        }

        #[test]
        fn answers_are_what_they_were(end in ends(), allocated in any::<u64>(), extents in extents(), why in ".*") {
            let region = Answer::Region { allocated, extents };
            for answer in [Answer::Connected(end), region, Answer::UnknownRegion, Answer::Refused(why)] {
                let mut bytes = Vec::new();
                answer.encode(&mut bytes);
                prop_assert_eq!(Answer::decode(&bytes), Some(answer));
            }
        }

        /// Any bytes are one message or none, and of each there is one encoding.
        #[test]
        fn nothing_else_is_understood(bytes in proptest::collection::vec(any::<u8>(), 0..80), kind in 0..6_u8) {
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
