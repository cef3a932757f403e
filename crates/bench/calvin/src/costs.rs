//! What the engine charges to simulated processors.
//!
//! Accesses of rows and locks cost what those of this project's store do, by instructions that were
//! counted. What is added here is the kernel's TCP, which the profiles of NICs do not have. Nothing
//! was fitted to the throughput of a cluster.

use drtm_rdma::{Cost, Endpoint, Port};

use crate::program::Work;

/// The kernel's work to send a message by a socket, in nanoseconds: the system call, TCP and IP,
/// and the driver. *Assumed*: no publication gives it for IPoIB on this cluster.
const TCP_SEND: u64 = 5_000;

/// The kernel's work to receive one: the interrupt, IP and TCP, waking the thread, and its system
/// call. *Assumed*, like [`TCP_SEND`]: with both, a message takes about 11.5 us from one program to
/// another on the simulated ConnectX-3.
const TCP_RECEIVE: u64 = 5_000;

/// Charges a processor, and waits until it has done that work.
pub(crate) async fn spend<P: Port>(endpoint: &Endpoint<P>, costs: impl IntoIterator<Item = Cost>) {
    if endpoint.is_simulated() {
        costs.into_iter().for_each(|cost| endpoint.charge(cost));
        // What follows is to be seen when this processor does it, and not when its turn began.
        endpoint.yield_now().await;
    }
}

pub(crate) fn sending(bytes: usize) -> [Cost; 2] {
    [Cost::Nanos(TCP_SEND), Cost::Copy(bytes)]
}

pub(crate) fn receiving(bytes: usize) -> [Cost; 2] {
    [Cost::Nanos(TCP_RECEIVE), Cost::Copy(bytes)]
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
