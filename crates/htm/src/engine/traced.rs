//! Plain accesses that are recorded.

use std::{cell::RefCell, convert::Infallible};

use rustc_hash::FxHashSet;

use crate::{
    Engine, EngineKind, NoHtm, NoTransaction, Profile, Word, WorkingSet,
    cause::{Abort, Cause},
    emulated::Cache,
};

/// Like [`NoHtm`], but the accesses of a thread can be [traced](Traced::trace). A trace shows what
/// an htm transaction with the same accesses would have to hold. For studies; it is slow.
///
/// # Example
///
/// ```
/// use drtm_htm::{Engine, Line, Profile, Traced};
///
/// let lines: Vec<Line> = (0..3).map(|_| Line::default()).collect();
/// let (sum, trace) = Traced::trace(|| {
///     lines.iter().for_each(|line| Traced.store(&line[0], 7));
///     Traced.load(&lines[0][0]) + Traced.load(&lines[0][1])
/// });
/// assert_eq!(sum, 7);
/// let set = trace.working_set();
/// assert_eq!((set.line_bytes_read(), set.line_bytes_written(), set.bytes_read), (64, 192, 16));
/// assert!(trace.fits(Profile::L1_32K_8));
/// assert!(!trace.fits(Profile::new(1, 2, 100)), "two lines may be written there, and no more");
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Traced;

/// The accesses of a thread, in order.
///
/// # Example
///
/// See [`Traced`].
#[derive(Debug, Default)]
pub struct Trace(Vec<Touch>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Touch {
    address: usize,
    line: usize,
    is_write: bool,
}

thread_local!(static TRACE: RefCell<Option<Trace>> = const { RefCell::new(None) });

fn note(word: &Word, is_write: bool) {
    TRACE.with_borrow_mut(|trace| {
        if let Some(Trace(touches)) = trace {
            touches.push(Touch { address: word.address(), line: word.line(), is_write });
        }
    });
}

fn note_both(word: &Word) {
    note(word, false);
    note(word, true);
}

impl Traced {
    /// Runs `body`, and returns its result and the accesses of this thread meanwhile, through any
    /// value of this type. The accesses of an inner trace are not in the outer one.
    ///
    /// # Example
    ///
    /// See [`Traced`].
    pub fn trace<T>(body: impl FnOnce() -> T) -> (T, Trace) {
        let outer = TRACE.replace(Some(Trace::default()));
        let value = body();
        (value, TRACE.replace(outer).unwrap_or_default())
    }
}

impl Trace {
    /// Returns the working set of the accesses.
    #[must_use]
    pub fn working_set(&self) -> WorkingSet {
        let addresses = |is_write| {
            let touches = self.0.iter().filter(move |touch| touch.is_write == is_write);
            touches.map(|touch| touch.address).collect::<FxHashSet<_>>()
        };
        WorkingSet::of(&addresses(false), &addresses(true))
    }

    /// Returns whether an htm transaction could hold the accesses on such a processor, without
    /// interruption. They must fit into the cache of [`Emulated`](crate::Emulated), and into its
    /// read tracker.
    #[must_use]
    pub fn fits(&self, profile: Profile) -> bool {
        let mut cache = Cache::new(profile);
        let reads = self.0.iter().filter(|touch| !touch.is_write);
        reads.map(|touch| touch.line).collect::<FxHashSet<_>>().len() <= profile.read_lines
            && self.0.iter().all(|touch| cache.touch(touch.line, touch.is_write).is_ok())
    }
}

impl crate::engine::sealed::Sealed for Traced {}

impl Engine for Traced {
    const KIND: EngineKind = EngineKind::None;
    type Transaction<'m> = NoTransaction<'m>;
    type Abort = Infallible;
    type Local = ();

    fn local(&self) {}

    fn once<'m, T>(
        &self,
        (): &mut (),
        _body: &mut impl FnMut(&mut NoTransaction<'m>) -> Result<T, Infallible>,
    ) -> Result<T, Abort> {
        Err(Abort::by(Cause::Unavailable))
    }

    fn load(&self, word: &Word) -> u64 {
        note(word, false);
        NoHtm.load(word)
    }

    fn load_relaxed(&self, word: &Word) -> u64 {
        note(word, false);
        NoHtm.load_relaxed(word)
    }

    fn store(&self, word: &Word, value: u64) {
        note(word, true);
        NoHtm.store(word, value);
    }

    fn store_relaxed(&self, word: &Word, value: u64) {
        note(word, true);
        NoHtm.store_relaxed(word, value);
    }

    fn swap(&self, word: &Word, value: u64) -> u64 {
        note_both(word);
        NoHtm.swap(word, value)
    }

    fn compare_exchange(&self, word: &Word, current: u64, new: u64) -> Result<u64, u64> {
        note_both(word);
        NoHtm.compare_exchange(word, current, new)
    }

    fn fetch_add(&self, word: &Word, value: u64) -> u64 {
        note_both(word);
        NoHtm.fetch_add(word, value)
    }

    fn fetch_or(&self, word: &Word, mask: u64) -> u64 {
        note_both(word);
        NoHtm.fetch_or(word, mask)
    }

    fn fetch_and(&self, word: &Word, mask: u64) -> u64 {
        note_both(word);
        NoHtm.fetch_and(word, mask)
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;
    use crate::Line;

    fn lines(count: usize) -> Vec<Line> {
        (0..count).map(|_| Line::default()).collect()
    }

    #[test]
    fn every_kind_of_access_is_noted_and_has_its_effect() {
        let lines = lines(8);
        let word = |line: usize| &lines[line][0];
        let (read, written) = (|set: WorkingSet| set.lines_read, |set: WorkingSet| set.lines_written);
        let (_, loads) = Traced::trace(|| {
            let mut bytes = [0; 9];
            Traced.load_bytes(&lines[0][..], &mut bytes);
            Traced.load_relaxed(word(1))
        });
        assert_eq!((read(loads.working_set()), written(loads.working_set())), (2, 0));
        assert_eq!(loads.working_set().bytes_read, 24);
        let (_, stores) = Traced::trace(|| {
            Traced.store_bytes(&lines[0][..], &[1; 9]);
            Traced.store_relaxed(word(1), 2);
        });
        assert_eq!((read(stores.working_set()), written(stores.working_set())), (0, 2));
        let (_, both) = Traced::trace(|| {
            Traced.swap(word(2), 3);
            assert_eq!(Traced.compare_exchange(word(3), 1, 2), Err(0));
            Traced.fetch_add(word(4), 5);
            Traced.fetch_or(word(5), 6);
            Traced.fetch_and(word(6), 7);
        });
        assert_eq!((read(both.working_set()), written(both.working_set())), (5, 5));
        let values = [0, 1, 2, 3, 4, 5, 6].map(|line| Traced.load(word(line)));
        assert_eq!(values, [0x0101_0101_0101_0101, 2, 3, 0, 5, 6, 0]);
    }

    #[test]
    fn only_what_is_traced_counts_and_only_once() {
        let lines = lines(2);
        Traced.store(&lines[0][0], 1);
        let ((), outer) = Traced::trace(|| {
            (0..9).for_each(|_| {
                Traced.load(&lines[0][0]);
            });
            let ((), inner) = Traced::trace(|| Traced.store(&lines[1][0], 1));
            assert_eq!(inner.working_set().lines_written, 1);
        });
        assert_eq!((outer.working_set().bytes_read, outer.working_set().bytes_written), (8, 0));
        let ((), other) = Traced::trace(|| {
            let lines = &lines;
            std::thread::scope(|scope| drop(scope.spawn(move || Traced.load(&lines[0][0]))));
        });
        assert_eq!(other.working_set(), WorkingSet::default());
    }

    #[test]
    fn what_fits_is_what_the_cache_and_the_tracker_hold() {
        let lines = lines(6);
        let written =
            |count: usize| Traced::trace(|| lines[..count].iter().for_each(|line| Traced.store(&line[0], 1))).1;
        let read = |count: usize| {
            Traced::trace(|| lines[..count].iter().for_each(|line| assert_eq!(Traced.load(&line[0]) & !1, 0))).1
        };
        let profile = Profile::new(2, 2, 5);
        assert!(written(4).fits(profile) && !written(5).fits(profile));
        assert!(read(5).fits(profile) && !read(6).fits(profile));
        let (_, behind) = Traced::trace(|| {
            Traced.store(&lines[0][0], 1);
            lines[1..5].iter().for_each(|line| assert_eq!(Traced.load(&line[0]) & !1, 0));
        });
        assert!(!behind.fits(profile), "the reads evict the write");
    }
}
