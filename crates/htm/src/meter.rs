//! The working set of an htm transaction.

use rustc_hash::FxHashSet;

use crate::{Access, Word, word::LINE_BYTES};

/// The words that a body read and wrote. A word counts once however often it is touched. One that
/// is both read and written counts in both.
///
/// # Example
///
/// See [`Metered`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkingSet {
    /// The bytes of the words read.
    pub bytes_read: usize,
    /// The bytes of the words written.
    pub bytes_written: usize,
    /// The number of cache lines with a word read.
    pub lines_read: usize,
    /// The number of cache lines with a word written.
    pub lines_written: usize,
}

impl WorkingSet {
    /// Returns the working set of the words at these addresses.
    pub(crate) fn of(read: &FxHashSet<usize>, written: &FxHashSet<usize>) -> Self {
        Self {
            bytes_read: read.len() * size_of::<u64>(),
            bytes_written: written.len() * size_of::<u64>(),
            lines_read: lines(read),
            lines_written: lines(written),
        }
    }

    /// Returns the bytes of the lines read, which the hardware has to track.
    #[must_use]
    pub fn line_bytes_read(&self) -> usize {
        self.lines_read * LINE_BYTES
    }

    /// Returns the bytes of the lines written, which the hardware has to keep in its first-level
    /// cache.
    #[must_use]
    pub fn line_bytes_written(&self) -> usize {
        self.lines_written * LINE_BYTES
    }
}

/// An accessor that counts the accesses that it passes to another one.
///
/// It does not see a body's private memory. The counting itself allocates, so on
/// [`Rtm`](crate::Rtm) meter the critical section under the lock instead of the transaction.
///
/// # Example
///
/// ```
/// use drtm_htm::{Access, FallbackLock, Line, Metered, NoHtm};
///
/// let (lock, lines) = (FallbackLock::new(), [Line::default(), Line::default()]);
/// let set = lock.run(&NoHtm, |held| {
///     let mut tx = Metered::new(held);
///     let sum = tx.load(&lines[0][0])? + tx.load(&lines[0][1])? + tx.load(&lines[1][0])?;
///     tx.store(&lines[1][0], sum)?;
///     Ok(tx.working_set())
/// })?;
/// assert_eq!((set.bytes_read, set.lines_read), (24, 2));
/// assert_eq!((set.bytes_written, set.line_bytes_written()), (8, 64));
/// # Ok::<(), drtm_htm::Cause>(())
/// ```
#[derive(Debug)]
pub struct Metered<'a, A> {
    inner: &'a mut A,
    read: FxHashSet<usize>,
    written: FxHashSet<usize>,
}

impl<'a, A> Metered<'a, A> {
    /// Makes an accessor to `inner` that has counted nothing yet.
    ///
    /// # Example
    ///
    /// See [`Metered`].
    pub fn new(inner: &'a mut A) -> Self {
        Self { inner, read: FxHashSet::default(), written: FxHashSet::default() }
    }

    /// Returns what has been touched so far.
    ///
    /// # Example
    ///
    /// See [`Metered`].
    #[must_use]
    pub fn working_set(&self) -> WorkingSet {
        WorkingSet::of(&self.read, &self.written)
    }
}

fn lines(addresses: &FxHashSet<usize>) -> usize {
    addresses.iter().map(|address| address / LINE_BYTES).collect::<FxHashSet<_>>().len()
}

impl<'m, A: Access<'m>> Access<'m> for Metered<'_, A> {
    type Abort = A::Abort;

    fn load(&mut self, word: &'m Word) -> Result<u64, A::Abort> {
        let value = self.inner.load(word)?;
        self.read.insert(word.address());
        Ok(value)
    }

    fn store(&mut self, word: &'m Word, value: u64) -> Result<(), A::Abort> {
        self.inner.store(word, value)?;
        self.written.insert(word.address());
        Ok(())
    }

    fn depth(&mut self) -> &mut u8 {
        self.inner.depth()
    }

    fn spin(&mut self, iterations: u64) -> Result<(), A::Abort> {
        self.inner.spin(iterations)
    }

    fn raise<const CODE: u8>(&mut self) -> A::Abort {
        self.inner.raise::<CODE>()
    }
}
