//! Operations before they have a buffer, and the checks that are common to all fabrics.

use crate::{Atomicity, Capabilities, NodeId, Remote, Tally, VerbError, buffers::Pool, port::Verb};

const WORD: usize = size_of::<u64>();

/// An operation with borrowed operands.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Intent<'a> {
    Read { from: Remote, words: usize },
    Write { to: Remote, words: &'a [u64] },
    CompareSwap { at: Remote, expected: u64, new: u64 },
    FetchAdd { at: Remote, add: u64 },
    Send { to: NodeId, bytes: &'a [u8] },
    Call { to: NodeId, bytes: &'a [u8] },
}

impl Intent<'_> {
    #[inline(always)]
    pub(crate) fn node(&self) -> NodeId {
        match *self {
            Self::Read { from: at, .. }
            | Self::Write { to: at, .. }
            | Self::CompareSwap { at, .. }
            | Self::FetchAdd { at, .. } => at.node,
            Self::Send { to, .. } | Self::Call { to, .. } => to,
        }
    }

    /// Returns the bytes that need a buffer.
    pub(crate) fn bytes(&self) -> usize {
        match *self {
            Self::Read { words, .. } => words.saturating_mul(WORD),
            Self::Write { words, .. } => size_of_val(words),
            Self::CompareSwap { .. } | Self::FetchAdd { .. } => 0,
            Self::Send { bytes, .. } | Self::Call { bytes, .. } => bytes.len(),
        }
    }

    /// Checks what no fabric, or not this one, could carry out. Bounds are checked at the target.
    #[inline(always)]
    pub(crate) fn check(&self, capabilities: &Capabilities) -> Result<(), VerbError> {
        let (at, most) = match *self {
            Self::Read { from, .. } => (Some(from), capabilities.max_read_bytes),
            Self::Write { to, .. } => (Some(to), capabilities.max_write_bytes),
            Self::CompareSwap { at, .. } | Self::FetchAdd { at, .. } => {
                if capabilities.atomicity == Atomicity::None {
                    return Err(VerbError::AtomicsUnsupported);
                }
                (Some(at), WORD)
            }
            Self::Send { .. } | Self::Call { .. } => (None, capabilities.max_message_bytes),
        };
        match at {
            Some(at) if !at.offset.bytes().is_multiple_of(WORD as u64) => Err(VerbError::Misaligned { at }),
            _ if self.bytes() > most => Err(VerbError::TooLarge { bytes: self.bytes(), most }),
            _ => Ok(()),
        }
    }

    /// Returns the operation with its buffer. `None` if no buffer is free.
    #[inline(always)]
    pub(crate) fn verb(&self, words: &mut Pool<u64>, bytes: &mut Pool<u8>) -> Option<Verb> {
        Some(match *self {
            Self::Read { from, words: count } => Verb::Read { from, into: words.take(count)? },
            Self::Write { to, words: from } => Verb::Write { to, from: words.copy(from)? },
            Self::CompareSwap { at, expected, new } => Verb::CompareSwap { at, expected, new },
            Self::FetchAdd { at, add } => Verb::FetchAdd { at, add },
            Self::Send { to, bytes: from } => Verb::Send { to, bytes: bytes.copy(from)? },
            Self::Call { to, bytes: from } => Verb::Call { to, bytes: bytes.copy(from)? },
        })
    }

    /// Counts a posted operation.
    #[inline(always)]
    pub(crate) fn count(verb: &Verb, tally: &mut Tally) {
        let (operations, bytes_out, bytes_in) = match verb {
            Verb::Read { into, .. } => (&mut tally.reads, 0, size_of_val::<[u64]>(into)),
            Verb::Write { from, .. } => (&mut tally.writes, size_of_val::<[u64]>(from), 0),
            Verb::CompareSwap { .. } => (&mut tally.compare_swaps, 2 * WORD, WORD),
            Verb::FetchAdd { .. } => (&mut tally.fetch_adds, WORD, WORD),
            Verb::Send { bytes, .. } => (&mut tally.sends, bytes.len(), 0),
            Verb::Call { bytes, .. } => (&mut tally.calls, bytes.len(), 0),
        };
        *operations += 1;
        tally.bytes_out += bytes_out as u64;
        tally.bytes_in += bytes_in as u64;
    }
}
