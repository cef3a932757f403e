//! What each piece of chopped TPC-C runs within: an htm transaction that has all of it, or a trace.
//!
//! Like [`Whole`](crate::whole), but of pieces: this is how DrTM runs them on one node, and the
//! database locks and validates as always inside each.

use std::collections::BTreeMap;

use drtm_htm::{Cause, FallbackLock, Htm, Native, Outcome, Policy, Profile, Traced, Worker};
use drtm_tpcc::{ChoppedTpcc, Kind, Section};
use drtm_txn::Error as DbError;
use parking_lot::Mutex;

use crate::{
    Error,
    footprint::{Footprint, footprints},
    whole::{FALLBACKS, OVERFLOWS},
};

/// The suffix of a piece's counter: how often it ran.
const RUNS: &str = " ran";

/// A piece: its transaction, and its place among that one's pieces.
type PieceOf = (Kind, usize);

/// What became of all pieces.
pub(crate) type Pieces = BTreeMap<PieceOf, Counts>;

/// Critical sections of one lock, which htm transactions elide. Each piece is one.
pub(crate) struct Elided<'l> {
    worker: Worker<Native>,
    lock: &'l FallbackLock,
    counts: Pieces,
}

/// What became of the runs of a piece.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counts {
    pub(crate) runs: u64,
    /// Those that ended under the lock.
    pub(crate) fallbacks: u64,
    /// Those of them that did not fit into an htm transaction.
    pub(crate) too_large: u64,
    /// Bytes of the cache lines that all runs have touched, if they were traced.
    pub(crate) bytes: u64,
}

impl<'l> Elided<'l> {
    pub(crate) fn new(engine: Native, lock: &'l FallbackLock) -> Self {
        Self { worker: Htm::new(engine).worker(), lock, counts: Pieces::new() }
    }
}

impl Section for Elided<'_> {
    fn piece(&mut self, of: Kind, place: usize, run: &mut dyn FnMut() -> Result<(), DbError>) -> Result<(), DbError> {
        let Self { worker, lock, counts } = self;
        let counts = counts.entry((of, place)).or_default();
        counts.runs += 1;
        let cause = match worker.attempt_unless(lock, Policy::DBX, |_| Ok(run())) {
            Outcome::Committed(done) => return done,
            Outcome::Fallback(cause) => cause,
        };
        counts.fallbacks += 1;
        counts.too_large += u64::from(cause == Cause::Capacity);
        // The lock excludes all other pieces, so this one finds no conflict.
        match lock.run(worker.engine(), |_| Ok(run())) {
            Ok(done) => done,
            Err(_) => unreachable!("the section aborts nothing"),
        }
    }

    fn counted(&self) -> Vec<(String, u64)> {
        let of_piece = |(&piece, counts): (&PieceOf, &Counts)| {
            let name = |what| format!("{}{what}", name_of(piece));
            [(name(RUNS), counts.runs), (name(FALLBACKS), counts.fallbacks), (name(OVERFLOWS), counts.too_large)]
        };
        self.counts.iter().flat_map(of_piece).collect()
    }
}

fn name_of((kind, place): PieceOf) -> String {
    format!("{kind:?}, piece {place}")
}

/// Returns the counts of pieces, from counters with the names that [`Elided`] gives them.
pub(crate) fn counts_of(counted: impl Fn(&str) -> u64) -> Pieces {
    // No transaction has as many pieces.
    let pieces = Kind::ALL.into_iter().flat_map(|kind| (0..16).map(move |place| (kind, place)));
    let counts = pieces.map(|piece| {
        let of = |what| counted(&format!("{}{what}", name_of(piece)));
        (piece, Counts { runs: of(RUNS), fallbacks: of(FALLBACKS), too_large: of(OVERFLOWS), bytes: 0 })
    });
    counts.filter(|(_, counts)| counts.runs > 0).collect()
}

/// A thread whose pieces are traced.
struct Tracer<'f> {
    found: &'f Mutex<Pieces>,
    profile: Profile,
}

impl Section for Tracer<'_> {
    fn piece(&mut self, of: Kind, place: usize, run: &mut dyn FnMut() -> Result<(), DbError>) -> Result<(), DbError> {
        let (ended, trace) = Traced::trace(run);
        let (too_large, set) = (u64::from(!trace.fits(self.profile)), trace.working_set());
        let mut found = self.found.lock();
        let counts = found.entry((of, place)).or_default();
        counts.runs += 1;
        counts.fallbacks += too_large;
        counts.too_large += too_large;
        counts.bytes += (set.line_bytes_read() + set.line_bytes_written()) as u64;
        ended
    }
}

/// Runs transactions in pieces, one after the other. Returns how often each piece would not fit
/// into one htm transaction of a processor with this profile, and the footprints of what ran
/// outside of pieces, by transaction.
pub(crate) fn piece_footprints(
    tpcc: ChoppedTpcc<'_>,
    transactions: u64,
    memory: u64,
    profile: Profile,
) -> Result<(Pieces, Vec<Footprint>), Error> {
    let found = Mutex::new(Pieces::new());
    let traced = tpcc.within(|| Box::new(Tracer { found: &found, profile }));
    let outside = footprints(&traced, transactions, memory, profile)?;
    drop(traced);
    Ok((found.into_inner(), outside))
}

/// Returns the piece of a transaction that touches most, and all its pieces together.
pub(crate) fn largest_and_all(pieces: &Pieces, kind: Kind) -> Option<(usize, Counts)> {
    let mut of_kind = pieces.iter().filter(|((of, _), _)| *of == kind).peekable();
    of_kind.peek()?;
    let mean = |counts: &Counts| counts.bytes / counts.runs.max(1);
    let mut all = Counts::default();
    let mut largest = (0, 0);
    for ((_, place), counts) in of_kind {
        all.runs += counts.runs;
        all.fallbacks += counts.fallbacks;
        all.too_large += counts.too_large;
        all.bytes += counts.bytes;
        largest = largest.max((mean(counts), *place));
    }
    Some((largest.1, all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_their_names() {
        let counts = Counts { runs: 9, fallbacks: 2, too_large: 1, bytes: 0 };
        let lock = FallbackLock::new();
        let mut elided = Elided::new(Native::without_htm(), &lock);
        elided.counts.insert((Kind::Delivery, 2), counts);
        let counted = elided.counted();
        let found = counts_of(|name| counted.iter().filter(|(of, _)| of == name).map(|(_, count)| count).sum());
        assert_eq!(found, BTreeMap::from([((Kind::Delivery, 2), counts)]));
    }

    #[test]
    fn a_piece_that_no_htm_transaction_has_runs_under_the_lock() {
        let lock = FallbackLock::new();
        let mut elided = Elided::new(Native::without_htm(), &lock);
        let mut runs = 0;
        let mut run = || {
            runs += 1;
            Ok(())
        };
        elided.piece(Kind::Payment, 0, &mut run).expect("it ends");
        assert_eq!(runs, 1);
        let counts = elided.counts[&(Kind::Payment, 0)];
        assert_eq!((counts.runs, counts.fallbacks, counts.too_large), (1, 1, 0));
    }

    #[test]
    fn the_largest_piece_is_the_one_that_touches_most() {
        let of = |runs, fallbacks, bytes| Counts { runs, fallbacks, too_large: 0, bytes };
        let pieces = BTreeMap::from([
            ((Kind::Payment, 0), of(9, 9, 900)),
            ((Kind::Delivery, 0), of(10, 0, 1_000)),
            ((Kind::Delivery, 1), of(10, 3, 5_000)),
        ]);
        assert_eq!(largest_and_all(&pieces, Kind::Delivery), Some((1, of(20, 3, 6_000))));
        assert_eq!(largest_and_all(&pieces, Kind::NewOrder), None);
    }
}
