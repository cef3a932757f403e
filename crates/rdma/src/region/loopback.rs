//! Swaps by a NIC on memory of its own node.
//!
//! Most NICs' atomics are atomic with those of the same NIC only
//! ([`Atomicity::Hca`](crate::Atomicity::Hca)). Where peers swap a word by their NICs, processors
//! of its owner must not swap it by themselves: they ask their own NIC.

use std::fmt::Debug;

use drtm_htm::{Engine, Word};

/// The NIC of a node, as its own processors use it for a swap. It is atomic with all swaps that go
/// through that NIC.
///
/// # Example
///
/// See [`Region::swap_by`](crate::Region::swap_by).
pub trait Loopback<E: Engine>: Debug + Send + Sync {
    /// Writes `new` to a word of the node if it is `expected`. Returns what the word was. It waits
    /// for the NIC, and not for any other thread.
    fn compare_swap(&self, engine: &E, word: &Word, expected: u64, new: u64) -> u64;
}
