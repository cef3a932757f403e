//! The store with counters of three bits: the names of memory and of buckets repeat after eight
//! uses.
//!
//! ```text
//! cargo test --package drtm-kv --features narrow --test narrow
//! ```
//!
//! Each case runs once more with a deliberate fault: turns are not counted. Then it must fail,
//! which shows that it tests something.

mod local;
mod locks;
mod remote;

/// The number of uses after which a name repeats.
const ROUND: u64 = 8;

/// A case that holds, and fails if turns are not counted.
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
