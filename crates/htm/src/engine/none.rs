//! The engine of most machines: words, and no htm transactions.

use std::{convert::Infallible, marker::PhantomData};

use crate::{
    Access, Engine, EngineKind, Word, block,
    cause::{Abort, Cause},
};

/// No transactional memory. Plain accesses are the processor's atomics. An attempt compiles to its
/// fallback.
///
/// # Example
///
/// ```
/// use drtm_htm::{Cause, Engine, Htm, NoHtm, Outcome, Policy, Word};
///
/// let word = Word::new(1);
/// assert_eq!(NoHtm.compare_exchange(&word, 1, 2), Ok(1));
///
/// let mut worker = Htm::new(NoHtm).worker();
/// let outcome: Outcome<()> = worker.attempt(Policy::DBX, |_tx| unreachable!("never entered"));
/// assert_eq!(outcome, Outcome::Fallback(Cause::Unavailable));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHtm;

/// The accessor of a transaction that cannot exist: there is no value of this type.
///
/// # Example
///
/// ```
/// // A body for `NoHtm` type-checks like any other, and is compiled to nothing.
/// use drtm_htm::{Access, NoTransaction, Word};
///
/// fn body<'m>(tx: &mut NoTransaction<'m>, word: &'m Word) -> Result<u64, std::convert::Infallible> {
///     tx.load(word)
/// }
/// ```
#[derive(Debug)]
pub struct NoTransaction<'m> {
    never: Infallible,
    memory: PhantomData<&'m Word>,
}

impl crate::engine::sealed::Sealed for NoHtm {}

impl Engine for NoHtm {
    const KIND: EngineKind = EngineKind::None;
    type Transaction<'m> = NoTransaction<'m>;
    type Abort = Infallible;
    type Local = ();

    #[inline(always)]
    fn local(&self) {}

    #[inline(always)]
    fn once<'m, T>(
        &self,
        (): &mut (),
        _body: &mut impl FnMut(&mut NoTransaction<'m>) -> Result<T, Infallible>,
    ) -> Result<T, Abort> {
        Err(Abort::by(Cause::Unavailable))
    }

    #[inline(always)]
    fn load_bytes(&self, words: &[Word], into: &mut [u8]) {
        block::load(words, into);
    }

    #[inline(always)]
    fn store_bytes(&self, words: &[Word], from: &[u8]) {
        block::store(words, from);
    }
}

impl<'m> Access<'m> for NoTransaction<'m> {
    type Abort = Infallible;

    fn load(&mut self, _word: &'m Word) -> Result<u64, Infallible> {
        match self.never {}
    }

    fn store(&mut self, _word: &'m Word, _value: u64) -> Result<(), Infallible> {
        match self.never {}
    }

    fn depth(&mut self) -> &mut u8 {
        match self.never {}
    }

    fn spin(&mut self, _iterations: u64) -> Result<(), Infallible> {
        match self.never {}
    }

    fn raise<const CODE: u8>(&mut self) -> Infallible {
        match self.never {}
    }
}
