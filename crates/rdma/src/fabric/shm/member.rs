//! Joining and leaving a group.

use std::{
    fmt,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicUsize},
    },
    thread::JoinHandle,
};

use drtm_htm::{Engine, Sharing};
use parking_lot::Mutex;
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, eventfd, poll},
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with},
    time::Timespec,
};

use crate::{
    NodeId, RegionError,
    fabric::{
        die,
        lifetime::{End, Life as _},
    },
    region::kind_of,
    sync::time,
};

use super::{
    ENDPOINTS, JoinError, NODES, Place, Shared, ShmConfig,
    control::Control,
    group::{self, Seat},
    links::{Link, Links},
    node::Peer,
    watcher,
    wire::{self, Kind, Post},
};

/// A process's membership of a group, from joining to leaving.
pub(super) struct Member<E: Engine> {
    pub(super) shared: Arc<Shared<E>>,
    inside: Mutex<Option<Inside>>,
}

/// The state of a member until it leaves.
struct Inside {
    watcher: JoinHandle<()>,
    /// Ends the watcher.
    end: Arc<OwnedFd>,
    /// Dropped last.
    _seat: Seat,
}

impl<E: Engine> Member<E> {
    pub(super) fn join(engine: E, config: ShmConfig) -> Result<Self, JoinError> {
        engine.admits(Sharing::Processes).map_err(RegionError::from)?;
        let kind = kind_of(&engine);
        let entry = group::enter(&config, kind)?;
        // Files of dead groups do not matter here, nor if they cannot be removed.
        let _ = group::clean_up_but(&config.directory, Some(&config.group));
        let (node, incarnation) = (config.node, entry.incarnation);
        let home = Arc::new(Peer::new(node, incarnation, Control::create(node, incarnation)?));
        let shared = Arc::new(Shared {
            node,
            engine,
            home: Arc::clone(&home),
            lives: (0..NODES).map(|_| Default::default()).collect(),
            changes: AtomicU32::new(0),
            places: (0..ENDPOINTS).map(|_| Place::default()).collect(),
            used: AtomicUsize::new(0),
            vacant: Mutex::default(),
            links: Mutex::default(),
            config,
        });
        shared.welcome(home);
        for other in &entry.others {
            greet(&shared, &entry.directory, *other)?;
        }
        let end = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let end = Arc::new(end.map_err(JoinError::system("make an event"))?);
        let watcher = watcher::start(Arc::clone(&shared), entry.listener, Arc::clone(&end))
            .map_err(JoinError::io("start the thread that watches the peers"))?;
        die::site("join.joined");
        Ok(Self { shared, inside: Mutex::new(Some(Inside { watcher, end, _seat: entry.seat })) })
    }

    pub(super) fn leave(&self) {
        let Some(inside) = self.inside.lock().take() else { return };
        die::site("leave.begun");
        let shared = &self.shared;
        {
            let links = shared.links.lock();
            shared.home.end(End::Left);
            links.say_goodbye(shared);
        }
        // It fails only if it was signaled too often.
        let _ = rustix::io::write(&inside.end, &1_u64.to_ne_bytes());
        // A watcher that has panicked has nothing to report.
        let _ = inside.watcher.join();
        shared.links.lock().links.clear();
        for lives in &shared.lives {
            if let Some(life) = &*lives.read() {
                life.end(End::Left);
            }
        }
        shared.tell();
    }
}

impl<E: Engine> Drop for Member<E> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl<E: Engine> fmt::Debug for Member<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member").field("node", &self.shared.node).finish_non_exhaustive()
    }
}

/// Connects to a node that is there.
fn greet<E: Engine>(shared: &Shared<E>, directory: &Path, node: NodeId) -> Result<(), JoinError> {
    let deadline = time::of_this_machine() + shared.config.patience;
    let path = group::socket_of(directory, node);
    let what = || format!("greet {node}");
    let address = SocketAddrUnix::new(&path).map_err(JoinError::system(what()))?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let socket = socket.map_err(JoinError::system(what()))?;
    match connect(&socket, &address) {
        Ok(()) => {}
        // It has died since it was seen alive.
        Err(Errno::CONNREFUSED | Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(JoinError::system(what())(errno)),
    }
    let hello = Links::packet(shared, Kind::Hello);
    let file = shared.control().region().file().map(AsFd::as_fd);
    match wire::send(&socket, &hello, file) {
        Ok(()) => {}
        Err(Errno::PIPE | Errno::CONNRESET) => return Ok(()),
        Err(errno) => return Err(JoinError::system(what())(errno)),
    }
    die::site("join.greeted");
    loop {
        match wire::receive(&socket) {
            Post::Packet(packet, file) if packet.kind == Kind::Welcome && packet.node == node => {
                let control = Control::of_peer(file, node, packet.incarnation).ok_or(JoinError::NoAnswer { node })?;
                let life = Peer::new(node, packet.incarnation, control);
                let link = Link { node, incarnation: packet.incarnation, socket: Arc::new(socket) };
                let mut links = shared.links.lock();
                shared.welcome(Arc::new(life));
                links.add(shared, link);
                return Ok(());
            }
            Post::Packet(..) => return Err(JoinError::Refused { node }),
            // It has died meanwhile.
            Post::Over => return Ok(()),
            Post::Nothing => {}
        }
        let left = deadline.since(time::of_this_machine());
        if left.is_zero() {
            return Err(JoinError::NoAnswer { node });
        }
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(JoinError::system(what())(errno)),
        }
    }
}
