//! Which parts of a slab are free: slots of a few sizes.

/// A part of a slab that one operation has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) at: u32,
    class: u8,
}

/// The slots of a slab.
#[derive(Debug)]
pub(super) struct Slots {
    /// From the smallest: bytes of each, and those that are free.
    classes: Vec<(usize, Vec<u32>)>,
    bytes: usize,
}

impl Slots {
    /// Creates so many slots of each size. The sizes grow.
    pub(super) fn new(sizes: &[(usize, usize)]) -> Self {
        debug_assert!(sizes.is_sorted_by_key(|(size, _)| size));
        let mut bytes = 0;
        let class = |&(size, count): &(usize, usize)| {
            // The lowest are taken first.
            let free = (0..count).rev().map(|index| (bytes + index * size) as u32).collect();
            bytes += size * count;
            (size, free)
        };
        let classes = sizes.iter().map(class).collect();
        Self { classes, bytes }
    }

    /// Returns the bytes that the slab must have.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether a slot of each size is free.
    pub(super) fn has_each(&self) -> bool {
        self.classes.iter().all(|(_, free)| !free.is_empty())
    }

    /// Takes the smallest free slot that is large enough.
    #[inline]
    pub(super) fn take(&mut self, bytes: usize) -> Option<Slot> {
        let fits = self.classes.iter_mut().enumerate().filter(|(_, (size, _))| *size >= bytes);
        fits.into_iter().find_map(|(class, (_, free))| Some(Slot { at: free.pop()?, class: class as u8 }))
    }

    #[inline]
    pub(super) fn put(&mut self, slot: Slot) {
        let (_, free) = &mut self.classes[usize::from(slot.class)];
        debug_assert!(!free.contains(&slot.at), "a slot returns once");
        free.push(slot.at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_apart_and_the_smallest_that_fits_is_taken() {
        let mut slots = Slots::new(&[(8, 2), (64, 2)]);
        assert_eq!(slots.bytes(), 144);
        let taken: Vec<_> = std::iter::from_fn(|| slots.take(8)).collect();
        assert_eq!(taken.iter().map(|slot| slot.at).collect::<Vec<_>>(), [0, 8, 16, 80]);
        slots.put(taken[0]);
        assert_eq!(slots.take(9), None, "what is free is too small");
        slots.put(taken[3]);
        assert_eq!(slots.take(64), Some(taken[3]));
        assert_eq!(slots.take(65), None);
    }
}
