//! Protocols: which form each phase takes.

/// How something is done on another node.
///
/// # Example
///
/// See [`Protocol`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// A message asks the owner to do it.
    Message,
    /// Verbs do it on the owner's memory, without its processors.
    OneSided,
}

/// What finds the conflicts of transactions.
///
/// # Example
///
/// ```
/// use drtm::cluster::{Detection, Protocol};
///
/// assert_eq!(Protocol::default().detection, Detection::Versions);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Detection {
    /// Locks and versions of rows.
    #[default]
    Versions,
    /// The cache lines of rows, which NICs and processors track, as in HADES. This needs a fabric
    /// with a [smart NIC](drtm_rdma::Capabilities::smart_nic), and the feature `hades`.
    Lines,
    /// Cache lines on other nodes, which their NICs track, and versions of rows on the
    /// transaction's own node, as in HADES-H. This needs the same.
    RemoteLines,
}

/// The forms of a transaction's phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Forms {
    /// Of reading and validating.
    pub(super) read: Form,
    /// Of locking and writing.
    pub(super) lock: Form,
}

/// A protocol as a value: in which form each phase is carried out on other nodes.
///
/// Phases are the same whatever their form, and so is what they guarantee. Where a form cannot be
/// had, the phase is a message: for rows of ordered tables; for keys that are not there; for
/// insertions, removals, and values that change their length; and for locks, on a fabric whose
/// compare-and-swap is not [atomic](drtm_rdma::Atomicity) with the processors', unless these lock
/// by [loopback](super::NodeBuilder::locks_by_loopback).
///
/// All nodes of a cluster must have the same protocol.
///
/// # Example
///
/// ```
/// use drtm::cluster::{Form, Protocol};
///
/// assert_eq!(Protocol::named("fasst"), Some(Protocol::FASST));
/// // Reads by verbs, and everything else by message.
/// let mine = Protocol { name: "mine", read: Form::OneSided, ..Protocol::FASST };
/// assert!(mine.is_one_sided());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Protocol {
    /// What nodes know it by.
    pub name: &'static str,
    /// Reading rows. Rows that were read one-sidedly are validated so.
    pub read: Form,
    /// Whether the places of rows that were looked up one-sidedly are remembered.
    pub caches: bool,
    /// Locking rows that are going to be overwritten. Rows that were locked one-sidedly are written
    /// so, unless the owner has a snapshot open.
    pub lock: Form,
    /// Writing to the rings of backups, where owners have [any](super::NodeBuilder::backups).
    pub log: Form,
    /// Whether a commit returns when its last phase is on its way, without waiting for its end: the
    /// worker does, if it [serves](super::Worker::serve).
    pub is_passive: bool,
    /// Whether each node may take messages where this says verbs, as it finds them better.
    pub adapts: bool,
    /// Whether [fetched sets](super::Worker::transact_on) are read under leases, for which nodes
    /// measure each other's clocks. Otherwise what they read is locked.
    pub leases: bool,
    /// What finds conflicts. Where it is not [`Detection::Versions`], all phases are messages that
    /// NICs carry out.
    pub detection: Detection,
}

impl Protocol {
    /// Every phase is a message, as in FaSST: the default.
    pub const FASST: Self = Self {
        name: "fasst",
        read: Form::Message,
        caches: false,
        lock: Form::Message,
        log: Form::Message,
        is_passive: false,
        adapts: false,
        leases: false,
        detection: Detection::Versions,
    };

    /// As in HADES: conflicts are of cache lines, which the hardware of a simulated machine tracks.
    #[cfg(feature = "hades")]
    pub const HADES: Self = Self { name: "hades", detection: Detection::Lines, ..Self::FASST };

    /// As in HADES-H: conflicts are of cache lines on other nodes, and of rows on the transaction's
    /// own one.
    #[cfg(feature = "hades")]
    pub const HADES_H: Self = Self { name: "hades-h", detection: Detection::RemoteLines, ..Self::FASST };

    /// As the software that HADES is compared to: FaRM's protocol with locks by swaps, places that
    /// are remembered, and a commit that does not wait for its writes and unlocks.
    #[cfg(feature = "hades")]
    pub const SW_IMPL: Self = Self { name: "sw-impl", ..Self::DRTM_H };

    /// Rows are looked up, read and validated by READs, and logged by WRITEs, as in FaRM.
    pub const FARM: Self = Self { name: "farm", read: Form::OneSided, log: Form::OneSided, ..Self::FASST };

    /// Every phase is one-sided, and places are remembered, as in DrTM-OCC.
    pub const DRTM_OCC: Self = Self { name: "drtm-occ", caches: true, lock: Form::OneSided, ..Self::FARM };

    /// As [`DRTM_OCC`](Self::DRTM_OCC), and a commit does not wait for its last phase, as in
    /// DrTM+H.
    pub const DRTM_H: Self = Self { name: "drtm+h", is_passive: true, ..Self::DRTM_OCC };

    /// [`DRTM_H`](Self::DRTM_H), [`FARM`](Self::FARM) or [`FASST`](Self::FASST) with a passive
    /// commit, as each node finds its transactions to end soonest. It tries all three from time to
    /// time, together with all other nodes, and so follows what changes.
    pub const AUTO: Self = Self { name: "auto", adapts: true, ..Self::DRTM_H };

    /// As [`DRTM_OCC`](Self::DRTM_OCC), with locks and leases for transactions that [fetch their
    /// rows](super::Worker::transact_on) before they run, as in DrTM. Other transactions are
    /// optimistic.
    pub const DRTM: Self = Self { name: "drtm", leases: true, ..Self::DRTM_OCC };

    /// Those by which optimistic transactions differ: all that have names but for
    /// [`DRTM`](Self::DRTM).
    pub const ALL: [Self; 5] = [Self::FASST, Self::FARM, Self::DRTM_OCC, Self::DRTM_H, Self::AUTO];

    /// Returns all protocols that have names, and run on any fabric.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::cluster::Protocol;
    ///
    /// let names: Vec<_> = Protocol::with_names().map(|protocol| protocol.name).collect();
    /// assert_eq!(names, ["fasst", "farm", "drtm-occ", "drtm+h", "auto", "drtm"]);
    /// ```
    pub fn with_names() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().chain([Self::DRTM])
    }

    /// Returns the protocol of a name. `None` if there is none.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        #[cfg(feature = "hades")]
        if let Some(protocol) = [Self::HADES, Self::HADES_H].into_iter().find(|protocol| protocol.name == name) {
            return Some(protocol);
        }
        Self::with_names().find(|protocol| protocol.name == name)
    }

    pub(super) fn forms(&self) -> Forms {
        Forms { read: self.read, lock: self.lock }
    }

    /// Returns whether any phase is one-sided, so that rows must have checksums.
    #[must_use]
    pub fn is_one_sided(&self) -> bool {
        self.read == Form::OneSided
    }
}

impl Default for Protocol {
    fn default() -> Self {
        Self::FASST
    }
}
