//! Sets of coroutines, as bitmaps.

use crate::endpoint::tickets::Task;

#[derive(Debug, Default)]
pub(crate) struct TaskSet {
    bits: Vec<u64>,
    /// False only if the set is empty, which is the usual case, checked by one load.
    occupied: bool,
}

impl TaskSet {
    /// Makes room for this many, so that inserting them does not allocate, and empties the set.
    pub(crate) fn reset(&mut self, tasks: usize) {
        self.bits.clear();
        self.bits.resize(tasks.div_ceil(64), 0);
        self.occupied = false;
    }

    /// Makes room for this many, and inserts all of them.
    pub(crate) fn fill(&mut self, tasks: usize) {
        self.reset(tasks);
        for task in 0..tasks {
            self.insert(task as Task);
        }
    }

    /// Makes room for one more.
    pub(crate) fn make_room(&mut self, task: Task) {
        let words = task as usize / 64 + 1;
        if self.bits.len() < words {
            self.bits.resize(words, 0);
        }
    }

    /// Returns whether it has any member, by checking every bit.
    pub(crate) fn any(&self) -> bool {
        self.bits.iter().any(|bits| *bits != 0)
    }

    /// Inserts a coroutine. It ignores `NOBODY`, and a coroutine without room, which belongs to an
    /// executor that has ended.
    #[inline(always)]
    pub(crate) fn insert(&mut self, task: Task) {
        if let Some(bits) = self.bits.get_mut(task as usize / 64) {
            *bits |= 1 << (task % 64);
            self.occupied = true;
        }
    }

    pub(crate) fn contains(&self, task: Task) -> bool {
        self.bits.get(task as usize / 64).is_some_and(|bits| bits & (1 << (task % 64)) != 0)
    }

    /// Returns whether the set is certainly empty.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        !self.occupied
    }

    /// Moves all members of `other` here.
    #[inline(always)]
    pub(crate) fn take_all(&mut self, other: &mut Self) {
        if other.occupied {
            for (mine, theirs) in self.bits.iter_mut().zip(&mut other.bits) {
                *mine |= std::mem::take(theirs);
            }
            other.occupied = false;
            self.occupied = true;
        }
    }

    /// Removes and returns sixty-four members: those from `64 * index` on.
    #[inline(always)]
    pub(crate) fn take_word(&mut self, index: usize) -> u64 {
        self.bits.get_mut(index).map_or(0, std::mem::take)
    }
}
