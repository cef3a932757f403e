//! The note: some bytes that the log's user keeps in it, beside tables and rows. The last one
//! counts.
//!
//! A note is a change of the catalog, with an epoch of its own, so that notes have an order. A
//! checkpoint has the note of some moment while it was made, and replay applies the notes that the
//! log has behind it. The newest one wins, since
//!
//! - the present note is set before its epoch can be closed. A checkpoint reads it after the log
//!   was found durable up to an epoch. So it has the last note up to that epoch, or a later one.
//! - It is set after it has got its epoch. So if a checkpoint has it, its epoch is no later than
//!   the checkpoint's end. The log is durable up to that end before the checkpoint counts: it has
//!   that note, too, behind all earlier ones.

use std::sync::Arc;

use drtm_htm::Engine;
use parking_lot::Mutex;

use super::{Log, Participant};
use crate::{Error, durability::format::CatalogChange};

#[derive(Debug)]
pub(super) struct Notes {
    /// What appends notes. It is not the announcer's participant, which is locked while a flush is
    /// waited for.
    noter: Mutex<Option<Arc<Participant>>>,
    present: Mutex<Option<Vec<u8>>>,
}

impl Notes {
    /// Begins with the note that was recovered.
    pub(super) fn new(note: Option<Vec<u8>>) -> Self {
        Self { noter: Mutex::default(), present: Mutex::new(note) }
    }
}

impl<E: Engine> Log<E> {
    /// Appends a note, which takes the place of the one before. Returns its epoch, to be
    /// [looked](Self::look) for. Never waits for a flush.
    ///
    /// # Errors
    ///
    /// [`Error::Poisoned`], [`Error::ReadOnly`]. [`Error::TooLarge`] if it is longer than a record
    /// can be.
    pub(crate) fn note(&self, note: &[u8]) -> Result<u64, Error> {
        let mut noter = self.notes.noter.lock();
        let participant = noter.get_or_insert_with(|| self.participant());
        let open = self.enter_at_once(participant)?;
        let epoch = self.engine().fetch_add(self.number()?, 1) + 1;
        participant.announce(&CatalogChange::Noted(note.to_vec()), epoch)?;
        *self.notes.present.lock() = Some(note.to_vec());
        self.mark_dirty();
        drop(open);
        Ok(epoch)
    }

    /// Returns the last note, durable or not. `None` if there was none.
    pub(crate) fn noted(&self) -> Option<Vec<u8>> {
        self.notes.present.lock().clone()
    }
}
