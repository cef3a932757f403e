//! Timers of sleeping coroutines: a heap by the time of waking, from which a timer can also be
//! removed.
//!
//! A deadline seldom passes; it is set for an operation and removed when that completes. So
//! removing is as cheap as setting, and neither allocates once the lists have their size.

use crate::{Time, endpoint::tickets::Task};

/// Identifies a timer that is set. It is stale once the timer is removed or has gone off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimerId {
    index: u32,
    generation: u32,
}

#[derive(Debug)]
struct Timer {
    at: Time,
    task: Task,
    generation: u32,
    /// Its position in the heap.
    place: u32,
}

/// Not in the heap.
const FREE: u32 = u32::MAX;

#[derive(Debug, Default)]
pub(crate) struct Timers {
    timers: Vec<Timer>,
    free: Vec<u32>,
    /// Indices of timers. Each timer is no later than its two children in the heap.
    heap: Vec<u32>,
}

impl Timers {
    /// Returns whether no timer is set.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Returns when the next timer goes off.
    pub(crate) fn next(&self) -> Option<Time> {
        self.heap.first().map(|first| self.timers[*first as usize].at)
    }

    /// Sets a timer.
    pub(crate) fn set(&mut self, at: Time, task: Task) -> TimerId {
        let place = self.heap.len() as u32;
        let index = match self.free.pop() {
            Some(index) => {
                let timer = &mut self.timers[index as usize];
                (timer.at, timer.task, timer.place) = (at, task, place);
                index
            }
            None => {
                self.timers.push(Timer { at, task, generation: 0, place });
                self.free.reserve(self.timers.len());
                (self.timers.len() - 1) as u32
            }
        };
        self.heap.push(index);
        self.rise(place as usize);
        TimerId { index, generation: self.timers[index as usize].generation }
    }

    /// Sets which coroutine a timer wakes. Returns false if it has gone off.
    pub(crate) fn hand_over(&mut self, id: TimerId, task: Task) -> bool {
        match self.timers.get_mut(id.index as usize) {
            Some(timer) if timer.generation == id.generation => {
                timer.task = task;
                true
            }
            _ => false,
        }
    }

    /// Removes a timer, unless it has gone off.
    pub(crate) fn take_out(&mut self, id: TimerId) {
        if let Some(timer) = self.timers.get(id.index as usize).filter(|timer| timer.generation == id.generation) {
            self.remove(timer.place as usize);
        }
    }

    /// Returns the coroutine of the earliest timer that goes off at `now` or before, and removes
    /// the timer.
    pub(crate) fn go_off(&mut self, now: Time) -> Option<Task> {
        let first = self.heap.first()?;
        let timer = &self.timers[*first as usize];
        let task = timer.task;
        (timer.at <= now).then(|| {
            self.remove(0);
            task
        })
    }

    fn remove(&mut self, place: usize) {
        let index = self.heap.swap_remove(place);
        let timer = &mut self.timers[index as usize];
        timer.generation = timer.generation.wrapping_add(1);
        timer.place = FREE;
        self.free.push(index);
        if place < self.heap.len() {
            self.timers[self.heap[place] as usize].place = place as u32;
            self.sink(place);
            self.rise(place);
        }
    }

    fn at(&self, place: usize) -> Time {
        self.timers[self.heap[place] as usize].at
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        self.timers[self.heap[one] as usize].place = one as u32;
        self.timers[self.heap[other] as usize].place = other as u32;
    }

    fn rise(&mut self, mut place: usize) {
        while place > 0 && self.at(place) < self.at((place - 1) / 2) {
            self.swap(place, (place - 1) / 2);
            place = (place - 1) / 2;
        }
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let children = 2 * place + 1..(2 * place + 3).min(self.heap.len());
            let Some(least) = children.min_by_key(|child| self.at(*child)) else { return };
            if self.at(place) <= self.at(least) {
                return;
            }
            self.swap(place, least);
            place = least;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Set(u64),
        TakeOut(usize),
        GoOff(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0..100_u64).prop_map(Step::Set),
            (0..64_usize).prop_map(Step::TakeOut),
            (0..100_u64).prop_map(Step::GoOff)
        ];
        prop::collection::vec(step, 0..200)
    }

    proptest! {
        /// Compares the heap with a list that is searched.
        #[test]
        fn a_heap_is_a_list_that_is_quick(steps in steps()) {
            let mut timers = Timers::default();
            let mut model: Vec<(Time, Task, TimerId)> = Vec::new();
            let mut gone: Vec<TimerId> = Vec::new();
            for (task, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Set(at) => {
                        let at = Time::from_nanos(at);
                        model.push((at, task as Task, timers.set(at, task as Task)));
                    }
                    Step::TakeOut(which) if !model.is_empty() => {
                        let (_, _, id) = model.remove(which % model.len());
                        timers.take_out(id);
                        gone.push(id);
                    }
                    Step::TakeOut(_) => {}
                    Step::GoOff(now) => {
                        let now = Time::from_nanos(now);
                        let mut last = Time::default();
                        while let Some(task) = timers.go_off(now) {
                            let place = model.iter().position(|timer| timer.1 == task).expect("set, and not gone off");
                            let (at, _, id) = model.remove(place);
                            prop_assert!(last <= at && at <= now);
                            last = at;
                            gone.push(id);
                        }
                        prop_assert!(model.iter().all(|timer| timer.0 > now));
                    }
                }
                prop_assert_eq!(timers.next(), model.iter().map(|timer| timer.0).min());
                prop_assert_eq!(timers.is_empty(), model.is_empty());
                for id in &gone {
                    prop_assert!(!timers.hand_over(*id, 0));
                }
            }
        }
    }
}
