//! Names of tables that were recovered, and which nothing in the program has as a constant.

use std::collections::BTreeSet;

use parking_lot::Mutex;

static KEPT: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

/// Keeps a name for the rest of the program, once however often it is recovered.
pub(super) fn kept(name: &str) -> &'static str {
    let mut kept = KEPT.lock();
    if let Some(kept) = kept.get(name) {
        return kept;
    }
    let name = Box::leak(Box::from(name));
    kept.insert(name);
    name
}
