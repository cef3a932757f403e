//! Operations before they have a buffer, and the checks that are common to all fabrics.
//!
//! Each kind is a type of its own, so that the path of an operation to its queue is compiled for
//! its kind, without a branch on it.

use crate::{
    Atomicity, Capabilities, NodeId, Remote, Tally, VerbError,
    endpoint::{buffers::Pool, port::Verb},
};

const WORD: usize = size_of::<u64>();

/// An operation with borrowed operands.
pub(crate) trait Intent {
    /// Whether it completes with a reply.
    const IS_CALL: bool = false;

    /// Returns the target.
    fn node(&self) -> NodeId;

    /// Returns the bytes that need a buffer.
    #[inline(always)]
    fn bytes(&self) -> usize {
        0
    }

    /// Checks what no fabric, or not this one, could carry out. Bounds are checked at the target.
    fn check(&self, capabilities: &Capabilities) -> Result<(), VerbError>;

    /// Returns the operation with its buffer. `None` if no buffer is free.
    fn verb(&self, words: &mut Pool<u64>, bytes: &mut Pool<u8>) -> Option<Verb>;
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    pub(crate) from: Remote,
    pub(crate) words: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Write<'a> {
    pub(crate) to: Remote,
    pub(crate) words: &'a [u64],
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct CompareSwap {
    pub(crate) at: Remote,
    pub(crate) expected: u64,
    pub(crate) new: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct FetchAdd {
    pub(crate) at: Remote,
    pub(crate) add: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Send<'a> {
    pub(crate) to: NodeId,
    pub(crate) bytes: &'a [u8],
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) to: NodeId,
    pub(crate) bytes: &'a [u8],
}

#[inline(always)]
fn check_place(at: Remote) -> Result<(), VerbError> {
    if at.offset.bytes().is_multiple_of(WORD as u64) { Ok(()) } else { Err(VerbError::Misaligned { at }) }
}

#[inline(always)]
fn check_size(bytes: usize, most: usize) -> Result<(), VerbError> {
    if bytes <= most { Ok(()) } else { Err(VerbError::TooLarge { bytes, most }) }
}

#[inline(always)]
fn check_atomic(at: Remote, capabilities: &Capabilities) -> Result<(), VerbError> {
    if capabilities.atomicity == Atomicity::None {
        return Err(VerbError::AtomicsUnsupported);
    }
    check_place(at)
}

impl Intent for Read {
    #[inline(always)]
    fn node(&self) -> NodeId {
        self.from.node
    }

    #[inline(always)]
    fn bytes(&self) -> usize {
        self.words.saturating_mul(WORD)
    }

    #[inline(always)]
    fn check(&self, capabilities: &Capabilities) -> Result<(), VerbError> {
        check_place(self.from)?;
        check_size(self.bytes(), capabilities.max_read_bytes)
    }

    #[inline(always)]
    fn verb(&self, words: &mut Pool<u64>, _bytes: &mut Pool<u8>) -> Option<Verb> {
        Some(Verb::Read { from: self.from, into: words.take(self.words)? })
    }
}

impl Intent for Write<'_> {
    #[inline(always)]
    fn node(&self) -> NodeId {
        self.to.node
    }

    #[inline(always)]
    fn bytes(&self) -> usize {
        size_of_val(self.words)
    }

    #[inline(always)]
    fn check(&self, capabilities: &Capabilities) -> Result<(), VerbError> {
        check_place(self.to)?;
        check_size(self.bytes(), capabilities.max_write_bytes)
    }

    #[inline(always)]
    fn verb(&self, words: &mut Pool<u64>, _bytes: &mut Pool<u8>) -> Option<Verb> {
        Some(Verb::Write { to: self.to, from: words.copy(self.words)? })
    }
}

impl Intent for CompareSwap {
    #[inline(always)]
    fn node(&self) -> NodeId {
        self.at.node
    }

    #[inline(always)]
    fn check(&self, capabilities: &Capabilities) -> Result<(), VerbError> {
        check_atomic(self.at, capabilities)
    }

    #[inline(always)]
    fn verb(&self, _words: &mut Pool<u64>, _bytes: &mut Pool<u8>) -> Option<Verb> {
        Some(Verb::CompareSwap { at: self.at, expected: self.expected, new: self.new })
    }
}

impl Intent for FetchAdd {
    #[inline(always)]
    fn node(&self) -> NodeId {
        self.at.node
    }

    #[inline(always)]
    fn check(&self, capabilities: &Capabilities) -> Result<(), VerbError> {
        check_atomic(self.at, capabilities)
    }

    #[inline(always)]
    fn verb(&self, _words: &mut Pool<u64>, _bytes: &mut Pool<u8>) -> Option<Verb> {
        Some(Verb::FetchAdd { at: self.at, add: self.add })
    }
}

impl Intent for Send<'_> {
    #[inline(always)]
    fn node(&self) -> NodeId {
        self.to
    }

    #[inline(always)]
    fn bytes(&self) -> usize {
        self.bytes.len()
    }

    #[inline(always)]
    fn check(&self, capabilities: &Capabilities) -> Result<(), VerbError> {
        check_size(self.bytes.len(), capabilities.max_message_bytes)
    }

    #[inline(always)]
    fn verb(&self, _words: &mut Pool<u64>, bytes: &mut Pool<u8>) -> Option<Verb> {
        Some(Verb::Send { to: self.to, bytes: bytes.copy(self.bytes)? })
    }
}

impl Intent for Call<'_> {
    const IS_CALL: bool = true;

    #[inline(always)]
    fn node(&self) -> NodeId {
        self.to
    }

    #[inline(always)]
    fn bytes(&self) -> usize {
        self.bytes.len()
    }

    #[inline(always)]
    fn check(&self, capabilities: &Capabilities) -> Result<(), VerbError> {
        check_size(self.bytes.len(), capabilities.max_message_bytes)
    }

    #[inline(always)]
    fn verb(&self, _words: &mut Pool<u64>, bytes: &mut Pool<u8>) -> Option<Verb> {
        Some(Verb::Call { to: self.to, bytes: bytes.copy(self.bytes)? })
    }
}

/// Counts a posted operation.
#[inline(always)]
pub(crate) fn count(verb: &Verb, tally: &mut Tally) {
    let (operations, bytes_out, bytes_in) = match verb {
        Verb::Read { into, .. } => (&mut tally.reads, 0, WORD * into.len()),
        Verb::Write { from, .. } => (&mut tally.writes, WORD * from.len(), 0),
        Verb::CompareSwap { .. } => (&mut tally.compare_swaps, 2 * WORD, WORD),
        Verb::FetchAdd { .. } => (&mut tally.fetch_adds, WORD, WORD),
        Verb::Send { bytes, .. } => (&mut tally.sends, bytes.len(), 0),
        Verb::Call { bytes, .. } => (&mut tally.calls, bytes.len(), 0),
    };
    *operations += 1;
    tally.bytes_out += bytes_out as u64;
    tally.bytes_in += bytes_in as u64;
}
