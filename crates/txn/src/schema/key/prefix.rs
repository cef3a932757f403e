//! Ranges of keys with a common prefix.

use std::ops::Bound;

use super::{AsKey, KeyRange, write_string};

/// The range of all keys with a prefix: see [`prefix`].
///
/// # Example
///
/// See [`prefix`].
#[derive(Clone, Copy, Debug)]
pub struct Prefix<'k>(&'k [u8]);

/// Returns the range of all keys with this prefix, where keys are `String` or `Vec<u8>`.
///
/// # Example
///
/// ```
/// use drtm::{Db, Error, Ordered, Raw, TableDef, prefix};
///
/// const PAGES: TableDef<String, Raw, Ordered> = TableDef::ordered("pages");
/// let db = Db::new()?;
/// let pages = db.table(PAGES)?;
/// db.transact(|tx| {
///     ["/about", "/docs", "/docs/a", "/docs/b", "/e"].iter().try_for_each(|path| tx.put(pages, *path, b""))?;
///     assert_eq!(tx.range(pages, prefix("/docs"))?.count()?, 3);
///     assert_eq!(tx.range(pages, prefix("/docs/"))?.first()?.map(|(path, _)| path).as_deref(), Some("/docs/a"));
///     assert_eq!(tx.range(pages, prefix(""))?.count()?, 5);
///     Ok(())
/// })?;
/// # Ok::<(), Error>(())
/// ```
pub fn prefix<B: AsRef<[u8]> + ?Sized>(string: &B) -> Prefix<'_> {
    Prefix(string.as_ref())
}

/// The start or the end of such a range.
#[derive(Debug)]
pub struct PrefixEnd<'k> {
    prefix: &'k [u8],
    is_end: bool,
}

impl PrefixEnd<'_> {
    fn write(&self, bytes: &mut Vec<u8>, last: bool) {
        let from = bytes.len();
        write_string(self.prefix, bytes, last);
        if !last {
            // A prefix is no whole string, so the end mark is removed.
            bytes.truncate(bytes.len() - 2);
        }
        if self.is_end {
            increment(bytes, from);
        }
    }
}

/// Turns a string into the least one after all that begin with it. If there is none, it becomes
/// empty.
fn increment(bytes: &mut Vec<u8>, from: usize) {
    while bytes.len() > from {
        if let Some(next) = bytes.pop().and_then(|byte| byte.checked_add(1)) {
            return bytes.push(next);
        }
    }
}

macro_rules! prefixes {
    ($($key:ty),+) => {$(
        impl AsKey<$key> for PrefixEnd<'_> {
            fn pack_key(&self, word: u64) -> u64 {
                word
            }
            fn write_key(&self, bytes: &mut Vec<u8>, last: bool) {
                self.write(bytes, last);
            }
        }

        impl<'k> KeyRange<$key> for Prefix<'k> {
            type End = PrefixEnd<'k>;

            fn ends(self) -> (Bound<Self::End>, Bound<Self::End>) {
                let Self(prefix) = self;
                let start = Bound::Included(PrefixEnd { prefix, is_end: false });
                if prefix.iter().all(|byte| *byte == u8::MAX) {
                    // No key comes after the last one with the prefix.
                    return (start, Bound::Unbounded);
                }
                (start, Bound::Excluded(PrefixEnd { prefix, is_end: true }))
            }
        }
    )+};
}

prefixes!(String, Vec<u8>);
