//! Keys of tables: types whose encodings have the order of their values.
//!
//! A key whose parts have a fixed size, of at most eight bytes together, is *packed* into one word,
//! which is stored in the index itself. Any other key is encoded as a byte string. Either way the
//! order of encodings is the order of keys, part by part, so that ranges are correct.
//!
//! ```text
//! part           packed and written as
//! unsigned       big-endian
//! signed         big-endian with its sign bit turned over, so that the negative ones come first
//! bool           one byte, 0 or 1
//! char           its number, big-endian
//! usize, isize   as u64 and i64
//! arrays         their parts
//! Option         one byte, 0 or 1, then the value, or zeros in place of one of a fixed size
//! text, bytes    itself as the last part; before another: each 0 as 0 255, then 0 0 as its end
//! ```

mod as_key;
mod prefix;
mod within;

pub use as_key::{AsKey, KeyRange};
pub(crate) use as_key::{ByRef, bytes};
pub use prefix::{Prefix, PrefixEnd, prefix};
pub(crate) use within::pairs_of;
pub use within::{PairEnd, Within, within};

/// A type whose values can be keys.
///
/// Implemented for integers, `bool`, `char`, strings, byte vectors, and for arrays, options, and
/// tuples of up to six of these. It can be [derived](derive@crate::Key) for structs of these: the
/// fields, in their order, are the parts of the key. A lookup takes any value that [stands for a
/// key](AsKey).
///
/// # Example
///
/// Implemented by hand, for a key that is ordered otherwise than by its fields:
///
/// ```
/// use drtm::{Key, KeyReader};
///
/// /// A moment of which later ones come first.
/// #[derive(Clone, Debug, PartialEq)]
/// struct Latest(u64);
///
/// impl Key for Latest {
///     const SIZE: Option<usize> = u64::SIZE;
///     fn shape() -> String {
///         "latest first".to_owned()
///     }
///     fn pack(&self, word: u64) -> u64 {
///         (!self.0).pack(word)
///     }
///     fn write(&self, bytes: &mut Vec<u8>, last: bool) {
///         (!self.0).write(bytes, last);
///     }
///     fn read(reader: &mut KeyReader<'_>, last: bool) -> Option<Self> {
///         u64::read(reader, last).map(|inverted| Self(!inverted))
///     }
/// }
///
/// assert!(Latest::FITS, "eight bytes");
/// assert!(Latest(9).word() < Latest(8).word());
/// assert_eq!(Latest::from_word(Latest(9).word()), Some(Latest(9)));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a key of a table",
    note = "integers, `bool`, `char`, `String`, `Vec<u8>`, and arrays, options and tuples of these can",
    note = "for a struct of these, use `#[derive(Clone, drtm::Key)]`"
)]
pub trait Key: Clone + Send + Sync + 'static {
    /// The bytes of the encoding, if all keys have the same number.
    const SIZE: Option<usize>;

    /// Returns the name of the encoding, which is checked when a table is opened again: see
    /// [`TableDef::version`](crate::TableDef::version).
    ///
    /// Types with the same encoding share a name: `(string,u32)` is that of the tuple and of any
    /// struct of these. A name never changes, and never means another encoding.
    fn shape() -> String;

    /// Describes the type beyond its encoding, for the same check. A derived implementation has the
    /// names of the struct and its fields: `Place{shop:string,shelf:u32}`. The default
    /// implementation returns the [shape](Self::shape).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::Key;
    ///
    /// #[derive(Clone, Key)]
    /// struct Place {
    ///     shop: String,
    ///     shelf: u32,
    /// }
    ///
    /// assert_eq!(Place::shape(), <(String, u32)>::shape());
    /// assert_eq!(Place::describe(), "Place{shop:string,shelf:u32}");
    /// ```
    fn describe() -> String {
        Self::shape()
    }

    /// Whether a key fits into a word.
    const FITS: bool = matches!(Self::SIZE, Some(size) if size <= 8);

    /// Shifts the encoding into a word from below. Only called if keys fit.
    fn pack(&self, word: u64) -> u64;

    /// Appends the encoding, in the form for a key's `last` part or in the one for others.
    fn write(&self, bytes: &mut Vec<u8>, last: bool);

    /// Reads a value from the rest of a key's encoding. Returns `None` if the encoding is invalid.
    fn read(reader: &mut KeyReader<'_>, last: bool) -> Option<Self>;

    /// Returns the word that the key packs into. Only called if keys fit.
    #[inline(always)]
    fn word(&self) -> u64 {
        self.pack(0)
    }

    /// Returns the key of a word. `None` if no key packs into it.
    #[inline]
    fn from_word(word: u64) -> Option<Self> {
        let bytes = word.to_be_bytes();
        let (unused, used) = bytes.split_at_checked(8_usize.checked_sub(Self::SIZE?)?)?;
        if unused.iter().any(|byte| *byte != 0) { None } else { Self::from_bytes(used) }
    }

    /// Returns the key of an encoding. `None` if the encoding is invalid.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut reader = KeyReader { rest: bytes };
        let key = Self::read(&mut reader, true)?;
        reader.rest.is_empty().then_some(key)
    }
}

/// The rest of a key's encoding.
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

    /// Reads a string of bytes: the whole rest if it is the last part, otherwise up to its end
    /// mark.
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

/// Shifts a part into a word. The word's lowest bytes need no mask: parts are shifted in whole.
#[inline(always)]
fn shift_in(word: u64, value: u64, size: usize) -> u64 {
    if size == 8 { value } else { word << (8 * size) | value }
}

macro_rules! unsigned {
    ($($int:ty),+) => {$(
        impl Key for $int {
            const SIZE: Option<usize> = Some(size_of::<Self>());
            fn shape() -> String {
                stringify!($int).to_owned()
            }
            #[inline(always)]
            fn pack(&self, word: u64) -> u64 {
                shift_in(word, *self as u64, size_of::<Self>())
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

unsigned!(u8, u16, u32, u64, u128);

macro_rules! signed {
    ($($int:ty as $unsigned:ty),+) => {$(
        impl Key for $int {
            const SIZE: Option<usize> = Some(size_of::<Self>());
            fn shape() -> String {
                stringify!($int).to_owned()
            }
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

signed!(i8 as u8, i16 as u16, i32 as u32, i64 as u64, i128 as u128);

/// Keys that have the encoding of another type.
macro_rules! as_other {
    ($($type:ty as $other:ty, $shape:literal);+) => {$(
        impl Key for $type {
            const SIZE: Option<usize> = <$other>::SIZE;
            fn shape() -> String {
                $shape.to_owned()
            }
            #[inline(always)]
            fn pack(&self, word: u64) -> u64 {
                (*self as $other).pack(word)
            }
            #[inline]
            fn write(&self, bytes: &mut Vec<u8>, last: bool) {
                (*self as $other).write(bytes, last);
            }
            #[inline]
            fn read(reader: &mut KeyReader<'_>, last: bool) -> Option<Self> {
                <$other>::read(reader, last)?.try_into().ok()
            }
        }
    )+};
}

// The bytes are the same on machines with shorter addresses.
as_other!(usize as u64, "u64"; isize as i64, "i64"; char as u32, "char");

impl Key for bool {
    const SIZE: Option<usize> = Some(1);
    fn shape() -> String {
        "bool".to_owned()
    }
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

impl<K: Key, const N: usize> Key for [K; N] {
    const SIZE: Option<usize> = match K::SIZE {
        Some(size) => Some(size * N),
        None => None,
    };
    fn shape() -> String {
        format!("[{};{N}]", K::shape())
    }
    fn describe() -> String {
        format!("[{};{N}]", K::describe())
    }
    #[inline(always)]
    fn pack(&self, word: u64) -> u64 {
        self.iter().fold(word, |word, part| part.pack(word))
    }
    #[inline]
    fn write(&self, bytes: &mut Vec<u8>, last: bool) {
        for (part, number) in self.iter().zip(1..) {
            part.write(bytes, last && number == N);
        }
    }
    #[inline]
    fn read(reader: &mut KeyReader<'_>, last: bool) -> Option<Self> {
        // After one part has failed, no more is read.
        let mut fails = false;
        let parts = std::array::from_fn(|at| {
            let part = if fails { None } else { K::read(reader, last && at + 1 == N) };
            fails |= part.is_none();
            part
        });
        all_of(parts)
    }
}

/// Returns all parts, or `None` if one is missing.
#[inline]
fn all_of<K, const N: usize>(parts: [Option<K>; N]) -> Option<[K; N]> {
    if parts.iter().any(Option::is_none) {
        return None;
    }
    Some(parts.map(|part| match part {
        Some(part) => part,
        None => unreachable!("it was looked for"),
    }))
}

impl<K: Key> Key for Option<K> {
    const SIZE: Option<usize> = match K::SIZE {
        Some(size) => Some(1 + size),
        None => None,
    };
    fn shape() -> String {
        format!("option<{}>", K::shape())
    }
    fn describe() -> String {
        format!("option<{}>", K::describe())
    }
    #[inline(always)]
    fn pack(&self, word: u64) -> u64 {
        as_key::pack_option(self.as_ref().as_ref(), word)
    }
    #[inline]
    fn write(&self, bytes: &mut Vec<u8>, last: bool) {
        as_key::write_option(self.as_ref().as_ref(), bytes, last);
    }
    fn read(reader: &mut KeyReader<'_>, last: bool) -> Option<Self> {
        if bool::read(reader, false)? {
            return K::read(reader, last).map(Some);
        }
        let instead = reader.take(K::SIZE.unwrap_or(0))?;
        instead.iter().all(|byte| *byte == 0).then_some(None)
    }
}

impl Key for Vec<u8> {
    const SIZE: Option<usize> = None;
    fn shape() -> String {
        "bytes".to_owned()
    }
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
    fn shape() -> String {
        "string".to_owned()
    }
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
            fn shape() -> String {
                // A tuple of one is encoded like its part.
                let parts: &[String] = &[$($part::shape(),)* $last::shape()];
                if let [part] = parts { part.clone() } else { format!("({})", parts.join(",")) }
            }
            fn describe() -> String {
                let parts: &[String] = &[$($part::describe(),)* $last::describe()];
                if let [part] = parts { part.clone() } else { format!("({})", parts.join(",")) }
            }
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

    /// Checks that encodings have the order of the keys, and decode to them.
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

    /// Checks that a value that is looked up as a key has the key's encoding.
    fn stands<K: Key>(one: impl AsKey<K>, key: &K) -> Result<(), TestCaseError> {
        for last in [false, true] {
            let (mut bytes, mut keys) = (Vec::new(), Vec::new());
            one.write_key(&mut bytes, last);
            key.write(&mut keys, last);
            prop_assert_eq!(bytes, keys);
        }
        if K::FITS {
            prop_assert_eq!(one.packed(), key.word());
        }
        Ok(())
    }

    /// Byte strings with frequent zeros.
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
        fn other_types(a: (char, usize), b: (char, usize), c: u128, d: i128, e: u128, f: i128) {
            check(a, b)?;
            check(c, e)?;
            check((d, c), (f, e))?;
            check(a.1 as isize, b.1 as isize)?;
            check([a.0, b.0], [b.0, a.0])?;
            check([(c, d), (e, f)], [(c, d), (e, d)])?;
        }

        #[test]
        fn options_and_arrays(
            a: Option<u32>, b: Option<u32>, c in prop::option::of(bytes()), d in prop::option::of(bytes()), n: u16,
        ) {
            check(a, b)?;
            check((n, a), (n, b))?;
            check(c.clone(), d.clone())?;
            check((c.clone(), n), (d.clone(), n))?;
            check([c.clone(), d.clone()], [d.clone(), c.clone()])?;
            check(([c.clone(), c.clone()], d.clone()), ([c.clone(), d.clone()], c))?;
            check([a, b, a], [b, a, a])?;
        }

        #[test]
        fn what_stands_for_a_key_is_encoded_as_the_key(a: String, b in bytes(), n: u32, m: Option<u8>, c: [u16; 3]) {
            stands(&*a, &a)?;
            stands(a.clone(), &a)?;
            stands(&b[..], &b)?;
            stands((&*a, n), &(a.clone(), n))?;
            stands((n, &*a), &(n, a.clone()))?;
            stands((&n, &b[..], m), &(n, b.clone(), m))?;
            stands(((&*a, &b[..]), c, true), &((a.clone(), b.clone()), c, true))?;
            stands([&*a, "", &*a], &[a.clone(), String::new(), a.clone()])?;
            stands(Some(&*a), &Some(a.clone()))?;
            stands((None::<&str>, n), &(None::<String>, n))?;
            stands((m, n as u16), &(m, n as u16))?;
            stands(c, &c)?;
            stands(b"seven", &b"seven".to_vec())?;
        }

        #[test]
        fn what_is_no_encoding_is_refused(noise: Vec<u8>, word: u64) {
            // Whatever the bytes are, decoding does not panic; and what it accepts is an encoding.
            if let Some(key) = <(String, u16, bool)>::from_bytes(&noise) {
                let mut bytes = Vec::new();
                key.write(&mut bytes, true);
                prop_assert_eq!(&bytes, &noise);
            }
            if let Some(key) = <[Option<(char, bool)>; 2]>::from_bytes(&noise) {
                let mut bytes = Vec::new();
                key.write(&mut bytes, true);
                prop_assert_eq!(&bytes, &noise);
            }
            if let Some(key) = <Option<char>>::from_word(word) {
                prop_assert_eq!(key.word(), word);
            }
            if let Some(key) = <(u8, bool)>::from_word(word) {
                prop_assert_eq!(key.word(), word);
            }
        }
    }

    /// Directories contain these names.
    #[test]
    fn shapes_have_names_for_good() {
        assert_eq!(<(u8, i16, u32, i64, u128, i128)>::shape(), "(u8,i16,u32,i64,u128,i128)");
        assert_eq!(<(usize, isize, char, bool)>::shape(), "(u64,i64,char,bool)");
        assert_eq!(<([Option<u16>; 3], (String,), Vec<u8>)>::shape(), "([option<u16>;3],string,bytes)");
        assert_eq!(<((u8, u8), i8)>::shape(), "((u8,u8),i8)");
    }

    #[test]
    fn only_what_fits_a_word_is_packed() {
        const { assert!(<(u32, u32)>::FITS && <(u8, [u8; 7])>::FITS && u64::FITS) };
        const { assert!(!<(u64, u8)>::FITS && !String::FITS && !<(u8, Vec<u8>)>::FITS) };
        assert_eq!((1_u8, 2_u16).word(), 0x01_0002);
        assert_eq!((-1_i8,).word(), 0x7F);
    }
}
