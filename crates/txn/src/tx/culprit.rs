//! Finding the row that a transaction conflicted on. Only transactions whose options bound their
//! runs pay for it.

use drtm_kv::Handle;

use crate::{
    Config,
    commit::write_set::Write,
    db::inner::{Culprit, Inner},
    memory::storage::{KeyRef, Storage},
    schema::catalog::Opened,
    tx::state::TxState,
};

/// Finds a row that has changed since the transaction saw it. Returns `None` if a key was inserted
/// into a range, or if there is no such row any more. Also returns `None` if the row was only read
/// and its key does not pack into a word.
#[cold]
#[inline(never)]
pub(crate) fn find<S: Config>(db: &Inner<S>, state: &TxState<S::Engine>) -> Option<Culprit> {
    let (records, holder) = (db.store.records(), state.holder);
    let is_changed = |write: &&Write| {
        write.is_read && !records.is_still(write.seen(), holder) || !records.is_there(write.at, holder)
    };
    if let Some(write) = state.writes.as_slice().iter().find(is_changed) {
        return named(db.catalog.get(write.table)?, write.key.in_bytes(&state.arena.keys));
    }
    let seen = state.reads.records.iter().find(|seen| !records.is_still(**seen, holder))?;
    let key = KeyRef::Word(records.key_word(seen.at)?);
    (0..)
        .map_while(|number| db.catalog.get(number))
        .find(|opened| !opened.is_dropped() && has(opened, key, seen.at))
        .and_then(|opened| named(opened, key))
}

/// Returns whether a key leads to this record in a table whose keys are words.
fn has<E: drtm_htm::Engine>(opened: &Opened<E>, key: KeyRef<'_>, at: Handle) -> bool {
    let is_of_words = matches!(opened.storage, Storage::HashOfWords(_) | Storage::TreeOfWords(_));
    // A corrupt store is reported to its next user.
    is_of_words && opened.storage.leads_to(key, at).unwrap_or(false)
}

fn named<E: drtm_htm::Engine>(opened: &Opened<E>, key: KeyRef<'_>) -> Option<Culprit> {
    let mut bytes = Vec::new();
    key.write(opened.key_size(), &mut bytes);
    Some(Culprit { table: opened.name.get(), key: bytes })
}
