//! Emptying sparse spans, so that their memory can serve other sizes.

use std::sync::atomic::Ordering::{AcqRel, Release};

use drtm_htm::Engine;
use drtm_rdma::RegionError;

use super::Store;
use crate::Handle;

/// Spans that are being emptied, until it is dropped: no memory in them is given out.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_kv::{HashConfig, KvTable, Relocated, Store};
///
/// let store = Store::in_memory(NoHtm, 16 << 20)?;
/// let (table, mut worker) = (store.hash_table(HashConfig::default())?, store.worker()?);
/// (0..1_000).try_for_each(|key| table.insert(&mut worker, key, &[7; 500]).map(drop))?;
/// // Two spans are sparse then, of which one has room for the rows of the other.
/// (180..990).try_for_each(|key| table.remove(&mut worker, key).map(drop))?;
///
/// worker.leave_free();
/// let compaction = store.compaction().expect("no other is in progress");
/// let mut moved = 0;
/// for key in (0..180).chain(990..1_000) {
///     moved += u64::from(table.relocate(&mut worker, key)? == Relocated::Moved);
/// }
/// assert!(compaction.spans() > 0 && moved > 0);
/// let mut value = [0; 500];
/// assert!(table.get(999, &mut value)?.is_some() && value == [7; 500]);
/// # Ok::<(), drtm_kv::KvError>(())
/// ```
#[derive(Debug)]
pub struct Compaction<'s, E: Engine> {
    store: &'s Store<E>,
    sparse: Vec<u64>,
}

impl<E: Engine> Store<E> {
    /// Chooses sparse spans to be emptied: of each size as many as the others have room for.
    /// `None`: that is being done already.
    ///
    /// # Example
    ///
    /// See [`Compaction`].
    #[must_use]
    pub fn compaction(&self) -> Option<Compaction<'_, E>> {
        if self.shared.is_compacting.swap(true, AcqRel) {
            return None;
        }
        let mut compaction = Compaction { store: self, sparse: Vec::new() };
        let (heap, engine) = (&self.shared.heap, self.region().engine());
        // Those of which nothing is left need not be emptied.
        self.retire();
        heap.settle(engine);
        compaction.sparse = heap.choose_sparse(engine);
        Some(compaction)
    }

    /// Whether a record is in a span that is being emptied.
    pub(crate) fn is_sparse(&self, at: Handle) -> bool {
        self.shared.heap.spans.is_sparse(self.region().engine(), at.place().word)
    }

    /// Gives memory that serves nothing back to the system, where the region can. Returns how many
    /// bytes.
    ///
    /// # Errors
    ///
    /// When the system refuses.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::Store;
    ///
    /// assert_eq!(Store::in_memory(NoHtm, 16 << 20)?.discard_free()?, 0);
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    pub fn discard_free(&self) -> Result<u64, RegionError> {
        self.shared.heap.discard(self.region())
    }
}

impl<E: Engine> Compaction<'_, E> {
    /// How many spans there are.
    ///
    /// # Example
    ///
    /// See [`Compaction`].
    #[must_use]
    pub fn spans(&self) -> usize {
        self.sparse.len()
    }
}

impl<E: Engine> Drop for Compaction<'_, E> {
    /// Retires what is empty. What could not be emptied serves its size as before.
    fn drop(&mut self) {
        self.store.retire();
        self.store.shared.heap.leave_sparse(self.store.region().engine(), &self.sparse);
        self.store.shared.is_compacting.store(false, Release);
    }
}
