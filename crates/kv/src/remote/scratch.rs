//! Room for what is about to be sent: on the stack where it is short, as it nearly always is.

/// Up to `SHORT` units without an allocation.
#[derive(Debug)]
pub(super) struct Scratch<T, const SHORT: usize> {
    short: [T; SHORT],
    long: Vec<T>,
}

impl<T: Copy + Default, const SHORT: usize> Scratch<T, SHORT> {
    pub(super) fn new() -> Self {
        Self { short: [T::default(); SHORT], long: Vec::new() }
    }

    /// The first `length` units, all of them zero the first time.
    pub(super) fn take(&mut self, length: usize) -> &mut [T] {
        if length <= SHORT {
            return &mut self.short[..length];
        }
        self.long.resize(length, T::default());
        &mut self.long
    }
}
