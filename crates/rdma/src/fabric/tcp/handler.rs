//! Calls that another fabric answers at a node of this one, by which its peers set it up.

use std::{fmt, os::fd::BorrowedFd, time::Duration};

use super::{caller::Caller, inbox::Inbox};

/// Answers the calls that come to a node, in place of the mailbox. The node's own thread runs all
/// of it.
pub(crate) trait CallHandler: fmt::Debug + Send + Sync {
    /// Answers a call of a peer's endpoint.
    fn answer(&self, caller: &Caller, request: &[u8], reply: &mut Vec<u8>);

    /// Handles the end of the connection of a peer's endpoint.
    fn closed(&self, caller: &Caller);

    /// Returns a descriptor to be watched beside the sockets.
    fn channel(&self) -> Option<BorrowedFd<'_>>;

    /// Handles an event of that descriptor.
    fn woken(&self, inbox: &Inbox);

    /// Does what is due, if anything. Returns after how long there is more to do.
    fn tend(&self, inbox: &Inbox) -> Option<Duration>;
}
