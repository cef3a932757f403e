//! Deliberate faults, for the model checker, and for tests with narrow counters, to find. Elsewhere
//! none exists, and asking for one costs nothing.

/// A step that can be left out, or done at the wrong time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(any(feature = "model", feature = "narrow")),
    expect(unreachable_pub, reason = "exported to the model checker only")
)]
pub enum Mutation {
    /// A reader does not look at a record's version again after it has copied the value.
    ReadWithoutVersion,
    /// Who goes straight from a slot to its record does not look at the slot again.
    FollowWithoutSight,
    /// Nothing orders the mark of a record that is being written before the words of its value.
    WriteWithoutFence,
    /// A record's memory becomes free without being of another incarnation.
    RetireWithoutIncarnation,
    /// A key is taken for absent without asking the bucket whether it is the right one.
    AbsenceWithoutDepth,
    /// A bucket that is split drops the keys that move before the new one is valid.
    SplitDropsKeysFirst,
    /// What was read in a node of the tree is believed without looking at its stamp again.
    NodeWithoutStamp,
    /// A node of the tree is locked though it has changed since it was seen.
    LockWithoutStamp,
    /// A node that leaves the tree can still be taken for what it was.
    LeaveWithoutStamp,
    /// A hint's record is taken for the tree's without a look at the leaf, and the incarnation does
    /// not tell either, as when it has come round again.
    HintWithoutLeaf,
    /// Counters begin a quarter without a turn being counted.
    TurnsNotCounted,
}

#[cfg(any(feature = "model", feature = "narrow"))]
std::thread_local!(static CHOSEN: std::cell::Cell<Option<Mutation>> = const { std::cell::Cell::new(None) });

/// Whether the code should have this fault.
#[inline(always)]
pub(crate) fn includes(mutation: Mutation) -> bool {
    #[cfg(any(feature = "model", feature = "narrow"))]
    return CHOSEN.get() == Some(mutation);
    #[cfg(not(any(feature = "model", feature = "narrow")))]
    {
        let _ = mutation;
        false
    }
}

/// Runs `model` with a fault, in all its threads: the model checker runs them as coroutines of this
/// one.
#[cfg(any(feature = "model", feature = "narrow"))]
#[doc(hidden)]
pub fn mutated(mutation: Mutation, model: impl FnOnce()) {
    struct Chosen;
    impl Drop for Chosen {
        fn drop(&mut self) {
            CHOSEN.set(None);
        }
    }
    CHOSEN.set(Some(mutation));
    let _until_the_end = Chosen;
    model();
}
