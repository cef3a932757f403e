//! The accessor: what the body of an htm transaction can do.

use crate::Word;

/// The largest code that a body may abort with. The codes above it are the crate's own.
pub const MAX_CODE: u8 = 0xEF;

/// The deepest nesting of transactions, the outermost counted: the depth that processors with RTM
/// support.
pub const MAX_NESTING: u8 = 7;

/// The codes that the crate itself aborts with.
pub(crate) mod code {
    use crate::Cause;

    /// The fallback lock was held when the transaction subscribed to it.
    pub(crate) const LOCK_HELD: u8 = 0xFF;
    /// The body panicked.
    pub(crate) const PANICKED: u8 = 0xFE;
    /// [`nested`](super::Access::nested) was called once too often.
    pub(crate) const NESTED: u8 = 0xFD;

    /// Returns the cause of an explicit abort with this code.
    pub(crate) fn cause(code: u8) -> Cause {
        match code {
            LOCK_HELD => Cause::LockHeld,
            PANICKED => Cause::Panicked,
            NESTED => Cause::Nested,
            code => Cause::Explicit(code),
        }
    }
}

/// Access to words inside an htm transaction, or under the fallback lock.
///
/// Code that runs in both is written once, generic over this trait. Every method returns a `Result`
/// whose error is the engine's abort token: return it with `?`. In hardware the token is
/// uninhabited (the processor jumps), so `?` compiles to nothing and a `load` is one move. In the
/// emulation the error unwinds the body by ordinary returns. A body that ignores the error gains
/// nothing: the transaction stays doomed, every later access fails, and it cannot commit.
///
/// The lifetime `'m` is the memory's: words must outlive the whole attempt, because the emulation
/// writes them only when the transaction commits.
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
    /// Proof that the transaction has aborted. A body returns it as its error.
    type Abort;

    /// Loads a word.
    ///
    /// # Errors
    ///
    /// When the transaction has aborted.
    fn load(&mut self, word: &'m Word) -> Result<u64, Self::Abort>;

    /// Stores a word, visibly to others only when the transaction commits.
    ///
    /// # Errors
    ///
    /// When the transaction has aborted.
    fn store(&mut self, word: &'m Word, value: u64) -> Result<(), Self::Abort>;

    /// Aborts the transaction with a code of the caller's: `return Err(tx.abort::<CODE>())`.
    ///
    /// The code is a constant because the instruction has it as an immediate operand. It is at most
    /// [`MAX_CODE`].
    #[must_use = "return the token as the body's error"]
    #[inline(always)]
    fn abort<const CODE: u8>(&mut self) -> Self::Abort {
        const { assert!(CODE <= MAX_CODE, "codes above MAX_CODE are reserved") };
        self.raise::<CODE>()
    }

    /// Runs `body` as a transaction inside this one. Nesting is flat, as in hardware: an abort
    /// inside aborts the outermost transaction. Nesting deeper than [`MAX_NESTING`] aborts it with
    /// [`Cause::Nested`](crate::Cause::Nested).
    ///
    /// # Errors
    ///
    /// When the transaction has aborted.
    #[inline(always)]
    fn nested<T>(&mut self, body: impl FnOnce(&mut Self) -> Result<T, Self::Abort>) -> Result<T, Self::Abort>
    where
        Self: Sized,
    {
        // A nested XBEGIN has no other effect, so the hardware is not involved. The fallback path
        // counts too, so that a body fails on both paths or on neither.
        if *self.depth() == MAX_NESTING {
            let aborted = self.raise::<{ code::NESTED }>();
            return Err(aborted);
        }
        *self.depth() += 1;
        let value = body(self);
        *self.depth() -= 1;
        value
    }

    /// Spends time: `iterations` iterations of an empty loop.
    ///
    /// With the emulation's virtual timer an iteration is a tick. The processor's own spin hint
    /// must not be used in a transaction, since it aborts.
    ///
    /// # Errors
    ///
    /// When the transaction has aborted.
    fn spin(&mut self, iterations: u64) -> Result<(), Self::Abort>;

    /// Returns the nesting depth of the body, counted from one.
    #[doc(hidden)]
    fn depth(&mut self) -> &mut u8;

    /// Aborts like [`abort`](Self::abort), with any code, the crate's own included.
    #[doc(hidden)]
    fn raise<const CODE: u8>(&mut self) -> Self::Abort;
}

/// Runs an empty loop that the compiler does not remove and that aborts no transaction.
#[inline]
pub(crate) fn spin(iterations: u64) {
    for turn in 0..iterations {
        std::hint::black_box(turn);
    }
}
