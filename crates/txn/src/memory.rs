//! Memory: the storage of rows, and how what nobody needs any more is taken back.

pub(crate) mod arena;
pub(crate) mod budget;
pub(crate) mod garbage;
pub(crate) mod heap_size;
#[cfg(feature = "hades")]
pub(crate) mod keeper;
pub(crate) mod quiescence;
pub(crate) mod reclaim;
pub(crate) mod storage;
