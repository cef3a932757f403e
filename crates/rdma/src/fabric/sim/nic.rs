//! A NIC's units, each of which serves one request at a time, and its cache of queue pairs.

use fastrand::Rng;

use super::clock::Picos;

/// A unit that serves one request at a time, in order.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unit {
    free_at: Picos,
}

impl Unit {
    /// Returns the end of a service that is requested at `at`, and takes this long.
    #[inline]
    pub(super) fn serve(&mut self, at: Picos, takes: Picos) -> Picos {
        self.free_at = self.free_at.max(at) + takes;
        self.free_at
    }
}

#[derive(Clone, Debug)]
pub(super) struct Nic {
    /// The unit of requests, responses and answers.
    pub(super) engine: Unit,
    /// The unit that fetches the state of queue pairs that are not cached.
    pub(super) fetch: Unit,
    /// The unit of atomics, one at a time.
    pub(super) atomics: Unit,
    /// The links, out and in.
    pub(super) out: Unit,
    pub(super) into: Unit,
    pub(super) held: Held,
}

impl Nic {
    pub(super) fn new(queue_pairs: usize) -> Self {
        let unit = Unit::default();
        Self { engine: unit, fetch: unit, atomics: unit, out: unit, into: unit, held: Held::new(queue_pairs) }
    }
}

/// The cached queue pairs. A random one is evicted: real eviction policies are not published, and
/// evicting the oldest would make a cycle through one too many always miss.
#[derive(Clone, Debug)]
pub(super) struct Held {
    most: usize,
    held: Vec<u32>,
    /// For each queue pair its place in the cache plus one, or zero.
    places: Vec<u32>,
    pub(super) misses: u64,
}

impl Held {
    fn new(most: usize) -> Self {
        Self { most: most.max(1), held: Vec::new(), places: Vec::new(), misses: 0 }
    }

    /// Uses a queue pair. Returns false if its state must be fetched.
    pub(super) fn touch(&mut self, queue_pair: usize, rng: &mut Rng) -> bool {
        if self.places.len() <= queue_pair {
            self.places.resize(queue_pair + 1, 0);
        }
        if self.places[queue_pair] != 0 {
            return true;
        }
        self.misses += 1;
        if self.held.len() < self.most {
            self.held.push(queue_pair as u32);
            self.places[queue_pair] = self.held.len() as u32;
        } else {
            let place = rng.usize(..self.most);
            let evicted = std::mem::replace(&mut self.held[place], queue_pair as u32);
            self.places[evicted as usize] = 0;
            self.places[queue_pair] = place as u32 + 1;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_does_one_thing_after_the_other() {
        let mut unit = Unit::default();
        assert_eq!([unit.serve(10, 5), unit.serve(11, 5), unit.serve(100, 5)], [15, 20, 105]);
    }

    #[test]
    fn what_fits_is_missed_once_and_what_does_not_in_proportion() {
        let mut rng = Rng::with_seed(1);
        let mut fits = Held::new(64);
        for round in 0..100 {
            for queue_pair in 0..64 {
                assert_eq!(fits.touch(queue_pair, &mut rng), round > 0);
            }
        }
        let mut overflows = Held::new(64);
        for _ in 0..100_000 {
            let queue_pair = rng.usize(..128);
            overflows.touch(queue_pair, &mut rng);
        }
        let rate = overflows.misses as f64 / 100_000.0;
        assert!((rate - 0.5).abs() < 0.02, "{rate}");
    }
}
