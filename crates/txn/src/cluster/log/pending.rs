//! What a transaction has in rings: space that is reserved, records, and the pieces in which they
//! are written.

use std::{ops::Range, rc::Rc};

use drtm_rdma::NodeId;
use smallvec::SmallVec;

use super::outgoing::Outgoing;
use crate::cluster::ask::Ask;

/// A record of a transaction, at one backup.
#[derive(Debug)]
pub(in crate::cluster) struct Logged {
    pub(in crate::cluster) node: NodeId,
    pub(super) ring: Rc<Outgoing>,
    pub(super) position: u64,
    /// What its head says is settled.
    pub(super) settled: u64,
    /// The head that would make it void.
    pub(super) void: Range<usize>,
}

/// Bytes that are written at once: of a record, which may wrap around, or be longer than a message.
#[derive(Clone, Debug)]
pub(in crate::cluster) struct Piece {
    pub(super) record: u32,
    pub(super) position: u64,
    pub(super) bytes: Range<usize>,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(in crate::cluster) struct Logging {
    /// Rings with space that is reserved, and not used.
    pub(super) reserved: SmallVec<[(Rc<Outgoing>, u64); 4]>,
    pub(super) records: Vec<Logged>,
    /// Whether the transaction has begun to write records, and is not settled.
    pub(super) has_begun: bool,
    /// Whether records that were given up may be complete somewhere, since this node is out.
    pub(in crate::cluster) is_in_doubt: bool,
    pub(super) pieces: Vec<Piece>,
    pub(super) bytes: Vec<u8>,
    /// What each backup's record needs, and in the next run of a transaction that claims its rows:
    /// what the last one needed.
    pub(super) needs: SmallVec<[(NodeId, u64); 4]>,
    /// What each owner is to do again, one behind the other.
    pub(super) redo: Vec<u8>,
    /// The write-ahead log in memory that outlives the process, if there is one.
    pub(super) decided: Vec<u8>,
    /// Owners that may not have heard that the transaction is decided.
    pub(in crate::cluster) unheard: SmallVec<[NodeId; 2]>,
    /// What is written by verbs next.
    words: Vec<u64>,
}

impl Logging {
    /// Forgets everything but how many bytes each backup's record needed.
    pub(in crate::cluster) fn clear_for_claims(&mut self) {
        debug_assert!(self.reserved.is_empty() && self.records.is_empty(), "it has ended");
        self.pieces.clear();
        self.bytes.clear();
        self.decided.clear();
        self.unheard.clear();
        self.is_in_doubt = false;
    }

    /// Forgets how many bytes each backup's record needed: others may be backups.
    pub(in crate::cluster) fn forget_needs(&mut self) {
        self.needs.clear();
    }

    /// Forgets everything.
    pub(in crate::cluster) fn clear(&mut self) {
        self.clear_for_claims();
        self.needs.clear();
    }

    /// Notes that an owner may not have heard that the transaction is decided.
    pub(in crate::cluster) fn note_unheard(&mut self, owner: NodeId) {
        if !self.unheard.contains(&owner) {
            self.unheard.push(owner);
        }
    }

    /// Returns the records as they were written.
    pub(in crate::cluster) fn whole_records(&self) -> impl Iterator<Item = &[u8]> {
        let decided = Some(&*self.decided).filter(|bytes| !bytes.is_empty());
        let in_rings = self.records.iter().zip(0..).filter_map(|(record, number)| {
            let first = self.pieces.iter().find(|piece| piece.record == number)?;
            Some(&self.bytes[first.bytes.start..record.void.start])
        });
        in_rings.chain(decided)
    }

    /// Returns the node that a piece goes to.
    pub(in crate::cluster) fn node_of_piece(&self, piece: u32) -> NodeId {
        self.records[self.pieces[piece as usize].record as usize].node
    }

    /// Returns the node that a record goes to.
    pub(in crate::cluster) fn node_of_record(&self, record: u32) -> NodeId {
        self.records[record as usize].node
    }

    /// Returns a piece as it is written: the ring's number, the position, and the bytes.
    pub(in crate::cluster) fn piece(&self, piece: u32) -> (u32, u64, &[u8]) {
        let Piece { record, position, bytes } = &self.pieces[piece as usize];
        (self.records[*record as usize].ring.place.number, *position, &self.bytes[bytes.clone()])
    }

    /// Returns the bytes that make a record void, with the ring's number and the position.
    pub(in crate::cluster) fn void(&self, record: u32) -> (u32, u64, &[u8]) {
        let Logged { ring, position, void, .. } = &self.records[record as usize];
        (ring.place.number, *position, &self.bytes[void.clone()])
    }

    /// Returns what a request writes: the ring, the position, and the words.
    pub(super) fn words_of(&mut self, ask: Ask) -> (Rc<Outgoing>, u64, &[u64]) {
        let (record, position, bytes) = match ask {
            Ask::Void(record) => {
                let Logged { position, void, .. } = &self.records[record as usize];
                (record, *position, void.clone())
            }
            Ask::Log(piece) => {
                let Piece { record, position, bytes } = &self.pieces[piece as usize];
                (*record, *position, bytes.clone())
            }
            _ => unreachable!("only pieces and voids are written to rings"),
        };
        let chunks = self.bytes[bytes].chunks_exact(size_of::<u64>());
        self.words.clear();
        self.words.extend(chunks.map(|chunk| chunk.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))));
        (Rc::clone(&self.records[record as usize].ring), position, &self.words)
    }

    /// Notes up to where a ring is free, as the answer to a piece says.
    pub(in crate::cluster) fn note_freed(&self, piece: u32, freed: u64) {
        let record = &self.records[self.pieces[piece as usize].record as usize];
        record.ring.producer.borrow_mut().note_freed(freed);
    }
}
