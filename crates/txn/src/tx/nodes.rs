//! What sources of rows need of a transaction over several nodes, in which rows have numbers.

use std::future::Future;

use super::position::Ends;
use crate::{AsKey, Codec, CodecError, Error, Key, Table, schema::table::Kind};

/// Where a range is.
#[derive(Debug)]
pub struct Reach {
    /// Among the rows, or the entries, of the table that it goes through.
    pub(crate) ends: Ends,
    /// Among the keys by which that table is divided, if those are others.
    pub(crate) by: Option<Ends>,
}

/// A transaction over several nodes.
pub trait Nodes {
    /// Returns the number of the row with a key, which is added if it is new.
    fn row<K: Key, C: Codec, O: Kind>(&mut self, table: Table<K, C, O>, key: impl AsKey<K>) -> Result<u32, Error>;
    /// Looks rows up, all at once.
    fn look_up(&mut self, rows: &[u32]) -> impl Future<Output = Result<(), Error>>;
    /// Returns whether a row that was looked up is there.
    fn is_there(&self, row: u32) -> bool;
    /// Returns the key of a row. `None` if it is not of this type.
    fn key<K: Key>(&self, row: u32) -> Option<K>;
    /// Shows the bytes of a row that was looked up. Returns `None` if there is no such row.
    fn see<X>(
        &self,
        table: u16,
        row: u32,
        see: impl FnOnce(&[u8]) -> Result<X, CodecError>,
    ) -> Result<Option<X>, Error>;
    /// Returns the error for a row of a table whose key is none.
    fn no_key(&self, table: u16) -> Error;
    /// Returns the error for an index that disagrees with its table.
    fn disagreement(&mut self, index: u16, table: u16) -> impl Future<Output = Error>;
}
