//! What the engine charges to simulated processors.
//!
//! Accesses of rows and locks cost what those of this project's store do, by instructions that were
//! counted. What is added is the kernel's TCP ([`Plan::tcp`](crate::Plan::tcp)), which the profiles
//! of NICs do not have. Nothing was fitted to the throughput of a cluster.

use std::time::Duration;

use drtm_rdma::{Cost, Endpoint, Port};

use crate::program::Work;

/// Charges a processor, and waits until it has done that work.
pub(crate) async fn spend<P: Port>(endpoint: &Endpoint<P>, costs: impl IntoIterator<Item = Cost>) {
    if endpoint.is_simulated() {
        costs.into_iter().for_each(|cost| endpoint.charge(cost));
        // What follows is to be seen when this processor does it, and not when its turn began.
        endpoint.yield_now().await;
    }
}

/// Sending or receiving a message, which takes the kernel this long.
pub(crate) fn message(tcp: Duration, bytes: usize) -> [Cost; 2] {
    [Cost::Nanos(tcp.as_nanos() as u64), Cost::Copy(bytes)]
}

/// Requesting or releasing this many locks.
pub(crate) fn locking(locks: usize) -> impl Iterator<Item = Cost> {
    std::iter::repeat_n(Cost::Lock, locks)
}

/// Reading this many declared rows.
pub(crate) fn reading(rows: usize) -> impl Iterator<Item = Cost> {
    std::iter::repeat_n(Cost::Lookup, rows)
}

/// Executing a transaction.
pub(crate) fn executing(work: Work) -> impl Iterator<Item = Cost> {
    let of = |cost, times: u32| std::iter::repeat_n(cost, times as usize);
    of(Cost::Lookup, work.lookups).chain(of(Cost::Update, work.updates)).chain(of(Cost::Insert, work.inserts))
}
