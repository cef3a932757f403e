//! Where a value is copied to whose length is only known when it is come to.

/// Memory for a value: a vector, most simply.
///
/// # Example
///
/// ```
/// use drtm_kv::Room;
///
/// /// Counts, and keeps nothing.
/// struct Length(usize);
///
/// impl Room for Length {
///     fn of(&mut self, length: usize) -> &mut [u8] {
///         self.0 = length;
///         &mut []
///     }
/// }
/// let mut length = Length(0);
/// assert!(length.of(7).is_empty());
/// assert_eq!(length.0, 7);
/// ```
pub trait Room {
    /// Room for a value of this length, or for as much of it as there can be.
    fn of(&mut self, length: usize) -> &mut [u8];

    /// How many words of the value's beginning are not wanted. What [`of`](Self::of) is asked for is the rest.
    #[inline(always)]
    fn skipped(&self) -> usize {
        0
    }

    /// How long the whole value most probably is, if that is known when this is compiled: it is copied with no branch for others then.
    #[inline(always)]
    fn whole() -> Option<usize>
    where
        Self: Sized,
    {
        None
    }

    /// Other words of the value that are wanted as well, if there are any: how many are before them, and room for them. Not for more than a value of this length has.
    #[inline(always)]
    fn besides(&mut self, _length: usize) -> Option<(usize, &mut [u8])> {
        None
    }
}

impl Room for Vec<u8> {
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
/// use drtm_kv::{Nowhere, Room};
///
/// assert!(Nowhere.of(7).is_empty());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Nowhere;

impl Room for Nowhere {
    #[inline(always)]
    fn of(&mut self, _length: usize) -> &mut [u8] {
        &mut []
    }
}

/// Memory that values are copied to: an array, or a slice where nobody knows its length before.
///
/// # Example
///
/// ```
/// use drtm_kv::Memory;
///
/// assert_eq!(<[u8; 8]>::LENGTH, Some(8));
/// assert_eq!(<[u8]>::LENGTH, None);
/// ```
pub trait Memory: AsRef<[u8]> + AsMut<[u8]> {
    /// How long it is, if that is known when this is compiled. Values that fill it are copied with no branch for others then.
    const LENGTH: Option<usize>;
}

impl Memory for [u8] {
    const LENGTH: Option<usize> = None;
}

impl<const N: usize> Memory for [u8; N] {
    const LENGTH: Option<usize> = Some(N);
}

/// Somebody's memory, and the length of the value of which it has the beginning.
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

    /// The length of the value, which may be more than there was room for.
    #[inline(always)]
    pub(crate) fn length(&self) -> usize {
        self.length
    }
}

impl<B: Memory + ?Sized> Room for Buffer<'_, B> {
    #[inline(always)]
    fn of(&mut self, length: usize) -> &mut [u8] {
        self.length = length;
        let bytes = self.memory.as_mut();
        let kept = length.min(bytes.len());
        &mut bytes[..kept]
    }

    #[inline(always)]
    fn whole() -> Option<usize> {
        B::LENGTH
    }
}
