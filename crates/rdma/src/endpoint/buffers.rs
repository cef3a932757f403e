//! The buffers of verbs: a fixed number of them, owned by the endpoint.
//!
//! A NIC accesses only memory that was registered beforehand. It accesses the memory until the
//! operation completes, even if the poster is gone. So a buffer is *moved*: from the pool into the
//! posted operation, from its completion to the awaiting future or back to the pool, and from a
//! dropped value back to the pool. No other code can reach a buffer while an operation has it,
//! since there is only one owner at any time, which the compiler checks.
//!
//! In debug builds a buffer in the pool is poisoned, so that a value that was never fetched is
//! recognizable.

use std::ops::{Deref, DerefMut};

/// The number of buffers of an endpoint, of each of three sizes and of each of two kinds (for words
/// and for messages).
///
/// An operation takes the smallest free buffer that is large enough. If none is free, it waits for
/// a pending operation to return one. It fails with
/// [`VerbError::BuffersExhausted`](crate::VerbError::BuffersExhausted) if no operation is pending,
/// and none has completed without its value having been taken. Then the buffers belong to values
/// that are still held, and waiting could be a deadlock.
///
/// # Example
///
/// ```
/// use drtm_rdma::{Buffers, LocalConfig};
///
/// // Many coroutines that scan.
/// let config = LocalConfig::perfect().buffers(Buffers { medium: 512, ..Buffers::default() });
/// # let _ = config;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// The number of buffers of [`SMALL`](Self::SMALL) bytes.
    pub small: usize,
    /// The number of buffers of [`MEDIUM`](Self::MEDIUM) bytes.
    pub medium: usize,
    /// The number of buffers of [`LARGE`](Self::LARGE) bytes, the most that one operation carries.
    pub large: usize,
}

impl Buffers {
    /// The bytes of a small buffer: a bucket, a record.
    pub const SMALL: usize = 512;
    /// The bytes of a medium buffer: a tree node, a long value.
    pub const MEDIUM: usize = 4 << 10;
    /// The bytes of a large buffer.
    pub const LARGE: usize = 64 << 10;

    fn counts(&self) -> [usize; CLASSES] {
        [self.small, self.medium, self.large]
    }
}

impl Default for Buffers {
    fn default() -> Self {
        Self { small: 256, medium: 64, large: 8 }
    }
}

const CLASSES: usize = 3;
const BYTES: [usize; CLASSES] = [Buffers::SMALL, Buffers::MEDIUM, Buffers::LARGE];

/// The unit of a buffer: a word for one-sided verbs, a byte for messages.
pub(crate) trait Unit: Copy + Default + Send + std::fmt::Debug + 'static {
    /// The content of a buffer in the pool, in debug builds.
    const POISON: Self;
}

impl Unit for u64 {
    const POISON: Self = 0xDEAD_BEEF_DEAD_BEEF;
}

impl Unit for u8 {
    const POISON: Self = 0xDE;
}

/// A buffer that has one owner. It dereferences to the part that is in use.
#[derive(Debug, Default)]
pub struct Buffer<T> {
    memory: Box<[T]>,
    used: usize,
}

impl<T> Buffer<T> {
    /// Returns the number of units in use.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.used
    }
}

impl<T> Deref for Buffer<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        &self.memory[..self.used]
    }
}

impl<T> DerefMut for Buffer<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.memory[..self.used]
    }
}

/// The free buffers of one kind.
#[derive(Debug)]
pub(crate) struct Pool<T> {
    classes: [Class<T>; CLASSES],
}

#[derive(Debug)]
struct Class<T> {
    /// The units in each buffer.
    size: usize,
    free: Vec<Box<[T]>>,
}

impl<T: Unit> Pool<T> {
    pub(crate) fn new(buffers: &Buffers) -> Self {
        let counts = buffers.counts();
        // Zeros come from the system, and touch no memory.
        let new = if cfg!(debug_assertions) { T::POISON } else { T::default() };
        let class = |class: usize| {
            let size = BYTES[class] / size_of::<T>();
            Class { size, free: (0..counts[class]).map(|_| vec![new; size].into_boxed_slice()).collect() }
        };
        Self { classes: std::array::from_fn(class) }
    }

    /// Takes a buffer with `used` units in use. Returns `None` if no buffer is free.
    #[inline]
    pub(crate) fn take(&mut self, used: usize) -> Option<Buffer<T>> {
        let memory = self.classes.iter_mut().filter(|class| class.size >= used).find_map(|class| class.free.pop())?;
        Some(Buffer { memory, used })
    }

    /// Takes a buffer, and copies `from` into it.
    #[inline]
    pub(crate) fn copy(&mut self, from: &[T]) -> Option<Buffer<T>> {
        let mut buffer = self.take(from.len())?;
        buffer.copy_from_slice(from);
        Some(buffer)
    }

    /// Returns a buffer to the pool.
    #[inline]
    pub(crate) fn put(&mut self, buffer: Buffer<T>) {
        let mut memory = buffer.memory;
        if cfg!(debug_assertions) {
            memory.fill(T::POISON);
        }
        let class = self.classes.iter_mut().find(|class| class.size == memory.len());
        debug_assert!(class.is_some(), "a buffer returns to the pool that it came from");
        if let Some(class) = class {
            debug_assert!(class.free.len() < class.free.capacity(), "a buffer returns once");
            class.free.push(memory);
        }
    }

    /// Returns how many buffers are free.
    pub(crate) fn free(&self) -> usize {
        self.classes.iter().map(|class| class.free.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_in_the_pool_is_poisoned_and_the_smallest_that_fits_is_taken() {
        // Only debug builds poison; others keep the old content.
        let (fresh, used) = if cfg!(debug_assertions) { (u64::POISON, u64::POISON) } else { (0, 7) };
        let mut pool = Pool::<u64>::new(&Buffers { small: 1, medium: 1, large: 0 });
        let mut small = pool.take(1).expect("free");
        assert_eq!(small[0], fresh);
        small[0] = 7;
        let medium = pool.take(1).expect("a larger one serves");
        assert_eq!(medium.memory.len() * 8, Buffers::MEDIUM);
        assert!(pool.take(1).is_none());
        pool.put(small);
        assert!(pool.take(65).is_none(), "a small one would be too small");
        assert_eq!(pool.take(64).expect("free")[0], used, "what a debug build leaves of the value: nothing");
    }
}
