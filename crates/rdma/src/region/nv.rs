//! Regions in memory that outlives the process: what has been committed there is there, and nothing
//! else is, whenever the process is killed.
//!
//! An [`NvRegion`] is a file on a memory file system, or a DAX mapping of persistent memory. The
//! interface is the one that flush-on-failure needs: stores are in the file's memory when they are
//! visible, and nothing is flushed. Words are changed by *commits*: several stores that take effect
//! as a whole if a guard word has an expected value.
//!
//! - *Hardware regions*: a commit is one htm transaction. The hardware makes it whole.
//! - *Other engines*: the region keeps the redo of a commit, which the next opener replays.
//!
//! ```text
//! root 0 -> header   0 magic   1 words of a redo   2 writers   8.. offsets of their redos
//!           redo     0 mark: WHOLE or zero   1 guard's offset, or zero   2 stores   3 checksum
//!                    8.. offset and value of each store, the guard's last
//! ```
//!
//! In software a commit has these steps. Up to the mark, the next opener undoes it; from there on,
//! the opener redoes it.
//!
//! 1. The redo names the guard, whose [`HELD`] bit is set by a swap: no other commit gets past it.
//! 2. The stores are written to the redo, then the mark.
//! 3. The words are stored, then the guard, whose bit is clear then.
//! 4. The mark is cleared, then the guard's name.

mod error;
#[cfg(test)]
mod tests;

use std::{fs::OpenOptions, path::Path, sync::Arc};

use drtm_htm::{Access as _, Cause, Engine, EngineKind, Htm, Outcome, Policy, Word, Worker, fence_release};
use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

pub use self::error::NvError;
use super::Region;
use crate::{Offset, fabric::die};

const MAGIC: u64 = u64::from_le_bytes(*b"drtm-nv1");

/// The mark of a redo that is whole.
const WHOLE: u64 = u64::from_le_bytes(*b"nv-whole");

/// The bit of a guard word that is set while a commit is under way in software.
const HELD: u64 = 1 << 63;

/// How many writers a region has at most.
const MOST_WRITERS: usize = 256;

/// How many words a commit may store at most.
const MOST_WORDS: u64 = 1 << 24;

/// Words before the list, of the header and of a redo.
const BEFORE: usize = 8;

// Of the header.
const REDO_WORDS: usize = 1;
const WRITERS: usize = 2;

// Of a redo.
const MARK: usize = 0;
const GUARD: usize = 1;
const COUNT: usize = 2;
const SUM: usize = 3;

/// What an htm transaction that finds another guard aborts with.
const OTHER: u8 = 1;

/// A region in memory that outlives the process. Clones are the same mapping.
///
/// # Example
///
/// ```
/// use drtm_htm::{Engine, NoHtm};
/// use drtm_rdma::NvRegion;
///
/// # let path = std::env::temp_dir().join(format!("drtm-nv-{}", std::process::id()));
/// let region = NvRegion::create(NoHtm, &path, 1 << 20, 16)?;
/// let at = region.region().extend(32, 8)?;
/// NoHtm.store(region.root(0).expect("there are several"), at.bytes());
/// // Stores three words if the guard is 0, and the guard with them.
/// let committed = region.writer()?.commit_if(at, (0, 1), &[(at + 8, &[7, 8, 9])])?;
/// assert_eq!(committed, Ok(()));
/// drop(region);
///
/// // Another process opens it again.
/// let region = NvRegion::open(NoHtm, &path)?;
/// let words = region.region().words(at, 4)?;
/// assert_eq!(words.iter().map(|word| NoHtm.load(word)).collect::<Vec<_>>(), [1, 7, 8, 9]);
/// # std::fs::remove_file(path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct NvRegion<E: Engine> {
    inner: Arc<Inner<E>>,
}

#[derive(Debug)]
struct Inner<E: Engine> {
    region: Region<E>,
    header: Offset,
    redo_words: usize,
    /// Held while a writer is added.
    adds: Mutex<()>,
}

impl<E: Engine> NvRegion<E> {
    /// The bit of a guard word that is set while a commit is under way in software.
    pub const HELD: u64 = HELD;

    /// Creates a region in a new file, with room for `capacity` bytes. A commit may store `words`
    /// words at most, its guard not among them.
    ///
    /// # Errors
    ///
    /// [`NvError::File`] if there is such a file, or it cannot be made; [`NvError::Words`];
    /// otherwise as for [`Region::create`].
    ///
    /// # Example
    ///
    /// See [`NvRegion`].
    pub fn create(engine: E, path: &Path, capacity: u64, words: u64) -> Result<Self, NvError> {
        if words > MOST_WORDS {
            return Err(NvError::Words { asked: words, most: MOST_WORDS });
        }
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path);
        let file = file.map_err(|source| NvError::File { path: path.into(), source })?;
        let region = Region::create(engine, file, capacity)?;
        let header = region.extend(8 * (BEFORE + MOST_WRITERS) as u64, 64)?;
        {
            let (all, engine) = (region.words(header, BEFORE)?, region.engine());
            engine.store(&all[REDO_WORDS], words);
            engine.store(&all[MARK], MAGIC);
            if let Some(root) = region.root(0) {
                engine.store(root, header.bytes());
            }
        }
        Ok(Self::new(region, header, words as usize))
    }

    /// Opens a region of which no writer is left: redoes commits that are whole, and undoes others.
    /// Several processes may open it so, as long as none of them makes a writer.
    ///
    /// # Errors
    ///
    /// [`NvError::File`], [`NvError::Header`], [`NvError::Redo`]; otherwise as for
    /// [`Region::open`].
    ///
    /// # Example
    ///
    /// See [`NvRegion`].
    pub fn open(engine: E, path: &Path) -> Result<Self, NvError> {
        let region = Self::look(engine, path)?;
        region.replay()?;
        Ok(region)
    }

    /// Opens a region whose writers may be at work, to read it. A commit of theirs may be visible
    /// in part; its guard has its new value only when the commit is whole.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open), but for [`NvError::Redo`].
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_rdma::NvRegion;
    ///
    /// # let path = std::env::temp_dir().join(format!("drtm-nv-look-{}", std::process::id()));
    /// let region = NvRegion::create(NoHtm, &path, 1 << 20, 16)?;
    /// let other = NvRegion::look(NoHtm, &path)?;
    /// assert_eq!(other.region().allocated(), region.region().allocated());
    /// # std::fs::remove_file(path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn look(engine: E, path: &Path) -> Result<Self, NvError> {
        let file = OpenOptions::new().read(true).write(true).open(path);
        let region = Region::open(engine, file.map_err(|source| NvError::File { path: path.into(), source })?)?;
        let header = region.root(0).map_or(0, |root| region.engine().load(root));
        let header = Offset::new(header);
        let wrong = |why| NvError::Header { why };
        let words = {
            let Ok(all) = region.words(header, BEFORE + MOST_WRITERS) else { return Err(wrong("it is not there")) };
            if region.engine().load(&all[MARK]) != MAGIC {
                return Err(wrong("it does not begin with the magic number"));
            }
            region.engine().load(&all[REDO_WORDS])
        };
        if words > MOST_WORDS {
            return Err(wrong("a redo is too long"));
        }
        Ok(Self::new(region, header, words as usize))
    }

    fn new(region: Region<E>, header: Offset, redo_words: usize) -> Self {
        Self { inner: Arc::new(Inner { region, header, redo_words, adds: Mutex::new(()) }) }
    }

    /// Returns the region, of which memory is allocated, and whose words are read. Words that a
    /// commit stores are stored by nothing else.
    ///
    /// # Example
    ///
    /// See [`NvRegion`].
    #[must_use]
    pub fn region(&self) -> &Region<E> {
        &self.inner.region
    }

    /// Returns a root: a word from which what is kept there is found. `None` if there are fewer.
    ///
    /// # Example
    ///
    /// See [`NvRegion`].
    #[must_use]
    pub fn root(&self, index: usize) -> Option<&Word> {
        self.inner.region.root(index.checked_add(1)?)
    }

    /// Makes a writer, with a redo of its own.
    ///
    /// # Errors
    ///
    /// [`NvError::Writers`] if there are too many, [`NvError::Region`] if there is no memory.
    ///
    /// # Example
    ///
    /// See [`NvRegion`].
    pub fn writer(&self) -> Result<NvWriter<E>, NvError> {
        let Inner { region, header, redo_words, adds } = &*self.inner;
        let _adds = adds.lock();
        let (all, engine) = (region.words(*header, BEFORE + MOST_WRITERS)?, region.engine());
        let number = engine.load(&all[WRITERS]) as usize;
        if number >= MOST_WRITERS {
            return Err(NvError::Writers { most: MOST_WRITERS });
        }
        let redo = region.extend(8 * self.redo_length() as u64, 64)?;
        engine.store(&all[BEFORE + number], redo.bytes());
        engine.store(&all[WRITERS], number as u64 + 1);
        let htm = (E::KIND == EngineKind::Rtm && engine.has_htm()).then(|| Htm::new(engine.clone()).worker());
        Ok(NvWriter { region: self.clone(), redo, htm, most: *redo_words })
    }

    /// Returns the words of a redo: of its head, and of its stores with the guard's.
    fn redo_length(&self) -> usize {
        BEFORE + 2 * (self.inner.redo_words + 1)
    }

    /// Redoes commits that are whole, and undoes others.
    fn replay(&self) -> Result<(), NvError> {
        let Inner { region, header, .. } = &*self.inner;
        let (all, engine) = (region.words(*header, BEFORE + MOST_WRITERS)?, region.engine());
        let writers = engine.load(&all[WRITERS]) as usize;
        if writers > MOST_WRITERS {
            return Err(NvError::Header { why: "it counts more writers than there can be" });
        }
        for (writer, redo) in all[BEFORE..BEFORE + writers].iter().enumerate() {
            let wrong = |why| NvError::Redo { writer, why };
            let redo = region.words(Offset::new(engine.load(redo)), self.redo_length());
            let redo = redo.map_err(|_| wrong("it is not there"))?;
            match engine.load(&redo[MARK]) {
                0 => self.undo(redo).map_err(wrong)?,
                WHOLE => self.redo(redo).map_err(wrong)?,
                _ => return Err(wrong("its mark is neither that of a whole one nor zero")),
            }
            engine.store(&redo[MARK], 0);
            engine.store(&redo[GUARD], 0);
        }
        Ok(())
    }

    /// Stores what a whole redo has.
    fn redo(&self, redo: &[Word]) -> Result<(), &'static str> {
        let (region, engine) = (&self.inner.region, self.inner.region.engine());
        let count = engine.load(&redo[COUNT]) as usize;
        let Some(list) = redo[BEFORE..].get(..count.saturating_mul(2)) else {
            return Err("it is longer than it can be");
        };
        if checksum(engine, list) != engine.load(&redo[SUM]) {
            return Err("it does not have its checksum");
        }
        for store in list.chunks_exact(2) {
            let word = region.words(Offset::new(engine.load(&store[0])), 1);
            let word = word.map_err(|_| "it stores what is not in the region")?;
            engine.store(&word[0], engine.load(&store[1]));
        }
        Ok(())
    }

    /// Lets go of the guard of a commit that has not been decided.
    fn undo(&self, redo: &[Word]) -> Result<(), &'static str> {
        let (region, engine) = (&self.inner.region, self.inner.region.engine());
        let guard = engine.load(&redo[GUARD]);
        if guard == 0 {
            return Ok(());
        }
        let guard = region.words(Offset::new(guard), 1).map_err(|_| "its guard is not in the region")?;
        let found = engine.load(&guard[0]);
        if found & HELD != 0 {
            // Another opener may have done so.
            let _ = engine.compare_exchange(&guard[0], found, found & !HELD);
        }
        Ok(())
    }
}

fn checksum<E: Engine>(engine: &E, words: &[Word]) -> u64 {
    let bytes: Vec<u8> = words.iter().flat_map(|word| engine.load(word).to_le_bytes()).collect();
    xxh3_64(&bytes)
}

/// Commits to an [`NvRegion`], one after the other.
///
/// # Example
///
/// See [`NvRegion`].
#[derive(Debug)]
pub struct NvWriter<E: Engine> {
    region: NvRegion<E>,
    redo: Offset,
    /// Where a commit is an htm transaction.
    htm: Option<Worker<E>>,
    most: usize,
}

impl<E: Engine> NvWriter<E> {
    /// Stores words at offsets, and `new` in the guard word, as a whole: if the guard has the value
    /// that is `expected`. `Ok(Err(_))` has what it is instead. Nothing is stored then.
    ///
    /// Commits by several writers with one guard exclude each other, and so does a swap of the
    /// guard, if it fails where the guard's highest bit is set: that is so while a commit is under
    /// way in software.
    ///
    /// # Errors
    ///
    /// [`NvError::Words`] if there are more words than a commit may store, and
    /// [`NvError::OutOfBounds`]. Nothing is stored then.
    ///
    /// # Panics
    ///
    /// If `expected` or `new` have the highest bit.
    ///
    /// # Example
    ///
    /// See [`NvRegion`].
    pub fn commit_if(
        &mut self,
        guard: Offset,
        (expected, new): (u64, u64),
        writes: &[(Offset, &[u64])],
    ) -> Result<Result<(), u64>, NvError> {
        assert!((expected | new) & HELD == 0, "the highest bit of a guard is the region's");
        let count: usize = writes.iter().map(|(_, values)| values.len()).sum();
        if count > self.most {
            return Err(NvError::Words { asked: count as u64, most: self.most as u64 });
        }
        let region = self.region.clone();
        let region = region.region();
        let word = &region.words(guard, 1)?[0];
        let targets = writes.iter().map(|(at, values)| Ok((region.words(*at, values.len())?, *values)));
        let targets = targets.collect::<Result<Vec<_>, NvError>>()?;
        if let Some(htm) = &mut self.htm {
            let outcome = htm.attempt(Policy::DBX, |tx| {
                if tx.load(word)? != expected {
                    return Err(tx.abort::<OTHER>());
                }
                for (words, values) in &targets {
                    for (word, value) in words.iter().zip(*values) {
                        tx.store(word, *value)?;
                    }
                }
                tx.store(word, new)
            });
            match outcome {
                Outcome::Committed(()) => return Ok(Ok(())),
                Outcome::Fallback(Cause::Explicit(OTHER)) => return Ok(Err(region.engine().load(word))),
                // It is too large, for example.
                Outcome::Fallback(_) => {}
            }
        }
        self.commit_in_software((guard, word), (expected, new), writes)
    }

    fn commit_in_software<'w>(
        &self,
        (guard, word): (Offset, &Word),
        (expected, new): (u64, u64),
        writes: &[(Offset, &'w [u64])],
    ) -> Result<Result<(), u64>, NvError> {
        let (region, engine) = (self.region.region(), self.region.region().engine());
        let redo = region.words(self.redo, self.region.redo_length())?;
        engine.store(&redo[GUARD], guard.bytes());
        step("nv.named")?;
        if let Err(found) = engine.compare_exchange(word, expected, expected | HELD) {
            engine.store(&redo[GUARD], 0);
            return Ok(Err(found));
        }
        step("nv.held")?;
        let stores = || {
            let each = |(at, values): &(Offset, &'w [u64])| {
                let at = *at;
                values.iter().zip(0_u64..).map(move |(value, word)| (at + 8 * word, *value))
            };
            writes.iter().flat_map(each).chain([(guard, new)])
        };
        let mut count = 0;
        for ((at, value), list) in stores().zip(redo[BEFORE..].chunks_exact(2)) {
            engine.store(&list[0], at.bytes());
            engine.store(&list[1], value);
            count += 1;
        }
        engine.store(&redo[COUNT], count);
        engine.store(&redo[SUM], checksum(engine, &redo[BEFORE..BEFORE + 2 * count as usize]));
        step("nv.redo.written")?;
        fence_release();
        engine.store(&redo[MARK], WHOLE);
        step("nv.redo.whole")?;
        for (at, value) in stores() {
            engine.store(&region.words(at, 1)?[0], value);
            step("nv.stored")?;
        }
        engine.store(&redo[MARK], 0);
        step("nv.cleared")?;
        engine.store(&redo[GUARD], 0);
        Ok(Ok(()))
    }
}

/// A place where a test kills the process, or stops the commit.
fn step(name: &'static str) -> Result<(), NvError> {
    die::site(name);
    #[cfg(test)]
    tests::step()?;
    Ok(())
}
