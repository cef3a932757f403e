//! When a record's lock can be taken: one decision, for all who lock records.
//!
//! [`acquire`] is pure. It looks at one state word and says what to do. Three executors carry it
//! out: a local compare-and-swap ([`Record::acquire`](crate::record::Record::acquire)), a
//! hardware transaction (`Record::acquire_in`), and a compare-and-swap by verb (`remote/lock.rs`).
//! See `docs/decisions/0025`.

use crate::{Holder, State};

/// What a caller knows about leases.
///
/// # Example
///
/// See [`acquire`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leases {
    /// It reads no clock, and takes no lease for expired.
    None,
    /// The time now, in the unit of lease ends. A caller subtracts what clocks may differ by.
    At(u64),
}

/// What stands between a transaction and a record's lock.
///
/// # Example
///
/// See [`acquire`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acquire {
    /// Nothing: the lock is had by swapping this word for the holder's.
    Swap(State),
    /// It has the lock already.
    Mine,
    /// Another transaction has the lock.
    Locked(Holder),
    /// Readers rely on the value until this time.
    Leased(u64),
}

/// Decides whether a holder can take the lock of a record whose state is `seen`.
///
/// # Example
///
/// ```
/// use drtm_kv::{acquire, Acquire, Holder, KvTable, Leases, State};
///
/// let (me, other) = (Holder::new(0, 0, 1, 0), Holder::new(0, 0, 2, 0));
/// assert_eq!(acquire(State::FREE, me, Leases::None), Acquire::Swap(State::FREE));
/// assert_eq!(acquire(other.into(), me, Leases::None), Acquire::Locked(other));
///
/// let leased = State::leased_until(1_000);
/// assert_eq!(acquire(leased, me, Leases::At(1_000)), Acquire::Leased(1_000));
/// assert_eq!(acquire(leased, me, Leases::At(1_001)), Acquire::Swap(leased));
/// ```
#[must_use]
#[inline(always)]
pub const fn acquire(seen: State, holder: Holder, leases: Leases) -> Acquire {
    if let Some(other) = seen.holder() {
        return if other.word() == holder.word() { Acquire::Mine } else { Acquire::Locked(other) };
    }
    match (seen.lease_end(), leases) {
        (0, _) => Acquire::Swap(seen),
        (end, Leases::At(now)) if end < now => Acquire::Swap(seen),
        (end, _) => Acquire::Leased(end),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ME: Holder = Holder::new(1, 2, 3, 4);
    const NOW: u64 = 1_000;

    /// Every kind of word, by every kind of caller, and whether the caller may read it.
    #[test]
    fn each_state_has_one_answer() {
        // Each of these differs from `ME` in one part of the name.
        let others =
            [Holder::new(0, 2, 3, 4), Holder::new(1, 1, 3, 4), Holder::new(1, 2, 2, 4), Holder::new(1, 2, 3, 3)];
        let (running, expired) = (State::leased_until(NOW), State::leased_until(NOW - 1));
        let mut cases = vec![
            (State::FREE, true, Acquire::Swap(State::FREE), Acquire::Swap(State::FREE)),
            (ME.into(), true, Acquire::Mine, Acquire::Mine),
            (running, true, Acquire::Leased(NOW), Acquire::Leased(NOW)),
            (expired, true, Acquire::Leased(NOW - 1), Acquire::Swap(expired)),
        ];
        cases.extend(others.map(|other| (other.into(), false, Acquire::Locked(other), Acquire::Locked(other))));
        for (seen, is_readable, without_a_clock, with_one) in cases {
            assert_eq!(acquire(seen, ME, Leases::None), without_a_clock, "{seen:?}");
            assert_eq!(acquire(seen, ME, Leases::At(NOW)), with_one, "{seen:?}");
            assert_eq!(seen.may_be_read_by(ME), is_readable, "{seen:?}");
        }
    }

    proptest! {
        /// Against the definition, over any two words: a swap is from the word that was seen, and
        /// only of one that is neither a lock nor a lease that runs.
        #[test]
        fn a_lock_is_only_taken_from_a_word_that_protects_nothing(
            word: u64, holder: u64, now: u64, has_clock: bool
        ) {
            let (seen, holder) = (State(word), State(holder | 1).holder().expect("a lock"));
            let leases = if has_clock { Leases::At(now) } else { Leases::None };
            let is_lock = word & 1 == 1;
            let end = word >> 9;
            let runs = end != 0 && (!has_clock || now <= end);
            let expected = match (is_lock, runs) {
                (true, _) if word == holder.word() => Acquire::Mine,
                (true, _) => Acquire::Locked(seen.holder().expect("a lock")),
                (false, true) => Acquire::Leased(end),
                (false, false) => Acquire::Swap(seen),
            };
            prop_assert_eq!(acquire(seen, holder, leases), expected);
            prop_assert_eq!(seen.may_be_read_by(holder), !is_lock || word == holder.word());
        }

        /// Time only ever turns a lease into a word that can be had.
        #[test]
        fn a_later_caller_is_refused_no_more(end in 1_u64..1 << 55, now: u64, later: u64) {
            let seen = State::leased_until(end);
            let (now, later) = (now.min(later), now.max(later));
            if acquire(seen, ME, Leases::At(now)) == Acquire::Swap(seen) {
                prop_assert_eq!(acquire(seen, ME, Leases::At(later)), Acquire::Swap(seen));
            }
        }
    }
}
