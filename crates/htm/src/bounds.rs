//! Limits that differ under model checking, which runs every interleaving.

/// Whether this build is for a model checker (the feature `model`), whose atomics are larger than
/// words.
pub(crate) const MODEL: bool = cfg!(feature = "model");

/// How often a load retries on a line that is being written, before the transaction counts a
/// conflict.
pub(crate) const PATIENCE: u32 = if MODEL { 2 } else { 64 };
