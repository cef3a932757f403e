//! Model checking of databases: every interleaving, and every value that weak memory lets a load
//! return, of small cases. Only the words, and the ticket's mutex and flag, are loom's.
//!
//! ```text
//! cargo test --package drtm-txn --features loom,drtm/model --test loom
//! ```

mod commits;
mod drops;
mod epochs;
mod explore;
mod model;
mod snapshots;
mod ticket;
