//! Hardware transactional memory (HTM) behind a small safe API.
//!
//! An *htm transaction* is a closure over an accessor. Its stores become visible all at once, or
//! not at all. Where the processor has Intel's RTM, the transaction runs in hardware, and an access
//! is one move. On other machines, which are most, a transaction is not even begun, and the caller
//! takes its software path at no cost. An emulated engine has the hardware's limits in software, so
//! that every transaction is tested on every machine.
//!
//! ```
//! use drtm_htm::{Access, Engine, Htm, NoHtm, Outcome, Policy, Word};
//!
//! /// Withdraws `amount`, in an htm transaction if the engine has them, else by `fetch_add`.
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
//! - [`Engine`] and its kinds: [`Rtm`], [`Emulated`], [`NoHtm`]. An engine makes plain accesses and
//!   runs htm transactions. [`select`] chooses one at startup, and says why. [`AnyHtm::dispatch`]
//!   makes it a type parameter. [`Native`] is one type for the engine of the machine.
//! - [`Htm`], [`Worker`]: run transactions until they commit or a [`Policy`] is exhausted, and
//!   count the outcomes ([`Stats`]).
//! - [`Access`]: what a body can do, in an htm transaction, under the [`FallbackLock`], or by
//!   [`Plain`] accesses under a lock of the caller's.
//! - [`Metered`]: measures the working set of a body. [`Traced`]: records plain accesses, and says
//!   whether an htm transaction could hold them.
//!
//! # The contract of a body
//!
//! The body of an htm transaction may run several times, and each run that aborts is rolled back. A
//! body:
//!
//! - Accesses shared words through its accessor only. A plain access through an engine inside a
//!   transaction is a mistake. So is a transaction begun inside another, other than by
//!   [`Access::nested`]. The emulation panics at it in every build, and [`Rtm`] in debug builds
//!   (there the transaction aborts, and the fallback runs). In release builds the hardware makes
//!   either part of the transaction.
//! - Has no effect except through its accessor and its return value. It initialises
//!   captured locals at its beginning: hardware restores them when it aborts, the emulation does
//!   not.
//! - Makes no system call, allocates and logs nothing, and initialises no lazy thread-local. It
//!   calls nothing for the first time through the dynamic linker, and uses no spin hint. It should
//!   contain no path that panics, bounds and overflow checks included. In hardware each of these
//!   aborts the transaction when it happens; none is ever unsafe.
//! - Returns every error of its accessor.
//!
//! A panic in a body rolls the transaction back, and the fallback path runs at once. If the panic
//! recurs there, it propagates. No transaction stays open and no lock stays held. With `panic =
//! "abort"` a panic ends the process, unless the hardware rolls it back.
//!
//! # How it is tested
//!
//! Few machines have RTM that commits. The generated code of the [`Rtm`] engine is inspected on
//! every machine. Its tests have run on one that has RTM.

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
pub use emulated::{Emulated, EmulatedConfig, EmulatedTransaction, Profile, Timer, TransactionAborted};
pub use engine::{Engine, EngineKind, Native, NoHtm, NoTransaction, Rtm, RtmTransaction, Sharing, Trace, Traced};
pub use error::EngineError;
pub use fallback::{Exclusive, FallbackLock};
pub use htm::{Htm, Worker};
pub use meter::{Metered, WorkingSet};
pub use plain::{Plain, fence_acquire, fence_locked, fence_release, prefetch, prefetch_at, prefetch_later};
pub use policy::{Policy, PolicyError, Retryable};
pub use probe::Probe;
pub use select::{AnyHtm, EngineVisitor, Reason, Request, select};
pub use stats::Stats;
pub use sync::Waiter;
pub use word::{LINE_BYTES, LINE_WORDS, Line, Word};

const PLAIN_INSIDE_REGION: &str =
    "plain access inside an htm transaction: use its accessor, or make the access before or after";
const NESTED_TRANSACTION: &str = "htm transaction begun inside another: use Access::nested, or pass the accessor on";

/// The environment variable that overrides the requested engine: `auto`, `rtm`, `none`, `emulated`,
/// or `emulated:PROFILE`.
pub const ENGINE_VARIABLE: &str = "DRTM_HTM";
