//! What a database is built on: as a type, so that what is not used costs nothing.

use std::fmt::Debug;

use drtm_htm::{Engine, Native};

use crate::mutation::Mutation;

/// The parts of a database that are chosen when a program is built.
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
///     const REGIONS_FROM: usize = 1;
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

    /// How many writes a commit has, at least, for which a hardware region is begun, where there
    /// are any. Fewer are locked one by one: a region begins and ends for the price of about ten
    /// locks. With `1`, all commits that write are regions first, which is for tests, and for
    /// measuring it.
    const REGIONS_FROM: usize = 16;

    /// What is wrong with it, to see whether that is noticed.
    #[doc(hidden)]
    const FAULT: Option<Mutation> = None;

    #[doc(hidden)]
    #[inline(always)]
    fn has(mutation: Mutation) -> bool {
        Self::FAULT == Some(mutation)
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
