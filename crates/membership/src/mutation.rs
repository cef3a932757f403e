//! Deliberate faults, which the tests of this crate must find. An engine has one only if its
//! options say so.

/// A step that is left out, or done wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mutation {
    /// A configuration is replaced although it is not the expected one.
    OldNumberAccepted,
    /// A repeated request is answered as if it were another one.
    RepeatsForgotten,
    /// An older configuration is told after a newer one.
    WatchGoesBack,
    /// A replacement whose answer is lost is reported as one that did not happen.
    LostTakenForRefused,
    /// A proposal takes its name although another configuration has it.
    NameTaken,
    /// A voter's log is read without asking whether it is still the leader.
    LeaderNotAsked,
    /// A leader that has restarted is read before it knows what it had committed.
    BarrierLeftOut,
    /// A voter's vote is answered before it is on disk.
    VoteNotSynced,
    /// A voter's log is answered before it is on disk.
    LogNotSynced,
    /// A log is purged before the snapshot that covers it is on disk.
    PurgedTooEarly,
    /// A file that does not agree with its checksum is believed.
    ChecksumNotChecked,
    /// etcd is not told which number is expected.
    ComparisonLeftOut,
    /// Leases are counted as if all clocks were equally fast.
    DriftIgnored,
    /// A leader grants leases that outlast its authority.
    AuthorityIgnored,
    /// A leader counts a member's promise from when it hears of it.
    PromiseFromPong,
}
