//! The status that `XBEGIN` leaves in `eax`, as the processor's manual defines it.
//!
//! ```text
//!  31      24 23                 6   5      4       3        2        1       0
//! +----------+--------------------+------+-------+--------+--------+-------+--------+
//! |   code   |          0         |nested| debug |capacity|conflict| retry |explicit|
//! +----------+--------------------+------+-------+--------+--------+-------+--------+
//! ```
//!
//! All ones is no abort status: it is what `eax` held before, and means that the transaction has
//! begun. Zero is an abort whose cause the processor does not report, usually an interrupt or a
//! page fault.

use crate::{
    access::code,
    cause::{Abort, Cause},
};

const EXPLICIT: u32 = 1 << 0;
const RETRY: u32 = 1 << 1;
const CONFLICT: u32 = 1 << 2;
const CAPACITY: u32 = 1 << 3;
const NESTED: u32 = 1 << 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status(pub(crate) u32);

impl Status {
    /// The transaction has begun.
    pub(crate) const STARTED: Self = Self(!0);

    /// Decodes an abort's status. Several bits may be set, and the most specific one is the cause.
    #[cold]
    pub(crate) fn abort(self) -> Abort {
        debug_assert_ne!(self, Self::STARTED);
        let has = |bit| self.0 & bit != 0;
        let cause = if has(EXPLICIT) {
            code::cause(self.code())
        } else if has(CAPACITY) {
            Cause::Capacity
        } else if has(CONFLICT) {
            Cause::Conflict
        } else if has(NESTED) {
            Cause::Nested
        } else {
            Cause::System
        };
        Abort { cause, may_succeed: has(RETRY) }
    }

    fn code(self) -> u8 {
        let [.., code] = self.0.to_le_bytes();
        code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_name_causes() {
        for (bits, cause, may_succeed) in [
            (0, Cause::System, false),
            (RETRY | CONFLICT, Cause::Conflict, true),
            (CONFLICT, Cause::Conflict, false),
            (CAPACITY, Cause::Capacity, false),
            (CAPACITY | RETRY, Cause::Capacity, true),
            // The capacity bit is bit 3 and no other: a status with only the conflict bit is no
            // overflow.
            (CAPACITY | CONFLICT, Cause::Capacity, false),
            (NESTED, Cause::Nested, false),
            (NESTED | CONFLICT | RETRY, Cause::Conflict, true),
            (1 << 4, Cause::System, false),
            (EXPLICIT | 0x2A << 24, Cause::Explicit(0x2A), false),
            (EXPLICIT | 0xFF << 24, Cause::LockHeld, false),
            (EXPLICIT | 0xFE << 24, Cause::Panicked, false),
            (EXPLICIT | 0xFD << 24, Cause::Nested, false),
        ] {
            assert_eq!(Status(bits).abort(), Abort { cause, may_succeed }, "{bits:#x}");
        }
    }
}
