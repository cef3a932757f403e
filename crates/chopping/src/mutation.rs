//! Deliberate faults of the analysis, which the brute-force search must find. Only tests have them.

/// A step that is left out, or done wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// The graph has one instance of each transaction.
    OneInstance,
    /// Pieces are merged only if their cycle passes one other transaction.
    LongCyclesOverlooked,
    /// A piece that may abort can come after one with an effect.
    AbortAfterEffects,
    /// Pieces of a transaction whose accesses conflict can change places.
    OwnConflictsForgotten,
    /// Pieces change places against their stated dependencies.
    DependenciesForgotten,
    /// Additions commute with reads.
    AddsUnseen,
    /// A search conflicts with no insertion.
    StationaryAssumed,
    /// An insertion conflicts with searches only.
    InsertsWithoutColumns,
    /// Additions are deferred although another path leads to a subscriber.
    DeferralWithoutPremise,
    /// Claims are granted although others access the rows without one.
    ClaimWithoutPremise,
    /// Two-round reads and publications connect no transactions.
    MomentsForgotten,
    /// Two-round reads do not wait for a publication.
    ReadsBeforePublication,
    /// A transaction's first and last pieces are merged for no reason.
    MergedInVain,
}

#[cfg(test)]
std::thread_local!(static CHOSEN: std::cell::Cell<Option<Mutation>> = const { std::cell::Cell::new(None) });

/// Returns whether the code has this fault.
#[inline]
pub(crate) fn includes(mutation: Mutation) -> bool {
    #[cfg(test)]
    return CHOSEN.get() == Some(mutation);
    #[cfg(not(test))]
    {
        let _ = mutation;
        false
    }
}

/// Calls `run` with a fault.
#[cfg(test)]
pub(crate) fn with<T>(mutation: Mutation, run: impl FnOnce() -> T) -> T {
    CHOSEN.set(Some(mutation));
    let result = run();
    CHOSEN.set(None);
    result
}
