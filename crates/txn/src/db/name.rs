//! Names of tables. A table can be renamed while transactions use it, and recovered names are not
//! constants of the program.

use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

/// The name of a table, shared by all clones. It is only read for messages; transactions pass it on
/// by reference.
#[derive(Clone, Debug)]
pub struct Name(Arc<RwLock<&'static str>>);

impl Name {
    pub(crate) fn new(name: &'static str) -> Self {
        Self(Arc::new(RwLock::new(name)))
    }

    /// Returns the table's current name.
    #[cold]
    #[inline(never)]
    pub(crate) fn get(&self) -> &'static str {
        *self.0.read()
    }

    pub(crate) fn set(&self, name: &'static str) {
        *self.0.write() = name;
    }
}

/// In their order.
static KEPT: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

/// Keeps a name until the process ends. A name is stored once, however often it is recovered or
/// given to a table.
pub(crate) fn kept(name: &str) -> &'static str {
    let mut kept = KEPT.lock();
    match kept.binary_search(&name) {
        Ok(at) => kept[at],
        Err(at) => {
            let name = Box::leak(Box::from(name));
            kept.insert(at, name);
            name
        }
    }
}
