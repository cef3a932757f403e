//! What a closure returns that is shown one row after the other.

use std::ops::ControlFlow;

mod sealed {
    pub trait Sealed {}
    impl Sealed for () {}
    impl Sealed for super::ControlFlow<()> {}
}

/// What a closure that is shown rows returns: nothing, to be shown all of them, or a
/// [`ControlFlow`], to break off.
///
/// # Example
///
/// ```
/// use std::ops::ControlFlow;
///
/// use drtm::{Db, Error, Ordered, Pod, TableDef};
///
/// const PRICES: TableDef<u64, Pod<u64>, Ordered> = TableDef::ordered("prices");
/// let db = Db::new()?;
/// let prices = db.table(PRICES)?;
/// db.transact(|tx| (1..=9).try_for_each(|item| tx.put(prices, item, &(10 * item))))?;
/// let (mut sum, mut first_dear) = (0, None);
/// db.read(|tx| tx.walk(prices, |_, price| sum += price))?;
/// db.read(|tx| {
///     tx.walk(prices, |item, price| match price {
///         ..=50 => ControlFlow::Continue(()),
///         _ => {
///             first_dear = Some(item);
///             ControlFlow::Break(())
///         }
///     })
/// })?;
/// assert_eq!((sum, first_dear), (450, Some(6)));
/// # Ok::<(), Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "a closure that is shown rows cannot return `{Self}`",
    note = "return `()` to be shown all rows, or `ControlFlow<()>` to break off; keep results in variables"
)]
pub trait Flow: sealed::Sealed {
    #[doc(hidden)]
    fn flow(self) -> ControlFlow<()>;
}

impl Flow for () {
    #[inline(always)]
    fn flow(self) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

impl Flow for ControlFlow<()> {
    #[inline(always)]
    fn flow(self) -> Self {
        self
    }
}
