//! Projections: which words of a row's value to copy, and where to.

/// A range of a value's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ByteRange {
    /// The number of words before it.
    pub(crate) skipped: u32,
    /// Its length in bytes, at most: the value may end within it.
    pub(crate) length: u32,
}

impl ByteRange {
    pub(crate) const NOTHING: Self = Self { skipped: 0, length: 0 };
    pub(crate) const WHOLE: Self = Self { skipped: 0, length: u32::MAX };

    /// Returns its length, up to this many bytes.
    #[inline(always)]
    pub(crate) fn at_most(self, length: usize) -> usize {
        length.min(self.length as usize)
    }
}

/// Which words of a row's value to copy, and where to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Projection {
    pub(crate) span: ByteRange,
    /// Whether the words are copied to the end of the transaction's values, to be changed there.
    /// Otherwise they go to the buffer of the last read, to be read before the next one.
    pub(crate) is_to_change: bool,
}

impl Projection {
    pub(crate) const NOTHING: Self = Self { span: ByteRange::NOTHING, is_to_change: false };
    pub(crate) const TO_READ: Self = Self::part_to_read(ByteRange::WHOLE);
    pub(crate) const TO_CHANGE: Self = Self::part_to_change(ByteRange::WHOLE);

    /// Projects a part to read. Nothing is copied of a row in the write set.
    #[inline(always)]
    pub(crate) const fn part_to_read(span: ByteRange) -> Self {
        Self { span, is_to_change: false }
    }

    /// Projects a part to change. Nothing is copied of a row in the write set.
    #[inline(always)]
    pub(crate) const fn part_to_change(span: ByteRange) -> Self {
        Self { span, is_to_change: true }
    }

    pub(crate) fn is_whole(self) -> bool {
        self.span == ByteRange::WHOLE
    }
}
