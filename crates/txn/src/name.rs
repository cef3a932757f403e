//! Names of tables. A table can be renamed while transactions use it, and names that were recovered
//! are constants nowhere in the program.

use std::{collections::BTreeSet, sync::Arc};

use parking_lot::{Mutex, RwLock};

/// The name of a table, which all clones share. It is only read to tell it: a transaction hands it
/// on by reference.
#[derive(Clone, Debug)]
pub struct Name(Arc<RwLock<&'static str>>);

impl Name {
    pub(crate) fn new(name: &'static str) -> Self {
        Self(Arc::new(RwLock::new(name)))
    }

    /// Returns the name that the table has now.
    #[cold]
    #[inline(never)]
    pub(crate) fn get(&self) -> &'static str {
        *self.0.read()
    }

    pub(crate) fn set(&self, name: &'static str) {
        *self.0.write() = name;
    }
}

static KEPT: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

/// Keeps a name for the rest of the program, once however often it is recovered, or given to a
/// table.
pub(crate) fn kept(name: &str) -> &'static str {
    let mut kept = KEPT.lock();
    if let Some(kept) = kept.get(name) {
        return kept;
    }
    let name = Box::leak(Box::from(name));
    kept.insert(name);
    name
}
