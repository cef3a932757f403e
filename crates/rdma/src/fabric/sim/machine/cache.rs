//! A set-associative cache of lines, which evicts the least recently used one of a set.

use super::profile::{Level, Line};

/// The place of a cached line.
pub(super) type Place = usize;

#[derive(Clone, Debug)]
pub(super) struct Cache<S> {
    /// Sets of a slice: a power of two.
    sets: usize,
    slices: usize,
    ways: usize,
    /// For each way its line plus one, or zero.
    lines: Vec<u64>,
    used: Vec<u64>,
    states: Vec<S>,
    now: u64,
}

impl<S: Copy + Default> Cache<S> {
    /// Creates an empty cache of several slices of this size.
    pub(super) fn new(level: Level, slices: usize) -> Self {
        let sets = level.sets();
        assert!(sets.is_power_of_two() && slices > 0, "a cache of {sets} sets");
        let places = sets * slices * level.ways;
        let (lines, used, states) = (vec![0; places], vec![0; places], vec![S::default(); places]);
        Self { sets, slices, ways: level.ways, lines, used, states, now: 0 }
    }

    /// Adds to `found` the lines with this index whose state is wanted: those of a set of each
    /// slice. Places without a line have the default state, which must not be wanted.
    pub(super) fn find_all(&self, index: usize, is_wanted: impl Fn(&S) -> bool, found: &mut Vec<Line>) {
        for slice in 0..self.slices {
            let first = self.first(slice, index);
            for (way, state) in self.states[first..first + self.ways].iter().enumerate() {
                if is_wanted(state) {
                    found.push(Line(self.lines[first + way] - 1));
                }
            }
        }
    }

    fn first(&self, slice: usize, index: usize) -> Place {
        (slice * self.sets + index) * self.ways
    }

    /// Returns the number of sets of a slice.
    pub(super) fn sets(&self) -> usize {
        self.sets
    }

    #[inline]
    fn set(&self, line: Line) -> std::ops::Range<Place> {
        let index = line.0 as usize & (self.sets - 1);
        // The bits above the index choose the slice, mixed. Assumed: the paper says only that the
        // cache is sliced.
        let mixed = (line.0 / self.sets as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let slice = if self.slices == 1 { 0 } else { ((mixed * self.slices as u64) >> 32) as usize };
        let first = self.first(slice, index);
        first..first + self.ways
    }

    /// Returns where a line is, and counts that as a use.
    #[inline]
    pub(super) fn touch(&mut self, line: Line) -> Option<Place> {
        let place = self.find(line)?;
        self.now += 1;
        self.used[place] = self.now;
        Some(place)
    }

    /// Returns where a line is.
    #[inline]
    pub(super) fn find(&self, line: Line) -> Option<Place> {
        let set = self.set(line);
        let found = self.lines[set.clone()].iter().position(|held| *held == line.0 + 1)?;
        Some(set.start + found)
    }

    /// Adds a line that is not there. Returns its place, and what was evicted. Of a full set, lines
    /// whose state is `spared` are evicted only if all are.
    #[inline]
    pub(super) fn fill(&mut self, line: Line, spared: impl Fn(&S) -> bool) -> (Place, Option<(Line, S)>) {
        let set = self.set(line);
        let (mut place, mut age) = (set.start, (true, u64::MAX));
        for way in set {
            if self.lines[way] == 0 {
                place = way;
                break;
            }
            let its_age = (spared(&self.states[way]), self.used[way]);
            if its_age < age {
                (place, age) = (way, its_age);
            }
        }
        self.now += 1;
        self.used[place] = self.now;
        let evicted = self.lines[place].checked_sub(1).map(|held| (Line(held), self.states[place]));
        self.lines[place] = line.0 + 1;
        self.states[place] = S::default();
        (place, evicted)
    }

    /// Removes a line. Returns its state.
    pub(super) fn remove(&mut self, line: Line) -> Option<S> {
        let place = self.find(line)?;
        self.lines[place] = 0;
        Some(std::mem::take(&mut self.states[place]))
    }

    #[inline]
    pub(super) fn state(&mut self, place: Place) -> &mut S {
        &mut self.states[place]
    }

    /// Returns all cached lines, in an order that does not depend on their use within a set.
    #[cfg(test)]
    pub(super) fn contents(&self) -> Vec<(Line, S)> {
        let held = self.lines.iter().zip(&self.states);
        let mut all: Vec<_> = held.filter_map(|(line, state)| Some((Line(line.checked_sub(1)?), *state))).collect();
        all.sort_unstable_by_key(|(line, _)| *line);
        all
    }
}
