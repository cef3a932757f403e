//! What the body of a region can do: the accessor.

use crate::Word;

/// The largest code that a body may abort with; the codes above it are the crate's own.
pub const MAX_CODE: u8 = 0xEF;

/// How deep regions may nest, the outermost counted: the depth that processors with RTM support.
pub const MAX_NESTING: u8 = 7;

/// The codes that the crate itself aborts with.
pub(crate) mod code {
    use crate::Cause;

    /// The fallback lock was held when the region subscribed to it.
    pub(crate) const LOCK_HELD: u8 = 0xFF;
    /// The body panicked.
    pub(crate) const PANICKED: u8 = 0xFE;
    /// One [`nested`](super::Access::nested) too many.
    pub(crate) const NESTED: u8 = 0xFD;

    /// What an explicit abort with this code means.
    pub(crate) fn cause(code: u8) -> Cause {
        match code {
            LOCK_HELD => Cause::LockHeld,
            PANICKED => Cause::Panicked,
            NESTED => Cause::Nested,
            code => Cause::Explicit(code),
        }
    }
}

/// Access to words from inside a region, or from under the fallback lock.
///
/// Code that is to run in both writes itself once, generic over this trait. Every method returns a
/// `Result` whose error is the engine's abort token: pass it on with `?`. With hardware the token
/// is uninhabited (the processor jumps), so that `?` compiles to nothing and a `load` is one move;
/// with the emulation the error unwinds the body by ordinary returns. A body that swallows the
/// error gains nothing: the region stays doomed, every later access fails, and it cannot commit.
///
/// The lifetime `'m` is the memory's: words must outlive the whole attempt, because the emulation
/// writes them only when the region commits.
///
/// # Example
///
/// ```
/// use drtm_htm::{Access, Emulated, FallbackLock, Htm, Policy, Word};
///
/// const EMPTY: u8 = 1;
///
/// fn transfer<'m, A: Access<'m>>(tx: &mut A, from: &'m Word, to: &'m Word, amount: u64) -> Result<(), A::Abort> {
///     let balance = tx.load(from)?;
///     if balance < amount {
///         return Err(tx.abort::<EMPTY>());
///     }
///     tx.store(from, balance - amount)?;
///     let balance = tx.load(to)?;
///     tx.store(to, balance + amount)
/// }
///
/// let (lock, a, b) = (FallbackLock::new(), Word::new(100), Word::new(0));
/// let mut worker = Htm::new(Emulated::default()).worker();
/// let paid = worker.elide(
///     &lock,
///     Policy::DBX,
///     |tx| transfer(tx, &a, &b, 30),
///     |held| transfer(held, &a, &b, 30),
/// );
/// assert_eq!(paid, Ok(()));
/// assert_eq!((a.into_inner(), b.into_inner()), (70, 30));
/// ```
pub trait Access<'m> {
    /// Proof that the region has aborted; a body returns it as its error.
    type Abort;

    /// Reads a word.
    ///
    /// # Errors
    ///
    /// When the region has aborted.
    fn load(&mut self, word: &'m Word) -> Result<u64, Self::Abort>;

    /// Writes a word, visibly to others only when the region commits.
    ///
    /// # Errors
    ///
    /// When the region has aborted.
    fn store(&mut self, word: &'m Word, value: u64) -> Result<(), Self::Abort>;

    /// Aborts the region with a code of the caller's: `return Err(tx.abort::<CODE>())`.
    ///
    /// The code is a constant because the instruction has it as an immediate operand, and at most
    /// [`MAX_CODE`].
    #[must_use = "return the token as the body's error"]
    #[inline(always)]
    fn abort<const CODE: u8>(&mut self) -> Self::Abort {
        const { assert!(CODE <= MAX_CODE, "codes above MAX_CODE are reserved") };
        self.raise::<CODE>()
    }

    /// Runs `body` as a region inside this one. Nesting is flat, as in hardware: an abort inside
    /// aborts the outermost region, and deeper than [`MAX_NESTING`] aborts it with
    /// [`Cause::Nested`](crate::Cause::Nested).
    ///
    /// # Errors
    ///
    /// When the region has aborted.
    #[inline(always)]
    fn nested<T>(&mut self, body: impl FnOnce(&mut Self) -> Result<T, Self::Abort>) -> Result<T, Self::Abort>
    where
        Self: Sized,
    {
        // XBEGIN within XBEGIN is no more than this, so the hardware is left out of it. The
        // fallback path counts too, so that a body fails on both paths or on neither.
        if *self.depth() == MAX_NESTING {
            let aborted = self.raise::<{ code::NESTED }>();
            return Err(aborted);
        }
        *self.depth() += 1;
        let value = body(self);
        *self.depth() -= 1;
        value
    }

    /// Spends time: `iterations` turns of an empty loop.
    ///
    /// With the emulation's virtual timer a turn is a tick. (The processor's own spin hint must not
    /// be used in a region; it aborts.)
    ///
    /// # Errors
    ///
    /// When the region has aborted.
    fn spin(&mut self, iterations: u64) -> Result<(), Self::Abort>;

    /// How deep the body is nested, itself counted.
    #[doc(hidden)]
    fn depth(&mut self) -> &mut u8;

    /// [`abort`](Self::abort) with any code, the crate's own included.
    #[doc(hidden)]
    fn raise<const CODE: u8>(&mut self) -> Self::Abort;
}

/// An empty loop that the compiler must leave alone and that no region minds.
#[inline]
pub(crate) fn spin(iterations: u64) {
    for turn in 0..iterations {
        std::hint::black_box(turn);
    }
}
