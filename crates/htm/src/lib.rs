//! Hardware transactional memory behind one small safe API.
//!
//! A *region* is a closure over an accessor. Its stores become visible all at once, or not at all.
//! Where the processor has Intel's RTM the region runs in hardware, an access is one move; where it
//! has not, which is most machines, the region is not even entered and the caller takes its
//! software path, at no cost. An emulated engine has the hardware's limits in software, so that
//! every region is tested on every machine.
//!
//! ```
//! use drtm_htm::{Access, Engine, Htm, NoHtm, Outcome, Policy, Word};
//!
//! /// Moves `amount`, in a region where there are regions and by compare-and-swap where there are none.
//! fn withdraw<E: Engine>(worker: &mut drtm_htm::Worker<E>, account: &Word, amount: u64) {
//!     let outcome = worker.attempt(Policy::DBX, |tx| {
//!         let balance = tx.load(account)?;
//!         tx.store(account, balance - amount)
//!     });
//!     if let Outcome::Fallback(_cause) = outcome {
//!         worker.engine().fetch_add(account, amount.wrapping_neg());
//!     }
//! }
//!
//! let account = Word::new(100);
//! withdraw(&mut Htm::new(NoHtm).worker(), &account, 30);
//! assert_eq!(account.into_inner(), 70);
//! ```
//!
//! # The parts
//!
//! - [`Word`], [`Line`]: shared memory, which only engines can access.
//! - [`Engine`] and its three kinds: [`Rtm`], [`Emulated`], [`NoHtm`]. An engine gives plain
//!   accesses and runs regions. [`select`] chooses one, once, and can say why; [`AnyHtm::dispatch`]
//!   makes it a type parameter. [`Native`] is one type for what the machine has.
//! - [`Htm`], [`Worker`]: run regions again until they commit or a [`Policy`] is exhausted, and
//!   count what happened ([`Stats`]).
//! - [`Access`]: what a body can do, in a region, under the [`FallbackLock`], or by [`Plain`]
//!   accesses under a lock of the caller's.
//! - [`Metered`]: how much memory a body touches. [`Traced`]: what plain accesses touch, and
//!   whether a region could hold it.
//!
//! # The contract of a region
//!
//! A body may be run several times, and each time but the last is erased. It
//!
//! - accesses shared words through its accessor only. A plain access through an engine inside a
//!   region, or a region begun inside a region (other than by [`Access::nested`]), is a mistake.
//!   The emulation panics at it in every build and [`Rtm`] in debug builds (there the region
//!   aborts, and the fallback runs); in release builds the hardware makes either part of the
//!   region.
//! - has no effect but through its accessor and its value. Captured locals must be set anew at its
//!   beginning: hardware restores them when it aborts, the emulation does not.
//! - makes no system call, allocates and logs nothing, initialises no lazy thread-local, calls
//!   nothing for the first time through the dynamic linker, uses no spin hint, and should contain
//!   no path that panics, bounds and overflow checks included. In hardware each of these aborts the
//!   region when it happens; none is ever unsafe.
//! - passes every error of its accessor on.
//!
//! A panic in a body rolls the region back and goes to the fallback path at once; if it recurs
//! there, it surfaces. Nothing stays open and no lock stays held. (With `panic = "abort"` a panic
//! ends the process, except where the hardware erases it.)
//!
//! # What was exercised
//!
//! Few machines have RTM that commits. The [`Rtm`] engine's code is inspected on every one; its
//! tests have run on one that has it.

mod access;
mod arch;
mod block;
mod bounds;
mod cause;
mod emulated;
mod engine;
mod error;
mod fallback;
mod htm;
mod meter;
mod plain;
mod policy;
mod probe;
mod select;
mod stats;
mod status;
mod sync;
mod word;

pub use access::{Access, MAX_CODE, MAX_NESTING};
pub use cause::{Cause, Outcome};
#[cfg(feature = "model")]
#[doc(hidden)]
pub use emulated::Mutation;
pub use emulated::{Emulated, EmulatedConfig, EmulatedRegion, Profile, RegionAborted, Timer};
pub use engine::{Engine, EngineKind, Native, NoHtm, NoRegion, Rtm, RtmRegion, Sharing, Trace, Traced};
pub use error::EngineError;
pub use fallback::{Exclusive, FallbackLock};
pub use htm::{Htm, Worker};
pub use meter::{Metered, WorkingSet};
pub use plain::{Plain, fence_acquire, fence_locked, fence_release, prefetch, prefetch_at, prefetch_later};
pub use policy::{Policy, PolicyError, Retryable};
pub use probe::Probe;
pub use select::{AnyHtm, ENGINE_VARIABLE, EngineVisitor, Reason, Request, select};
pub use stats::Stats;
pub use sync::Waiter;
pub use word::{LINE_BYTES, LINE_WORDS, Line, Word};

const PLAIN_INSIDE_REGION: &str =
    "plain access inside a region: use the region's accessor, or make the access before or after";
const REGION_INSIDE_REGION: &str = "region begun inside a region: use Access::nested, or pass the accessor on";
