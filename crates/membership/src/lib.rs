//! Who is a member of a cluster: one configuration at a time, agreed on by an engine that others
//! have built and proved.
//!
//! A [`Membership`] is a register with a number: it is read, replaced if it is still the expected
//! one, and watched. What a [`Configuration`] says is bytes to it. These are its engines:
//!
//! | engine | agreement | for |
//! |---|---|---|
//! | [`Fixed`] | none: it never changes | tests, benches, two nodes |
//! | [`Directory`] | the names of files in a directory | processes of one machine |
//! | `Raft` (feature `raft`) | Raft, by the crate `openraft`, among the nodes themselves | machines |
//! | `Etcd` (feature `etcd`) | an etcd that runs beside the cluster | machines where there is one |
//! | [`Register`] | none: simulated, in virtual time | simulated clusters |
//! | [`Bystander`] | none: it cannot be asked | nodes that learn from others who is a member |
//!
//! All of them but the last pass the same tests: histories of concurrent clients are linearizable,
//! a watch never goes back and does not miss the last configuration, and a replacement whose
//! outcome is not known is reported as that.
//!
//! No engine detects that a node has died, and no transaction waits for one. Members watch each
//! other by leases: [`LeaderLeases`] and [`MemberLease`] are the rules, without messages or clocks.
//! A cluster whose engine cannot be asked goes on in the configuration that it knows, and changes
//! nothing.
//!
//! # Example
//!
//! ```
//! use drtm_membership::{Directory, Error, Membership};
//!
//! let path = std::env::temp_dir().join(format!("drtm-membership-{}", std::process::id()));
//! let membership = Directory::open(&path)?;
//! let first = membership.replace(0, b"three nodes").wait()?;
//!
//! // Another process has a handle of its own. Of two replacements, one is made.
//! let other = Directory::open(&path)?;
//! assert_eq!(other.read().wait()?, first);
//! let second = other.replace(1, b"two nodes").wait()?;
//! let refused = membership.replace(1, b"four nodes").wait();
//! assert_eq!(refused, Err(Error::Outdated { current: second }));
//! # std::fs::remove_dir_all(&path).map_err(|_| Error::Closed)?;
//! # Ok::<(), Error>(())
//! ```

#![forbid(unsafe_code)]

mod answer;
mod bystander;
mod configuration;
mod directory;
mod error;
#[cfg(feature = "etcd")]
mod etcd;
mod fixed;
mod latest;
mod leases;
mod ledger;
#[doc(hidden)]
pub mod mutation;
#[cfg(feature = "raft")]
mod raft;
mod register;
mod sealed_file;

use std::fmt;

pub use answer::Answer;
pub use bystander::Bystander;
pub use configuration::{Configuration, MOST_BYTES};
pub use directory::{Directory, DirectoryOptions};
pub use error::Error;
#[cfg(feature = "etcd")]
pub use etcd::{Etcd, EtcdOptions};
pub use fixed::Fixed;
pub use leases::{Heartbeat, LeaderLeases, LeaseTerms, MemberLease, may_open};
#[cfg(feature = "raft")]
pub use raft::{LONGEST_MESSAGE, Raft, RaftOptions, Transport, Voter};
pub use register::{Client, Register, RegisterOptions};

/// The configuration of a cluster, as an engine of agreement keeps it.
///
/// Requests never block. Each ends once, in bounded time, but for [`watch`](Self::watch), which
/// ends when there is something to tell.
///
/// # Example
///
/// ```
/// use drtm_membership::{Configuration, Error, Fixed, Membership};
///
/// /// Adds a node, whatever others do meanwhile.
/// fn admit(membership: &dyn Membership, node: &str) -> Result<Configuration, Error> {
///     let mut current = membership.read().wait()?;
///     loop {
///         let next = [current.content(), b" ", node.as_bytes()].concat();
///         match membership.replace(current.number(), &next).wait() {
///             Err(Error::Outdated { current: newer }) => current = newer,
///             outcome => return outcome,
///         }
///     }
/// }
///
/// let fixed = Fixed::new(Configuration::new(1, *b"a b"));
/// assert_eq!(admit(&fixed, "c"), Err(Error::Fixed));
/// ```
pub trait Membership: Send + Sync + fmt::Debug {
    /// Reads the configuration that is in force at some moment between this call and the answer.
    /// Number 0 means that there is none yet.
    ///
    /// The answer is [`Error::Unavailable`] if the engine cannot be asked.
    fn read(&self) -> Answer<Configuration>;

    /// Replaces the configuration, if number `expected` is in force. Returns the new one, whose
    /// number is `expected + 1`. `expected` is 0 for the first, and in general a number that the
    /// caller has read: of another one, the outcome may be unknown.
    ///
    /// The answer is [`Error::Outdated`] if another one is in force. It is [`Error::Unknown`] if
    /// the replacement may have happened or may still happen. After every other error it has not
    /// happened and will not.
    fn replace(&self, expected: u32, content: &[u8]) -> Answer<Configuration>;

    /// Waits for a configuration that is newer than number `after`. Those between may be left
    /// out; the newest one is not. The answer is [`Error::Closed`] once the handle is dropped.
    fn watch(&self, after: u32) -> Answer<Configuration>;

    /// Returns the newest configuration that this handle has seen, without asking. It never goes
    /// back, and stays when the engine is lost.
    fn known(&self) -> Configuration;
}
