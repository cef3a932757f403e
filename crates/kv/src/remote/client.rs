//! The peer's side: requests to the owner of a table.

use std::{fmt, marker::PhantomData, ops::Bound};

use drtm_rdma::{NodeId, Port, Verbs};

use super::{
    backoff::Backoff,
    error::RemoteError,
    wire::{Answer, Answered, HEAD, Packet, Request, TableId, ask, split_row},
};
use crate::{Version, keys::Keys};

/// A table of another node, which is accessed by messages to its [`Service`](crate::Service). This
/// is only a name, and is `Copy`.
///
/// Operations do the same as [at the owner](crate::HashTable), and are linearizable. While others
/// have locked a record, the request is retried for a moment, and other coroutines run meanwhile.
/// The error is [`RemoteError::Busy`] then.
///
/// # Errors
///
/// Every operation fails when the owner cannot be reached, [refuses](crate::Refusal), or is busy
/// for too long. Nothing has changed then, except that it may have if the fabric has failed. It
/// also fails when the request is longer than a message.
///
/// # Example
///
/// ```
/// use std::ops::Bound::{Excluded, Unbounded};
/// use drtm_htm::NoHtm;
/// use drtm_kv::{HashConfig, Inline, KvTable, Refusal, RemoteError, Service, Store, TableId, TablePeer};
/// use drtm_rdma::{Executor, Fabric, LocalConfig, LocalFabric, NodeId, Phase};
///
/// let store = Store::in_memory(NoHtm, 16 << 20)?;
/// let orders = store.tree()?;
/// let mut service = Service::new(&store)?.with(TableId(1), &orders)?;
/// let fabric = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect());
/// let endpoint = fabric.endpoint(NodeId(0))?;
/// let verbs = endpoint.during(Phase::Execute);
/// let mut executor = Executor::new(&endpoint);
/// executor.serve(service.serve(verbs));
/// executor.spawn(async {
///     let peer = TablePeer::<Inline>::new(NodeId(0), TableId(1));
///     for key in 0..10 {
///         let inserted = peer.insert(verbs, key, b"order").await.expect("there is room");
///         assert!(inserted.is_some());
///     }
///     // Four at a time, and then the others.
///     let page = peer.range(verbs, (Excluded(2), Unbounded), 4).await.expect("a tree");
///     assert_eq!(page.rows().map(|row| row.key).collect::<Vec<_>>(), [3, 4, 5, 6]);
///     let rest = peer.range(verbs, (page.rest().expect("three more"), Unbounded), 4).await.expect("a tree");
///     assert_eq!((rest.rows().count(), rest.rest()), (3, None));
///
///     let nowhere = TablePeer::<Inline>::new(NodeId(0), TableId(2));
///     let refused = nowhere.remove(verbs, 1).await.unwrap_err();
///     assert_eq!(refused, RemoteError::Refused(Refusal::NoTable { table: 2 }));
/// });
/// executor.run();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TablePeer<K: Keys> {
    owner: NodeId,
    table: TableId,
    keys: PhantomData<K>,
}

impl<K: Keys> Clone for TablePeer<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: Keys> Copy for TablePeer<K> {}

impl<K: Keys> TablePeer<K> {
    /// Makes the name of the table that this node serves under this number.
    ///
    /// # Example
    ///
    /// See [`TablePeer`].
    #[must_use]
    pub const fn new(owner: NodeId, table: TableId) -> Self {
        Self { owner, table, keys: PhantomData }
    }

    /// Returns a key's value and its version. `None`: the key is absent.
    ///
    /// # Errors
    ///
    /// See [the type's errors](Self#errors). Also when the value is longer than a reply: then it
    /// can be read one-sidedly.
    pub async fn get<P: Port>(
        self,
        verbs: Verbs<'_, P>,
        key: K::Key<'_>,
        value: &mut Vec<u8>,
    ) -> Result<Option<Version>, RemoteError> {
        let request = K::with_bytes(key, |key| Request::Get { key }.to_bytes(self.table));
        match self.ask(verbs, request).await?.answer()? {
            Answer::Value(version, found) => {
                value.clear();
                value.extend_from_slice(found);
                Ok(Some(version))
            }
            Answer::Not => Ok(None),
            _ => Err(RemoteError::Reply { what: "it does not answer a request for a value" }),
        }
    }

    /// Inserts a key, and returns its version. `None`: the key is present already.
    ///
    /// # Errors
    ///
    /// See [the type's errors](Self#errors).
    pub async fn insert<P: Port>(
        self,
        verbs: Verbs<'_, P>,
        key: K::Key<'_>,
        value: &[u8],
    ) -> Result<Option<Version>, RemoteError> {
        let request = K::with_bytes(key, |key| Request::Insert { key, value }.to_bytes(self.table));
        self.change(verbs, request).await
    }

    /// Replaces the value of a present key by one of any length, and returns the new version.
    /// `None`: the key is absent.
    ///
    /// # Errors
    ///
    /// See [the type's errors](Self#errors).
    pub async fn update<P: Port>(
        self,
        verbs: Verbs<'_, P>,
        key: K::Key<'_>,
        value: &[u8],
    ) -> Result<Option<Version>, RemoteError> {
        let request = K::with_bytes(key, |key| Request::Update { key, value }.to_bytes(self.table));
        self.change(verbs, request).await
    }

    /// Inserts or updates a key. Returns the value's version.
    ///
    /// # Errors
    ///
    /// See [the type's errors](Self#errors).
    pub async fn put<P: Port>(
        self,
        verbs: Verbs<'_, P>,
        key: K::Key<'_>,
        value: &[u8],
    ) -> Result<Version, RemoteError> {
        let request = K::with_bytes(key, |key| Request::Put { key, value }.to_bytes(self.table));
        let version = self.change(verbs, request).await?;
        version.ok_or(RemoteError::Reply { what: "it says that a key can be neither updated nor inserted" })
    }

    /// Removes a key, and returns the version that was removed. `None`: the key was absent.
    ///
    /// # Errors
    ///
    /// See [the type's errors](Self#errors).
    pub async fn remove<P: Port>(self, verbs: Verbs<'_, P>, key: K::Key<'_>) -> Result<Option<Version>, RemoteError> {
        let request = K::with_bytes(key, |key| Request::Remove { key }.to_bytes(self.table));
        self.change(verbs, request).await
    }

    /// Returns the first rows of a range of a tree: at most `rows`, and at most as many as a reply
    /// holds. At least one row is requested. Each value is consistent, but they may be from
    /// different moments, like those of a [`Scan`](crate::Scan).
    ///
    /// # Errors
    ///
    /// See [the type's errors](Self#errors). Also when the table has no order, or when the first
    /// row is longer than a reply.
    pub async fn range<'e, P: Port>(
        self,
        verbs: Verbs<'e, P>,
        range: (Bound<K::Key<'_>>, Bound<K::Key<'_>>),
        rows: u64,
    ) -> Result<Page<'e, P, K>, RemoteError> {
        let request = with_bound::<K, _>(range.0, |low| {
            with_bound::<K, _>(range.1, |high| Request::Range { low, high, rows: rows.max(1) }.to_bytes(self.table))
        });
        Page::new(self.ask(verbs, request).await?)
    }

    async fn change<P: Port>(self, verbs: Verbs<'_, P>, request: Packet) -> Result<Option<Version>, RemoteError> {
        match self.ask(verbs, request).await?.answer()? {
            Answer::Done(version) => Ok(Some(version)),
            Answer::Not => Ok(None),
            _ => Err(RemoteError::Reply { what: "it does not answer a request for a change" }),
        }
    }

    /// Sends a request until the owner is not busy.
    async fn ask<'e, P: Port>(self, verbs: Verbs<'e, P>, request: Packet) -> Result<Answered<'e, P>, RemoteError> {
        let mut backoff = Backoff::default();
        loop {
            let answered = ask(verbs, self.owner, &request).await?;
            if !matches!(answered.answer(), Ok(Answer::Busy)) {
                return Ok(answered);
            }
            drop(answered);
            if !backoff.again(verbs).await {
                return Err(RemoteError::Busy);
            }
        }
    }
}

fn with_bound<K: Keys, T>(bound: Bound<K::Key<'_>>, see: impl FnOnce(Bound<&[u8]>) -> T) -> T {
    match bound {
        Bound::Included(key) => K::with_bytes(key, |key| see(Bound::Included(key))),
        Bound::Excluded(key) => K::with_bytes(key, |key| see(Bound::Excluded(key))),
        Bound::Unbounded => see(Bound::Unbounded),
    }
}

/// A row of a [`Page`].
///
/// # Example
///
/// See [`TablePeer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerRow<'p, K: Keys> {
    /// The key.
    pub key: K::Key<'p>,
    /// The whole value.
    pub value: &'p [u8],
    /// The version of the value.
    pub version: Version,
}

/// Rows of another node's table, in the order of their keys. It holds the reply's buffer until it
/// is dropped.
///
/// # Example
///
/// See [`TablePeer`].
pub struct Page<'e, P: Port, K: Keys> {
    answered: Answered<'e, P>,
    more: bool,
    keys: PhantomData<K>,
}

impl<'e, P: Port, K: Keys> Page<'e, P, K> {
    fn new(answered: Answered<'e, P>) -> Result<Self, RemoteError> {
        let Answer::Rows { count, more, rows } = answered.answer()? else {
            return Err(RemoteError::Reply { what: "it does not answer a request for rows" });
        };
        let (mut left, mut found) = (rows, 0);
        while let Some(((key, _, _), rest)) = split_row(left) {
            K::from_bytes(key).ok_or(RemoteError::Reply { what: "a row has no key of the table" })?;
            (left, found) = (rest, found + 1);
        }
        if !left.is_empty() || found != count || (more && count == 0) {
            return Err(RemoteError::Reply { what: "it has other rows than its head says" });
        }
        Ok(Self { answered, more, keys: PhantomData })
    }

    /// Returns the rows.
    pub fn rows(&self) -> impl Iterator<Item = PeerRow<'_, K>> {
        let mut left = &self.answered.0[HEAD..];
        // All of them were validated when the reply arrived.
        std::iter::from_fn(move || {
            let ((key, value, version), rest) = split_row(left)?;
            left = rest;
            Some(PeerRow { key: K::from_bytes(key)?, value, version })
        })
    }

    /// Returns the bound at which the rest of the range begins: behind the last row. `None`: there
    /// is no rest.
    #[must_use]
    pub fn rest(&self) -> Option<Bound<K::Key<'_>>> {
        let last = if self.more { self.rows().last() } else { None };
        last.map(|row| Bound::Excluded(row.key))
    }
}

impl<P: Port, K: Keys> fmt::Debug for Page<'_, P, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page").field("rows", &self.rows().count()).field("more", &self.more).finish_non_exhaustive()
    }
}
