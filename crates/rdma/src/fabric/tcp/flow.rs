//! The two directions of a connection: frames on one side, a socket on the other, sealed between.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
};

use super::noise::{Forged, LENGTH, Opener, Sealer};

/// The least that a read has room for, and the most.
const LEAST: usize = 4 << 10;
const MOST: usize = 128 << 10;

/// Bytes of frames and records that are kept room for when there are none.
const KEPT: usize = 64 << 10;

/// What goes out.
pub(super) struct Outflow {
    /// Frames that are not sealed yet.
    frames: Vec<u8>,
    /// What the socket is to take, from `written` on.
    wire: Vec<u8>,
    written: usize,
    sealer: Option<Sealer>,
}

impl Outflow {
    /// Creates an empty outflow. Without a sealer, frames are sent as they are.
    pub(super) fn new(sealer: Option<Sealer>) -> Self {
        Self { frames: Vec::new(), wire: Vec::new(), written: 0, sealer }
    }

    /// Returns the buffer to which frames are appended.
    pub(super) fn frames(&mut self) -> &mut Vec<u8> {
        &mut self.frames
    }

    /// Returns the buffer of bytes that are sent as they are.
    pub(super) fn wire(&mut self) -> &mut Vec<u8> {
        &mut self.wire
    }

    /// Seals what there is and from now on nothing more.
    pub(super) fn open_up(&mut self) -> Result<(), Forged> {
        self.seal()?;
        self.sealer = None;
        Ok(())
    }

    /// Returns the number of bytes that the socket has not taken.
    pub(super) fn pending(&self) -> usize {
        self.frames.len() + self.wire.len() - self.written
    }

    fn seal(&mut self) -> Result<(), Forged> {
        if self.frames.is_empty() {
            return Ok(());
        }
        match &mut self.sealer {
            Some(sealer) => sealer.seal(&self.frames, &mut self.wire)?,
            None if self.wire.is_empty() => {
                std::mem::swap(&mut self.frames, &mut self.wire);
                return Ok(());
            }
            None => self.wire.extend_from_slice(&self.frames),
        }
        self.frames.clear();
        Ok(())
    }

    /// Gives the socket what it takes. Tells whether that is all.
    pub(super) fn flush(&mut self, mut socket: &TcpStream) -> io::Result<bool> {
        self.seal().map_err(|Forged| io::ErrorKind::InvalidData)?;
        while self.written < self.wire.len() {
            match socket.write(&self.wire[self.written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.written = 0;
        self.wire.clear();
        // What one large burst has needed is not kept for ever.
        self.wire.shrink_to(KEPT);
        self.frames.shrink_to(KEPT);
        Ok(true)
    }
}

/// Bytes that came, of which some were read: `read..end` of memory that is kept.
#[derive(Default)]
struct Bytes {
    memory: Vec<u8>,
    read: usize,
    end: usize,
}

impl Bytes {
    fn left(&self) -> &[u8] {
        &self.memory[self.read..self.end]
    }

    /// Returns room for at least so many bytes behind those that are held.
    fn room(&mut self, bytes: usize) -> &mut [u8] {
        if self.read == self.end {
            (self.read, self.end) = (0, 0);
        }
        if self.memory.len() - self.end < bytes {
            self.memory.copy_within(self.read..self.end, 0);
            (self.read, self.end) = (0, self.end - self.read);
            let needed = self.end + bytes;
            if self.memory.len() < needed {
                self.memory.resize(needed.next_power_of_two(), 0);
            }
        }
        &mut self.memory[self.end..]
    }

    /// Reads what a socket has, up to the room for it. Gives how much that was; zero at its end.
    fn fill(&mut self, mut socket: &TcpStream) -> io::Result<usize> {
        let room = self.room(LEAST);
        let length = room.len().min(MOST);
        let count = loop {
            match socket.read(&mut room[..length]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.end += count;
        if count == length && self.memory.len() < MOST {
            // There is more than there was room for.
            self.memory.resize(2 * self.memory.len(), 0);
        }
        Ok(count)
    }
}

/// How much came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    Nothing,
    Some,
    /// The peer has closed its side.
    End,
}

/// What comes in.
pub(super) struct Inflow {
    raw: Bytes,
    /// What records have carried.
    opened: Bytes,
    opener: Option<Opener>,
}

impl Inflow {
    /// Creates an empty inflow. Without an opener, frames arrive as they are.
    pub(super) fn new() -> Self {
        Self { raw: Bytes::default(), opened: Bytes::default(), opener: None }
    }

    /// Expects sealed records from now on.
    pub(super) fn seal(&mut self, opener: Opener) {
        self.opener = Some(opener);
    }

    /// Expects plain frames from now on.
    pub(super) fn open_up(&mut self) {
        self.opener = None;
    }

    /// Takes what the socket has, up to a bound.
    pub(super) fn fill(&mut self, socket: &TcpStream) -> io::Result<Came> {
        match self.raw.fill(socket) {
            Ok(0) => Ok(Came::End),
            Ok(_) => Ok(Came::Some),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Came::Nothing),
            Err(error) => Err(error),
        }
    }

    /// Opens the next record, where one is whole. Tells whether one was.
    pub(super) fn open(&mut self) -> Result<bool, Forged> {
        let Some(opener) = &mut self.opener else { return Ok(false) };
        let Some(record) = record_in(self.raw.left()) else { return Ok(false) };
        let carried = opener.open(record, self.opened.room(record.len()))?;
        self.opened.end += carried;
        self.raw.read += LENGTH + record.len();
        Ok(true)
    }

    /// Opens all records that are whole.
    pub(super) fn open_all(&mut self) -> Result<(), Forged> {
        while self.open()? {}
        Ok(())
    }

    /// Returns the frames that have arrived. The last one may be incomplete.
    pub(super) fn frames(&self) -> &[u8] {
        // Records that came before the sealing ended come first.
        if self.opener.is_some() || !self.opened.left().is_empty() { self.opened.left() } else { self.raw.left() }
    }

    /// Removes so many bytes of frames.
    pub(super) fn consume(&mut self, bytes: usize) {
        if self.opener.is_some() || !self.opened.left().is_empty() {
            self.opened.read += bytes;
        } else {
            self.raw.read += bytes;
        }
    }

    /// Returns the bytes as they arrived.
    pub(super) fn raw(&self) -> &[u8] {
        self.raw.left()
    }

    pub(super) fn consume_raw(&mut self, bytes: usize) {
        self.raw.read += bytes;
    }

    /// Returns the number of bytes that are held.
    pub(super) fn held(&self) -> usize {
        self.raw.left().len() + self.opened.left().len()
    }
}

/// Returns the record at the front of some bytes. `None` if it is incomplete.
pub(super) fn record_in(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = bytes.split_first_chunk::<LENGTH>()?;
    rest.get(..usize::from(u16::from_le_bytes(*length)))
}
