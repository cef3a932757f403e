//! Plain accesses as an `Access` accessor, fences for relaxed accesses, and prefetches.

use std::convert::Infallible;

use crate::{
    Access, Engine, Word,
    access::{self, code},
    arch,
    sync::{
        Ordering::{Acquire, Release, SeqCst},
        fence,
    },
};

/// An accessor that makes plain accesses at once: loads acquire, and stores release. It is for a
/// body that also runs on the software path, where the caller holds a lock of its own.
///
/// It cannot fail, so its error has no values. Nothing can be undone either, so a body that aborts
/// panics here. Under a [`FallbackLock`](crate::FallbackLock), [`Exclusive`](crate::Exclusive) can
/// undo.
///
/// # Example
///
/// ```
/// use drtm_htm::{Access, NoHtm, Plain, Word};
///
/// let word = Word::new(1);
/// let mut plain = Plain::new(&NoHtm);
/// let Ok(value) = plain.load(&word);
/// let Ok(()) = plain.store(&word, value + 1);
/// assert_eq!(word.into_inner(), 2);
/// ```
#[derive(Debug)]
pub struct Plain<'e, E> {
    engine: &'e E,
    depth: u8,
}

impl<'e, E: Engine> Plain<'e, E> {
    /// Makes plain accesses through `engine`.
    ///
    /// # Example
    ///
    /// See [`Plain`].
    #[inline(always)]
    pub fn new(engine: &'e E) -> Self {
        Self { engine, depth: 1 }
    }
}

impl<'m, E: Engine> Access<'m> for Plain<'_, E> {
    type Abort = Infallible;

    #[inline(always)]
    fn load(&mut self, word: &'m Word) -> Result<u64, Infallible> {
        Ok(self.engine.load(word))
    }

    #[inline(always)]
    fn store(&mut self, word: &'m Word, value: u64) -> Result<(), Infallible> {
        self.engine.store(word, value);
        Ok(())
    }

    fn spin(&mut self, iterations: u64) -> Result<(), Infallible> {
        access::spin(iterations);
        Ok(())
    }

    fn depth(&mut self) -> &mut u8 {
        &mut self.depth
    }

    fn raise<const CODE: u8>(&mut self) -> Infallible {
        panic!("a body that aborts ({}) was run by plain accesses, which cannot be undone", code::cause(CODE))
    }
}

/// Puts an acquire fence behind relaxed loads: no later access is done before them.
///
/// # Example
///
/// ```
/// use drtm_htm::{Engine, NoHtm, Word, fence_acquire};
///
/// // The reader's half of a version check.
/// let (version, value) = (Word::new(2), Word::new(7));
/// let before = NoHtm.load(&version);
/// let copy = NoHtm.load_relaxed(&value);
/// fence_acquire();
/// assert!(NoHtm.load_relaxed(&version) == before && copy == 7);
/// ```
#[inline(always)]
pub fn fence_acquire() {
    fence(Acquire);
}

/// Puts a release fence before relaxed stores: they are not done before any earlier access.
///
/// # Example
///
/// ```
/// use drtm_htm::{Engine, NoHtm, Word, fence_release};
///
/// // The writer's half of a version check: odd while the value is written.
/// let (version, value) = (Word::new(2), Word::new(7));
/// NoHtm.store_relaxed(&version, 3);
/// fence_release();
/// NoHtm.store_relaxed(&value, 8);
/// NoHtm.store(&version, 4);
/// ```
#[inline(always)]
pub fn fence_release() {
    fence(Release);
}

/// Orders loads behind a word that was just changed by a compare-and-swap, or another
/// read-modify-write, as when a lock is taken. Two threads that each lock a word and then load the
/// other's cannot both find it free. On x86 the read-modify-write itself has this effect, and this
/// is a compiler fence only.
///
/// # Example
///
/// ```
/// use drtm_htm::{Engine, NoHtm, Word, fence_locked};
///
/// let (mine, other) = (Word::new(0), Word::new(0));
/// assert_eq!(NoHtm.compare_exchange(&mine, 0, 1), Ok(0));
/// fence_locked();
/// assert_eq!(NoHtm.load(&other), 0, "no other record is locked");
/// ```
#[inline(always)]
pub fn fence_locked() {
    if cfg!(all(target_arch = "x86_64", not(feature = "model"))) {
        std::sync::atomic::compiler_fence(SeqCst);
    } else {
        fence(SeqCst);
    }
}

/// Prefetches a word's cache line. This is a hint and no access: it waits for nothing and orders
/// nothing, and no engine sees it. It does nothing where the processor has no known hint.
///
/// # Example
///
/// ```
/// use drtm_htm::{Engine, Line, NoHtm, prefetch};
///
/// let lines: Vec<Line> = (0..8).map(|_| Line::default()).collect();
/// // All are being fetched before the first is waited for.
/// lines.iter().for_each(|line| prefetch(&line[0]));
/// assert_eq!(lines.iter().map(|line| NoHtm.load(&line[0])).sum::<u64>(), 0);
/// ```
#[inline(always)]
pub fn prefetch(word: &Word) {
    prefetch_at(word);
}

/// Prefetches an address at which there need not be a word, or any memory. It never faults.
///
/// # Example
///
/// ```
/// use drtm_htm::{Word, prefetch_at};
///
/// let word = Word::new(7);
/// prefetch_at(&raw const word);
/// prefetch_at((&raw const word).wrapping_add(1 << 40));
/// ```
#[inline(always)]
pub fn prefetch_at(address: *const Word) {
    arch::prefetch(address);
}

/// Prefetches a line that is needed a little later, together with many others. The line is fetched
/// only into the second-level cache, which tracks more outstanding lines than the first.
///
/// # Example
///
/// ```
/// use drtm_htm::{Engine, Line, NoHtm, prefetch_later};
///
/// let lines: Vec<Line> = (0..1_000).map(|_| Line::default()).collect();
/// let mut sum = 0;
/// for (at, line) in lines.iter().enumerate() {
///     if let Some(later) = lines.get(at + 20) {
///         prefetch_later(&raw const later[0]);
///     }
///     sum += NoHtm.load(&line[0]);
/// }
/// assert_eq!(sum, 0);
/// ```
#[inline(always)]
pub fn prefetch_later(address: *const Word) {
    arch::prefetch_later(address);
}
