//! Yielding to the holder of the [ticket](crate::ticket) before keys are inserted.

use drtm_kv::{ForHolder, NoValue, PhantomGuard};

use super::Exclusive;
use crate::{
    Config, Error,
    memory::storage::{Absence, KeyRef},
    mutation::Mutation,
    schema::{catalog::Opened, table::Any},
    tx::ticket::Claim,
};

impl<S: Config> Exclusive<'_, S> {
    /// Waits if the ticket's holder claims the place that a key is going to be inserted into.
    #[cold]
    #[inline(never)]
    pub(super) fn yield_to_ticket(&mut self, opened: &Opened<S::Engine>, key: KeyRef<'_>) -> Result<(), Error> {
        let (db, holder) = (self.db, self.state().holder);
        // An existing record is written only by the commit.
        if let Err(absence) = opened.storage.read::<Any, _>(key, ForHolder(holder), &mut NoValue)?
            && !S::has(Mutation::ClaimsIgnored)
        {
            let place = match absence {
                Absence::Bucket(bucket) => bucket.place(),
                Absence::Leaf(leaf) => leaf.place(),
            };
            db.ticket.yield_to_ticket(db.this_thread(), [Claim::Guard(place)].into_iter());
        }
        Ok(())
    }
}
