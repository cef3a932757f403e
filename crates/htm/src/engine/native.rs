//! The engine of this machine: htm transactions in hardware, or none. Chosen at run time.

use crate::{
    Engine, EngineError, EngineKind, NoHtm, Rtm, RtmTransaction, Word,
    cause::{Abort, Cause},
};

/// The engine of this machine: [`Rtm`] where the processor commits transactions, and otherwise like
/// [`NoHtm`].
///
/// It is for code that is not generic over the engine. Plain accesses are the processor's in both
/// cases. An attempt costs one more comparison, which checks for RTM.
///
/// # Example
///
/// ```
/// use drtm_htm::{Engine, Htm, Native, Outcome, Policy, Access, Word};
///
/// let (engine, word) = (Native::of_this_machine(), Word::new(1));
/// engine.store(&word, 2);
/// let outcome = Htm::new(engine).worker().attempt(Policy::DBX, |tx| tx.load(&word));
/// assert!(matches!(outcome, Outcome::Committed(2) | Outcome::Fallback(_)));
/// assert!(engine.has_htm() || matches!(outcome, Outcome::Fallback(_)));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Native(Option<Rtm>);

impl Native {
    /// Returns the engine that the probe of this machine has found. Ignores the environment: see
    /// [`select`](crate::select).
    ///
    /// # Example
    ///
    /// See [`Native`].
    #[must_use]
    pub fn of_this_machine() -> Self {
        Self(Rtm::detect().ok())
    }

    /// Returns the engine that the environment requests (see [`select`](crate::select)), or
    /// otherwise that of this machine.
    ///
    /// # Errors
    ///
    /// When the requested engine is unknown, not available here, or the emulation, which this type
    /// does not include.
    pub fn chosen() -> Result<Self, EngineError> {
        match std::env::var_os(crate::ENGINE_VARIABLE) {
            None => Ok(Self::of_this_machine()),
            Some(_) => match crate::select(crate::Request::Auto)?.kind() {
                EngineKind::Rtm => Ok(Self(Some(Rtm::detect()?))),
                EngineKind::None => Ok(Self(None)),
                EngineKind::Emulated => Err(EngineError::OnlyForTests),
            },
        }
    }

    /// Returns an engine without htm transactions, whatever the machine has.
    #[must_use]
    pub const fn without_htm() -> Self {
        Self(None)
    }
}

impl From<Rtm> for Native {
    fn from(rtm: Rtm) -> Self {
        Self(Some(rtm))
    }
}

impl crate::engine::sealed::Sealed for Native {}

impl Engine for Native {
    /// The kind that it may turn out to be.
    const KIND: EngineKind = EngineKind::Rtm;
    type Transaction<'m> = RtmTransaction<'m>;
    type Abort = <Rtm as Engine>::Abort;
    type Local = ();

    #[inline(always)]
    fn local(&self) {}

    #[inline(always)]
    fn has_htm(&self) -> bool {
        self.0.is_some()
    }

    #[inline(always)]
    fn once<'m, T>(
        &self,
        local: &mut (),
        body: &mut impl FnMut(&mut RtmTransaction<'m>) -> Result<T, Self::Abort>,
    ) -> Result<T, Abort> {
        match &self.0 {
            Some(rtm) => rtm.once(local, body),
            None => Err(Abort::by(Cause::Unavailable)),
        }
    }

    #[inline(always)]
    fn before_plain_access(&self) {
        if let (true, Some(rtm)) = (cfg!(debug_assertions), &self.0) {
            rtm.before_plain_access();
        }
    }

    #[inline(always)]
    fn load_bytes(&self, words: &[Word], into: &mut [u8]) {
        NoHtm.load_bytes(words, into);
    }

    #[inline(always)]
    fn store_bytes(&self, words: &[Word], from: &[u8]) {
        NoHtm.store_bytes(words, from);
    }
}
