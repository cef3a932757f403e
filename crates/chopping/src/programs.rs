//! Programs that come with the library, in the format of [`Program::parse`](crate::Program::parse).

/// TPC-C: its five transactions.
///
/// # Example
///
/// ```
/// use drtm_chopping::{Chopping, Options, Program, programs};
///
/// let program = Program::parse(programs::TPCC)?;
/// let pieces = |options| {
///     let chopping = Chopping::finest(&program, options);
///     chopping.transactions().iter().map(|chopped| chopped.pieces().len()).collect::<Vec<_>>()
/// };
/// // NEW-ORDER, PAYMENT, DELIVERY, ORDER-STATUS, STOCK-LEVEL.
/// assert_eq!(pieces(Options::NONE), [2, 1, 1, 1, 1]);
/// assert_eq!(pieces(Options::ALL), [5, 6, 6, 1, 1]);
/// # Ok::<(), drtm_chopping::TextError>(())
/// ```
pub const TPCC: &str = include_str!("../programs/tpcc.txt");

/// SmallBank: its six transactions, none of which can be chopped.
///
/// # Example
///
/// ```
/// use drtm_chopping::{Chopping, Options, Program, programs};
///
/// let program = Program::parse(programs::SMALLBANK)?;
/// let chopping = Chopping::finest(&program, Options::ALL);
/// assert!(chopping.transactions().iter().all(|chopped| chopped.pieces().len() == 1));
/// # Ok::<(), drtm_chopping::TextError>(())
/// ```
pub const SMALLBANK: &str = include_str!("../programs/smallbank.txt");
