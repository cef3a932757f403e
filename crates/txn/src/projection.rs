//! Which words of a row's value a reader wants, and what for.

/// Some words of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ByteRange {
    /// Words before it.
    pub(crate) skipped: u32,
    /// Its bytes, at most: the value may end within them.
    pub(crate) length: u32,
}

impl ByteRange {
    pub(crate) const NOTHING: Self = Self { skipped: 0, length: 0 };
    pub(crate) const WHOLE: Self = Self { skipped: 0, length: u32::MAX };

    /// Its bytes, if there are so many.
    #[inline(always)]
    pub(crate) fn at_most(self, length: usize) -> usize {
        length.min(self.length as usize)
    }
}

/// Which words of a row's value are wanted, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Projection {
    pub(crate) span: ByteRange,
    /// Whether they go to the end of the values that the transaction keeps, so that they can be
    /// changed there. Otherwise they are read, before anything else is.
    pub(crate) is_to_change: bool,
}

impl Projection {
    pub(crate) const NOTHING: Self = Self { span: ByteRange::NOTHING, is_to_change: false };
    pub(crate) const TO_READ: Self = Self::part_to_read(ByteRange::WHOLE);
    pub(crate) const TO_CHANGE: Self = Self::part_to_change(ByteRange::WHOLE);

    /// Of a row that the transaction writes, nothing.
    #[inline(always)]
    pub(crate) const fn part_to_read(span: ByteRange) -> Self {
        Self { span, is_to_change: false }
    }

    /// Of a row that the transaction writes, nothing.
    #[inline(always)]
    pub(crate) const fn part_to_change(span: ByteRange) -> Self {
        Self { span, is_to_change: true }
    }

    pub(crate) fn is_whole(self) -> bool {
        self.span == ByteRange::WHOLE
    }
}
