//! What is left of a transaction, as a row has it: the place of the next piece, and the state.
//!
//! | offset | size | field | |
//! |---|---|---|---|
//! | 0 | 8 | fingerprint | of the transaction's pieces |
//! | 8 | 2 | next | place of the next piece |
//! | 10 | 2 | size | of the name |
//! | 12 | | name | of the transaction, in UTF-8 |
//! | | | state | encoded by postcard |

/// The bytes before the name.
const HEAD: usize = 12;

/// What is left of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remainder {
    pub(crate) transaction: String,
    pub(crate) fingerprint: u64,
    pub(crate) next: u16,
    pub(crate) state: Vec<u8>,
}

/// Begins the encoding of a remainder, to which the state is then appended.
pub(crate) fn begin(bytes: &mut Vec<u8>, transaction: &str, fingerprint: u64, next: usize) {
    // A description is a constant of the program, whose names and numbers are short.
    let name = &transaction.as_bytes()[..transaction.len().min(u16::MAX.into())];
    bytes.clear();
    bytes.extend(fingerprint.to_le_bytes());
    bytes.extend((next as u16).to_le_bytes());
    bytes.extend((name.len() as u16).to_le_bytes());
    bytes.extend(name);
}

/// Returns the place of the next piece. `None` if the remainder is damaged.
pub(crate) fn next_of(bytes: &[u8]) -> Option<u16> {
    let (_, rest) = bytes.split_first_chunk::<8>()?;
    Some(u16::from_le_bytes(*rest.first_chunk()?))
}

impl Remainder {
    /// Reads a remainder. `None` if it is damaged.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<HEAD>()?;
        let [fingerprint @ .., a, b, c, d] = *head;
        let (name, state) = rest.split_at_checked(u16::from_le_bytes([c, d]).into())?;
        Some(Self {
            transaction: String::from_utf8(name.to_vec()).ok()?,
            fingerprint: u64::from_le_bytes(fingerprint),
            next: u16::from_le_bytes([a, b]),
            state: state.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remainder_is_read_as_it_was_written_and_a_damaged_one_is_not() {
        let mut bytes = vec![1];
        begin(&mut bytes, "sell", 7 << 40, 300);
        bytes.extend([1, 2, 3]);
        let read = Remainder { transaction: "sell".to_owned(), fingerprint: 7 << 40, next: 300, state: vec![1, 2, 3] };
        assert_eq!(Remainder::decode(&bytes), Some(read));
        assert_eq!((next_of(&bytes), next_of(&bytes[..9])), (Some(300), None));
        assert!((0..HEAD + 4).all(|end| Remainder::decode(&bytes[..end]).is_none()));
        bytes[HEAD] = 0xff;
        assert_eq!(Remainder::decode(&bytes), None, "its name is no text");
    }
}
