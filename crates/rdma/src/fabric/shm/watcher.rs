//! The thread that watches the peers: it admits processes that join, maps their regions, and
//! detects their end.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    sync::Arc,
    thread::JoinHandle,
};

use drtm_htm::Engine;
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    net::{SocketFlags, accept_with, sockopt::socket_peercred},
};

use crate::{Region, RegionError, fabric::lifetime::Life as _};

use super::{
    NODES, Shared,
    control::Control,
    links::{Link, Links},
    node::Peer,
    wire::{self, Kind, Packet, Post},
};

/// The most processes that have connected and not introduced themselves.
const PENDING: usize = NODES;

struct Watcher<E: Engine> {
    shared: Arc<Shared<E>>,
    listener: OwnedFd,
    end: Arc<OwnedFd>,
    pending: Vec<OwnedFd>,
}

pub(super) fn start<E: Engine>(
    shared: Arc<Shared<E>>,
    listener: OwnedFd,
    end: Arc<OwnedFd>,
) -> io::Result<JoinHandle<()>> {
    let name = format!("drtm-watch-{}", shared.node.0);
    let mut watcher = Watcher { shared, listener, end, pending: Vec::new() };
    std::thread::Builder::new().name(name).spawn(move || watcher.run())
}

impl<E: Engine> Watcher<E> {
    fn run(&mut self) {
        loop {
            let links = self.shared.links.lock().links.clone();
            let mut looked_at = vec![
                PollFd::from_borrowed_fd(self.end.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN),
            ];
            let sockets = self.pending.iter().map(AsFd::as_fd).chain(links.iter().map(|link| link.socket.as_fd()));
            looked_at.extend(sockets.map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::IN)));
            match poll(&mut looked_at, None) {
                Ok(_) | Err(Errno::INTR) => {}
                // Memory is short, and all it can do is to try again.
                Err(_) => std::thread::yield_now(),
            }
            let ready: Vec<bool> = looked_at.iter().map(|socket| !socket.revents().is_empty()).collect();
            drop(looked_at);
            let (ends, rest) = (ready[0], &ready[1..]);
            if ends {
                return;
            }
            let (comes, rest) = (rest[0], &rest[1..]);
            let (pending, peers) = rest.split_at(self.pending.len());
            for index in (0..pending.len()).rev().filter(|index| pending[*index]) {
                self.hear(index);
            }
            for (link, _) in links.iter().zip(peers).filter(|(_, ready)| **ready) {
                self.hear_from(link);
            }
            if comes {
                self.accept();
            }
        }
    }

    fn accept(&mut self) {
        while let Ok(socket) = accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            // A process that never introduces itself makes room for others.
            if self.pending.len() == PENDING {
                self.pending.remove(0);
            }
            self.pending.push(socket);
        }
    }

    /// Handles the introduction of a process, or its end.
    fn hear(&mut self, index: usize) {
        match wire::receive(&self.pending[index]) {
            Post::Nothing => {}
            Post::Over => drop(self.pending.swap_remove(index)),
            Post::Packet(packet, file) => {
                let socket = self.pending.swap_remove(index);
                // It is locked from before the greeting until it is a link, so that it gets the
                // goodbye. A node that has left greets no process.
                let mut links = self.shared.links.lock();
                if self.shared.home.is_over() {
                    return;
                }
                if !self.greet_back(&socket, &packet, file) {
                    // If it cannot be told, the socket tells it.
                    let _ = wire::send(&socket, &Links::packet(&self.shared, Kind::Refusal), None);
                    return;
                }
                let link = Link { node: packet.node, incarnation: packet.incarnation, socket: Arc::new(socket) };
                links.links.retain(|other| other.node != link.node);
                links.add(&self.shared, link);
            }
        }
    }

    /// Makes a joining process a peer, if it can be one.
    fn greet_back(&self, socket: &OwnedFd, packet: &Packet, file: Option<File>) -> bool {
        let shared = &self.shared;
        let welcome = Links::packet(shared, Kind::Welcome);
        let same_user = socket_peercred(socket).is_ok_and(|peer| peer.uid == rustix::process::geteuid());
        let in_range = usize::from(packet.node.0) < NODES && packet.node != shared.node;
        let newer = shared.life(packet.node).is_none_or(|before| before.incarnation() < packet.incarnation);
        if !(same_user && in_range && newer && packet.kind == Kind::Hello && packet.fits(&welcome)) {
            return false;
        }
        let Some(control) = Control::of_peer(file, packet.node, packet.incarnation) else { return false };
        let life = Arc::new(Peer::new(packet.node, packet.incarnation, control));
        // It is first known here, so that its messages are understood.
        shared.welcome(Arc::clone(&life));
        let file = shared.control().region().file().map(AsFd::as_fd);
        if wire::send(socket, &welcome, file).is_err() {
            shared.part(&life, false);
        }
        true
    }

    /// Handles the packets of a peer, or its end.
    fn hear_from(&self, link: &Link) {
        loop {
            match wire::receive(&link.socket) {
                Post::Nothing => return,
                Post::Packet(packet, Some(file)) if packet.kind == Kind::Region => {
                    if !self.take_in(link, &packet, file) {
                        return self.part(link, false);
                    }
                }
                Post::Packet(packet, _) if packet.kind == Kind::Goodbye => return self.part(link, true),
                Post::Packet(..) | Post::Over => return self.part(link, false),
            }
        }
    }

    fn part(&self, link: &Link, in_good_order: bool) {
        self.shared.links.lock().remove(link.node, link.incarnation);
        if let Some(life) = self.shared.life_of(link.node, link.incarnation) {
            self.shared.part(&life, in_good_order);
        }
    }

    /// Maps a peer's region. If that fails, the peer is disconnected rather than waited for.
    fn take_in(&self, link: &Link, packet: &Packet, file: File) -> bool {
        let Some(life) = self.shared.life_of(link.node, link.incarnation) else { return true };
        let Some(place) = life.regions.get(usize::from(packet.region.0)) else { return false };
        let Ok(region) = open(self.shared.engine.clone(), file) else { return false };
        let new = place.set(Arc::new(region)).is_ok();
        self.shared.tell();
        new
    }
}

/// Opens a region that a peer has sent: a sealed file, or a named one, which its users have agreed
/// not to truncate.
fn open<E: Engine>(engine: E, file: File) -> Result<Region<E>, RegionError> {
    let named = file.metadata().is_ok_and(|metadata| metadata.nlink() > 0);
    if named { Region::open(engine, file) } else { Region::open_sealed(engine, file) }
}
