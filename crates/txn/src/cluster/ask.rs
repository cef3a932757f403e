//! What is asked of owners, whatever its form.

use drtm_rdma::{Cost, rpc::Slot};
use smallvec::SmallVec;

use super::wire::{Append, Apply, ApplyAll, Check, Durable, Guard, Lease, Line, Lock, Place, Read, Reap, Scan, Unlock};

/// What is asked of an owner: of a row, of the guard of a missing one, or of the owner itself, by
/// their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    Read(u32),
    /// A row under a lease.
    Lease(u32),
    /// More rows of a range, by its number.
    Scan(u32),
    Place(u32),
    Lock(u32),
    /// The line after this transaction's locks, with the epoch in which it commits.
    Line(u32),
    /// The line for the owner's count of changes alone.
    Count(u32),
    Check(u32),
    Guard(u32),
    Apply(u32),
    Unlock(u32),
    Reap(u32),
    /// A piece of a record, by its number, to a backup.
    Log(u32),
    /// Makes a record void that a backup has.
    Void(u32),
    /// Whether an owner's log has all that the transaction has seen there, by the owner's number.
    Durable(u32),
}

/// Requests of one round, mostly few.
pub(super) type Asks = SmallVec<[Ask; 16]>;

/// A request that is in a message, and where in the message's results the answer is.
#[derive(Debug)]
pub(super) enum Asked {
    Read(u32, Slot<Read>),
    Lease(u32, Slot<Lease>),
    Scan(u32, Slot<Scan>),
    Place(u32, Slot<Place>),
    Lock(u32, Slot<Lock>),
    Line(u32, Slot<Line>),
    Count(u32, Slot<Line>),
    Check(u32, Slot<Check>),
    Guard(Slot<Guard>),
    Apply(u32, Slot<Apply>),
    /// These rows, all or none.
    ApplyAll(Asks, Slot<ApplyAll>),
    Unlock(u32, Slot<Unlock>),
    Reap(Slot<Reap>),
    Log(u32, Slot<Append>),
    Void(Slot<Append>),
    Durable(u32, Slot<Durable>),
}

impl Ask {
    /// The row that is asked about, if it is one.
    pub(super) fn row(self) -> Option<u32> {
        match self {
            Self::Read(row)
            | Self::Lease(row)
            | Self::Place(row)
            | Self::Lock(row)
            | Self::Check(row)
            | Self::Apply(row)
            | Self::Unlock(row)
            | Self::Reap(row) => Some(row),
            Self::Scan(_) | Self::Line(_) | Self::Count(_) | Self::Guard(_) => None,
            Self::Log(_) | Self::Void(_) | Self::Durable(_) => None,
        }
    }
}

impl Asked {
    /// The row that may be in the transaction's way.
    pub(super) fn row(&self) -> Option<u32> {
        match self {
            Self::Read(row, _)
            | Self::Lease(row, _)
            | Self::Place(row, _)
            | Self::Lock(row, _)
            | Self::Check(row, _) => Some(*row),
            _ => None,
        }
    }
}

/// What a processor does for a request.
pub(super) fn cost(of: Ask) -> Cost {
    match of {
        Ask::Read(_) | Ask::Lease(_) | Ask::Scan(_) => Cost::Lookup,
        Ask::Apply(_) | Ask::Log(_) | Ask::Void(_) => Cost::Update,
        Ask::Place(_) | Ask::Reap(_) => Cost::Insert,
        Ask::Lock(_) | Ask::Line(_) | Ask::Count(_) | Ask::Check(_) | Ask::Guard(_) | Ask::Unlock(_) => Cost::Lock,
        Ask::Durable(_) => Cost::Lock,
    }
}
