//! The contents of a checkpoint: tables and rows.

use crate::{
    Error,
    durability::{
        LogError,
        checkpoint::CheckpointImage,
        format::{CatalogChange, Change, Entry, Frame, Record, RecordKind, records},
        tables::Tables,
    },
};

/// The bits of [`Changed`] for each entry, and its least number of bits.
const BITS: usize = 8;
const LEAST: usize = 1 << 10;

/// Rows that the log has entries for: a bit for each hash of a name. It may have others, which are
/// then replayed though nothing changes them.
pub(super) struct Changed(Vec<u64>);

impl Changed {
    pub(super) fn of(entries: usize) -> Self {
        let bits = entries.saturating_mul(BITS).next_power_of_two().max(LEAST);
        Self(vec![0; bits / u64::BITS as usize])
    }

    fn place(&self, hash: u64) -> (usize, u64) {
        // The upper bits of the hash are the better ones.
        let bit = hash >> (u64::BITS - (self.0.len() * u64::BITS as usize).trailing_zeros());
        ((bit / u64::from(u64::BITS)) as usize, 1 << (bit % u64::from(u64::BITS)))
    }

    pub(super) fn add(&mut self, hash: u64) {
        let (word, bit) = self.place(hash);
        self.0[word] |= bit;
    }

    /// Returns whether the row of a hash may have been added. It is true for each that was.
    pub(super) fn may_have(&self, hash: u64) -> bool {
        let (word, bit) = self.place(hash);
        self.0[word] & bit != 0
    }
}

fn records_of<'f>(
    checkpoint: &CheckpointImage,
    (offset, frame): (u64, Frame<'f>),
) -> impl Iterator<Item = Result<Record<'f>, LogError>> {
    records(frame.records).map(move |record| match record {
        Ok((_, record)) => Ok(record),
        Err(damage) => Err(checkpoint.damaged(offset, damage.why)),
    })
}

/// Reads the tables of a checkpoint, and its note, from its first frame.
pub(super) fn tables_of(checkpoint: &CheckpointImage, tables: &mut Tables) -> Result<(), LogError> {
    let mut bytes = Vec::new();
    let Some((offset, frame)) = checkpoint.next(&mut bytes)? else {
        return Err(checkpoint.damaged(0, "the catalog is missing"));
    };
    for record in records_of(checkpoint, (offset, frame)) {
        let change = CatalogChange::decode(&record?).map_err(|damage| checkpoint.damaged(offset, damage.why))?;
        let is_of_checkpoints =
            matches!(change, CatalogChange::Table(..) | CatalogChange::Index(..) | CatalogChange::Noted(_));
        if !is_of_checkpoints || !tables.apply(change, 0, false) {
            return Err(checkpoint.damaged(offset, "the catalog contradicts itself"));
        }
    }
    Ok(())
}

/// Shows the rows of a frame, each with its value and its bytes.
pub(super) fn rows_of(
    checkpoint: &CheckpointImage,
    (offset, frame): (u64, Frame<'_>),
    mut show: impl FnMut(&Entry<'_>, &[u8], &[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    for record in records_of(checkpoint, (offset, frame)) {
        let record = record?;
        if record.kind != RecordKind::Rows {
            return Err(checkpoint.damaged(offset, "there is a record of another kind among rows").into());
        }
        for entry in record.encoded_entries() {
            let (entry, encoded) = entry.map_err(|damage| checkpoint.damaged(offset, damage.why))?;
            let Change::Put(value) = entry.change else {
                return Err(checkpoint.damaged(offset, "there is a change among rows").into());
            };
            show(&entry, value, encoded)?;
        }
    }
    Ok(())
}
