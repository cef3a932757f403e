//! Letters: bytes from node to node, for what agrees on who is a member.
//!
//! They are for the few messages that must go on where nothing else does. No view and no lease
//! fences them: a node that was revoked, or was never met, sends and gets them like any other. No
//! worker takes part. What cannot be sent is dropped.

use std::fmt;

use crate::NodeId;

/// The longest letter, in bytes.
///
/// # Example
///
/// See [`Letters`].
pub const LONGEST_LETTER: usize = 4 << 20;

/// Takes the letters that come to a node, with the number of the sender. A thread that carries
/// letters calls it, so it must not block.
pub type TakeLetter = Box<dyn FnMut(NodeId, &[u8]) + Send>;

/// Sends letters from a node, for as long as it is not dropped: see
/// [`Fabric::letters`](crate::Fabric::letters).
///
/// # Example
///
/// ```
/// use std::sync::mpsc;
/// use drtm_htm::NoHtm;
/// use drtm_rdma::{Fabric, Letters, NodeId, TcpConfig, TcpFabric};
///
/// let [one, two] = ["127.0.0.1:27320".parse()?, "127.0.0.1:27321".parse()?];
/// let first = TcpFabric::join(NoHtm, TcpConfig::new(NodeId(0), one, [42; 32]).peer(NodeId(1), two))?;
/// let second = TcpFabric::join(NoHtm, TcpConfig::new(NodeId(1), two, [42; 32]).peer(NodeId(0), one))?;
///
/// let (came, letters) = mpsc::channel();
/// let take = move |from, letter: &[u8]| drop(came.send((from, letter.to_vec())));
/// let _box = second.letters(NodeId(1), Box::new(take))?;
/// let sender = first.letters(NodeId(0), Box::new(|_, _| {}))?;
/// assert!(sender.send(NodeId(1), b"hello".to_vec()));
/// assert_eq!(letters.recv()?, (NodeId(0), b"hello".to_vec()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Letters: Send + Sync + fmt::Debug {
    /// Sends a letter to another node, if it can be: it never blocks. Letters to one node come in
    /// the order of sending, and some may be missing.
    ///
    /// Returns false if it is dropped at once: it is longer than [`LONGEST_LETTER`], there is no
    /// other node of this number, many letters wait to be sent, or this node has left. One that is
    /// not dropped at once can still be lost.
    fn send(&self, to: NodeId, letter: Vec<u8>) -> bool;
}
