//! Serializable transactions over the memory store: databases, typed tables, protocols, logs.
//!
//! Nothing of it is written yet.

#![forbid(unsafe_code)]
