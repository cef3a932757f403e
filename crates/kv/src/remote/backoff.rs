//! Waiting for somebody else to be done with a record, while the other coroutines go on.

use drtm_rdma::{Port, Verbs};

use crate::bounds::{LONGEST, TRIES};

#[derive(Debug, Default)]
pub(super) struct Backoff {
    tries: u32,
}

impl Backoff {
    /// Waits, longer than the time before; false if it has been tried often enough.
    pub(super) async fn again<P: Port>(&mut self, verbs: Verbs<'_, P>) -> bool {
        self.tries += 1;
        if self.tries >= TRIES {
            return false;
        }
        for _ in 0..LONGEST.min(1 << self.tries.min(31)) {
            verbs.endpoint().yield_now().await;
        }
        true
    }
}
