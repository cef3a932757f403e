//! Giving a key a value whether it is there or not, in any table.

use drtm_htm::{Engine, Waiter};

use crate::{KvError, Version, Worker};

/// Updates the key, or else inserts it, as often as it takes for one of the two to find the key as it must be.
pub(crate) fn update_or_insert<E: Engine>(
    worker: &mut Worker<E>,
    update: impl Fn(&mut Worker<E>) -> Result<Option<Version>, KvError>,
    insert: impl Fn(&mut Worker<E>) -> Result<Option<Version>, KvError>,
) -> Result<Version, KvError> {
    let waiter = Waiter::new();
    loop {
        if let Some(version) = update(worker)? {
            return Ok(version);
        }
        if let Some(version) = insert(worker)? {
            return Ok(version);
        }
        // Inserted and removed by others in between.
        waiter.pause();
    }
}
