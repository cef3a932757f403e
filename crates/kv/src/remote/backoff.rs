//! Waiting for a record that another thread uses, while the other coroutines run.

use drtm_rdma::{Port, Verbs};

use crate::bounds::{LONGEST, TRIES};

#[derive(Debug, Default)]
pub(super) struct Backoff {
    tries: u32,
}

impl Backoff {
    /// Waits, longer each time. Returns false if there were enough attempts.
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
