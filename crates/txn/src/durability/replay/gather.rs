//! Reading a log's entries: several threads have a piece of the log each, and divide its entries by
//! key. Then each thread has the entries of its keys from all pieces.

use super::{
    item::{Item, share_of},
    parallel::{in_parallel, threads},
};
use crate::{
    Error,
    durability::{
        format::{Change, RecordKind},
        recovery::{Found, Piece, Place, Recovered},
        tables::Tables,
    },
    mutation::Mutation,
};

/// The records whose entries are replayed: where each is, and its epoch.
pub(super) type Origins = [(Place, u64)];

/// The entries of a log, divided by key.
pub(super) struct Gathered<'s> {
    pub(super) origins: Vec<(Place, u64)>,
    pub(super) shares: Vec<Vec<Item<'s>>>,
}

/// The bytes of a log that are worth another thread.
const WORTH: usize = 1 << 20;

/// Reads the entries of all transactions that count, and adds the log's tables to those of a
/// checkpoint. A change of the catalog up to epoch `until` may be in the checkpoint already.
pub(super) fn gather<'s>(
    recovered: &Recovered<'s>,
    (tables, until): (&mut Tables, u64),
    fault: Option<Mutation>,
) -> Result<Gathered<'s>, Error> {
    let count = threads(usize::MAX);
    let pieces = recovered.pieces(threads(recovered.bytes() / WORTH));
    let read = in_parallel(pieces, |piece| read(recovered, piece, count, fault))?;
    let (mut origins, mut changes, mut parts) = (Vec::new(), Vec::new(), Vec::new());
    parts.resize_with(count, Vec::new);
    for piece in read {
        let begin = origins.len();
        origins.extend(piece.all.origins);
        changes.extend(piece.changes);
        parts.iter_mut().zip(piece.all.shares).for_each(|(parts, share)| parts.push((begin, share)));
    }
    recovered.apply(changes, tables, until)?;
    let shares = in_parallel(parts, |parts| Ok(join(parts)))?;
    Ok(Gathered { origins, shares })
}

struct Read<'s> {
    all: Gathered<'s>,
    changes: Vec<Found<'s>>,
}

fn read<'s>(
    recovered: &Recovered<'s>,
    piece: Piece<'_, 's>,
    count: usize,
    fault: Option<Mutation>,
) -> Result<Read<'s>, Error> {
    let (mut origins, mut shares, mut changes) = (Vec::new(), vec![Vec::new(); count], Vec::new());
    for found in recovered.replayed(piece) {
        let found = found?;
        let Found { record, place } = found;
        if record.kind != RecordKind::Rows {
            changes.push(found);
            continue;
        }
        for entry in record.encoded_entries() {
            let (entry, encoded) = entry.map_err(|damage| recovered.damaged(place, damage.why))?;
            if fault != Some(Mutation::RemovalsDropped) || entry.change != Change::Remove {
                share_of(&mut shares, &entry).push(Item::new(&entry, encoded, origins.len()));
            }
        }
        origins.push((place, record.epoch));
    }
    Ok(Read { all: Gathered { origins, shares }, changes })
}

/// Joins the parts of a share, each with the number of its piece's first record.
fn join(parts: Vec<(usize, Vec<Item<'_>>)>) -> Vec<Item<'_>> {
    let length: usize = parts.iter().map(|(_, part)| part.len()).sum();
    let mut parts = parts.into_iter();
    let (_, mut share) = parts.next().unwrap_or_default();
    share.reserve_exact(length - share.len());
    for (begin, part) in parts {
        share.extend(part.iter().map(|item| Item { record: begin + item.record, ..*item }));
    }
    share
}
