//! What a fabric can do, stated so that protocols need not guess.

use crate::Offset;

/// With whom a remote compare-and-swap or fetch-and-add is atomic.
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
    /// With other remote atomics on the same node, and with nothing else: beside a processor's
    /// compare-and-swap, or beside a remote write, an update can be lost. Most NICs are of this
    /// kind. Let exactly one agent change a given word.
    Hca,
    /// With everything, the owner's processors included.
    Global,
}

/// In which order the operations that one endpoint posts to one node take effect.
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
    /// In the order of posting, except that a write or a message may overtake a read posted before
    /// it. Await the read first where that matters. This is what verbs promise.
    ReadsMayBePassed,
    /// In the order of posting.
    Posted,
}

/// What becomes of a message.
///
/// # Example
///
/// ```
/// use drtm_rdma::{Delivery, LocalConfig};
///
/// assert_eq!(LocalConfig::harsh(1).capabilities().messages, Delivery::Once);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Delivery {
    /// It may be lost, arrive twice, or be overtaken by another. A call that is lost, or whose
    /// reply is, ends as [unanswered](crate::VerbError::Unanswered).
    BestEffort,
    /// It arrives once, in order with what was posted before it to the same node.
    Once,
}

/// What a fabric promises and how much of it there is.
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
    /// How atomic remote atomics are.
    pub atomicity: Atomicity,
    /// How ordered operations to one node are.
    pub ordering: Order,
    /// What becomes of messages.
    pub messages: Delivery,
    /// Aligned blocks of so many bytes are read as they were at one moment: 64 where a cache line
    /// is fetched whole, 8 where only a word is. Nothing larger is ever promised.
    pub atomic_read_bytes: usize,
    /// A write of at most so many bytes travels inside the request, without a buffer.
    pub inline_bytes: usize,
    /// The most that one read fetches.
    pub max_read_bytes: usize,
    /// The most that one write carries.
    pub max_write_bytes: usize,
    /// The longest message.
    pub max_message_bytes: usize,
    /// Operations that may be under way from one endpoint to one node.
    pub queue_depth: usize,
    /// Calls that one endpoint may have unanswered.
    pub max_calls: usize,
    /// Whether the memory of a node that died can be read, by
    /// [`Fabric::salvage`](crate::Fabric::salvage).
    pub salvage: bool,
    /// Whether the NIC has processors of its own to run handlers on.
    pub smart_nic: bool,
}

impl Capabilities {
    /// Whether one READ sees so many words behind a place as they were at one moment.
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
