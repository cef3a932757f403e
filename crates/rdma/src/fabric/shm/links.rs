//! The sockets to this node's peers.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use drtm_htm::Engine;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{Shutdown, shutdown, sockopt::socket_peercred},
    process::{PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal},
};

use crate::{FabricError, Incarnation, NodeId, Region, RegionId, fabric::lifetime::Life as _, region::kind_of};

use super::{
    Shared,
    wire::{self, Kind, Packet},
};

/// A socket to one incarnation of a peer.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) node: NodeId,
    pub(super) incarnation: Incarnation,
    pub(super) socket: Arc<OwnedFd>,
}

impl Link {
    /// Sends a packet. A peer to which that fails is disconnected, which its watcher and ours
    /// detect by the socket.
    fn send<E: Engine>(&self, packet: &Packet, region: Option<&Region<E>>) {
        let file = region.and_then(Region::file).map(AsFd::as_fd);
        if wire::send(&self.socket, packet, file).is_err() {
            // It fails only if the socket is closed already.
            let _ = shutdown(&self.socket, Shutdown::Both);
        }
    }

    /// Kills the peer's process. Its end is seen by the socket.
    pub(super) fn kill(&self) -> Result<(), FabricError> {
        // If it fails, there is no such process any more.
        let Ok(peer) = socket_peercred(&self.socket) else { return Ok(()) };
        if peer.pid == getpid() {
            return Err(FabricError::NotRevocable { node: self.node });
        }
        let Ok(process) = pidfd_open(peer.pid, PidfdFlags::empty()) else { return Ok(()) };
        // Its number may have been another's by then, unless it has the socket still.
        let mut looked_at = [PollFd::new(&self.socket, PollFlags::empty())];
        let has_ended = poll(&mut looked_at, Some(&Timespec::default())).is_err()
            || looked_at[0].revents().intersects(PollFlags::HUP | PollFlags::ERR);
        if !has_ended {
            // One that has ended meanwhile needs no more.
            let _ = pidfd_send_signal(&process, Signal::KILL);
        }
        Ok(())
    }
}

/// All links. Locked while one is added, removed, or sent to, so that each peer gets each region
/// once.
#[derive(Debug, Default)]
pub(super) struct Links {
    pub(super) links: Vec<Link>,
}

impl Links {
    /// Returns a packet from this node.
    pub(super) fn packet<E: Engine>(shared: &Shared<E>, kind: Kind) -> Packet {
        Packet::new(kind, shared.node, shared.home.incarnation(), kind_of(&shared.engine))
    }

    /// Sends a region to all peers.
    pub(super) fn tell_region<E: Engine>(&self, shared: &Shared<E>, id: RegionId, region: &Region<E>) {
        let packet = Packet { region: id, ..Self::packet(shared, Kind::Region) };
        for link in &self.links {
            link.send(&packet, Some(region));
        }
    }

    /// Adds a peer, and sends it all regions.
    pub(super) fn add<E: Engine>(&mut self, shared: &Shared<E>, link: Link) {
        for (index, region) in shared.home.regions.iter().map_while(|region| region.get()).enumerate() {
            let packet = Packet { region: RegionId(index as u16), ..Self::packet(shared, Kind::Region) };
            link.send(&packet, Some(&**region));
        }
        self.links.push(link);
    }

    /// Returns the link to an incarnation of a node.
    pub(super) fn of(&self, node: NodeId, incarnation: Incarnation) -> Option<Link> {
        self.links.iter().find(|link| (link.node, link.incarnation) == (node, incarnation)).cloned()
    }

    pub(super) fn remove(&mut self, node: NodeId, incarnation: Incarnation) {
        self.links.retain(|link| (link.node, link.incarnation) != (node, incarnation));
    }

    /// Tells all peers that this node leaves.
    pub(super) fn say_goodbye<E: Engine>(&self, shared: &Shared<E>) {
        let packet = Self::packet(shared, Kind::Goodbye);
        for link in &self.links {
            link.send::<E>(&packet, None);
        }
    }
}
