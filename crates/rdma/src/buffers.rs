//! The memory that verbs read into and write from: a fixed number of buffers, owned by the
//! endpoint.
//!
//! A NIC accesses only memory that was registered beforehand, and goes on accessing it until the
//! operation completes, whatever has become of whoever posted it. So a buffer is *moved*: from the
//! pool into the posted operation, from its completion to whoever awaits it or else back to the
//! pool, and from a dropped value back to the pool. Nobody can reach a buffer while an operation
//! has it, since there is only one owner at any time and the compiler sees to it.
//!
//! In debug builds a buffer in the pool is poisoned, so that a value which was never fetched looks
//! like it.

use std::ops::{Deref, DerefMut};

/// How many buffers an endpoint has, of each of three sizes and of each of two kinds (for words and
/// for messages).
///
/// An operation takes the smallest free buffer that is large enough. Where none is free it waits
/// for an operation under way to give one back, and fails with
/// [`VerbError::BuffersExhausted`](crate::VerbError::BuffersExhausted) when none is under way, nor
/// has completed without its value having been taken: then all are values that are still held, and
/// to wait for them might be to wait for oneself.
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
    /// Buffers of [`SMALL`](Self::SMALL) bytes.
    pub small: usize,
    /// Buffers of [`MEDIUM`](Self::MEDIUM) bytes.
    pub medium: usize,
    /// Buffers of [`LARGE`](Self::LARGE) bytes, the most that one operation carries.
    pub large: usize,
}

impl Buffers {
    /// Bytes in a small buffer: a bucket, a record.
    pub const SMALL: usize = 512;
    /// Bytes in a medium buffer: a tree node, a long value.
    pub const MEDIUM: usize = 4 << 10;
    /// Bytes in a large buffer.
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

/// What buffers are made of: words for one-sided verbs, bytes for messages.
pub(crate) trait Unit: Copy + Default + Send + std::fmt::Debug + 'static {
    /// What a buffer in the pool contains, in debug builds.
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

/// The buffers of one kind that are free.
#[derive(Debug)]
pub(crate) struct Pool<T> {
    classes: [Class<T>; CLASSES],
}

#[derive(Debug)]
struct Class<T> {
    /// Units in each buffer.
    size: usize,
    free: Vec<Box<[T]>>,
}

impl<T: Unit> Pool<T> {
    pub(crate) fn new(buffers: &Buffers) -> Self {
        let counts = buffers.counts();
        // Zeros are the system's, and touch no memory.
        let new = if cfg!(debug_assertions) { T::POISON } else { T::default() };
        let class = |class: usize| {
            let size = BYTES[class] / size_of::<T>();
            Class { size, free: (0..counts[class]).map(|_| vec![new; size].into_boxed_slice()).collect() }
        };
        Self { classes: std::array::from_fn(class) }
    }

    /// A buffer with `used` units in use, if one is free.
    #[inline]
    pub(crate) fn take(&mut self, used: usize) -> Option<Buffer<T>> {
        let memory = self.classes.iter_mut().filter(|class| class.size >= used).find_map(|class| class.free.pop())?;
        Some(Buffer { memory, used })
    }

    /// A buffer that holds a copy of `from`.
    #[inline]
    pub(crate) fn copy(&mut self, from: &[T]) -> Option<Buffer<T>> {
        let mut buffer = self.take(from.len())?;
        buffer.copy_from_slice(from);
        Some(buffer)
    }

    /// Gives a buffer back.
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

    /// How many are free.
    pub(crate) fn free(&self) -> usize {
        self.classes.iter().map(|class| class.free.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_in_the_pool_is_poisoned_and_the_smallest_that_fits_is_taken() {
        // Only debug builds poison: what was there stays in others.
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
