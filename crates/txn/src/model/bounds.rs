//! Limits that differ under model checking, where every interleaving is run.

/// Whether this build is for a model checker (the feature `model`). The checker's threads are
/// coroutines of one system thread, so thread-local state does not tell them apart.
pub(crate) const MODEL: bool = cfg!(feature = "model");

/// Returns one of two figures: the product's, or the model checker's.
pub(crate) const fn either<T: Copy>(product: T, model: T) -> T {
    if MODEL { model } else { product }
}

/// The least memory of a database. The model checker creates it word by word for each execution.
pub(crate) const LEAST_MEMORY: u64 = either(4 << 20, 1 << 10);

/// The number of open snapshots that writers know individually. Writers check as many slots as were
/// ever in use.
pub(crate) const SNAPSHOT_SLOTS: usize = either(124, 2);

/// The number of failed runs after which a transaction asks for the ticket.
pub(crate) const TRIES: u32 = either(48, 1);

/// The number of rows that failed runs have read or written, after which it asks sooner: such runs
/// are long.
pub(crate) const ROWS_TRIED: usize = 1 << 16;
