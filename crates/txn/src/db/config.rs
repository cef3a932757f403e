//! The parts of a database, as a type, so that unused ones cost nothing.

use std::fmt::Debug;

use drtm_htm::{Engine, Native};

use crate::mutation::Mutation;

/// The parts of a database that are chosen at compile time.
///
/// # Example
///
/// ```
/// use drtm::htm::Emulated;
/// use drtm::{Builder, Pod, Config, TableDef};
///
/// /// For tests of what hardware transactions do.
/// #[derive(Clone, Copy, Debug)]
/// struct Tested;
///
/// impl Config for Tested {
///     type Engine = Emulated;
///     const HTM_FROM: usize = 1;
/// }
///
/// const COUNTERS: TableDef<u64, Pod<u64>> = TableDef::hash("counters");
/// let db = Builder::new().build_with::<Tested>(Emulated::default())?;
/// let counters = db.table(COUNTERS)?;
/// db.transact(|tx| tx.put(counters, &1, &7))?;
/// # Ok::<(), drtm::Error>(())
/// ```
pub trait Config: Sized + Send + Sync + Debug + 'static {
    /// The transactional memory, or its absence.
    type Engine: Engine;

    /// The number of writes from which on a commit begins an htm transaction, where there are any.
    /// Fewer rows are locked one by one: beginning and ending an htm transaction costs about ten
    /// locks. With `1`, every commit that writes tries one first, for tests and measurements.
    const HTM_FROM: usize = 16;

    /// Returns the deliberate fault, if tests inject one.
    #[doc(hidden)]
    #[inline(always)]
    fn fault() -> Option<Mutation> {
        None
    }

    #[doc(hidden)]
    #[inline(always)]
    fn has(mutation: Mutation) -> bool {
        Self::fault() == Some(mutation)
    }
}

/// The embedded default: the transactional memory that the machine has.
///
/// # Example
///
/// See [`Db`](crate::Db).
#[derive(Clone, Copy, Debug)]
pub struct DefaultConfig;

impl Config for DefaultConfig {
    type Engine = Native;
}
