//! Deliberate faults, for the checkers of histories and other tests to find. A database has one if
//! its [`Config`](crate::Config) says so; no other is different for it.

/// A step that is left out, or done at the wrong time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// A transaction commits though what it has read has changed.
    CommitWithoutValidation,
    /// A transaction commits though keys have come into what it has read.
    CommitDespitePhantoms,
    /// What was read is looked at before what is written is locked, and not again.
    ValidateBeforeLocks,
    /// Records are unlocked before they have their new versions.
    UnlockBeforeVersions,
    /// A transaction writes what the holder of the ticket claims.
    ClaimsIgnored,
    /// A commit does not tell opaque transactions that it is about to write.
    CommitsNotCounted,
    /// A range that removes rows leaves their entries in indexes.
    EntriesLeftByRanges,
    /// A commit for which there is no memory leaves its rows locked.
    LocksKeptWhenFull,
    /// A transaction commits though a table that it has written has got an index meanwhile.
    IndexedNotChecked,
    /// A transaction commits though a table that it has used was dropped meanwhile.
    DropsNotChecked,
    /// A transaction whose own insertion splits a bucket or a leaf does not guard the new one.
    SplitsNotGuarded,
    /// A transaction that was overlooked when the database was closed commits.
    CommitDespiteClosing,
    /// A transaction does not publish the epoch in which it may commit.
    EpochNotPublished,
    /// Recovery forgets removals before it has seen every older value.
    RemovalsDropped,
    /// Recovery does not count identities of tables that were dropped.
    IdsReused,
    /// Recovery does not restore the snapshot number.
    NumberNotRestored,
    /// Recovery believes what an earlier recovery has left out.
    VoidRevived,
    /// Recovery applies a patch to a version that it was not made from.
    PreviousNotChecked,
    /// A new segment's name is not made durable.
    DirectoryNotSynced,
    /// Frames are believed wherever they are found.
    RecycledBelieved,
    /// The epoch in which a transaction commits can be closed before its rows are written.
    EpochClearedEarly,
    /// A checkpoint counts before all that is in it is durable.
    CheckpointTooEarly,
    /// After a checkpoint, segments are removed that are needed beside it.
    SegmentsRemovedTooFar,
    /// All transactions of a cluster's worker lock in one name.
    SlotsNotNamed,
    /// A transaction of a cluster validates rows by verbs without a look at their locks.
    LocksOverlooked,
    /// A transaction of a cluster takes a row for unchanged whose record is another row's by now.
    StaleLocationsBelieved,
    /// A transaction of a cluster that is given up unlocks rows that others have locked.
    OthersUnlocked,
    /// A single row that was read by verbs is not validated, though it may have been locked.
    LockedReadsBelieved,
    /// A transaction of a cluster that changes a row leaves its earlier entries in indexes.
    EntriesLeftByClusters,
    /// A row is written by verbs though its owner has a snapshot open.
    SnapshotsOverwritten,
    /// A transaction does not look whether its leases still hold when it commits.
    LeasesNotConfirmed,
    /// A node takes its own clock for the cluster's, and for exact.
    ClockNotMeasured,
    /// A row is unlocked by message before verbs write it.
    UnlockBeforeWriteBack,
    /// Verbs that write a row leave it the version that it had.
    VersionNotWritten,
    /// A backup applies records of transactions that are not decided.
    UndecidedApplied,
    /// An owner frees locks of dead clients whose calls it still carries out.
    AccessNotRevoked,
    /// A backup applies nothing.
    LogsNotApplied,
}
