//! Limits that differ under model checking, where every interleaving is run.

/// Whether this build is for a model checker (the feature `model`). Its threads are coroutines of
/// one thread of the system, so that what is kept by such a thread does not tell them from each
/// other.
pub(crate) const MODEL: bool = cfg!(feature = "model");

/// One of two figures: the product's, or the model checker's.
pub(crate) const fn either<T: Copy>(product: T, model: T) -> T {
    if MODEL { model } else { product }
}

/// The least memory with which a database can begin. The model checker makes it word by word for
/// each execution.
pub(crate) const LEAST_MEMORY: u64 = either(4 << 20, 8 << 10);

/// How many open snapshots writers know one by one. Writers look at as many of them as ever were.
pub(crate) const SNAPSHOT_SLOTS: usize = either(124, 2);

/// How often a transaction fails before it asks for the ticket.
pub(crate) const TRIES: u32 = either(48, 1);
