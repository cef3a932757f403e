//! Going through all keys of a table, beside others and apart from any transaction.

use drtm_htm::Engine;
use drtm_kv::{Bytes, Current, Cursor, Inline, KvError, Nowhere, Sweep};

use super::{KeyRef, Storage};

/// Where one has come to. Every key that has a record all the while is come to, be it that the record says that the key is not there.
#[derive(Debug)]
pub(crate) struct Tour {
    at: At,
}

#[derive(Debug)]
enum At {
    Buckets(Sweep),
    Words(Cursor<Inline>),
    Bytes(Cursor<Bytes>),
}

impl<E: Engine> Storage<E> {
    /// Begins before the first key.
    pub(crate) fn tour(&self) -> Result<Tour, KvError> {
        let at = match self {
            Self::HashOfWords(table) => At::Buckets(table.sweep()?),
            Self::HashOfBytes(table) => At::Buckets(table.sweep()?),
            Self::TreeOfWords(_) => At::Words(Cursor::up(..)),
            Self::TreeOfBytes(_) => At::Bytes(Cursor::up(..)),
        };
        Ok(Tour { at })
    }

    /// Shows some more keys, and says whether there may be others.
    pub(crate) fn go_on(&self, tour: &mut Tour, mut show: impl FnMut(KeyRef<'_>)) -> Result<bool, KvError> {
        match (self, &mut tour.at) {
            (Self::HashOfWords(table), At::Buckets(sweep)) => table.advance(sweep, |word| show(KeyRef::Word(word))),
            (Self::HashOfBytes(table), At::Buckets(sweep)) => table.advance(sweep, |bytes| show(KeyRef::Bytes(bytes))),
            (Self::TreeOfWords(tree), At::Words(cursor)) => {
                let row = tree.advance(cursor, &mut Current, &mut (), &mut Nowhere)?;
                Ok(row.map(|(word, _)| show(KeyRef::Word(word))).is_some())
            }
            (Self::TreeOfBytes(tree), At::Bytes(cursor)) => {
                let row = tree.advance(cursor, &mut Current, &mut (), &mut Nowhere)?;
                Ok(row.map(|(bytes, _)| show(KeyRef::Bytes(bytes))).is_some())
            }
            // A tour is begun and gone on with in one function.
            _ => unreachable!("a tour of a table of another kind"),
        }
    }
}
