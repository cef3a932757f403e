//! Making way, before keys come, for the transaction that has the [ticket](crate::ticket).

use drtm_kv::{ForHolder, Nowhere, PhantomGuard};

use super::Tx;
use crate::{
    Error, Setting,
    catalog::Opened,
    mutation::Mutation,
    storage::{Absence, KeyRef},
    table::Any,
    ticket::Claim,
};

impl<S: Setting> Tx<'_, S> {
    /// Waits where the ticket's holder claims the place to which a key is going to come.
    #[cold]
    #[inline(never)]
    pub(super) fn make_way(&mut self, opened: &Opened<S::Engine>, key: KeyRef<'_>) -> Result<(), Error> {
        let (db, holder) = (self.db, self.state().holder);
        // A record that is there is only written by the commit.
        if let Err(absence) = opened.storage.read::<Any, _>(key, ForHolder(holder), &mut Nowhere)?
            && !S::has(Mutation::ClaimsIgnored)
        {
            let place = match absence {
                Absence::Bucket(bucket) => bucket.place(),
                Absence::Leaf(leaf) => leaf.place(),
            };
            db.ticket.make_way(db.this_thread(), [Claim::Guard(place)].into_iter());
        }
        Ok(())
    }
}
