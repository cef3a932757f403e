//! Destinations for a value whose length is only known when its record is read.

use crate::Version;

/// The destination of a value, such as a vector.
///
/// # Example
///
/// ```
/// use drtm_kv::ValueSink;
///
/// /// Counts, and keeps nothing.
/// struct Length(usize);
///
/// impl ValueSink for Length {
///     fn of(&mut self, length: usize) -> &mut [u8] {
///         self.0 = length;
///         &mut []
///     }
/// }
/// let mut length = Length(0);
/// assert!(length.of(7).is_empty());
/// assert_eq!(length.0, 7);
/// ```
pub trait ValueSink {
    /// Whether any of the value is copied.
    const IS_WANTED: bool = true;

    /// Returns room for a value of this length, or for as much of it as fits.
    fn of(&mut self, length: usize) -> &mut [u8];

    /// Returns how many words at the value's beginning are not copied. The length that
    /// [`of`](Self::of) gets is that of the rest.
    #[inline(always)]
    fn skipped(&self) -> usize {
        0
    }

    /// Returns the length that the whole value most probably has. The copy does not wait for the
    /// record's head then. If the length is a compile-time constant, the copy has no branch for
    /// other lengths. `None`: no length is expected.
    #[inline(always)]
    fn whole(&self) -> Option<usize> {
        None
    }
}

impl ValueSink for Vec<u8> {
    /// Grows or shrinks to the length.
    #[inline(always)]
    fn of(&mut self, length: usize) -> &mut [u8] {
        self.resize(length, 0);
        self
    }
}

/// The sink of a reader that needs no value.
///
/// # Example
///
/// ```
/// use drtm_kv::{KvTable, NoValue, ValueSink};
///
/// assert!(NoValue.of(7).is_empty());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct NoValue;

impl ValueSink for NoValue {
    const IS_WANTED: bool = false;

    #[inline(always)]
    fn of(&mut self, _length: usize) -> &mut [u8] {
        &mut []
    }
}

/// Memory that a value is copied into, truncated if necessary: an array, a slice, or a vector of
/// fixed length.
///
/// # Example
///
/// ```
/// use drtm_kv::Memory;
///
/// fn room(into: &mut (impl Memory + ?Sized)) -> usize {
///     into.as_mut().len()
/// }
/// assert_eq!(room(&mut [0; 8]), 8);
/// assert_eq!(room(&mut [0; 8][..3]), 3);
/// assert_eq!(room(&mut vec![0; 5]), 5);
/// ```
pub trait Memory: AsRef<[u8]> + AsMut<[u8]> {}

impl<B: AsRef<[u8]> + AsMut<[u8]> + ?Sized> Memory for B {}

/// A value that was read.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_kv::{HashConfig, KvTable, Store};
///
/// let store = Store::in_memory(NoHtm, 16 << 20)?;
/// let table = store.hash_table(HashConfig::default())?;
/// table.insert(&mut store.worker()?, 7, b"seven")?;
/// let mut value = [0; 16];
/// let read = table.get(7, &mut value)?.expect("just inserted");
/// assert_eq!(&value[..read.length], b"seven");
/// # Ok::<(), drtm_kv::KvError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Read {
    /// The value's length. If the buffer was shorter, only its beginning was copied.
    pub length: usize,
    /// The version of the value.
    pub version: Version,
}

/// A caller's memory, and the length of the value whose beginning it has. Values are expected to
/// fill it.
#[derive(Debug)]
pub(crate) struct Buffer<'b, B: ?Sized> {
    memory: &'b mut B,
    length: usize,
}

impl<'b, B: Memory + ?Sized> Buffer<'b, B> {
    #[inline(always)]
    pub(crate) fn new(memory: &'b mut B) -> Self {
        Self { memory, length: 0 }
    }

    /// Returns as much of the value as fitted.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8] {
        let bytes = self.memory.as_ref();
        &bytes[..self.length.min(bytes.len())]
    }

    /// Returns what was read, for a value with this version.
    #[inline(always)]
    pub(crate) fn read(&self, version: Version) -> Read {
        Read { length: self.length, version }
    }
}

impl<B: Memory + ?Sized> ValueSink for Buffer<'_, B> {
    #[inline(always)]
    fn of(&mut self, length: usize) -> &mut [u8] {
        self.length = length;
        let bytes = self.memory.as_mut();
        let kept = length.min(bytes.len());
        &mut bytes[..kept]
    }

    #[inline(always)]
    fn whole(&self) -> Option<usize> {
        Some(self.memory.as_ref().len())
    }
}
