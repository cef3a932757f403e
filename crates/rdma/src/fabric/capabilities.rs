//! The capabilities of a fabric, so that protocols need not guess.

use crate::Offset;

/// The agents with which a remote compare-and-swap or fetch-and-add is atomic.
///
/// # Example
///
/// ```
/// use drtm_rdma::Atomicity;
///
/// // A lock word that both peers and the owner's processor change needs the strongest.
/// let may_mix = |level: Atomicity| level >= Atomicity::Global;
/// assert!(!may_mix(Atomicity::Hca));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Atomicity {
    /// There are no remote atomics: take locks by message.
    None,
    /// Atomic only with other remote atomics on the same node. Together with a processor's
    /// compare-and-swap, or with a remote write, an update can be lost. Most NICs are of this kind.
    /// Let exactly one agent change a given word.
    ///
    /// A swap that finds another value leaves the word alone. So a lock that is taken by swaps can
    /// be released by a write.
    Hca,
    /// Atomic with everything, the owner's processors included.
    Global,
}

/// The order in which the operations from one endpoint to one node take effect.
///
/// # Example
///
/// ```
/// use drtm_rdma::{LocalConfig, Order};
///
/// assert_eq!(LocalConfig::harsh(1).capabilities().ordering, Order::ReadsMayBePassed);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Order {
    /// As [`ReadsMayBePassed`](Self::ReadsMayBePassed) among one-sided operations, and in the order
    /// of posting among messages. The two kinds are not ordered with each other: await the one
    /// before posting the other.
    MessagesApart,
    /// In the order of posting, except that a write or a message may overtake a read posted before
    /// it. Await the read first where that matters. This is what verbs promise.
    ReadsMayBePassed,
    /// In the order of posting.
    Posted,
}

/// The guarantees and limits of a fabric.
///
/// # Example
///
/// ```
/// use drtm_rdma::{Atomicity, LocalConfig};
///
/// let capabilities = LocalConfig::perfect().capabilities();
/// assert_eq!(capabilities.atomicity, Atomicity::Global);
/// assert!(capabilities.max_read_bytes >= 64 << 10);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The atomicity of remote atomics.
    pub atomicity: Atomicity,
    /// The order of operations to one node.
    pub ordering: Order,
    /// The size of aligned blocks that are read atomically: 64 if a cache line is fetched whole, 8
    /// if only a word is. No larger block is ever guaranteed.
    pub atomic_read_bytes: usize,
    /// The most bytes of a write that travel inside the request, without a buffer.
    pub inline_bytes: usize,
    /// The most bytes that one read fetches.
    pub max_read_bytes: usize,
    /// The most bytes that one write carries.
    pub max_write_bytes: usize,
    /// The most bytes of a message.
    pub max_message_bytes: usize,
    /// The most operations that may be pending from one endpoint to one node.
    pub queue_depth: usize,
    /// The most unanswered calls of one endpoint.
    pub max_calls: usize,
    /// Whether the NIC has processors of its own to run handlers on.
    pub smart_nic: bool,
    /// Whether a node that is [`Died`](crate::Presence::Died) does nothing any more. Otherwise it
    /// may only be disconnected, and go on by itself.
    pub certain_deaths: bool,
    /// Whether nodes have [letters](crate::Letters).
    pub letters: bool,
}

impl Capabilities {
    /// Returns whether one READ sees this many words from an offset on atomically.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_rdma::{LocalConfig, Offset};
    ///
    /// let capabilities = LocalConfig::perfect().capabilities();
    /// assert!(capabilities.reads_at_once(Offset::new(64), 8));
    /// assert!(!capabilities.reads_at_once(Offset::new(120), 2));
    /// ```
    #[must_use]
    pub fn reads_at_once(&self, at: Offset, words: usize) -> bool {
        let word = size_of::<u64>() as u64;
        let block = (self.atomic_read_bytes as u64).max(word);
        at.bytes() / block == (at.bytes() + word * (words.max(1) as u64 - 1)) / block
    }
}
