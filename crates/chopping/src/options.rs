//! Which optimisations of the classical analysis are used.

/// The optimisations that an analysis uses.
///
/// [`NONE`](Self::NONE) is the classical analysis. Each of the others removes conflicts, or lets
/// pieces run in another order. An executor must keep what each one promises.
///
/// # Example
///
/// The two additions of a payment need not be one piece.
///
/// ```
/// use drtm_chopping::{Chopping, Options, Piece, Program, Table, Transaction};
///
/// const WAREHOUSE: Table = Table::new("warehouse", &["sum"]);
/// const DISTRICT: Table = Table::new("district", &["sum"]);
///
/// const PAYMENT: Transaction = Transaction::new("payment", &[
///     Piece::new("warehouse", &[WAREHOUSE.add("sum")]),
///     Piece::new("district", &[DISTRICT.add("sum")]),
/// ]);
///
/// let program = Program::new(&[PAYMENT])?;
/// let pieces = |options| Chopping::finest(&program, options).transactions()[0].pieces().len();
/// assert_eq!(pieces(Options::NONE), 1);
/// assert_eq!(pieces(Options { commutativity: true, ..Options::NONE }), 2);
/// # Ok::<(), drtm_chopping::ProgramError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Runs pieces in another order than the program's where they do not depend on each other. One
    /// that may abort runs first.
    pub reordering: bool,
    /// Lets additions commute with additions, and appended rows with appended rows.
    pub commutativity: bool,
    /// Takes a [search](crate::Table::search) to read the table's keys only. So it conflicts with
    /// nothing where no rows are inserted or removed. Without this, it reads the whole table.
    pub split_search: bool,
    /// Runs transactions that only read as a whole, by two rounds: at a moment when no transaction
    /// that they conflict with is under way.
    pub two_rounds: bool,
    /// Takes rows as [claimed](crate::Access::claimed_by) where all others that access them claim
    /// them, too, or insert them together with the row that is removed.
    ///
    /// Between the claim and the transaction's end, nothing else accesses the row. So accessing it
    /// later is as good as accessing it at once, and its conflicts are those of the claim.
    pub claims: bool,
    /// Defers additions where that makes a chopping finer: they are published together, at a moment
    /// when neither a publisher nor a subscriber is under way.
    ///
    /// A *publisher* only adds to the column, a *subscriber* reads or writes it. The premise is
    /// that no other path of conflicts leads from one to the other: a subscriber could see by it
    /// that the publisher has run.
    pub deferral: bool,
}

impl Options {
    /// No optimisation.
    pub const NONE: Self = Self {
        reordering: false,
        commutativity: false,
        split_search: false,
        two_rounds: false,
        claims: false,
        deferral: false,
    };

    /// All optimisations.
    pub const ALL: Self = Self {
        reordering: true,
        commutativity: true,
        split_search: true,
        two_rounds: true,
        claims: true,
        deferral: true,
    };
}

impl Default for Options {
    fn default() -> Self {
        Self::ALL
    }
}
