//! The engines, and what each offers: plain accesses always, regions where it has them.

mod native;
mod none;
mod rtm;
mod traced;

pub use native::Native;
pub use none::{NoHtm, NoRegion};
pub use rtm::{Rtm, RtmRegion};
pub use traced::{Trace, Traced};

use std::fmt;

use crate::{
    Access, Word, block,
    cause::Abort,
    error::EngineError,
    sync::Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// Which engine: as a value, for configuration and reports.
///
/// # Example
///
/// ```
/// use drtm_htm::{Engine, EngineKind, NoHtm};
///
/// assert_eq!(NoHtm::KIND, EngineKind::None);
/// assert_eq!(EngineKind::Emulated.to_string(), "emulated");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EngineKind {
    /// Intel's Restricted Transactional Memory: `XBEGIN` and `XEND`.
    Rtm,
    /// Regions emulated in software, with the limits of the hardware. For tests and studies.
    Emulated,
    /// No regions: every caller takes its software path.
    None,
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rtm => "rtm",
            Self::Emulated => "emulated",
            Self::None => "none",
        })
    }
}

/// Who else can reach some memory.
///
/// # Example
///
/// ```
/// use drtm_htm::{Emulated, Engine, EngineError, Sharing};
///
/// let refused = Emulated::default().admits(Sharing::Processes).unwrap_err();
/// assert!(matches!(refused, EngineError::ForeignMemory));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// Only threads of this process.
    Threads,
    /// Other processes too, by a shared mapping.
    Processes,
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::NoHtm {}
    impl Sealed for super::Rtm {}
    impl Sealed for super::Native {}
    impl Sealed for super::Traced {}
    impl Sealed for crate::Emulated {}
}

/// Transactional memory, or its absence: plain accesses to words, and regions over them.
///
/// An engine is a type parameter of everything that uses words, chosen once when a store is opened
/// ([`select`](crate::select), [`AnyHtm::dispatch`](crate::AnyHtm::dispatch)), so that on hardware
/// an access is one instruction and without it a region is not even entered. Regions are run by a
/// [`Worker`](crate::Worker).
///
/// # Plain accesses
///
/// They are linearizable per word, and *strongly atomic*: a plain access and a region either do not
/// conflict, or the region aborts. Orderings are in the names: [`load`](Self::load) acquires,
/// [`store`](Self::store) releases, read-modify-writes do both and are full barriers, as on x86. A
/// `store` followed by a `load` of another word may be reordered, as on x86; no engine promises
/// more than the hardware.
///
/// Plain accesses are not for the inside of a region; there the region's accessor is. The emulation
/// panics at one (in every build), and so does [`Rtm`] in debug builds; in a release build the
/// hardware makes it part of the region.
pub trait Engine: Clone + Send + Sync + fmt::Debug + sealed::Sealed + 'static {
    /// Which engine this is.
    const KIND: EngineKind;

    /// The accessor that a region's body is given.
    type Region<'m>: Access<'m, Abort = Self::Abort>;

    /// Proof that a region has aborted. Uninhabited on hardware, where an abort is a jump.
    type Abort;

    /// What a worker keeps between regions.
    #[doc(hidden)]
    type Local: Send + fmt::Debug;

    #[doc(hidden)]
    fn local(&self) -> Self::Local;

    /// Runs a region once: to its commit, or to its abort.
    #[doc(hidden)]
    fn once<'m, T>(
        &self,
        local: &mut Self::Local,
        body: &mut impl FnMut(&mut Self::Region<'m>) -> Result<T, Self::Abort>,
    ) -> Result<T, Abort>;

    /// Whether there are regions to try. Where that is known at compile time, what depends on it is
    /// too.
    #[inline(always)]
    fn has_regions(&self) -> bool {
        !matches!(Self::KIND, EngineKind::None)
    }

    /// Called before every plain access: the place for an engine to refuse one inside a region.
    #[doc(hidden)]
    #[inline(always)]
    fn before_plain_access(&self) {}

    /// Whether this engine can protect memory that is shared in this way.
    ///
    /// # Errors
    ///
    /// [`EngineError::ForeignMemory`]: the emulation tracks the accesses of this process only.
    fn admits(&self, _sharing: Sharing) -> Result<(), EngineError> {
        Ok(())
    }

    /// Reads a word; what its writer did before a [`store`](Self::store) is visible after this.
    #[inline(always)]
    fn load(&self, word: &Word) -> u64 {
        self.before_plain_access();
        word.get(Acquire)
    }

    /// Reads a word without ordering other accesses. For optimistic readers, which put a fence
    /// behind a whole copy.
    #[inline(always)]
    fn load_relaxed(&self, word: &Word) -> u64 {
        self.before_plain_access();
        word.get(Relaxed)
    }

    /// Writes a word; what this thread did before is visible to whoever [`load`](Self::load)s it.
    #[inline(always)]
    fn store(&self, word: &Word, value: u64) {
        self.before_plain_access();
        word.set(value, Release);
    }

    /// Writes a word without ordering other accesses. For the inside of what a lock or a version
    /// protects.
    #[inline(always)]
    fn store_relaxed(&self, word: &Word, value: u64) {
        self.before_plain_access();
        word.set(value, Relaxed);
    }

    /// Copies the first bytes of words, of which a word's lowest comes first whatever the machine:
    /// with relaxed loads, in as few instructions as the processor allows. What is copied may be
    /// torn between words.
    ///
    /// # Panics
    ///
    /// When there are fewer bytes than there is room for.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::{Engine, NoHtm, Word};
    ///
    /// let words = [0x0807_0605_0403_0201, 0x0A09].map(Word::new);
    /// let mut bytes = [0; 10];
    /// NoHtm.load_bytes(&words, &mut bytes);
    /// assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    /// ```
    #[inline(always)]
    fn load_bytes(&self, words: &[Word], into: &mut [u8]) {
        block::load_by_words(words, into, |word| self.load_relaxed(word));
    }

    /// Writes bytes to the first words, with relaxed stores. The rest of the last word that they
    /// reach becomes zero.
    ///
    /// # Panics
    ///
    /// When they do not fit.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::{Engine, NoHtm, Word};
    ///
    /// let words = [u64::MAX; 2].map(Word::new);
    /// NoHtm.store_bytes(&words, &[1, 2, 3]);
    /// assert_eq!(words.map(Word::into_inner), [0x03_0201, u64::MAX]);
    /// ```
    #[inline(always)]
    fn store_bytes(&self, words: &[Word], from: &[u8]) {
        block::store_by_words(words, from, |word, value| self.store_relaxed(word, value));
    }

    /// Writes a word and gives what it held.
    #[inline(always)]
    fn swap(&self, word: &Word, value: u64) -> u64 {
        self.before_plain_access();
        word.atomic().swap(value, AcqRel)
    }

    /// Writes `new` if the word holds `current`.
    ///
    /// # Errors
    ///
    /// What the word held instead. Nothing is written then, but as in hardware the line is taken
    /// exclusively all the same, so that regions that touched it abort.
    #[inline(always)]
    fn compare_exchange(&self, word: &Word, current: u64, new: u64) -> Result<u64, u64> {
        self.before_plain_access();
        word.atomic().compare_exchange(current, new, AcqRel, Acquire)
    }

    /// Adds, wrapping, and gives what the word held.
    #[inline(always)]
    fn fetch_add(&self, word: &Word, value: u64) -> u64 {
        self.before_plain_access();
        word.atomic().fetch_add(value, AcqRel)
    }

    /// Sets the bits of `mask` and gives what the word held.
    #[inline(always)]
    fn fetch_or(&self, word: &Word, mask: u64) -> u64 {
        self.before_plain_access();
        word.atomic().fetch_or(mask, AcqRel)
    }

    /// Keeps the bits of `mask` and gives what the word held.
    #[inline(always)]
    fn fetch_and(&self, word: &Word, mask: u64) -> u64 {
        self.before_plain_access();
        word.atomic().fetch_and(mask, AcqRel)
    }
}
