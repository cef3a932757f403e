//! Batches: several operations that share one doorbell for each target node.

use std::fmt;

use crate::{
    NodeId, Pending, Port, Remote, Reply, VerbError, Verbs, Words,
    endpoint::{
        intent::{self, Intent},
        port::Work,
    },
};

/// Operations that are posted together. They share a doorbell for each target node, and hence a
/// round trip.
///
/// Nothing is posted before the batch is [rung](Self::ring); a dropped batch has no effect.
/// Operations to one node take effect in the order in which they were added, as
/// [`fabric`](crate::Fabric) explains.
///
/// # Errors
///
/// All methods return what [`VerbError`] names. A batch does not wait for room, since it might wait
/// for what it holds itself. The operations that were added before an error remain valid.
///
/// # Example
///
/// ```
/// use std::sync::Arc;
/// use drtm_htm::NoHtm;
/// use drtm_rdma::{Fabric, LocalConfig, LocalFabric, NodeId, Phase, Port, Region, Remote, VerbError, Verbs, block_on};
///
/// /// Locks a record and reads it, in one round trip.
/// async fn lock_and_read<P: Port>(verbs: Verbs<'_, P>, record: Remote) -> Result<Option<Vec<u64>>, VerbError> {
///     let mut batch = verbs.batch();
///     let locked = batch.compare_swap(record, 0, 1)?;
///     let value = batch.read(record + 8, 7)?;
///     batch.ring();
///     let locked = locked.await? == 0;
///     let value = value.await?;
///     Ok(locked.then(|| value.to_vec()))
/// }
///
/// let fabric = LocalFabric::new(2, LocalConfig::perfect());
/// let memory = Arc::new(Region::anonymous(NoHtm, 1 << 20)?);
/// let offset = memory.extend(64, 64)?;
/// let record = Remote { node: NodeId(1), region: fabric.register(NodeId(1), memory)?, offset };
/// let endpoint = fabric.endpoint(NodeId(0))?;
/// let read = block_on(&endpoint, lock_and_read(endpoint.during(Phase::Lock), record))?;
/// assert_eq!(read, Some(vec![0; 7]));
/// let spent = endpoint.counters()[Phase::Lock];
/// assert_eq!((spent.operations(), spent.round_trips), (2, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a batch that is not rung does nothing"]
pub struct Batch<'e, P: Port> {
    verbs: Verbs<'e, P>,
    works: Vec<Work>,
}

impl<'e, P: Port> Verbs<'e, P> {
    /// Returns an empty batch.
    pub fn batch(self) -> Batch<'e, P> {
        Batch { verbs: self, works: self.endpoint().inner().list() }
    }
}

impl<'e, P: Port> Batch<'e, P> {
    #[inline]
    fn add<T>(&mut self, intent: impl Intent) -> Result<Pending<'e, P, T>, VerbError> {
        let endpoint = self.verbs.endpoint();
        let (work, ticket) = endpoint.inner().stage(&intent, self.verbs.phase())?;
        self.works.push(work);
        Ok(Pending::new(endpoint, ticket))
    }

    /// Returns the number of operations added so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.works.len()
    }

    /// Returns whether the batch is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.works.is_empty()
    }

    /// Adds a READ; see [`Verbs::read`].
    pub fn read(&mut self, from: Remote, words: usize) -> Result<Pending<'e, P, Words<'e, P>>, VerbError> {
        self.add(intent::Read { from, words })
    }

    /// Adds a WRITE; see [`Verbs::write`]. The words are copied now.
    pub fn write(&mut self, to: Remote, words: &[u64]) -> Result<Pending<'e, P, ()>, VerbError> {
        self.add(intent::Write { to, words })
    }

    /// Adds a COMPARE-AND-SWAP; see [`Verbs::compare_swap`].
    ///
    /// # Example
    ///
    /// See [`Batch`].
    pub fn compare_swap(&mut self, at: Remote, expected: u64, new: u64) -> Result<Pending<'e, P, u64>, VerbError> {
        self.add(intent::CompareSwap { at, expected, new })
    }

    /// Adds a FETCH-AND-ADD; see [`Verbs::fetch_add`].
    pub fn fetch_add(&mut self, at: Remote, add: u64) -> Result<Pending<'e, P, u64>, VerbError> {
        self.add(intent::FetchAdd { at, add })
    }

    /// Adds a SEND; see [`Verbs::send`]. The bytes are copied now.
    pub fn send(&mut self, to: NodeId, bytes: &[u8]) -> Result<Pending<'e, P, ()>, VerbError> {
        self.add(intent::Send { to, bytes })
    }

    /// Adds a call; see [`Verbs::call`]. The bytes are copied now.
    pub fn call(&mut self, to: NodeId, request: &[u8]) -> Result<Pending<'e, P, Reply<'e, P>>, VerbError> {
        self.add(intent::Call { to, bytes: request })
    }

    /// Posts all operations. Their completions can be awaited from now on.
    ///
    /// # Example
    ///
    /// See [`Batch`].
    pub fn ring(mut self) {
        let works = std::mem::take(&mut self.works);
        self.verbs.endpoint().inner().ring(works, self.verbs.phase());
    }
}

impl<P: Port> Drop for Batch<'_, P> {
    fn drop(&mut self) {
        // After `ring` there is no list to give back.
        if self.works.capacity() > 0 {
            let works = std::mem::take(&mut self.works);
            self.verbs.endpoint().inner().withdraw(works);
        }
    }
}

impl<P: Port> fmt::Debug for Batch<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("works", &self.works).finish_non_exhaustive()
    }
}
