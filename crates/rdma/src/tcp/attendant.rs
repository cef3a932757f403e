//! What another fabric does at a node of this one, by which its peers set it up.

use std::{fmt, os::fd::BorrowedFd, time::Duration};

use drtm_htm::Engine;

use super::shared::{Caller, Shared};

/// Takes the calls that come to a node, in place of the mailbox. All of it is done by the node's
/// own thread.
pub(crate) trait Attendant<E: Engine>: fmt::Debug + Send + Sync {
    /// Answers what a peer's endpoint asks.
    fn answer(&self, caller: &Caller, request: &[u8], reply: &mut Vec<u8>);

    /// The connection of a peer's endpoint is closed.
    fn closed(&self, caller: &Caller);

    /// What is to be watched beside the sockets.
    fn channel(&self) -> Option<BorrowedFd<'_>>;

    /// That has something.
    fn woken(&self, shared: &Shared<E>);

    /// Does what is due, if anything. Returns after how long there is more to do.
    fn tend(&self, shared: &Shared<E>) -> Option<Duration>;
}
