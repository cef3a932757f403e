//! What all handles, ports and threads of a node have in common.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU32,
            Ordering::{Relaxed, Release, SeqCst},
            fence,
        },
    },
};

use drtm_htm::{Engine, Word};
use parking_lot::{Mutex, RwLock};

use crate::{
    FabricError, Incarnation, NodeId, Offset, Presence, Region, RegionId, VerbError,
    endpoint::port::ReplyTo,
    fabric::{
        lifetime::{End, Life, Lifetime},
        mailbox::Mailbox,
        places::{Places, Tenancy},
    },
    region::registry::Registry,
    sync::{alarm::Ring, lead::Lead},
};

use super::{
    TcpConfig,
    bell::Bell,
    caller::Caller,
    directory::Directory,
    error::RefusalCounters,
    handler::CallHandler,
    hello::{Hello, Purpose, Verdict},
    inbox::{Inbox, Place},
    shares::Totals,
    tray::Tray,
    wire::Failure,
};

/// Nodes that a cluster can have.
pub(super) const NODES: usize = 1024;

/// Endpoints that a node can have at a time.
pub(super) const ENDPOINTS: usize = 256;

/// Visitors that a node can have at a time.
pub(super) const VISITORS: usize = 16;

/// One incarnation of a node.
pub(crate) type Peer = Lifetime;

/// The connections of a node's endpoints, each in its endpoint's place.
type Endpoints = Vec<Option<Arc<Caller>>>;

#[derive(Debug)]
pub(crate) struct Shared<E: Engine> {
    pub(crate) node: NodeId,
    pub(super) config: TcpConfig,
    pub(super) engine: u8,
    pub(crate) home: Arc<Peer>,
    pub(crate) directory: Directory,
    /// Where this node says that it is.
    pub(super) at: SocketAddr,
    regions: Registry<E>,
    lives: Box<[RwLock<Option<Arc<Peer>>>]>,
    /// For each node, whether it takes nothing of this incarnation any more.
    pub(super) refusers: Box<[AtomicBool]>,
    /// How often a node has come or gone, so that a port finds out by one look.
    pub(super) changes: AtomicU32,
    pub(crate) inbox: Inbox,
    /// For each node, its endpoints' connections; and behind those, the visitors'.
    callers: Box<[Mutex<Endpoints>]>,
    /// What the thread sleeps on that drives the node's sockets.
    pub(super) service: Arc<Bell>,
    /// Which thread that is.
    pub(super) lead: Lead,
    /// Whether the service waits for room in the mailbox.
    pub(super) starved: AtomicBool,
    /// Connections whose sockets took no more.
    pub(super) blocked: Mutex<Vec<u64>>,
    pub(super) leaving: AtomicBool,
    /// Whether it leaves without a goodbye.
    pub(super) silent: AtomicBool,
    pub(super) refusals: RefusalCounters,
    pub(super) totals: Totals,
    /// Takes calls in place of the mailbox, if there is one.
    pub(super) handler: Option<Arc<dyn CallHandler>>,
    /// What carries the node's letters, if it is to get any.
    pub(super) post: Mutex<Option<Arc<Tray>>>,
}

impl<E: Engine> Shared<E> {
    pub(super) fn new(
        config: TcpConfig,
        engine: u8,
        home: Peer,
        (directory, at): (Directory, SocketAddr),
        service: Arc<Bell>,
        handler: Option<Arc<dyn CallHandler>>,
    ) -> Self {
        let nodes = directory.nodes();
        let home = Arc::new(home);
        let shared = Self {
            node: config.node,
            engine,
            regions: Registry::new(),
            lives: (0..nodes).map(|_| RwLock::default()).collect(),
            refusers: (0..nodes).map(|_| AtomicBool::new(false)).collect(),
            changes: AtomicU32::new(0),
            inbox: Inbox { mail: Mailbox::new(config.mailbox), places: Places::new(ENDPOINTS) },
            callers: (0..=nodes).map(|_| Mutex::default()).collect(),
            service,
            lead: Lead::default(),
            starved: AtomicBool::new(false),
            blocked: Mutex::default(),
            leaving: AtomicBool::new(false),
            silent: AtomicBool::new(false),
            refusals: RefusalCounters::default(),
            totals: Totals::default(),
            handler,
            post: Mutex::default(),
            directory,
            at,
            home: Arc::clone(&home),
            config,
        };
        shared.welcome(home);
        shared
    }

    pub(crate) fn nodes(&self) -> usize {
        self.lives.len()
    }

    /// Returns the incarnation of a node of the directory that is here, or was last.
    /// [`VerbError::NotJoined`] if none was, [`VerbError::UnknownNode`] if the directory does not
    /// have the node.
    pub(crate) fn life_in_directory(&self, node: NodeId) -> Result<Arc<Peer>, VerbError> {
        match self.directory.place(node) {
            Some(_) => self.life(node).ok_or(VerbError::NotJoined { node }),
            None => Err(VerbError::UnknownNode { node }),
        }
    }

    /// Returns the incarnation of a node that is here, or was last.
    pub(crate) fn life(&self, node: NodeId) -> Option<Arc<Peer>> {
        self.lives.get(usize::from(node.0))?.read().clone()
    }

    pub(super) fn presence(&self, node: usize) -> Presence {
        self.lives.get(node).and_then(|life| Some(life.read().as_ref()?.presence())).unwrap_or_default()
    }

    pub(super) fn presences(&self) -> impl Iterator<Item = Presence> {
        (0..self.lives.len()).map(|node| self.presence(node))
    }

    /// Notes what a node has said to a handshake.
    pub(super) fn note_verdict(&self, node: NodeId, verdict: Verdict) {
        let refuser = &self.refusers[usize::from(node.0)];
        match verdict {
            Verdict::Welcome => refuser.store(false, Release),
            Verdict::Stale => refuser.store(true, Release),
            _ => {}
        }
    }

    /// Adds an incarnation that has joined.
    pub(super) fn welcome(&self, life: Arc<Peer>) {
        if let Some(before) = self.lives[usize::from(life.node.0)].write().replace(life) {
            // It cannot be here any more, whether or not its connection has said so yet.
            before.end(End::Died);
        }
        self.tell();
    }

    /// Ends an incarnation, and tells the endpoints.
    pub(super) fn part(&self, life: &Peer, end: End) {
        life.end(end);
        self.tell();
    }

    /// Tells all endpoints of this process that something has changed.
    pub(super) fn tell(&self) {
        self.changes.fetch_add(1, Release);
        self.inbox.places.wake_all();
    }

    pub(super) fn register(&self, region: Arc<Region<E>>) -> Result<RegionId, FabricError> {
        self.regions.register(self.node, region, || self.home.is_over())
    }

    /// Returns words that peers may access, and the engine to access them with.
    #[inline]
    pub(super) fn words(&self, region: RegionId, offset: Offset, count: usize) -> Result<(&E, &[Word]), Failure> {
        let region = self.regions.get(region).ok_or(Failure::UnknownRegion)?;
        let words = region.words(offset, count).map_err(|_| Failure::OutOfBounds)?;
        Ok((region.engine(), words))
    }

    /// Reserves a place for an endpoint.
    pub(super) fn move_in(&self) -> Result<(u16, Arc<Place>), FabricError> {
        let node = self.node;
        if self.home.is_over() {
            return Err(FabricError::Closed { node });
        }
        self.inbox.places.move_in(node, || {
            let bell = Bell::new().map_err(|_| FabricError::NoDescriptors { node })?;
            Ok(Place { bell: Arc::new(bell), tenancy: Tenancy::default() })
        })
    }

    /// Wakes the service if it waits for room in the mailbox.
    #[inline]
    pub(super) fn made_room(&self) {
        fence(SeqCst);
        if self.starved.load(Relaxed) {
            self.wake_driver();
        }
    }

    /// Wakes the thread that sleeps on the node's sockets, after something was published for it.
    /// One that is awake looks before it sleeps.
    pub(super) fn wake_driver(&self) {
        fence(SeqCst);
        match self.lead.resting().and_then(|endpoint| self.inbox.places.get(endpoint)) {
            Some(place) => place.ring(),
            None => self.service.insist(),
        }
    }

    /// Returns whether other threads have left nothing to do for the node's connections. It is the
    /// last check of a thread that is about to sleep on them.
    pub(super) fn is_quiet(&self) -> bool {
        let room = self.starved.load(Relaxed) && self.inbox.mail.has_room();
        !room && !self.leaving.load(SeqCst) && self.blocked.lock().is_empty()
    }

    /// Returns the place of a node among the callers.
    pub(super) fn callers_place(&self, node: NodeId) -> usize {
        if node == NodeId::VISITOR { self.nodes() } else { usize::from(node.0) }
    }

    /// Returns a number that no visitor has. `None` if there are as many as there may be.
    pub(super) fn place_for_visitor(&self) -> Option<u16> {
        let visitors = self.callers[self.nodes()].lock();
        (0..VISITORS).find(|place| visitors.get(*place).is_none_or(Option::is_none)).map(|place| place as u16)
    }

    /// Returns the connection that carries replies to an endpoint.
    pub(super) fn caller(&self, to: &ReplyTo) -> Option<Arc<Caller>> {
        let callers = self.callers.get(self.callers_place(to.node))?.lock();
        callers.get(usize::from(to.endpoint))?.as_ref().filter(|caller| caller.is_for(to)).cloned()
    }

    /// Makes a connection the one of its endpoint, and gives the one before.
    pub(super) fn connect_caller(&self, caller: &Arc<Caller>) -> Option<Arc<Caller>> {
        let mut callers = self.callers[self.callers_place(caller.node)].lock();
        let index = usize::from(caller.endpoint);
        if callers.len() <= index {
            callers.resize_with(index + 1, || None);
        }
        callers[index].replace(Arc::clone(caller))
    }

    /// Removes a connection that is closed.
    pub(super) fn disconnect_caller(&self, caller: &Arc<Caller>) {
        caller.closed.store(true, Release);
        if let Some(handler) = &self.handler {
            handler.closed(caller);
        }
        let mut callers = self.callers[self.callers_place(caller.node)].lock();
        if let Some(place) = callers.get_mut(usize::from(caller.endpoint))
            && place.as_ref().is_some_and(|there| Arc::ptr_eq(there, caller))
        {
            *place = None;
        }
    }

    fn each_caller(&self, mut of: impl FnMut(&Arc<Caller>)) {
        for callers in &self.callers {
            callers.lock().iter().flatten().for_each(&mut of);
        }
    }

    pub(super) fn held_bytes(&self) -> usize {
        let mut bytes = 0;
        self.each_caller(|caller| bytes += caller.out.lock().pending());
        bytes
    }

    pub(super) fn break_connections(&self) {
        // One that is closed already is broken.
        self.each_caller(|caller| drop(caller.socket.shutdown(std::net::Shutdown::Both)));
    }

    /// Returns the hello of this node to another.
    pub(super) fn hello(&self, to: NodeId, purpose: Purpose) -> Hello {
        Hello {
            purpose,
            sealed: self.config.sealed,
            engine: self.engine,
            from: self.node,
            to,
            incarnation: self.home.incarnation,
            at: self.at,
        }
    }
}

/// Returns whether an incarnation cannot be here any more, given the presence of its node.
pub(super) fn is_over(stands: Presence, incarnation: Incarnation) -> bool {
    match stands {
        Presence::Never => false,
        Presence::Here(last) | Presence::Suspected(last) => last > incarnation,
        Presence::Left(last) | Presence::Died(last) => last >= incarnation,
    }
}
