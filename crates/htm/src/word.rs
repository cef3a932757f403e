//! The unit of all shared memory: a 64-bit word that only an [`Engine`](crate::Engine) can read or
//! write.

use std::{fmt, ops::Deref};

use crate::{
    bounds::MODEL,
    sync::{AtomicU64, Ordering},
};

/// The number of bytes in a cache line, the granularity at which hardware tracks accesses.
pub const LINE_BYTES: usize = 64;

/// The number of words in a cache line.
pub const LINE_WORDS: usize = LINE_BYTES / 8;

/// A shared 64-bit word.
///
/// It has the layout of an [`AtomicU64`](std::sync::atomic::AtomicU64) and none of its methods:
/// every access goes through an engine's plain accessors or through a transaction's accessor. So
/// the emulated engine sees *all* accesses (strong atomicity), the model checker schedules them,
/// and a fabric shows the imperfections of real verbs. No code can bypass it:
///
/// ```compile_fail
/// let word = drtm_htm::Word::new(1);
/// word.store(2, std::sync::atomic::Ordering::Relaxed);
/// ```
///
/// All accesses to one word must go through engines of one kind, and with the emulation through
/// clones of one engine. The owner of the memory owns the engine. Mixing engines is memory safe,
/// but not atomic.
///
/// # Example
///
/// ```
/// use drtm_htm::{Engine, NoHtm, Word};
///
/// let word = Word::new(1);
/// let engine = NoHtm;
/// engine.store(&word, 2);
/// assert_eq!(engine.load(&word), 2);
/// assert_eq!(word.into_inner(), 2);
/// ```
#[repr(transparent)]
pub struct Word(AtomicU64);

// Memory that is mapped, shared with another process or written by a NIC is accessed as words, so
// this layout must not change.
const _: () = assert!(MODEL || (size_of::<Word>() == 8 && align_of::<Word>() == 8));

impl Word {
    /// Makes a word with this value.
    ///
    /// # Example
    ///
    /// See [`Word`].
    #[cfg(not(feature = "model"))]
    #[must_use]
    pub const fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }

    /// Makes a word with this value.
    ///
    /// # Example
    ///
    /// See [`Word`].
    #[cfg(feature = "model")]
    #[must_use]
    pub fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }

    /// Returns the value of a word that is no longer shared.
    ///
    /// # Example
    ///
    /// See [`Word`].
    #[must_use]
    pub fn into_inner(self) -> u64 {
        #[cfg(not(feature = "model"))]
        return self.0.into_inner();
        #[cfg(feature = "model")]
        return self.0.load(Ordering::Relaxed);
    }

    /// Returns the number of the word's cache line, counted from address zero.
    #[inline]
    pub(crate) fn line(&self) -> usize {
        self.address() / LINE_BYTES
    }

    #[inline]
    pub(crate) fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    #[inline(always)]
    pub(crate) fn get(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }

    #[inline(always)]
    pub(crate) fn set(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }

    /// Returns the atomic itself, for the engines whose plain accesses are the processor's.
    #[inline(always)]
    pub(crate) fn atomic(&self) -> &AtomicU64 {
        &self.0
    }
}

impl Default for Word {
    fn default() -> Self {
        Self::new(0)
    }
}

impl fmt::Debug for Word {
    /// Prints the type only: printing the value would be an access that no engine sees.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Word(..)")
    }
}

/// Eight words that fill one cache line exactly, so that neighbours never conflict by false
/// sharing.
///
/// # Example
///
/// ```
/// use drtm_htm::{Engine, Line, NoHtm};
///
/// let table: Vec<Line> = (0..4).map(|_| Line::default()).collect();
/// NoHtm.store(&table[3][7], 9);
/// assert_eq!(NoHtm.load(&table[3][7]), 9);
/// assert_eq!(std::mem::align_of::<Line>(), 64);
/// ```
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Line([Word; LINE_WORDS]);

const _: () = assert!(MODEL || size_of::<Line>() == LINE_BYTES);

impl Deref for Line {
    type Target = [Word; LINE_WORDS];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}
