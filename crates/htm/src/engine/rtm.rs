//! Regions in hardware.
//!
//! # Why relaxed accesses are enough
//!
//! The compiler does not know that `XBEGIN` and `XEND` synchronise. Three things make the accesses
//! of a region sound in the language's memory model all the same:
//!
//! - Every access to shared memory is an atomic one, relaxed, so a region can race with nothing.
//! - The order of a region's accesses *among themselves* is free: the hardware makes them all
//!   happen at the commit, or none. So a compiler that reorders relaxed loads changes nothing that
//!   anyone can see.
//! - Towards the outside, a release fence before the region and an acquire fence after it order
//!   what the thread did before against whoever reads the region's stores, and what it does
//!   afterwards against whomever the region read from. On x86 both fences are compiled to nothing;
//!   the instructions themselves are full barriers.
//!
//! An abort restores registers and memory to what they were at `XBEGIN`, so to the language it is
//! as if the `XBEGIN` statement had returned the abort's status the first time: no effect of the
//! body has happened, not even to the locals that it captured.
//!
//! # What was executed
//!
//! Few machines have RTM that commits. The code generated for this engine is inspected on every one
//! (`tests/suite/codegen.rs`); the tests that enter regions have run on one that has it, and say so
//! where there is none.

use std::{convert::Infallible, marker::PhantomData};

use crate::{
    Access, Engine, EngineError, EngineKind, Word,
    access::{self, code},
    arch, block,
    cause::Abort,
    probe::Probe,
    status::Status,
    sync::{
        Ordering::{Acquire, Relaxed, Release},
        fence,
    },
};

/// Intel's Restricted Transactional Memory. A value of this type is proof that the processor has
/// it.
///
/// # Example
///
/// ```
/// use drtm_htm::{Access, EngineError, Htm, Policy, Rtm, Word};
///
/// match Rtm::detect() {
///     Ok(rtm) => {
///         let word = Word::new(1);
///         let _ = Htm::new(rtm).worker().attempt(Policy::DBX, |tx| tx.store(&word, 2));
///     }
///     Err(EngineError::RtmUnavailable { probe }) => println!("no regions here: {probe:?}"),
///     Err(other) => panic!("{other}"),
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Rtm(());

impl Rtm {
    /// The engine, if this machine's processor says that it has RTM and commits regions when tried.
    ///
    /// # Errors
    ///
    /// [`EngineError::RtmUnavailable`] with what was found.
    pub fn detect() -> Result<Self, EngineError> {
        let probe = Probe::of_this_machine();
        if probe.usable() { Ok(Self(())) } else { Err(EngineError::RtmUnavailable { probe: *probe }) }
    }

    /// The engine on a processor that says it has RTM, whether or not it ever commits: for the
    /// probe's trial.
    pub(crate) fn if_executable() -> Option<Self> {
        arch::cpuid().executable().then_some(Self(()))
    }
}

/// The accessor of a region in hardware. Loads and stores are plain moves; an abort does not
/// return.
///
/// # Example
///
/// ```
/// use drtm_htm::{Access, RtmRegion, Word};
///
/// // Bodies are usually closures; a named one may be generic over the accessor, or take one engine's.
/// fn increment<'m>(tx: &mut RtmRegion<'m>, word: &'m Word) -> Result<(), std::convert::Infallible> {
///     let value = tx.load(word)?;
///     tx.store(word, value + 1)
/// }
/// ```
#[derive(Debug)]
pub struct RtmRegion<'m> {
    /// Regions begun inside this one and not yet ended.
    depth: u8,
    open: OpenRegion,
    memory: PhantomData<&'m Word>,
}

/// An open hardware region. Dropped by unwinding, it aborts: the panic is undone with everything
/// else.
#[derive(Debug)]
struct OpenRegion(());

impl OpenRegion {
    #[inline(always)]
    fn abort<const CODE: u8>(&self) -> ! {
        // SAFETY: an `OpenRegion` exists only between XBEGIN and XEND, on the processor that
        // executed XBEGIN.
        unsafe { arch::xabort::<CODE>() };
        // XABORT is a no-op outside a region. There is none to return to, so nothing may go on.
        std::process::abort()
    }
}

impl Drop for OpenRegion {
    #[inline(always)]
    fn drop(&mut self) {
        self.abort::<{ code::PANICKED }>()
    }
}

impl Engine for Rtm {
    const KIND: EngineKind = EngineKind::Rtm;
    type Region<'m> = RtmRegion<'m>;
    type Abort = Infallible;
    type Local = ();

    #[inline(always)]
    fn local(&self) {}

    #[inline(always)]
    fn once<'m, T>(
        &self,
        (): &mut (),
        body: &mut impl FnMut(&mut RtmRegion<'m>) -> Result<T, Infallible>,
    ) -> Result<T, Abort> {
        debug_assert!(!self.inside_region(), "{}", crate::REGION_INSIDE_REGION);
        fence(Release);
        // SAFETY: `self` proves that the processor has RTM. Whatever is begun here is ended below,
        // aborted by `OpenRegion` when the body unwinds, or aborted by the hardware.
        let status = unsafe { arch::xbegin() };
        if status != Status::STARTED {
            return Err(status.abort());
        }
        let mut region = RtmRegion { depth: 1, open: OpenRegion(()), memory: PhantomData };
        let value = match body(&mut region) {
            Ok(value) => value,
            Err(never) => match never {},
        };
        std::mem::forget(region);
        // SAFETY: the region begun above is open: had it aborted, control would have left through
        // XBEGIN.
        unsafe { arch::xend() };
        fence(Acquire);
        Ok(value)
    }

    #[inline(always)]
    fn before_plain_access(&self) {
        debug_assert!(!self.inside_region(), "{}", crate::PLAIN_INSIDE_REGION);
    }

    #[inline(always)]
    fn load_bytes(&self, words: &[Word], into: &mut [u8]) {
        self.before_plain_access();
        block::load(words, into);
    }

    #[inline(always)]
    fn store_bytes(&self, words: &[Word], from: &[u8]) {
        self.before_plain_access();
        block::store(words, from);
    }
}

impl Rtm {
    fn inside_region(&self) -> bool {
        // SAFETY: `self` proves that the processor has RTM.
        unsafe { arch::xtest() }
    }
}

impl<'m> Access<'m> for RtmRegion<'m> {
    type Abort = Infallible;

    #[inline(always)]
    fn load(&mut self, word: &'m Word) -> Result<u64, Infallible> {
        Ok(word.get(Relaxed))
    }

    #[inline(always)]
    fn store(&mut self, word: &'m Word, value: u64) -> Result<(), Infallible> {
        word.set(value, Relaxed);
        Ok(())
    }

    #[inline(always)]
    fn depth(&mut self) -> &mut u8 {
        &mut self.depth
    }

    #[inline(always)]
    fn spin(&mut self, iterations: u64) -> Result<(), Infallible> {
        access::spin(iterations);
        Ok(())
    }

    #[inline(always)]
    fn raise<const CODE: u8>(&mut self) -> Infallible {
        self.open.abort::<CODE>()
    }
}
