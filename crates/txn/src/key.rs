//! Keys of tables: types whose encodings are in the order of their values.
//!
//! A key whose parts have a fixed size, of at most eight bytes together, is *packed* into one word, which stands in the index itself. Any other
//! is written as a string of bytes. Either way the order of encodings is the order of keys, part by part, so that ranges
//! mean what they say.
//!
//! ```text
//! part           packed and written as
//! unsigned       big-endian
//! signed         big-endian with its sign bit turned over, so that the negative ones come first
//! bool           one byte, 0 or 1
//! [u8; N]        itself
//! text, bytes    itself as the last part; before another: each 0 as 0 255, then 0 0 as its end
//! ```

/// A type whose values can be keys.
///
/// Implemented for integers, `bool`, byte arrays, strings, byte vectors, and tuples of these up to six. A newtype delegates to what
/// it wraps.
///
/// # Example
///
/// ```
/// use drtm_txn::{Key, KeyReader};
///
/// /// A customer's number within its district.
/// #[derive(Clone, Debug, PartialEq)]
/// struct Customer(u16, u8, u32);
///
/// impl Key for Customer {
///     const SIZE: Option<usize> = <(u16, u8, u32)>::SIZE;
///     fn pack(&self, word: u64) -> u64 {
///         (self.0, self.1, self.2).pack(word)
///     }
///     fn write(&self, bytes: &mut Vec<u8>, last: bool) {
///         (self.0, self.1, self.2).write(bytes, last);
///     }
///     fn read(reader: &mut KeyReader<'_>, last: bool) -> Option<Self> {
///         <(u16, u8, u32)>::read(reader, last).map(|(w, d, c)| Self(w, d, c))
///     }
/// }
///
/// assert!(Customer::FITS, "seven bytes");
/// assert!(Customer(1, 2, 9).word() < Customer(1, 3, 0).word());
/// assert_eq!(Customer::from_word(Customer(1, 2, 9).word()), Some(Customer(1, 2, 9)));
/// ```
pub trait Key: Clone + Send + Sync + 'static {
    /// Bytes of its encoding, if they are always as many.
    const SIZE: Option<usize>;

    /// Whether it fits into a word.
    const FITS: bool = matches!(Self::SIZE, Some(size) if size <= 8);

    /// Shifts its encoding into a word from below. Only called if it fits.
    fn pack(&self, word: u64) -> u64;

    /// Appends its encoding, in the form for a key's `last` part or in the one for others.
    fn write(&self, bytes: &mut Vec<u8>, last: bool);

    /// Takes a value from what is left of a key's encoding; `None` if it has none.
    fn read(reader: &mut KeyReader<'_>, last: bool) -> Option<Self>;

    /// The word that it packs into. Only called if it fits.
    #[inline(always)]
    fn word(&self) -> u64 {
        self.pack(0)
    }

    /// The key of a word; `None` if no key packs into it.
    #[inline]
    fn from_word(word: u64) -> Option<Self> {
        let bytes = word.to_be_bytes();
        let (unused, used) = bytes.split_at_checked(8_usize.checked_sub(Self::SIZE?)?)?;
        if unused.iter().any(|byte| *byte != 0) { None } else { Self::from_bytes(used) }
    }

    /// The key of an encoding; `None` if no key has it.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut reader = KeyReader { rest: bytes };
        let key = Self::read(&mut reader, true)?;
        reader.rest.is_empty().then_some(key)
    }
}

/// What is left to read of a key's encoding.
///
/// # Example
///
/// See [`Key`].
#[derive(Debug)]
pub struct KeyReader<'b> {
    rest: &'b [u8],
}

impl<'b> KeyReader<'b> {
    fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    /// A string of bytes: all that is left, or up to its end.
    fn string(&mut self, last: bool) -> Option<Vec<u8>> {
        if last {
            return self.take(self.rest.len()).map(<[u8]>::to_vec);
        }
        let mut string = Vec::new();
        loop {
            match self.array()? {
                [0] => match self.array()? {
                    [0] => return Some(string),
                    [255] => string.push(0),
                    _ => return None,
                },
                [byte] => string.push(byte),
            }
        }
    }
}

fn write_string(string: &[u8], bytes: &mut Vec<u8>, last: bool) {
    if last {
        bytes.extend_from_slice(string);
        return;
    }
    for byte in string {
        bytes.push(*byte);
        if *byte == 0 {
            bytes.push(255);
        }
    }
    bytes.extend_from_slice(&[0, 0]);
}

/// A mask for the word's lowest bytes is not needed: parts are shifted in whole.
#[inline(always)]
fn shift_in(word: u64, value: u64, size: usize) -> u64 {
    if size == 8 { value } else { word << (8 * size) | value }
}

macro_rules! unsigned {
    ($($int:ty),+) => {$(
        impl Key for $int {
            const SIZE: Option<usize> = Some(size_of::<Self>());
            #[inline(always)]
            fn pack(&self, word: u64) -> u64 {
                shift_in(word, u64::from(*self), size_of::<Self>())
            }
            #[inline]
            fn write(&self, bytes: &mut Vec<u8>, _last: bool) {
                bytes.extend_from_slice(&self.to_be_bytes());
            }
            #[inline]
            fn read(reader: &mut KeyReader<'_>, _last: bool) -> Option<Self> {
                reader.array().map(Self::from_be_bytes)
            }
        }
    )+};
}

unsigned!(u8, u16, u32, u64);

macro_rules! signed {
    ($($int:ty as $unsigned:ty),+) => {$(
        impl Key for $int {
            const SIZE: Option<usize> = Some(size_of::<Self>());
            #[inline(always)]
            fn pack(&self, word: u64) -> u64 {
                (self.cast_unsigned() ^ <$unsigned>::MAX / 2 + 1).pack(word)
            }
            #[inline]
            fn write(&self, bytes: &mut Vec<u8>, last: bool) {
                (self.cast_unsigned() ^ <$unsigned>::MAX / 2 + 1).write(bytes, last);
            }
            #[inline]
            fn read(reader: &mut KeyReader<'_>, last: bool) -> Option<Self> {
                let turned = <$unsigned>::read(reader, last)?;
                Some((turned ^ <$unsigned>::MAX / 2 + 1).cast_signed())
            }
        }
    )+};
}

signed!(i8 as u8, i16 as u16, i32 as u32, i64 as u64);

impl Key for bool {
    const SIZE: Option<usize> = Some(1);
    #[inline(always)]
    fn pack(&self, word: u64) -> u64 {
        u8::from(*self).pack(word)
    }
    fn write(&self, bytes: &mut Vec<u8>, last: bool) {
        u8::from(*self).write(bytes, last);
    }
    fn read(reader: &mut KeyReader<'_>, last: bool) -> Option<Self> {
        match u8::read(reader, last)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl<const N: usize> Key for [u8; N] {
    const SIZE: Option<usize> = Some(N);
    #[inline(always)]
    fn pack(&self, word: u64) -> u64 {
        self.iter().fold(word, |word, byte| byte.pack(word))
    }
    fn write(&self, bytes: &mut Vec<u8>, _last: bool) {
        bytes.extend_from_slice(self);
    }
    fn read(reader: &mut KeyReader<'_>, _last: bool) -> Option<Self> {
        reader.array()
    }
}

impl Key for Vec<u8> {
    const SIZE: Option<usize> = None;
    fn pack(&self, word: u64) -> u64 {
        word
    }
    fn write(&self, bytes: &mut Vec<u8>, last: bool) {
        write_string(self, bytes, last);
    }
    fn read(reader: &mut KeyReader<'_>, last: bool) -> Option<Self> {
        reader.string(last)
    }
}

impl Key for String {
    const SIZE: Option<usize> = None;
    fn pack(&self, word: u64) -> u64 {
        word
    }
    fn write(&self, bytes: &mut Vec<u8>, last: bool) {
        write_string(self.as_bytes(), bytes, last);
    }
    fn read(reader: &mut KeyReader<'_>, last: bool) -> Option<Self> {
        Self::from_utf8(reader.string(last)?).ok()
    }
}

const fn sum(sizes: &[Option<usize>]) -> Option<usize> {
    let (mut sum, mut part) = (0, 0);
    while part < sizes.len() {
        match sizes[part] {
            Some(size) => sum += size,
            None => return None,
        }
        part += 1;
    }
    Some(sum)
}

macro_rules! tuples {
    ($(($($part:ident)* ; $last:ident))+) => {$(
        #[allow(non_snake_case, reason = "the parts are named as their types")]
        impl<$($part: Key,)* $last: Key> Key for ($($part,)* $last,) {
            const SIZE: Option<usize> = sum(&[$($part::SIZE,)* $last::SIZE]);
            #[inline(always)]
            fn pack(&self, word: u64) -> u64 {
                let ($($part,)* $last,) = self;
                $(let word = $part.pack(word);)*
                $last.pack(word)
            }
            #[inline]
            fn write(&self, bytes: &mut Vec<u8>, last: bool) {
                let ($($part,)* $last,) = self;
                $($part.write(bytes, false);)*
                $last.write(bytes, last);
            }
            #[inline]
            fn read(reader: &mut KeyReader<'_>, last: bool) -> Option<Self> {
                Some(($($part::read(reader, false)?,)* $last::read(reader, last)?,))
            }
        }
    )+};
}

tuples! {
    (; A)
    (A; B)
    (A B; C)
    (A B C; D)
    (A B C D; E)
    (A B C D E; F)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Encodings are in the order of the keys, and lead back to them.
    fn check<K: Key + Ord + std::fmt::Debug>(one: K, two: K) -> Result<(), TestCaseError> {
        let encoded = |key: &K| {
            let mut bytes = Vec::new();
            key.write(&mut bytes, true);
            bytes
        };
        prop_assert_eq!(encoded(&one).cmp(&encoded(&two)), one.cmp(&two));
        prop_assert_eq!(K::from_bytes(&encoded(&one)), Some(one.clone()));
        if K::FITS {
            prop_assert_eq!(one.word().cmp(&two.word()), one.cmp(&two));
            prop_assert_eq!(K::from_word(two.word()), Some(two));
        }
        Ok(())
    }

    /// Bytes among which zeros are not rare.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop_oneof![Just(0), Just(255), any::<u8>()], 0..6)
    }

    proptest! {
        #[test]
        fn integers(a: (i8, u16, i32), b: (i8, u16, i32), c: i64, d: i64, e: (u32, u32), f: (u32, u32)) {
            check(a, b)?;
            check(c, d)?;
            check(e, f)?;
            check((a.0, b.0), (a.0, b.0.wrapping_add(1)))?;
        }

        #[test]
        fn strings(a in bytes(), b in bytes(), n: u16, m: u16) {
            check(a.clone(), b.clone())?;
            check((n, a.clone()), (n, b.clone()))?;
            check((a.clone(), n), (b.clone(), m))?;
            check((a.clone(), b.clone(), true), (b.clone(), a.clone(), false))?;
            check(((a.clone(), n), b.clone()), ((a, m), b))?;
        }

        #[test]
        fn text(a: String, b: String) {
            check((a.clone(), b.clone()), (b, a))?;
        }

        #[test]
        fn what_is_no_encoding_is_refused(noise: Vec<u8>, word: u64) {
            // Whatever it is, it does not panic; and what is accepted is an encoding.
            if let Some(key) = <(String, u16, bool)>::from_bytes(&noise) {
                let mut bytes = Vec::new();
                key.write(&mut bytes, true);
                prop_assert_eq!(bytes, noise);
            }
            if let Some(key) = <(u8, bool)>::from_word(word) {
                prop_assert_eq!(key.word(), word);
            }
        }
    }

    #[test]
    fn only_what_fits_a_word_is_packed() {
        const { assert!(<(u32, u32)>::FITS && <(u8, [u8; 7])>::FITS && u64::FITS) };
        const { assert!(!<(u64, u8)>::FITS && !String::FITS && !<(u8, Vec<u8>)>::FITS) };
        assert_eq!((1_u8, 2_u16).word(), 0x01_0002);
        assert_eq!((-1_i8,).word(), 0x7F);
    }
}
