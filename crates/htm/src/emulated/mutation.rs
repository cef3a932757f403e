//! Deliberate faults, for the model checker to find. In other builds there are none, and checking
//! for one costs nothing.

/// A step of the conflict detection that can be omitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "model"), expect(unreachable_pub, reason = "exported to the model checker only"))]
pub enum Mutation {
    /// Transactions continue, and commit, without checking that what they have read is unchanged.
    SkipValidation,
    /// No fence orders a commit's locks before its validation, nor a plain read-modify-write before
    /// later loads.
    SkipFences,
}

/// The faults of one engine.
#[derive(Debug, Default)]
pub(super) struct Mutations {
    #[cfg(feature = "model")]
    pub(super) chosen: Option<Mutation>,
}

impl Mutations {
    #[inline(always)]
    pub(super) fn include(&self, mutation: Mutation) -> bool {
        #[cfg(feature = "model")]
        return self.chosen == Some(mutation);
        #[cfg(not(feature = "model"))]
        {
            let _ = mutation;
            false
        }
    }
}
