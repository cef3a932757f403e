//! Reliable messages over datagrams, which may be lost, duplicated or reordered. No I/O, no clock.
//!
//! Two parties have a [`Stream`]: an endpoint, and a node whose messages it sends and whose replies
//! it gets. Each side numbers the *parcels* that it sends, and the other takes each of them once,
//! in order. A message is cut into parcels that fit one datagram.
//!
//! - *Acknowledgements* are piggybacked: each datagram says up to which number its sender has taken
//!   parcels. A reply acknowledges its call, so a call costs two datagrams. A parcel that
//!   [asks](Prefix::asks) is acknowledged by a datagram of its own.
//! - *Loss* is found by the endpoint alone ([`Pace`]). If a parcel is not acknowledged, or a call
//!   not answered, for some time, it sends a *probe*. The answer says what has arrived.
//!   Only then is the rest sent again, by both sides. So a slow handler costs a probe, and no
//!   repetition.
//! - *Silence*: a node that answers no probe within the deadline ends the stream.
//! - *Credit*: at most [`WINDOW`] parcels of a side are not acknowledged. A receiver without room
//!   takes no parcels, but acknowledges what it has taken, so the sender knows that it is alive.

mod inbox;
mod mutation;
mod outbox;
mod pace;
mod prefix;
mod stream;
#[cfg(test)]
mod tests;

#[cfg_attr(
    any(not(feature = "verbs"), feature = "model"),
    allow(unused_imports, reason = "bytes are for real networks")
)]
pub(crate) use {
    inbox::Nonsense,
    outbox::WINDOW,
    pace::{Pace, Step},
    prefix::{PREFIX, Prefix},
    stream::{Heard, Stream},
};
