//! The memory store: records, a cluster-chaining hash table, a B+ tree, and location caches, all over registered words.
//!
//! Nothing of it is written yet.

#![forbid(unsafe_code)]
