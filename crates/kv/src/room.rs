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

/// Somebody's buffer, and the length of the value of which it has the beginning.
#[derive(Debug)]
pub(crate) struct Buffer<'b> {
    bytes: &'b mut [u8],
    length: usize,
}

impl<'b> Buffer<'b> {
    pub(crate) fn new(bytes: &'b mut [u8]) -> Self {
        Self { bytes, length: 0 }
    }

    /// The length of the value, which may be more than there was room for.
    pub(crate) fn length(&self) -> usize {
        self.length
    }
}

impl Room for Buffer<'_> {
    #[inline(always)]
    fn of(&mut self, length: usize) -> &mut [u8] {
        self.length = length;
        let kept = length.min(self.bytes.len());
        &mut self.bytes[..kept]
    }
}

/// The same for values that most probably fill it.
#[derive(Debug)]
pub(crate) struct Fitting<'b, const N: usize> {
    bytes: &'b mut [u8; N],
    length: usize,
}

impl<'b, const N: usize> Fitting<'b, N> {
    pub(crate) fn new(bytes: &'b mut [u8; N]) -> Self {
        Self { bytes, length: 0 }
    }

    /// As much of the value as there was room for.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length.min(N)]
    }

    /// The length of the value, which may be more than there was room for.
    #[inline(always)]
    pub(crate) fn length(&self) -> usize {
        self.length
    }
}

impl<const N: usize> Room for Fitting<'_, N> {
    #[inline(always)]
    fn of(&mut self, length: usize) -> &mut [u8] {
        self.length = length;
        &mut self.bytes[..length.min(N)]
    }

    #[inline(always)]
    fn whole() -> Option<usize> {
        Some(N)
    }
}
