//! What goes before a message's bytes.

use crate::endpoint::port::Ticket;

/// Bytes of it.
pub(crate) const HEADER: usize = 16;

/// What a message is to its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    Message,
    Call(Ticket),
    Reply(Ticket),
    /// There will be no reply.
    Refusal(Ticket),
}

impl Header {
    pub(crate) fn encode(self) -> [u8; HEADER] {
        let (kind, ticket) = match self {
            Self::Message => (1_u8, Ticket { index: 0, generation: 0 }),
            Self::Call(ticket) => (2, ticket),
            Self::Reply(ticket) => (3, ticket),
            Self::Refusal(ticket) => (4, ticket),
        };
        let mut bytes = [0; HEADER];
        bytes[0] = kind;
        bytes[4..8].copy_from_slice(&ticket.index.to_le_bytes());
        bytes[8..12].copy_from_slice(&ticket.generation.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; HEADER]) -> Option<Self> {
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let ticket = Ticket { index: number(4), generation: number(8) };
        let head = match bytes[0] {
            1 => Self::Message,
            2 => Self::Call(ticket),
            3 => Self::Reply(ticket),
            4 => Self::Refusal(ticket),
            _ => return None,
        };
        // One encoding of each.
        (head.encode() == *bytes).then_some(head)
    }

    /// Returns a message's header, and the bytes after it. `None` if it has no header.
    pub(crate) fn split(message: &[u8]) -> Option<(Self, &[u8])> {
        let (head, bytes) = message.split_first_chunk()?;
        Some((Self::decode(head)?, bytes))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn heads_are_what_they_were(index in any::<u32>(), generation in any::<u32>()) {
            let ticket = Ticket { index, generation };
            for head in [Header::Message, Header::Call(ticket), Header::Reply(ticket), Header::Refusal(ticket)] {
                prop_assert_eq!(Header::decode(&head.encode()), Some(head));
            }
        }

        #[test]
        fn nothing_else_is_understood(bytes in any::<[u8; HEADER]>(), kind in 0..6_u8) {
            let mut bytes = bytes;
            bytes[0] = kind;
            if let Some(head) = Header::decode(&bytes) {
                prop_assert_eq!(head.encode(), bytes);
            }
        }
    }
}
