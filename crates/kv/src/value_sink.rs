//! Where a value is copied to whose length is only known when it is come to.

use crate::Version;

/// Memory for a value: a vector, most simply.
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
    /// Whether anything of a value is wanted.
    const IS_WANTED: bool = true;

    /// Room for a value of this length, or for as much of it as there can be.
    fn of(&mut self, length: usize) -> &mut [u8];

    /// How many words of the value's beginning are not wanted. What [`of`](Self::of) is asked for
    /// is the rest.
    #[inline(always)]
    fn skipped(&self) -> usize {
        0
    }

    /// How long the whole value most probably is, if something is to be expected: where it is, and
    /// how much, need not be waited for then. Where it is known when this is compiled, values are
    /// copied with no branch for others.
    #[inline(always)]
    fn whole(&self) -> Option<usize> {
        None
    }
}

impl ValueSink for Vec<u8> {
    /// As much as it takes.
    #[inline(always)]
    fn of(&mut self, length: usize) -> &mut [u8] {
        self.resize(length, 0);
        self
    }
}

/// Where the value of a record goes that nobody wants.
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

/// Where values are copied to, as far as there is room: an array, a slice, or a vector as long as
/// it is.
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

/// Somebody's memory, and the length of the value of which it has the beginning. Values are
/// expected to fill it.
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

    /// As much of the value as there was room for.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8] {
        let bytes = self.memory.as_ref();
        &bytes[..self.length.min(bytes.len())]
    }

    /// What was read, if the value had this version.
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
