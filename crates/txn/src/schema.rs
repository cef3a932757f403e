//! The schema: tables and their columns, keys and the codecs of values, and the catalog of what a
//! database has.

pub(crate) mod catalog;
pub(crate) mod codec;
pub(crate) mod column;
pub(crate) mod copied;
pub(crate) mod key;
pub(crate) mod part;
pub(crate) mod table;
