//! The handshake and the sealing of records: `Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s`, by `snow`.
//!
//! ```text
//! initiator                          responder
//!   preamble, record(psk, e, hello) ->
//!                                  <-  preamble, record(e, ee, answer)
//!   record(confirm, frames...)     ->                                        each sealed, with its number
//!                                  <-  record(frames...)
//! ```
//!
//! A record is its length in two bytes and so many bytes. The cluster's key is mixed in first, so
//! only its holders can read or write even the first message. A copy of a first message is
//! answered, but its sender cannot confirm: it does not know the ephemeral key. Records are
//! numbered by the cipher's nonce, so one that is missing, repeated or moved fails to open.

use std::sync::Arc;

use snow::{Builder, HandshakeState, StatelessTransportState};

use super::hello::{PREAMBLE, VERSION, preamble_of};

const PROTOCOL: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";

/// Bytes that sealing adds.
const TAG: usize = 16;

/// The most that a record has, and the most that it carries.
const RECORD: usize = 65_535;
const CARRIED: usize = RECORD - TAG;

/// Bytes that tell a record's length.
pub(crate) const LENGTH: usize = 2;

/// The longest message of a handshake: a key, a hello and a tag, with some room.
pub(crate) const HANDSHAKE: usize = 128;

/// The key of a cluster.
pub(super) type Key = [u8; 32];

/// A message that the key's holders did not make, or not now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Forged;

impl From<snow::Error> for Forged {
    fn from(_: snow::Error) -> Self {
        Self
    }
}

fn builder<'a>(key: &'a Key, prologue: &'a [u8; PREAMBLE]) -> Result<Builder<'a>, Forged> {
    let parameters = PROTOCOL.parse().map_err(|_| Forged)?;
    Ok(Builder::new(parameters).prologue(prologue)?.psk(0, key)?)
}

/// Appends a record of the handshake.
fn put_record(state: &mut HandshakeState, payload: &[u8], into: &mut Vec<u8>) -> Result<(), Forged> {
    let mut message = [0; HANDSHAKE];
    let length = state.write_message(payload, &mut message)?;
    into.extend_from_slice(&(length as u16).to_le_bytes());
    into.extend_from_slice(&message[..length]);
    Ok(())
}

/// Begins a handshake: appends preamble and first record.
pub(super) fn initiate(key: &Key, hello: &[u8], into: &mut Vec<u8>) -> Result<HandshakeState, Forged> {
    let preamble = preamble_of(VERSION);
    let mut state = builder(key, &preamble)?.build_initiator()?;
    into.extend_from_slice(&preamble);
    put_record(&mut state, hello, into)?;
    Ok(state)
}

/// Opens a first record: gives the hello.
pub(super) fn respond(key: &Key, record: &[u8]) -> Result<(HandshakeState, Vec<u8>), Forged> {
    let mut state = builder(key, &preamble_of(VERSION))?.build_responder()?;
    let hello = open_handshake(&mut state, record)?;
    Ok((state, hello))
}

/// Answers a first record: appends preamble and second record.
pub(super) fn answer(mut state: HandshakeState, answer: &[u8], into: &mut Vec<u8>) -> Result<Session, Forged> {
    into.extend_from_slice(&preamble_of(VERSION));
    put_record(&mut state, answer, into)?;
    Session::new(state)
}

/// Opens the second record: gives the answer.
pub(super) fn finish(mut state: HandshakeState, record: &[u8]) -> Result<(Session, Vec<u8>), Forged> {
    let answer = open_handshake(&mut state, record)?;
    Ok((Session::new(state)?, answer))
}

fn open_handshake(state: &mut HandshakeState, record: &[u8]) -> Result<Vec<u8>, Forged> {
    let mut payload = vec![0; record.len()];
    let length = state.read_message(record, &mut payload)?;
    payload.truncate(length);
    Ok(payload)
}

/// The keys of a connection.
pub(super) struct Session(Arc<StatelessTransportState>);

impl Session {
    fn new(state: HandshakeState) -> Result<Self, Forged> {
        Ok(Self(Arc::new(state.into_stateless_transport_mode()?)))
    }

    pub(super) fn split(self) -> (Sealer, Opener) {
        (Sealer { state: Arc::clone(&self.0), number: 0 }, Opener { state: self.0, number: 0 })
    }
}

/// Seals what is sent.
pub(super) struct Sealer {
    state: Arc<StatelessTransportState>,
    number: u64,
}

impl Sealer {
    /// Appends records that carry some bytes.
    pub(super) fn seal(&mut self, bytes: &[u8], into: &mut Vec<u8>) -> Result<(), Forged> {
        for carried in bytes.chunks(CARRIED) {
            let length = carried.len() + TAG;
            into.extend_from_slice(&(length as u16).to_le_bytes());
            let start = into.len();
            into.resize(start + length, 0);
            self.state.write_message(self.number, carried, &mut into[start..])?;
            self.number += 1;
        }
        Ok(())
    }
}

/// Opens what is received.
pub(super) struct Opener {
    state: Arc<StatelessTransportState>,
    number: u64,
}

impl Opener {
    /// Opens a record into memory that is as long as it. Gives how much it carries.
    pub(super) fn open(&mut self, record: &[u8], into: &mut [u8]) -> Result<usize, Forged> {
        let length = self.state.read_message(self.number, record, into)?;
        self.number += 1;
        Ok(length)
    }
}
