//! The memory that a node shares with its peers: where its endpoints sleep, which rings lead to
//! them, and the rings that lead from them.
//!
//! ```text
//! root   0   format
//!        1   node (16 bits), zero (16), incarnation (32)
//!        2   regions registered
//!        3   offset of the endpoints
//!        4   offset of the inboxes
//! endpoint (two lines, 32 of them)
//!        0   alarm, of 32 bits
//!        1   whether the endpoint receives
//!        8   how many rings were announced to it, ever
//! inbox  of each endpoint, kind of traffic (requests, replies), node and endpoint of that node, one word:
//!            incarnation of the producer (32 bits), its ring's offset in its control memory in lines (32); zero for none
//! ```
//!
//! A word has one writer: the owner, except for the alarm; and in an inbox the producer that the
//! word belongs to. All processes add to the counts of announcements.

use std::{fs::File, sync::Arc};

use drtm_htm::{Engine, NoHtm, Word};

use crate::{
    Incarnation, NodeId, Offset, OutOfBounds, Region, RegionError,
    sync::alarm::{Alarm, Ring},
};

use super::{ControlRegion, ENDPOINTS, NODES};

/// The version of the layout above.
const FORMAT: u64 = 1;

/// The address space of a node's control memory. Memory is taken as rings are created.
const CAPACITY: u64 = 8 << 30;

const ENDPOINT_BYTES: u64 = 128;
const RECEIVES: u64 = 8;
const ANNOUNCED: u64 = 64;
const INBOX_WORDS: usize = ENDPOINTS * 2 * NODES * ENDPOINTS;

const LINE: u64 = 64;

/// The kind of traffic that a ring carries: from one endpoint to another there are two rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Traffic {
    Requests,
    Replies,
}

/// An announced ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Announced {
    pub(super) incarnation: Incarnation,
    pub(super) at: Offset,
}

#[derive(Clone, Debug)]
pub(super) struct Control {
    region: Arc<ControlRegion>,
    endpoints: Offset,
    inboxes: Offset,
}

impl Control {
    /// Creates the control memory of this node.
    pub(super) fn create(node: NodeId, incarnation: Incarnation) -> Result<Self, RegionError> {
        let region = ControlRegion::shared(NoHtm, CAPACITY)?;
        let endpoints = region.extend(ENDPOINT_BYTES * ENDPOINTS as u64, 4096)?;
        let inboxes = region.extend(8 * INBOX_WORDS as u64, 4096)?;
        let described =
            [FORMAT, u64::from(node.0) | u64::from(incarnation.0) << 32, 0, endpoints.bytes(), inboxes.bytes()];
        for (index, value) in described.into_iter().enumerate() {
            if let Some(root) = region.root(index) {
                NoHtm.store(root, value);
            }
        }
        Ok(Self { region: Arc::new(region), endpoints, inboxes })
    }

    /// Opens the control memory that came with a peer's greeting. `None` if it is invalid or
    /// belongs to another node.
    pub(super) fn of_peer(file: Option<File>, node: NodeId, incarnation: Incarnation) -> Option<Self> {
        Self::open(Region::open_sealed(NoHtm, file?).ok()?, node, incarnation)
    }

    fn open(region: ControlRegion, node: NodeId, incarnation: Incarnation) -> Option<Self> {
        let root = |index| region.root(index).map_or(0, |word| NoHtm.load(word));
        let whose = u64::from(node.0) | u64::from(incarnation.0) << 32;
        let (endpoints, inboxes) = (Offset::new(root(3)), Offset::new(root(4)));
        let whole = root(0) == FORMAT
            && root(1) == whose
            && region.words(endpoints, (ENDPOINT_BYTES / 8) as usize * ENDPOINTS).is_ok()
            && region.words(inboxes, INBOX_WORDS).is_ok();
        whole.then(|| Self { region: Arc::new(region), endpoints, inboxes })
    }

    pub(super) fn region(&self) -> &Arc<ControlRegion> {
        &self.region
    }

    /// Returns a word that was checked when this was created or opened. Regions do not shrink.
    fn word(&self, at: Offset) -> &Word {
        match self.region.words(at, 1) {
            Ok(words) => &words[0],
            Err(error) => unreachable!("control memory has shrunk: {error}"),
        }
    }

    fn endpoint(&self, endpoint: u16) -> Offset {
        self.endpoints + ENDPOINT_BYTES * (u64::from(endpoint) % ENDPOINTS as u64)
    }

    pub(super) fn alarm(&self, endpoint: u16) -> &Alarm {
        match self.region.alarm(self.endpoint(endpoint)) {
            Ok(alarm) => alarm,
            Err(error) => unreachable!("control memory has shrunk: {error}"),
        }
    }

    pub(super) fn receives(&self, endpoint: u16) -> bool {
        NoHtm.load(self.word(self.endpoint(endpoint) + RECEIVES)) != 0
    }

    pub(super) fn set_receives(&self, endpoint: u16, receives: bool) {
        NoHtm.store(self.word(self.endpoint(endpoint) + RECEIVES), u64::from(receives));
    }

    /// Returns the number of rings that were announced to an endpoint.
    pub(super) fn announcements(&self, endpoint: u16) -> u64 {
        NoHtm.load(self.word(self.endpoint(endpoint) + ANNOUNCED))
    }

    pub(super) fn regions(&self) -> usize {
        self.region.root(2).map_or(0, |word| NoHtm.load(word) as usize)
    }

    pub(super) fn set_regions(&self, count: usize) {
        if let Some(word) = self.region.root(2) {
            NoHtm.store(word, count as u64);
        }
    }

    fn row(&self, to: u16, traffic: Traffic, node: usize, from: usize) -> Offset {
        let traffic = match traffic {
            Traffic::Requests => 0,
            Traffic::Replies => 1,
        };
        let index = ((usize::from(to) % ENDPOINTS * 2 + traffic) * NODES + node % NODES) * ENDPOINTS + from % ENDPOINTS;
        self.inboxes + 8 * index as u64
    }

    /// Announces a ring to one of this node's endpoints.
    pub(super) fn announce(&self, to: u16, traffic: Traffic, from: (NodeId, u16), ring: Announced) {
        let row = self.row(to, traffic, usize::from(from.0.0), usize::from(from.1));
        let line = ring.at.bytes() / LINE;
        let value = u64::from(ring.incarnation.0) << 32 | line;
        NoHtm.store(self.word(row), value);
        NoHtm.fetch_add(self.word(self.endpoint(to) + ANNOUNCED), 1);
    }

    /// Returns the ring from an endpoint of a node to one of this node's, if it was announced.
    pub(super) fn announced(&self, to: u16, traffic: Traffic, node: usize, from: usize) -> Option<Announced> {
        let value = NoHtm.load(self.word(self.row(to, traffic, node, from)));
        let announced =
            Announced { incarnation: Incarnation((value >> 32) as u32), at: Offset::new((value & 0xFFFF_FFFF) * LINE) };
        (value != 0).then_some(announced)
    }

    /// Returns the words of a ring, at an address from another process.
    pub(super) fn ring(&self, at: Offset, words: usize) -> Result<&[Word], OutOfBounds> {
        self.region.words(at, words)
    }
}

/// One endpoint's alarm, for other threads of its own process.
#[derive(Debug)]
pub(super) struct OwnAlarm {
    pub(super) control: Control,
    pub(super) endpoint: u16,
}

impl Ring for OwnAlarm {
    fn ring(&self) {
        self.control.alarm(self.endpoint).ring();
    }
}
