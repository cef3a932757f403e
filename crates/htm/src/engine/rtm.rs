//! Htm transactions in hardware.
//!
//! # Why relaxed accesses are enough
//!
//! The compiler does not know that `XBEGIN` and `XEND` synchronise. For three reasons the accesses
//! of a transaction are still sound in the language's memory model:
//!
//! - Every access to shared memory is a relaxed atomic access, so a transaction races with nothing.
//! - The order of a transaction's accesses *among themselves* is free: the hardware makes them all
//!   happen at the commit, or none. So reordering relaxed loads changes nothing that another thread
//!   can see.
//! - A release fence before the transaction orders what the thread did before, for a thread that
//!   reads the transaction's stores. An acquire fence after it orders what the thread does
//!   afterwards, after the stores that the transaction read. On x86 both fences compile to nothing,
//!   and the instructions themselves are full barriers.
//!
//! An abort restores registers and memory to what they were at `XBEGIN`. To the language it is as
//! if the `XBEGIN` statement had returned the abort's status the first time. No effect of the body
//! has happened, not even to the locals that it captured.
//!
//! # How it is tested
//!
//! Few machines have RTM that commits. The generated code of this engine is inspected on every
//! machine (`tests/suite/codegen.rs`). The tests that run transactions have run on one that has
//! RTM, and say so where there is none.

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
///     Err(EngineError::RtmUnavailable { probe }) => println!("no htm transactions here: {probe:?}"),
///     Err(other) => panic!("{other}"),
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Rtm(());

impl Rtm {
    /// Returns the engine, if the processor has RTM and commits transactions in a trial.
    ///
    /// # Errors
    ///
    /// [`EngineError::RtmUnavailable`] with the result of the probe.
    ///
    /// # Example
    ///
    /// See [`Rtm`].
    pub fn detect() -> Result<Self, EngineError> {
        let probe = Probe::of_this_machine();
        if probe.usable() { Ok(Self(())) } else { Err(EngineError::RtmUnavailable { probe: *probe }) }
    }

    /// Returns the engine on a processor that has RTM, whether or not it ever commits: for the
    /// probe's trial.
    pub(crate) fn if_executable() -> Option<Self> {
        arch::cpuid().executable().then_some(Self(()))
    }
}

/// The accessor of an htm transaction in hardware. Loads and stores are plain moves. An abort does
/// not return.
///
/// # Example
///
/// ```
/// use drtm_htm::{Access, RtmTransaction, Word};
///
/// // Bodies are usually closures; a named one may be generic over the accessor, or take one engine's.
/// fn increment<'m>(tx: &mut RtmTransaction<'m>, word: &'m Word) -> Result<(), std::convert::Infallible> {
///     let value = tx.load(word)?;
///     tx.store(word, value + 1)
/// }
/// ```
#[derive(Debug)]
pub struct RtmTransaction<'m> {
    /// The number of transactions begun inside this one and not yet ended.
    depth: u8,
    open: OpenTransaction,
    memory: PhantomData<&'m Word>,
}

/// An open htm transaction in hardware. If unwinding drops it, it aborts: the panic is undone with
/// everything else.
#[derive(Debug)]
struct OpenTransaction(());

impl OpenTransaction {
    #[inline(always)]
    fn abort<const CODE: u8>(&self) -> ! {
        // SAFETY: an `OpenTransaction` exists only between XBEGIN and XEND, on the processor that
        // executed XBEGIN.
        unsafe { arch::xabort::<CODE>() };
        // XABORT is a no-op outside a transaction. No transaction is left to abort then, so the
        // process must end.
        std::process::abort()
    }
}

impl Drop for OpenTransaction {
    #[inline(always)]
    fn drop(&mut self) {
        self.abort::<{ code::PANICKED }>()
    }
}

impl crate::engine::sealed::Sealed for Rtm {}

impl Engine for Rtm {
    const KIND: EngineKind = EngineKind::Rtm;
    type Transaction<'m> = RtmTransaction<'m>;
    type Abort = Infallible;
    type Local = ();

    #[inline(always)]
    fn local(&self) {}

    #[inline(always)]
    fn once<'m, T>(
        &self,
        (): &mut (),
        body: &mut impl FnMut(&mut RtmTransaction<'m>) -> Result<T, Infallible>,
    ) -> Result<T, Abort> {
        debug_assert!(!self.inside_transaction(), "{}", crate::NESTED_TRANSACTION);
        fence(Release);
        // SAFETY: `self` proves that the processor has RTM. The transaction begun here is ended
        // below, aborted by `OpenTransaction` when the body unwinds, or aborted by the hardware.
        let status = unsafe { arch::xbegin() };
        if status != Status::STARTED {
            return Err(status.abort());
        }
        let mut transaction = RtmTransaction { depth: 1, open: OpenTransaction(()), memory: PhantomData };
        let value = match body(&mut transaction) {
            Ok(value) => value,
            Err(never) => match never {},
        };
        std::mem::forget(transaction);
        // SAFETY: the transaction begun above is open: had it aborted, control would have left
        // through XBEGIN.
        unsafe { arch::xend() };
        fence(Acquire);
        Ok(value)
    }

    #[inline(always)]
    fn before_plain_access(&self) {
        debug_assert!(!self.inside_transaction(), "{}", crate::PLAIN_INSIDE_REGION);
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
    fn inside_transaction(&self) -> bool {
        // SAFETY: `self` proves that the processor has RTM.
        unsafe { arch::xtest() }
    }
}

impl<'m> Access<'m> for RtmTransaction<'m> {
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
