//! Records as they are told of when the view changes.

use super::record::{self, Record};
use crate::{cluster::shard::ShardId, durability::format::Record as Redo};

/// A whole record with rows, out of its ring.
#[derive(Debug)]
pub(in crate::cluster) struct Recorded<'b> {
    record: Record<'b>,
}

impl<'b> Recorded<'b> {
    /// Reads a copy of a record. `None` if it is none, or is void.
    pub(in crate::cluster) fn read(bytes: &[u8], buffer: &'b mut Vec<u8>) -> Option<Self> {
        let record = record::read_copy(bytes, buffer)?;
        record.rows.is_some().then_some(Self { record })
    }

    /// Returns the number of its transaction's view.
    pub(in crate::cluster) fn view(&self) -> u32 {
        self.record.head.view
    }

    /// Returns the shards that its transaction writes.
    pub(in crate::cluster) fn shards(&self) -> impl Iterator<Item = ShardId> + use<'b> {
        let participants = self.record.rows.map(|rows| rows.participants).unwrap_or_default();
        participants.iter().map(|participant| participant.shard())
    }

    /// Returns what it writes to shards whose rows are in this record.
    pub(in crate::cluster) fn redo(&self) -> impl Iterator<Item = (ShardId, Redo<'b>)> + use<'b> {
        self.record.rows.into_iter().flat_map(|rows| rows.redo().map_while(Result::ok))
    }
}
