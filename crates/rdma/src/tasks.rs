//! Sets of coroutines, as bits.

use crate::tickets::Task;

#[derive(Debug, Default)]
pub(crate) struct TaskSet {
    bits: Vec<u64>,
    /// False only if the set is empty: the usual case, known at a look.
    occupied: bool,
}

impl TaskSet {
    /// Makes room for so many, so that inserting them does not allocate, and forgets all.
    pub(crate) fn reset(&mut self, tasks: usize) {
        self.bits.clear();
        self.bits.resize(tasks.div_ceil(64), 0);
        self.occupied = false;
    }

    /// Makes room for so many, and puts all of them in.
    pub(crate) fn fill(&mut self, tasks: usize) {
        self.reset(tasks);
        for task in 0..tasks {
            self.insert(task as Task);
        }
    }

    /// Makes room for one more, besides those there.
    pub(crate) fn make_room(&mut self, task: Task) {
        let words = task as usize / 64 + 1;
        if self.bits.len() < words {
            self.bits.resize(words, 0);
        }
    }

    /// Whether it has any member, by a look at every bit.
    pub(crate) fn any(&self) -> bool {
        self.bits.iter().any(|bits| *bits != 0)
    }

    /// Nobody is not inserted, nor is anyone for whom there is no room: a coroutine of an executor
    /// that has ended.
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

    /// Whether there is certainly nobody.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        !self.occupied
    }

    /// Moves all of `other` here.
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

    /// Removes and gives sixty-four at a time: those from `64 * index` on.
    #[inline(always)]
    pub(crate) fn take_word(&mut self, index: usize) -> u64 {
        self.bits.get_mut(index).map_or(0, std::mem::take)
    }
}
