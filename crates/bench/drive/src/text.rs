//! Text of varying length in a row of fixed size.

use std::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::U16};

/// Up to `N` bytes of text. Unused bytes are zero, so that equal texts are equal bytes.
///
/// # Example
///
/// ```
/// use drtm_drive::Text;
///
/// let name: Text<16> = Text::new(b"BARBARBAR");
/// assert_eq!(name.as_bytes(), b"BARBARBAR");
/// assert_eq!(Text::<3>::new(b"BARBARBAR").as_bytes(), b"BAR", "what does not fit is cut off");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Text<const N: usize> {
    length: U16,
    bytes: [u8; N],
}

impl<const N: usize> Text<N> {
    /// Creates a text of the first `N` bytes.
    pub fn new(text: &[u8]) -> Self {
        Self::joined(text, &[])
    }

    /// Creates a text of the first `N` bytes of two parts: how a payment writes its history into
    /// C_DATA (2.5.2.2).
    pub fn joined(front: &[u8], back: &[u8]) -> Self {
        const { assert!(N <= u16::MAX as usize) };
        let mut bytes = [0; N];
        let front = &front[..front.len().min(N)];
        let back = &back[..back.len().min(N - front.len())];
        bytes[..front.len()].copy_from_slice(front);
        bytes[front.len()..][..back.len()].copy_from_slice(back);
        // At most N, which fits.
        Self { length: U16::new((front.len() + back.len()) as u16), bytes }
    }

    /// Returns the text. An invalid length, which only damaged memory can have, counts as the
    /// maximum.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length.get()).min(N)]
    }

    /// Returns the text padded with zeros. Padded texts have the order of the texts if these
    /// contain no zeros.
    pub fn padded(&self) -> &[u8; N] {
        &self.bytes
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&String::from_utf8_lossy(self.as_bytes()), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_joined_and_cut_off() {
        assert_eq!(Text::<6>::joined(b"1 2 ", b"old data").as_bytes(), b"1 2 ol");
        assert_eq!(Text::<2>::joined(b"1 2 ", b"old data").as_bytes(), b"1 ");
        assert_eq!(format!("{:?}", Text::<9>::new(b"ESE")), "\"ESE\"");
    }

    #[test]
    fn a_damaged_length_does_not_panic() {
        let damaged = Text::<2>::read_from_bytes(&[255, 255, b'a', b'b']).expect("four bytes are a text of two");
        assert_eq!(damaged.as_bytes(), b"ab");
    }
}
