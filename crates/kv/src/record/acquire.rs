//! The decision whether a record's lock or lease can be taken, which all lockers and readers share.
//!
//! [`acquire`] and [`lend`] are pure functions of a state word. Three executors carry out the
//! decision: a local compare-and-swap ([`Record::acquire`](crate::record::Record::acquire)), an htm
//! transaction (`Record::acquire_in`), and a compare-and-swap by verb (`remote/lock.rs`,
//! `remote/lease.rs`). See `docs/decisions/0025` and `0051`.

use crate::{Holder, State};

/// What a caller knows about the time, to detect expired leases.
///
/// # Example
///
/// See [`acquire`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leases {
    /// The caller has no clock. In local memory, a leased record is checked against the time that
    /// is [published](drtm_rdma::Region::time) in the region. On other nodes, no lease counts as
    /// expired.
    None,
    /// The time is at least this, in the unit of lease ends.
    At(u64),
}

/// The decision whether a transaction can take a record's lock.
///
/// # Example
///
/// See [`acquire`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acquire {
    /// The lock can be taken by a CAS from this word to the holder's.
    Swap(State),
    /// The holder has the lock already.
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

/// The decision whether a reader can take a record's lease.
///
/// # Example
///
/// See [`lend`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lend {
    /// The lease can be taken by a CAS from this word to a leased one.
    Swap(State),
    /// The record is leased already. Readers share the lease, until this time.
    Shared(u64),
    /// A transaction has the lock.
    Locked(Holder),
}

/// Decides whether a reader can take a lease of a record whose state is `seen`.
///
/// A lease that has not expired is shared, and not extended: a stream of readers would keep writers
/// out for ever. The reader decides whether a shared lease is long enough, when it confirms the
/// lease after all reads.
///
/// # Example
///
/// ```
/// use drtm_kv::{Holder, Leases, Lend, State, lend};
///
/// let other = Holder::new(0, 0, 2, 0);
/// assert_eq!(lend(State::FREE, Leases::None), Lend::Swap(State::FREE));
/// assert_eq!(lend(other.into(), Leases::None), Lend::Locked(other));
///
/// let leased = State::leased_until(1_000);
/// assert_eq!(lend(leased, Leases::At(1_000)), Lend::Shared(1_000));
/// assert_eq!(lend(leased, Leases::At(1_001)), Lend::Swap(leased));
/// ```
#[must_use]
pub const fn lend(seen: State, leases: Leases) -> Lend {
    if let Some(holder) = seen.holder() {
        return Lend::Locked(holder);
    }
    match (seen.lease_end(), leases) {
        (0, _) => Lend::Swap(seen),
        (end, Leases::At(now)) if end < now => Lend::Swap(seen),
        (end, _) => Lend::Shared(end),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ME: Holder = Holder::new(1, 2, 3, 4);
    const NOW: u64 = 1_000;

    /// Checks every kind of word, for every kind of caller, and whether the caller may read it.
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
        /// Compares with the definition, over any two words. A CAS is from the word that was seen,
        /// which is neither a lock nor a lease that runs.
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

        /// A reader gets what a writer would get, except that it shares a lease that runs.
        #[test]
        fn a_lease_is_lent_where_nothing_is_locked(word: u64, now: u64, has_clock: bool) {
            let seen = State(word);
            let leases = if has_clock { Leases::At(now) } else { Leases::None };
            let expected = match acquire(seen, State(word ^ 2 | 1).holder().expect("a lock"), leases) {
                Acquire::Swap(from) => Lend::Swap(from),
                Acquire::Leased(end) => Lend::Shared(end),
                Acquire::Locked(holder) => Lend::Locked(holder),
                Acquire::Mine => unreachable!("it differs in a bit of the node"),
            };
            prop_assert_eq!(lend(seen, leases), expected);
        }

        /// Whatever two clocks show, within their known error: as long as a reader confirms its
        /// lease, no writer takes it for expired.
        #[test]
        fn no_writer_comes_before_a_lease_that_a_reader_confirms(
            truth in 0_u64..1 << 40, end in 1_u64..1 << 40, early in 0_u64..1 << 20, late in 0_u64..1 << 20
        ) {
            // The reader knows an upper bound of the time, the writer a lower bound.
            let (most, least) = (truth + late, truth.saturating_sub(early));
            let is_confirmed = most < end;
            let is_taken = acquire(State::leased_until(end), ME, Leases::At(least)) == Acquire::Swap(State::leased_until(end));
            prop_assert!(!(is_confirmed && is_taken));
        }

        /// A later time never makes an acquirable word unacquirable.
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
