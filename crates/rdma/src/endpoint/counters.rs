//! Counts of an endpoint's operations, by the phase of the protocol.

use std::ops::{Add, Index, Sub};

/// The phase of a protocol that an operation belongs to. Protocol code chooses it with
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
// A word, so that what has a phase in it is moved by words.
#[repr(u64)]
pub enum Phase {
    /// Finding the place of a record.
    Lookup,
    /// Reading a transaction's rows.
    Execute,
    /// Locking the write set.
    Lock,
    /// Validating the read set.
    Validate,
    /// Logging and replicating the write set.
    Log,
    /// Writing and unlocking.
    Commit,
    /// All phases of read-only transactions.
    ReadOnly,
    /// Everything else: membership, recovery, housekeeping.
    #[default]
    Other,
}

impl Phase {
    /// All phases.
    pub const ALL: [Self; 8] =
        [Self::Lookup, Self::Execute, Self::Lock, Self::Validate, Self::Log, Self::Commit, Self::ReadOnly, Self::Other];

    /// Returns the phase's name, as used in labels of metrics.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_rdma::Phase;
    ///
    /// assert_eq!(Phase::ReadOnly.name(), "read_only");
    /// ```
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lookup => "lookup",
            Self::Execute => "execute",
            Self::Lock => "lock",
            Self::Validate => "validate",
            Self::Log => "log",
            Self::Commit => "commit",
            Self::ReadOnly => "read_only",
            Self::Other => "other",
        }
    }
}

macro_rules! tally {
    ($($(#[$doc:meta])+ $field:ident,)+) => {
        /// The counts of one phase, or of several together.
        ///
        /// An operation is counted when its doorbell is rung, whatever its outcome. Bytes are those
        /// of values and messages, without a fabric's headers.
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

            /// Returns the counts since `earlier`.
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
    /// Doorbells rung: one for each target node of a batch.
    doorbells,
    /// Doorbells with at least one operation that is waited for.
    round_trips,
    /// Bytes written, sent, or given as operands of atomics.
    bytes_out,
    /// Bytes read, received, or returned by atomics.
    bytes_in,
}

impl Tally {
    /// Returns the number of one-sided operations.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.reads + self.writes + self.compare_swaps + self.fetch_adds
    }

    /// Returns the number of messages sent, of all kinds.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.sends + self.calls + self.replies
    }
}

/// A copy of an endpoint's counts, by phase. Later counts do not show in it.
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
    /// Returns the total of all phases.
    ///
    /// # Example
    ///
    /// See [`Counters`].
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

impl Add for Counters {
    type Output = Self;

    /// Returns the counts of both.
    fn add(mut self, other: Self) -> Self {
        for (mine, theirs) in self.phases.iter_mut().zip(&other.phases) {
            *mine = mine.plus(theirs);
        }
        self
    }
}

impl Sub for Counters {
    type Output = Self;

    /// Returns the counts since `earlier`.
    fn sub(mut self, earlier: Self) -> Self {
        for (mine, theirs) in self.phases.iter_mut().zip(earlier.phases) {
            *mine = *mine - theirs;
        }
        self
    }
}
