//! The store over counters of three bits: memory, and buckets, have the same names again after
//! eight uses.
//!
//! ```text
//! cargo test --package drtm-kv --features narrow --test narrow
//! ```
//!
//! Each case is run once more with a deliberate fault: turns are not counted. Then it must fail, so
//! that it tests something.

mod local;
mod locks;
mod remote;

/// How many uses there are before a name is had again.
const ROUND: u64 = 8;

/// A case that holds, and does not where turns are not counted.
macro_rules! case {
    ($(#[$doc:meta])* $name:ident $body:block) => {
        $(#[$doc])*
        mod $name {
            use super::*;

            fn run() $body

            #[test]
            fn holds() {
                run();
            }

            #[test]
            #[should_panic(expected = "wrong")]
            fn fails_without_turns() {
                drtm_kv::mutated(drtm_kv::Mutation::TurnsNotCounted, run);
            }
        }
    };
}
use case;
