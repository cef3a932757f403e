//! The first bytes of a datagram.
//!
//! ```text
//! token u64 | number u64 * 2 + more | taken u64 * 2 + asks | a parcel
//! ```
//!
//! All numbers are little-endian. Without a parcel, the number is zero, and `more` marks the answer
//! to a probe.

/// Its length.
pub(crate) const PREFIX: usize = 24;

/// What a datagram says besides its parcel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prefix {
    /// Proves that the sender is the other side of the stream: it was told by an authenticated
    /// connection.
    pub(crate) token: u64,
    /// The number of the parcel, from 1 on. Zero if there is none.
    pub(crate) number: u64,
    /// Whether the next parcel continues the message. Without a parcel: whether this answers a
    /// probe.
    pub(crate) more: bool,
    /// The number up to which the sender has taken parcels.
    pub(crate) taken: u64,
    /// Whether to acknowledge the parcel. Without a parcel: whether this is a probe.
    pub(crate) asks: bool,
}

impl Prefix {
    pub(crate) fn encode(self) -> [u8; PREFIX] {
        let mut bytes = [0; PREFIX];
        bytes[..8].copy_from_slice(&self.token.to_le_bytes());
        bytes[8..16].copy_from_slice(&(self.number << 1 | u64::from(self.more)).to_le_bytes());
        bytes[16..].copy_from_slice(&(self.taken << 1 | u64::from(self.asks)).to_le_bytes());
        bytes
    }

    /// Decodes a datagram. Any 24 bytes are a prefix.
    pub(crate) fn decode(bytes: &[u8; PREFIX]) -> Self {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let (token, number, taken) = (word(0), word(8), word(16));
        Self { token, number: number >> 1, more: number & 1 == 1, taken: taken >> 1, asks: taken & 1 == 1 }
    }
}
