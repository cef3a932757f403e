//! What an endpoint has done, by the phase of the protocol that it was done for.

use std::ops::{Index, Sub};

/// What an operation is for. Chosen by protocol code with
/// [`Endpoint::during`](crate::Endpoint::during).
///
/// # Example
///
/// ```
/// use drtm_rdma::{Counters, Phase};
///
/// let counters = Counters::default();
/// assert!(Phase::ALL.iter().all(|phase| counters[*phase].operations() == 0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Phase {
    /// Finding where a record is.
    Lookup,
    /// Reading what a transaction works on.
    Execute,
    /// Locking what it writes.
    Lock,
    /// Checking that what it read still holds.
    Validate,
    /// Logging and replicating what it will write.
    Log,
    /// Writing and unlocking.
    Commit,
    /// Everything that read-only transactions do.
    ReadOnly,
    /// Everything else: membership, recovery, housekeeping.
    #[default]
    Other,
}

impl Phase {
    /// All of them.
    pub const ALL: [Self; 8] =
        [Self::Lookup, Self::Execute, Self::Lock, Self::Validate, Self::Log, Self::Commit, Self::ReadOnly, Self::Other];
}

macro_rules! tally {
    ($($(#[$doc:meta])+ $field:ident,)+) => {
        /// Counts of one phase, or of several together.
        ///
        /// An operation counts when its doorbell is rung, whatever becomes of it. Bytes are those
        /// of values and messages, without any fabric's headers.
        ///
        /// # Example
        ///
        /// ```
        /// let tally = drtm_rdma::Tally { reads: 2, compare_swaps: 1, ..Default::default() };
        /// assert_eq!(tally.operations(), 3);
        /// ```
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Tally {
            $($(#[$doc])+ pub $field: u64,)+
        }

        impl Tally {
            fn plus(self, other: &Self) -> Self {
                Self { $($field: self.$field + other.$field,)+ }
            }
        }

        impl Sub for Tally {
            type Output = Self;

            /// What came since `earlier`.
            fn sub(self, earlier: Self) -> Self {
                Self { $($field: self.$field.wrapping_sub(earlier.$field),)+ }
            }
        }
    };
}

tally! {
    /// READs.
    reads,
    /// WRITEs.
    writes,
    /// Compare-and-swaps.
    compare_swaps,
    /// Fetch-and-adds.
    fetch_adds,
    /// Messages sent that ask for no reply.
    sends,
    /// Calls: messages sent that ask for a reply.
    calls,
    /// Replies sent.
    replies,
    /// Messages and calls received.
    received,
    /// Doorbells rung: one for each node that a batch goes to.
    doorbells,
    /// Doorbells with at least one operation that somebody waits for.
    round_trips,
    /// Bytes written, sent, or given as operands of atomics.
    bytes_out,
    /// Bytes read, received, or returned by atomics.
    bytes_in,
}

impl Tally {
    /// One-sided operations.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.reads + self.writes + self.compare_swaps + self.fetch_adds
    }

    /// Messages sent, of all kinds.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.sends + self.calls + self.replies
    }
}

/// An endpoint's counts, by phase. A copy: what is counted later does not show in it.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_rdma::{Fabric, LocalConfig, LocalFabric, NodeId, Phase, block_on};
///
/// let fabric = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect());
/// let endpoint = fabric.endpoint(NodeId(0))?;
/// let before = endpoint.counters();
/// block_on(&endpoint, endpoint.during(Phase::Log).send(NodeId(0), b"note to self"))?;
/// let spent = endpoint.counters() - before;
/// assert_eq!(spent[Phase::Log].bytes_out, 12);
/// assert_eq!(spent.total().messages(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    phases: [Tally; Phase::ALL.len()],
}

impl Counters {
    /// All phases together.
    #[must_use]
    pub fn total(&self) -> Tally {
        self.phases.iter().fold(Tally::default(), Tally::plus)
    }

    #[inline(always)]
    pub(crate) fn phase(&mut self, phase: Phase) -> &mut Tally {
        &mut self.phases[phase as usize]
    }
}

impl Index<Phase> for Counters {
    type Output = Tally;

    fn index(&self, phase: Phase) -> &Tally {
        &self.phases[phase as usize]
    }
}

impl Sub for Counters {
    type Output = Self;

    /// What came since `earlier`.
    fn sub(mut self, earlier: Self) -> Self {
        for (mine, theirs) in self.phases.iter_mut().zip(earlier.phases) {
            *mine = *mine - theirs;
        }
        self
    }
}
