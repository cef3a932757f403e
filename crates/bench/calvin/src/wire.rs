//! The bytes of messages. Numbers are little-endian.
//!
//! ```text
//! share   1  epoch: u64  parts: u32  { number: u32  length: u32  transaction }*
//! reads   2  epoch: u64  node: u16  number: u32  { table: u8  word: u64  length: u32  row }*
//! ```
//!
//! A share is what a node needs of another one's batch. Where it is too long for one message it has
//! several parts, and the first says how many. A row that is absent has the greatest length.

use drtm_rdma::NodeId;

use crate::{
    key::{Key, Row},
    order::Place,
};

const SHARE: u8 = 1;
const READS: u8 = 2;
const ABSENT: u32 = u32::MAX;

/// The most bytes of transactions in one part of a share.
const PART: usize = 32 << 10;

/// A message between nodes.
#[derive(Debug, PartialEq)]
pub(crate) enum Message {
    Share(Share),
    Reads { of: Place, rows: Vec<(Key, Option<Row>)> },
}

/// A part of a share: transactions with their numbers in the batch.
#[derive(Debug, PartialEq)]
pub(crate) struct Share {
    pub(crate) epoch: u64,
    /// How many parts the share has.
    pub(crate) parts: u32,
    pub(crate) transactions: Vec<(u32, Vec<u8>)>,
}

/// Divides a share into parts that fit messages. There is at least one, which may be empty.
pub(crate) fn parts(epoch: u64, transactions: Vec<(u32, Vec<u8>)>) -> Vec<Share> {
    let mut parts = vec![Vec::new()];
    let mut bytes = 0;
    for transaction in transactions {
        if bytes > 0 && bytes + transaction.1.len() > PART {
            parts.push(Vec::new());
            bytes = 0;
        }
        bytes += transaction.1.len() + 8;
        if let Some(part) = parts.last_mut() {
            part.push(transaction);
        }
    }
    let count = parts.len() as u32;
    parts.into_iter().map(|transactions| Share { epoch, parts: count, transactions }).collect()
}

impl Share {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![SHARE];
        bytes.extend(self.epoch.to_le_bytes());
        bytes.extend(self.parts.to_le_bytes());
        for (number, transaction) in &self.transactions {
            bytes.extend(number.to_le_bytes());
            bytes.extend((transaction.len() as u32).to_le_bytes());
            bytes.extend(transaction);
        }
        bytes
    }
}

/// Returns the message with a participant's rows.
pub(crate) fn encode_reads(of: Place, rows: &[(Key, Option<Row>)]) -> Vec<u8> {
    let mut bytes = vec![READS];
    bytes.extend(of.epoch.to_le_bytes());
    bytes.extend(of.node.0.to_le_bytes());
    bytes.extend(of.number.to_le_bytes());
    for (key, row) in rows {
        bytes.push(key.table);
        bytes.extend(key.word.to_le_bytes());
        match row {
            Some(row) => {
                bytes.extend((row.len() as u32).to_le_bytes());
                bytes.extend(&row[..]);
            }
            None => bytes.extend(ABSENT.to_le_bytes()),
        }
    }
    bytes
}

/// Returns the message of these bytes. `None` if there is none.
pub(crate) fn decode(bytes: &[u8]) -> Option<Message> {
    let mut bytes = Reader::new(bytes);
    match bytes.u8()? {
        SHARE => {
            let (epoch, parts) = (bytes.u64()?, bytes.u32()?);
            let mut transactions = Vec::new();
            while !bytes.is_empty() {
                let (number, length) = (bytes.u32()?, bytes.u32()?);
                transactions.push((number, bytes.take(length as usize)?.to_vec()));
            }
            Some(Message::Share(Share { epoch, parts, transactions }))
        }
        READS => {
            let of = Place { epoch: bytes.u64()?, node: NodeId(bytes.u16()?), number: bytes.u32()? };
            let mut rows = Vec::new();
            while !bytes.is_empty() {
                let key = Key { table: bytes.u8()?, word: bytes.u64()? };
                let row = match bytes.u32()? {
                    ABSENT => None,
                    length => Some(bytes.take(length as usize)?.into()),
                };
                rows.push((key, row));
            }
            Some(Message::Reads { of, rows })
        }
        _ => None,
    }
}

/// Reads numbers from bytes. Each method returns `None` at the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'b> {
    bytes: &'b [u8],
}

impl<'b> Reader<'b> {
    pub(crate) fn new(bytes: &'b [u8]) -> Self {
        Self { bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(count)?;
        self.bytes = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_are_written() {
        let share = Share { epoch: 7, parts: 1, transactions: vec![(0, vec![1, 2]), (3, Vec::new())] };
        let bytes = share.encode();
        assert_eq!(decode(&bytes), Some(Message::Share(share)));
        let of = Place { epoch: 1, node: NodeId(2), number: 3 };
        let rows = vec![(Key { table: 1, word: 2 }, Some([5; 9].into())), (Key { table: 1, word: 3 }, None)];
        let bytes = encode_reads(of, &rows);
        assert_eq!(decode(&bytes), Some(Message::Reads { of, rows }));
        for end in 0..15 {
            assert_eq!(decode(&bytes[..end]), None, "{end}");
        }
        assert_eq!(decode(&[3; 40]), None);
    }

    #[test]
    fn long_shares_are_divided_and_lose_nothing() {
        let transactions: Vec<_> = (0..1_000).map(|number| (number, vec![number as u8; 150])).collect();
        let parts = parts(4, transactions.clone());
        assert!(parts.len() > 1);
        assert!(parts.iter().all(|part| part.parts == parts.len() as u32 && part.encode().len() < 64 << 10));
        assert_eq!(parts.into_iter().flat_map(|part| part.transactions).collect::<Vec<_>>(), transactions);
        assert_eq!(super::parts(4, Vec::new()).len(), 1, "an empty share is sent, too");
    }
}
