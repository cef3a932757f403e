//! The owner's side: carrying out what peers ask for.
//!
//! A service never waits for a record. Whoever holds it may be the one whose next message is behind this one, so what is locked is answered with
//! "busy" and asked for again. Requests come from anyone: each is decoded, checked and executed, or refused, and never believed.

use std::{convert::Infallible, fmt, ops::Bound};

use drtm_htm::Engine;
use drtm_rdma::{NodeId, Port, Verbs};

use super::{
    refusal::Refusal,
    wire::{Answer, HEAD, Request, TableId, put_row},
};
use crate::{
    Bytes, HashTable, Inline, KvError, Look, Read, State, Store, Tree, Version, Worker, keys::Keys, layout::Place,
    record::Record,
};

/// A table that a [`Service`] answers for.
///
/// # Example
///
/// See [`Service`].
pub struct ServedTable<E: Engine>(Kind<E>);

enum Kind<E: Engine> {
    Hash(HashTable<E, Inline>),
    BytesHash(HashTable<E, Bytes>),
    Tree(Tree<E>),
}

impl<E: Engine> From<&HashTable<E, Inline>> for ServedTable<E> {
    fn from(table: &HashTable<E, Inline>) -> Self {
        Self(Kind::Hash(table.impatient()))
    }
}

impl<E: Engine> From<&HashTable<E, Bytes>> for ServedTable<E> {
    fn from(table: &HashTable<E, Bytes>) -> Self {
        Self(Kind::BytesHash(table.impatient()))
    }
}

impl<E: Engine> From<&Tree<E>> for ServedTable<E> {
    fn from(tree: &Tree<E>) -> Self {
        Self(Kind::Tree(tree.impatient()))
    }
}

impl<E: Engine> ServedTable<E> {
    fn store(&self) -> &Store<E> {
        match &self.0 {
            Kind::Hash(table) => table.store(),
            Kind::BytesHash(table) => table.store(),
            Kind::Tree(tree) => tree.store(),
        }
    }
}

impl<E: Engine> fmt::Debug for ServedTable<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Kind::Hash(_) => "a hash table",
            Kind::BytesHash(_) => "a hash table of byte strings",
            Kind::Tree(_) => "a tree",
        })
    }
}

/// What an owner does for its peers, table by table. One for each thread that serves.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_kv::{HashConfig, Inline, Service, Store, TableId, TablePeer};
/// use drtm_rdma::{Executor, Fabric, LocalConfig, LocalFabric, NodeId, Phase};
///
/// let store = Store::in_memory(NoHtm, 16 << 20)?;
/// let accounts = store.hash_table(HashConfig::default())?;
/// let mut service = Service::new(&store).with(TableId(1), &accounts)?;
///
/// let fabric = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect());
/// let endpoint = fabric.endpoint(NodeId(0))?;
/// let verbs = endpoint.during(Phase::Execute);
/// let mut executor = Executor::new(&endpoint);
/// executor.serve(service.serve(verbs));
/// executor.spawn(async {
///     let peer = TablePeer::<Inline>::new(NodeId(0), TableId(1));
///     peer.insert(verbs, 7, b"seven").await.expect("there is room");
/// });
/// executor.run();
/// assert!(accounts.contains(7)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Service<E: Engine> {
    worker: Worker<E>,
    store: Store<E>,
    tables: Vec<(TableId, ServedTable<E>)>,
}

impl<E: Engine> Service<E> {
    /// A service without tables.
    #[must_use]
    pub fn new(store: &Store<E>) -> Self {
        Self { worker: store.worker(), store: store.clone(), tables: Vec::new() }
    }

    /// The same with a table, under a number that has been none's.
    ///
    /// # Errors
    ///
    /// When the number is another table's, or the table is another store's.
    pub fn with(mut self, number: TableId, table: impl Into<ServedTable<E>>) -> Result<Self, KvError> {
        let table = table.into();
        if self.tables.iter().any(|(taken, _)| *taken == number) {
            return Err(KvError::Config {
                what: "the number of a table that is served",
                must_be: "a number of its own",
                is: number.to_string(),
            });
        }
        if !table.store().is(&self.store) {
            return Err(KvError::Config {
                what: "a table that is served",
                must_be: "of the store that the service was made for",
                is: format!("{table:?} of another store"),
            });
        }
        self.tables.push((number, table));
        Ok(self)
    }

    /// Answers requests for ever. To be [served](drtm_rdma::Executor::serve) beside the coroutines of a worker.
    pub async fn serve<P: Port>(&mut self, verbs: Verbs<'_, P>) -> Infallible {
        let most = verbs.endpoint().capabilities().max_message_bytes;
        verbs.serve(|from, request, reply| self.answer(from, request, most, reply)).await
    }

    /// Answers one request: makes `reply` the answer, of at most `most` bytes. For who receives messages otherwise than by
    /// [`serve`](Self::serve).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{Service, Store};
    /// use drtm_rdma::NodeId;
    ///
    /// let mut service = Service::new(&Store::in_memory(NoHtm, 1 << 20)?);
    /// let mut reply = Vec::new();
    /// service.answer(NodeId(1), b"nonsense", 1024, &mut reply);
    /// assert!(!reply.is_empty(), "a refusal that says why");
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    pub fn answer(&mut self, from: NodeId, request: &[u8], most: usize, reply: &mut Vec<u8>) {
        reply.clear();
        match self.execute(from, request, most, reply) {
            Ok(Said::Put) => {}
            Ok(Said::Answer(answer)) => answer.put(reply),
            Err(Failure::Busy) => Answer::Busy.put(reply),
            Err(Failure::Refused(refusal)) => Answer::Refused(refusal).put(reply),
        }
        // Texts of errors are all that can be too long here, and the head says enough.
        reply.truncate(most.max(HEAD));
    }

    fn execute(&mut self, from: NodeId, request: &[u8], most: usize, reply: &mut Vec<u8>) -> Result<Said, Failure> {
        let (number, request) = Request::from_bytes(request)?;
        let table = self.tables.iter().find(|(taken, _)| *taken == number);
        let Some((_, table)) = table else { return Err(Refusal::NoTable { table: number.0 }.into()) };
        if let Request::Lock { holder, .. } | Request::Unlock { holder, .. } = request
            && !(holder.is_locked() && u16::from(holder.owner()) == from.0)
        {
            return Err(Refusal::NotItsName { owner: holder.owner() }.into());
        }
        if let Request::Unlock { place, holder } = request {
            return Ok(Said::Answer(unlock(&self.store, place, holder)?));
        }
        let job = Job { worker: &mut self.worker, request, most, reply };
        match &table.0 {
            Kind::Hash(table) => job.on::<Inline, _>(table),
            Kind::BytesHash(table) => job.on::<Bytes, _>(table),
            Kind::Tree(tree) => job.on::<Inline, _>(tree),
        }
    }
}

fn unlock<E: Engine>(store: &Store<E>, place: Place, holder: State) -> Result<Answer<'static>, KvError> {
    let version = Version::default();
    Ok(Record::at(store.region(), place)?.release(holder).map_or_else(Answer::Held, |()| Answer::Done(version)))
}

/// What was said to a request.
enum Said {
    /// It is in the reply already.
    Put,
    Answer(Answer<'static>),
}

impl Said {
    fn done_or_not(version: Option<Version>) -> Self {
        Self::Answer(version.map_or(Answer::Not, Answer::Done))
    }
}

/// Why a request was not carried out.
enum Failure {
    Busy,
    Refused(Refusal),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<KvError> for Failure {
    fn from(error: KvError) -> Self {
        match error {
            KvError::Busy => Self::Busy,
            error => Self::Refused(error.into()),
        }
    }
}

/// A table, whatever its kind.
trait Table<E: Engine, K: Keys> {
    fn get(&self, key: K::Key<'_>, into: &mut [u8]) -> Result<Option<Read>, KvError>;
    fn insert(&self, worker: &mut Worker<E>, key: K::Key<'_>, value: &[u8]) -> Result<Option<Version>, KvError>;
    fn put(&self, worker: &mut Worker<E>, key: K::Key<'_>, value: &[u8]) -> Result<Version, KvError>;
    fn update(&self, worker: &mut Worker<E>, key: K::Key<'_>, value: &[u8]) -> Result<Option<Version>, KvError>;
    fn remove(&self, worker: &mut Worker<E>, key: K::Key<'_>) -> Result<Option<Version>, KvError>;
    fn with_record<T>(
        &self,
        key: K::Key<'_>,
        look: impl FnMut(&Record<'_, E>) -> Result<Look<T>, KvError>,
    ) -> Result<Option<T>, KvError>;

    /// Calls `visit` with the rows of a range in their order, until it says that it has enough; whether it has said so. `None` where there
    /// is no order.
    fn visit(
        &self,
        range: (Bound<K::Key<'_>>, Bound<K::Key<'_>>),
        visit: impl FnMut(&[u8], &[u8], Version) -> bool,
    ) -> Result<Option<bool>, KvError>;
}

/// What is the same for all kinds: their own operations.
macro_rules! operations {
    ($keys:ty) => {
        fn get(&self, key: <$keys as Keys>::Key<'_>, into: &mut [u8]) -> Result<Option<Read>, KvError> {
            self.get(key, into)
        }

        fn insert(
            &self,
            worker: &mut Worker<E>,
            key: <$keys as Keys>::Key<'_>,
            value: &[u8],
        ) -> Result<Option<Version>, KvError> {
            self.insert(worker, key, value)
        }

        fn put(&self, worker: &mut Worker<E>, key: <$keys as Keys>::Key<'_>, value: &[u8]) -> Result<Version, KvError> {
            self.put(worker, key, value)
        }

        fn update(
            &self,
            worker: &mut Worker<E>,
            key: <$keys as Keys>::Key<'_>,
            value: &[u8],
        ) -> Result<Option<Version>, KvError> {
            self.update(worker, key, value)
        }

        fn remove(&self, worker: &mut Worker<E>, key: <$keys as Keys>::Key<'_>) -> Result<Option<Version>, KvError> {
            self.remove(worker, key)
        }

        fn with_record<T>(
            &self,
            key: <$keys as Keys>::Key<'_>,
            look: impl FnMut(&Record<'_, E>) -> Result<Look<T>, KvError>,
        ) -> Result<Option<T>, KvError> {
            self.with_record(key, look)
        }
    };
}

impl<E: Engine, K: Keys> Table<E, K> for HashTable<E, K> {
    operations!(K);

    fn visit(
        &self,
        _range: (Bound<K::Key<'_>>, Bound<K::Key<'_>>),
        _visit: impl FnMut(&[u8], &[u8], Version) -> bool,
    ) -> Result<Option<bool>, KvError> {
        Ok(None)
    }
}

impl<E: Engine> Table<E, Inline> for Tree<E> {
    operations!(Inline);

    fn visit(
        &self,
        range: (Bound<u64>, Bound<u64>),
        mut visit: impl FnMut(&[u8], &[u8], Version) -> bool,
    ) -> Result<Option<bool>, KvError> {
        let mut scan = self.range(range);
        while let Some(row) = scan.next()? {
            if !Inline::with_bytes(row.key, |key| visit(key, row.value, row.version)) {
                return Ok(Some(true));
            }
        }
        Ok(Some(false))
    }
}

/// Room for a value before its length is known.
const LIKELY: usize = 256;

/// A request that is being carried out.
struct Job<'j, E: Engine> {
    worker: &'j mut Worker<E>,
    request: Request<'j>,
    most: usize,
    reply: &'j mut Vec<u8>,
}

impl<E: Engine> Job<'_, E> {
    fn on<K: Keys, T: Table<E, K>>(self, table: &T) -> Result<Said, Failure> {
        let worker = self.worker;
        Ok(match self.request {
            Request::Get { key } => return get::<E, K, T>(table, self::key::<K>(key)?, self.most, self.reply),
            Request::Insert { key, value } => Said::done_or_not(table.insert(worker, self::key::<K>(key)?, value)?),
            Request::Put { key, value } => Said::done_or_not(Some(table.put(worker, self::key::<K>(key)?, value)?)),
            Request::Update { key, value } => Said::done_or_not(table.update(worker, self::key::<K>(key)?, value)?),
            Request::Remove { key } => Said::done_or_not(table.remove(worker, self::key::<K>(key)?)?),
            Request::Range { low, high, rows } => {
                let range = (bound::<K>(low)?, bound::<K>(high)?);
                return rows_of::<E, K, T>(table, range, rows, self.most, self.reply);
            }
            Request::Lock { key, place, holder } => lock::<E, K, T>(table, self::key::<K>(key)?, place, holder)?,
            // Done before, since it needs no table.
            Request::Unlock { .. } => Said::Answer(Answer::Stale),
        })
    }
}

fn key<K: Keys>(bytes: &[u8]) -> Result<K::Key<'_>, Refusal> {
    K::from_bytes(bytes).ok_or(Refusal::NotItsKey { length: bytes.len() })
}

fn bound<K: Keys>(bound: Bound<&[u8]>) -> Result<Bound<K::Key<'_>>, Refusal> {
    Ok(match bound {
        Bound::Included(bytes) => Bound::Included(key::<K>(bytes)?),
        Bound::Excluded(bytes) => Bound::Excluded(key::<K>(bytes)?),
        Bound::Unbounded => Bound::Unbounded,
    })
}

fn get<E: Engine, K: Keys, T: Table<E, K>>(
    table: &T,
    key: K::Key<'_>,
    most: usize,
    reply: &mut Vec<u8>,
) -> Result<Said, Failure> {
    let most = most.saturating_sub(HEAD);
    let mut room = LIKELY.min(most);
    loop {
        reply.resize(HEAD + room, 0);
        let Some(read) = table.get(key, &mut reply[HEAD..])? else { return Ok(Said::Answer(Answer::Not)) };
        if read.length > most {
            return Err(Refusal::ReplyTooLong { length: read.length, most }.into());
        }
        if read.length <= room {
            reply.truncate(HEAD + read.length);
            Answer::put_value_head(reply, read.version);
            return Ok(Said::Put);
        }
        room = read.length;
    }
}

fn rows_of<E: Engine, K: Keys, T: Table<E, K>>(
    table: &T,
    range: (Bound<K::Key<'_>>, Bound<K::Key<'_>>),
    limit: u64,
    most: usize,
    reply: &mut Vec<u8>,
) -> Result<Said, Failure> {
    reply.resize(HEAD, 0);
    let (mut count, mut too_long) = (0, None);
    let more = table.visit(range, |key, value, version| {
        if u64::from(count) >= limit {
            return false;
        }
        match put_row(reply, most, key, value, version) {
            Ok(()) => {
                count += 1;
                true
            }
            Err(length) => {
                too_long = Some(length);
                false
            }
        }
    })?;
    match (more, too_long) {
        (None, _) => Err(Refusal::NotOrdered.into()),
        // Not even the first: whoever asks again would get no further.
        (_, Some(length)) if count == 0 => {
            Err(Refusal::ReplyTooLong { length, most: most.saturating_sub(HEAD) }.into())
        }
        (Some(more), _) => {
            Answer::put_rows_head(reply, count, more);
            Ok(Said::Put)
        }
    }
}

/// Locks the key's record, if it is where the peer believes it to be.
fn lock<E: Engine, K: Keys, T: Table<E, K>>(
    table: &T,
    key: K::Key<'_>,
    place: Place,
    holder: State,
) -> Result<Said, Failure> {
    let locked = table.with_record(key, |record| {
        if record.place() != place {
            return Ok(record.check::<K>(key)?.map(|_| None));
        }
        Ok(record.lock::<K>(key, holder)?.map(|locked| Some(locked.keep())))
    })?;
    Ok(Said::Answer(locked.flatten().map_or(Answer::Stale, Answer::Done)))
}
