//! Serializable transactions over the memory store: databases, typed tables, protocols, logs.
//!
//! - [`Key`]: types whose values can be keys, and how they keep their order as words and bytes.
//! - [`Codec`]: how values become bytes: [`Raw`], [`Pod`], [`Serde`].
//!
//! Databases and transactions themselves are not written yet.

#![forbid(unsafe_code)]

mod codec;
mod key;

pub use codec::{Codec, CodecError, Pod, Raw, Serde};
pub use key::{Key, KeyReader};
