//! Visits all keys of a hash table.

use drtm_htm::Engine;
use drtm_kv::{Current, HashTable, Keys, KvTable, ReadEntry, Version};

/// Calls `see` with every present key, its value and version.
pub(crate) fn visit<E: Engine, K: Keys>(table: &HashTable<E, K>, mut see: impl FnMut(K::Key<'_>, &[u8], Version)) {
    let (mut sweep, mut value) = (table.sweep().expect("sound"), Vec::new());
    let mut visit = |key: K::Key<'_>| {
        let read = table.read(key, Current, &mut value).expect("sound");
        if let Some(found) = read.ok().filter(ReadEntry::is_present) {
            see(key, &value, found.version);
        }
    };
    while table.advance(&mut sweep, &mut visit).expect("sound") {}
}
