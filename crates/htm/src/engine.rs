//! The engines: plain accesses, and htm transactions where the engine has them.

mod native;
mod none;
mod rtm;
mod traced;
mod trial;

pub use native::Native;
pub use none::{NoHtm, NoTransaction};
pub use rtm::{Rtm, RtmTransaction};
pub use traced::{Trace, Traced};

use std::fmt;

use crate::{
    Access, Word, block,
    cause::Abort,
    error::EngineError,
    sync::Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// A kind of engine, for configuration and reports.
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
    /// Htm transactions emulated in software, with the limits of the hardware. For tests and
    /// studies.
    Emulated,
    /// No htm transactions: every caller takes its software path.
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

/// The sharing of memory with other threads or processes.
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
    /// Only threads of this process access the memory.
    Threads,
    /// Other processes access it too, by a shared mapping.
    Processes,
}

pub(crate) mod sealed {
    pub trait Sealed {}
}

/// Transactional memory, or its absence: plain accesses to words, and htm transactions over them.
///
/// An engine is a type parameter of everything that uses words. It is chosen once when a store is
/// opened ([`select`](crate::select), [`AnyHtm::dispatch`](crate::AnyHtm::dispatch)). So an access
/// is one instruction in hardware, and without RTM no transaction is even begun. A
/// [`Worker`](crate::Worker) runs transactions.
///
/// # Plain accesses
///
/// Plain accesses are linearizable per word, and *strongly atomic*: where a plain access and an htm
/// transaction conflict, the transaction aborts. Their names have the orderings:
/// [`load`](Self::load) acquires, [`store`](Self::store) releases, and read-modify-writes do both
/// and are full barriers, as on x86. A `store` followed by a `load` of another word may be
/// reordered, as on x86. No engine promises more than the hardware.
///
/// Plain accesses must not be made inside a transaction, which uses its accessor instead. The
/// emulation panics at one in every build, and [`Rtm`] in debug builds. In a release build the
/// hardware makes it part of the transaction.
pub trait Engine: Clone + Send + Sync + fmt::Debug + sealed::Sealed + 'static {
    /// The kind of this engine.
    const KIND: EngineKind;

    /// The accessor that a transaction's body gets.
    type Transaction<'m>: Access<'m, Abort = Self::Abort>;

    /// Proof that a transaction has aborted. Uninhabited in hardware, where an abort is a jump.
    type Abort;

    /// A worker's state between transactions.
    #[doc(hidden)]
    type Local: Send + fmt::Debug;

    #[doc(hidden)]
    fn local(&self) -> Self::Local;

    /// Runs a transaction once: to its commit, or to its abort.
    #[doc(hidden)]
    fn once<'m, T>(
        &self,
        local: &mut Self::Local,
        body: &mut impl FnMut(&mut Self::Transaction<'m>) -> Result<T, Self::Abort>,
    ) -> Result<T, Abort>;

    /// Returns whether the engine has htm transactions. Where that is known at compile time, the
    /// code that depends on it is too.
    #[inline(always)]
    fn has_htm(&self) -> bool {
        !matches!(Self::KIND, EngineKind::None)
    }

    /// Runs before every plain access, so that an engine can refuse one inside a transaction.
    #[doc(hidden)]
    #[inline(always)]
    fn before_plain_access(&self) {}

    /// Returns whether this engine can protect memory that is shared in this way.
    ///
    /// # Errors
    ///
    /// [`EngineError::ForeignMemory`]: the emulation tracks the accesses of this process only.
    fn admits(&self, _sharing: Sharing) -> Result<(), EngineError> {
        Ok(())
    }

    /// Loads a word (acquire): what its writer did before a [`store`](Self::store) is visible after
    /// this.
    #[inline(always)]
    fn load(&self, word: &Word) -> u64 {
        self.before_plain_access();
        word.get(Acquire)
    }

    /// Loads a word without ordering other accesses. For optimistic readers, which put a fence
    /// behind a whole copy.
    #[inline(always)]
    fn load_relaxed(&self, word: &Word) -> u64 {
        self.before_plain_access();
        word.get(Relaxed)
    }

    /// Stores a word (release): what this thread did before is visible after a [`load`](Self::load)
    /// of it.
    #[inline(always)]
    fn store(&self, word: &Word, value: u64) {
        self.before_plain_access();
        word.set(value, Release);
    }

    /// Stores a word without ordering other accesses. For data that a lock or a version protects.
    #[inline(always)]
    fn store_relaxed(&self, word: &Word, value: u64) {
        self.before_plain_access();
        word.set(value, Relaxed);
    }

    /// Copies the first bytes of words, each word's lowest byte first on any machine. Uses relaxed
    /// loads, in as few instructions as the processor allows. The copy may be torn between words.
    ///
    /// # Panics
    ///
    /// When the words have fewer bytes than `into`.
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

    /// Writes bytes to the first words, with relaxed stores. The rest of the last written word
    /// becomes zero.
    ///
    /// # Panics
    ///
    /// When the bytes do not fit.
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

    /// Stores a word and returns its old value.
    #[inline(always)]
    fn swap(&self, word: &Word, value: u64) -> u64 {
        self.before_plain_access();
        word.atomic().swap(value, AcqRel)
    }

    /// Stores `new` if the word has the value `current`.
    ///
    /// # Errors
    ///
    /// The word's actual value. Nothing is written then. But as in hardware, the line is still
    /// taken exclusively, so htm transactions that touched it abort.
    #[inline(always)]
    fn compare_exchange(&self, word: &Word, current: u64, new: u64) -> Result<u64, u64> {
        self.before_plain_access();
        word.atomic().compare_exchange(current, new, AcqRel, Acquire)
    }

    /// Adds, wrapping, and returns the old value.
    #[inline(always)]
    fn fetch_add(&self, word: &Word, value: u64) -> u64 {
        self.before_plain_access();
        word.atomic().fetch_add(value, AcqRel)
    }

    /// Sets the bits of `mask` and returns the old value.
    #[inline(always)]
    fn fetch_or(&self, word: &Word, mask: u64) -> u64 {
        self.before_plain_access();
        word.atomic().fetch_or(mask, AcqRel)
    }

    /// Keeps the bits of `mask` and returns the old value.
    #[inline(always)]
    fn fetch_and(&self, word: &Word, mask: u64) -> u64 {
        self.before_plain_access();
        word.atomic().fetch_and(mask, AcqRel)
    }
}
