//! The cache that bounds an htm transaction: sets, ways, least recently used.

use super::profile::Profile;

/// The first-level cache of one transaction: the lines it has touched. It is cold at the beginning.
#[derive(Debug)]
pub(crate) struct Cache {
    /// Each set's lines, the least recently used one first.
    sets: Vec<Vec<Way>>,
    ways: usize,
    /// The sets that are not empty.
    used: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Way {
    line: usize,
    written: bool,
}

/// A written line was evicted, and its new value would be lost.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Overflow;

impl Cache {
    pub(crate) fn new(profile: Profile) -> Self {
        Self { sets: vec![Vec::with_capacity(profile.ways); profile.sets], ways: profile.ways, used: Vec::new() }
    }

    /// Clears the cache for the next transaction.
    pub(crate) fn clear(&mut self) {
        for set in self.used.drain(..) {
            self.sets[set].clear();
        }
    }

    /// Brings `line` in. If the line evicted for it was only read, it goes to the read tracker,
    /// which has counted it already.
    pub(crate) fn touch(&mut self, line: usize, write: bool) -> Result<(), Overflow> {
        let index = line % self.sets.len();
        let set = &mut self.sets[index];
        if let Some(at) = set.iter().position(|way| way.line == line) {
            let way = set.remove(at);
            set.push(Way { line, written: way.written | write });
            return Ok(());
        }
        if set.is_empty() {
            self.used.push(index);
        } else if set.len() == self.ways {
            let evicted = set.remove(0);
            if evicted.written {
                return Err(Overflow);
            }
        }
        set.push(Way { line, written: write });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: bool = false;
    const WRITE: bool = true;

    fn two_by_two() -> Cache {
        Cache::new(Profile::new(2, 2, 1))
    }

    #[test]
    fn a_set_holds_as_many_written_lines_as_it_has_ways() {
        let mut cache = two_by_two();
        for line in [0, 1, 2, 3] {
            assert_eq!(cache.touch(line, WRITE), Ok(()));
        }
        assert_eq!(cache.touch(4, WRITE), Err(Overflow));
    }

    #[test]
    fn lines_of_one_set_overflow_it_while_the_other_is_empty() {
        let mut cache = two_by_two();
        assert_eq!(cache.touch(0, WRITE), Ok(()));
        assert_eq!(cache.touch(2, WRITE), Ok(()));
        assert_eq!(cache.touch(4, WRITE), Err(Overflow));
    }

    #[test]
    fn reads_evict_each_other_freely_but_not_writes() {
        let mut cache = two_by_two();
        for line in (0..100).step_by(2) {
            assert_eq!(cache.touch(line, READ), Ok(()));
        }
        // The two writes evict reads. The second of the reads behind them evicts a write.
        assert_eq!(cache.touch(100, WRITE), Ok(()));
        assert_eq!(cache.touch(102, READ), Ok(()));
        assert_eq!(cache.touch(104, READ), Err(Overflow));
    }

    #[test]
    fn touching_again_keeps_a_line_in_and_reading_does_not_unwrite_it() {
        let mut cache = two_by_two();
        for (line, write) in [(0, WRITE), (2, READ), (0, READ), (4, READ), (0, READ), (6, READ)] {
            assert_eq!(cache.touch(line, write), Ok(()));
        }
        assert_eq!(cache.touch(8, READ), Err(Overflow));
    }

    #[test]
    fn clearing_forgets() {
        let mut cache = two_by_two();
        for _ in 0..3 {
            assert_eq!(cache.touch(0, WRITE), Ok(()));
            assert_eq!(cache.touch(2, WRITE), Ok(()));
            cache.clear();
        }
        assert!(cache.sets.iter().all(Vec::is_empty));
    }
}
