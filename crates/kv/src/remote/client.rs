//! The peer's side: asking the owner of a table.

use std::{fmt, marker::PhantomData, ops::Bound};

use drtm_rdma::{NodeId, Port, Verbs};

use super::{
    backoff::Backoff,
    error::RemoteError,
    wire::{Answer, Answered, HEAD, Packet, Request, TableId, ask, split_row},
};
use crate::{Version, keys::Keys};

/// A table of another node, whose [`Service`](crate::Service) is asked by message. A name to be
/// copied.
///
/// Operations are what they are [at the owner](crate::HashTable), and linearizable as there. Where
/// others hold a record, the owner is asked again for a moment, while the other coroutines go on;
/// then the answer is [`RemoteError::Busy`].
///
/// # Errors
///
/// All operations: when the owner cannot be reached, [refuses](crate::Refusal), or is too busy;
/// nothing has changed then, but if the fabric has failed it may have. When a request is longer
/// than a message.
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
    /// The table that this node serves under this number.
    #[must_use]
    pub const fn new(owner: NodeId, table: TableId) -> Self {
        Self { owner, table, keys: PhantomData }
    }

    /// Gets a key's value, and its version.
    ///
    /// # Errors
    ///
    /// As said [above](Self#errors), and when the value is longer than a reply: then it can be read
    /// one-sidedly.
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

    /// Inserts a key that is not there yet. Gives its version, or `None` if the key is there.
    ///
    /// # Errors
    ///
    /// As said [above](Self#errors).
    pub async fn insert<P: Port>(
        self,
        verbs: Verbs<'_, P>,
        key: K::Key<'_>,
        value: &[u8],
    ) -> Result<Option<Version>, RemoteError> {
        let request = K::with_bytes(key, |key| Request::Insert { key, value }.to_bytes(self.table));
        self.change(verbs, request).await
    }

    /// Gives a key that is there another value, of any length. Gives the new version, or `None` if
    /// there is no such key.
    ///
    /// # Errors
    ///
    /// As said [above](Self#errors).
    pub async fn update<P: Port>(
        self,
        verbs: Verbs<'_, P>,
        key: K::Key<'_>,
        value: &[u8],
    ) -> Result<Option<Version>, RemoteError> {
        let request = K::with_bytes(key, |key| Request::Update { key, value }.to_bytes(self.table));
        self.change(verbs, request).await
    }

    /// Gives a key a value, whether it is there or not. Gives the value's version.
    ///
    /// # Errors
    ///
    /// As said [above](Self#errors).
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

    /// Removes a key. Gives the version that was removed, or `None` if there was no such key.
    ///
    /// # Errors
    ///
    /// As said [above](Self#errors).
    pub async fn remove<P: Port>(self, verbs: Verbs<'_, P>, key: K::Key<'_>) -> Result<Option<Version>, RemoteError> {
        let request = K::with_bytes(key, |key| Request::Remove { key }.to_bytes(self.table));
        self.change(verbs, request).await
    }

    /// The first rows of a range of a tree: at most so many (and at least one is asked for), and at
    /// most what one reply holds. Each key's value is whole, but they may be from different
    /// moments, as those of a [`Scan`](crate::Scan).
    ///
    /// # Errors
    ///
    /// As said [above](Self#errors), when the table has no order, and when the first row is longer
    /// than a reply.
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

    /// Asks until the owner is not busy with what is asked for.
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

/// Rows of another node's table, in the order of their keys. It holds the reply's buffer while it
/// is there.
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

    /// The rows.
    pub fn rows(&self) -> impl Iterator<Item = PeerRow<'_, K>> {
        let mut left = &self.answered.0[HEAD..];
        // All of them were looked at when the reply came.
        std::iter::from_fn(move || {
            let ((key, value, version), rest) = split_row(left)?;
            left = rest;
            Some(PeerRow { key: K::from_bytes(key)?, value, version })
        })
    }

    /// Where the rows that did not fit begin: behind the last of these. `None` if there were none.
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
