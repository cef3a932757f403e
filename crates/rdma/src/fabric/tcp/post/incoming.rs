//! A connection on which letters come.

use std::net::SocketAddr;

use crate::{Incarnation, LONGEST_LETTER, TakeLetter};

use super::{
    super::{
        Refusal,
        bell::{Bell, Interest},
        dial::Wire,
        flow::Came,
        tray::Arrival,
        wire::{self, Request},
    },
    INCOMING,
};
use crate::NodeId;

/// Bytes that are kept room for between two letters.
const KEPT: usize = 64 << 10;

pub(super) struct Incoming {
    node: NodeId,
    pub(super) incarnation: Incarnation,
    pub(super) at: SocketAddr,
    pub(super) wire: Wire,
    /// What has come of the next letter.
    letter: Vec<u8>,
}

impl Incoming {
    /// Watches a connection. `None` if the system has no room for that, which closes it.
    pub(super) fn new(arrival: Arrival, bell: &Bell) -> Option<Self> {
        let Arrival { node, incarnation, at, wire } = arrival;
        bell.watch(&wire.socket, INCOMING | u64::from(node.0), Interest::INPUT).ok()?;
        Some(Self { node, incarnation, at, wire, letter: Vec::new() })
    }

    /// Delivers the letters that have come, of as many bytes as one read gives: another connection
    /// has its turn then. Returns whether the connection goes on.
    pub(super) fn hear(&mut self, take: &mut TakeLetter) -> Result<bool, Refusal> {
        let Ok(came) = self.wire.fill() else { return Ok(false) };
        loop {
            let (bytes, is_last, length) = match wire::decode_request(self.wire.input.frames()) {
                Ok(Some(((Request::Send { bytes }, is_last), length))) => (bytes, is_last, length),
                Ok(Some(_)) | Err(wire::Malformed) => return Err(Refusal::Malformed),
                Ok(None) => match self.wire.input.open() {
                    Ok(true) => continue,
                    Ok(false) => break,
                    Err(super::super::noise::Forged) => return Err(Refusal::Forged),
                },
            };
            if self.letter.len() + bytes.len() > LONGEST_LETTER {
                return Err(Refusal::Malformed);
            }
            match (is_last, self.letter.is_empty()) {
                (true, true) => take(self.node, bytes),
                (_, _) => self.letter.extend_from_slice(bytes),
            }
            self.wire.input.consume(length);
            if is_last && !self.letter.is_empty() {
                take(self.node, &self.letter);
                self.letter.clear();
                self.letter.shrink_to(KEPT);
            }
        }
        Ok(came != Came::End)
    }
}
