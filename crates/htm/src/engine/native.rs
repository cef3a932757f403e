//! What this machine offers: regions in hardware, or none. Chosen at run time.

use crate::{
    Engine, EngineError, EngineKind, NoHtm, Rtm, RtmRegion, Word,
    cause::{Abort, Cause},
};

/// The engine that this machine has: [`Rtm`] where the processor commits regions, and otherwise the
/// same as [`NoHtm`].
///
/// A type for those who do not want the engine to be a parameter of theirs. Plain accesses are the
/// processor's either way; a region costs one comparison more, to see whether there are any.
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
/// assert!(engine.has_regions() || matches!(outcome, Outcome::Fallback(_)));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Native(Option<Rtm>);

impl Native {
    /// What the probe of this machine has found. The environment is not asked: see
    /// [`select`](crate::select).
    #[must_use]
    pub fn of_this_machine() -> Self {
        Self(Rtm::detect().ok())
    }

    /// The engine that the environment asks for (see [`select`](crate::select)), or else what this
    /// machine has.
    ///
    /// # Errors
    ///
    /// When what it asks for is unknown, cannot be had here, or is the emulation, which is no part
    /// of this engine.
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

    /// No regions, whatever the machine has.
    #[must_use]
    pub const fn without_regions() -> Self {
        Self(None)
    }
}

impl From<Rtm> for Native {
    fn from(rtm: Rtm) -> Self {
        Self(Some(rtm))
    }
}

impl Engine for Native {
    /// What it may turn out to be.
    const KIND: EngineKind = EngineKind::Rtm;
    type Region<'m> = RtmRegion<'m>;
    type Abort = <Rtm as Engine>::Abort;
    type Local = ();

    #[inline(always)]
    fn local(&self) {}

    #[inline(always)]
    fn has_regions(&self) -> bool {
        self.0.is_some()
    }

    #[inline(always)]
    fn once<'m, T>(
        &self,
        local: &mut (),
        body: &mut impl FnMut(&mut RtmRegion<'m>) -> Result<T, Self::Abort>,
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
