//! Deliberate faults, which the checkers of histories and other tests must detect. A database has
//! one only if its [`Config`](crate::Config) says so; the code of others is not affected.

/// A step that is left out, or done at the wrong time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// A transaction commits although a row in its read set has changed.
    CommitWithoutValidation,
    /// A transaction commits although keys were inserted into ranges that it has read.
    CommitDespitePhantoms,
    /// The read set is validated before the write set is locked, and not again.
    ValidateBeforeLocks,
    /// Records are unlocked before they have their new versions.
    UnlockBeforeVersions,
    /// A transaction writes a place that the ticket's holder claims.
    ClaimsIgnored,
    /// The ticket's holder claims only places that its runs have touched, however often they fail.
    OthersAdmitted,
    /// A commit does not count itself before it writes, so opaque transactions miss it.
    CommitsNotCounted,
    /// A transaction that returns to a savepoint forgets rows that it has read only to write them.
    UndoneReadsForgotten,
    /// A transaction of a cluster that returns to a savepoint keeps its writes.
    UndoneWritesKept,
    /// A range that removes rows leaves their index entries.
    EntriesLeftByRanges,
    /// A commit that runs out of memory leaves its rows locked.
    LocksKeptWhenFull,
    /// A transaction commits although a table that it has written got an index meanwhile.
    IndexedNotChecked,
    /// A transaction commits although a table that it has used was dropped meanwhile.
    DropsNotChecked,
    /// A transaction whose own insertion splits a bucket or a leaf does not guard the new one.
    SplitsNotGuarded,
    /// Memory is divided for rows of another size while transactions may refer to it.
    MemoryCutEarly,
    /// A transaction commits although it was missed when the database was closed.
    CommitDespiteClosing,
    /// A transaction does not publish the epoch in which it may commit.
    EpochNotPublished,
    /// Recovery forgets removals before it has seen every older value.
    RemovalsDropped,
    /// Recovery keeps rows that were removed with all others of their table.
    ClearNotReplayed,
    /// Recovery does not count the identities of dropped tables.
    IdsReused,
    /// Recovery does not restore the snapshot number.
    NumberNotRestored,
    /// Recovery applies records that an earlier recovery has voided.
    VoidRevived,
    /// Recovery applies a patch to a version that it was not made from.
    PreviousNotChecked,
    /// Recovery takes a checkpoint to be complete before the last epoch that it may contain.
    LastEpochExcluded,
    /// A new segment's name is not made durable.
    DirectoryNotSynced,
    /// A frame that finds no room on the disk is forgotten.
    FullFrameForgotten,
    /// Frames are accepted wherever they are found.
    RecycledBelieved,
    /// The epoch in which a transaction commits can be closed before its rows are written.
    EpochClearedEarly,
    /// A checkpoint takes effect before all of it is durable.
    CheckpointTooEarly,
    /// After a checkpoint, segments that are still needed are removed.
    SegmentsRemovedTooFar,
    /// A checkpoint has no note.
    NoteLeftOut,
    /// A migration removes rows from the old table after the transaction that copies them.
    MigratedRowsLeft,
    /// All transactions of a cluster's worker lock with the same name.
    SlotsNotNamed,
    /// A transaction of a cluster validates rows by verbs without checking their locks.
    LocksOverlooked,
    /// A transaction of a cluster takes a row for unchanged whose record is another row's by now.
    StaleLocationsBelieved,
    /// A transaction of a cluster that is given up unlocks rows that others have locked.
    OthersUnlocked,
    /// A single row that was read by verbs is not validated, although it may have been locked.
    LockedReadsBelieved,
    /// A transaction of a cluster that changes a row leaves its old index entries.
    EntriesLeftByClusters,
    /// A row is written by verbs although its owner has an open snapshot.
    SnapshotsOverwritten,
    /// A transaction does not check at its commit whether its leases are still valid.
    LeasesNotConfirmed,
    /// A node treats its own clock as the cluster's, and as exact.
    ClockNotMeasured,
    /// A row is unlocked by message before verbs write it.
    UnlockBeforeWriteBack,
    /// Verbs that write a row leave its old version.
    VersionNotWritten,
    /// A backup applies records of undecided transactions.
    UndecidedApplied,
    /// A backup applies nothing.
    LogsNotApplied,
    /// The buffers and the name of a transaction whose last phase is not waited for are used again
    /// before that phase has ended.
    PassiveStatesReused,
    /// Where peers lock by swaps of a NIC that are atomic with each other only, the owner locks by
    /// its processors.
    LoopbackLeftOut,
    /// Rows are written by verbs although their owner has a log.
    LogsBypassed,
    /// A backup with a log does not log what it applies.
    ReplicasNotLogged,
    /// An owner logs each row of a transaction of another node by itself.
    RowsLoggedApart,
    /// A transaction of a cluster returns before it is durable at all owners.
    OwnersNotAwaited,
    /// A lease counts until the latest time at which it may end, and not the earliest.
    LeasesTrustedTooLong,
    /// Rows that verbs write have the next version, whatever their owner's epoch is.
    EpochNotWritten,
    /// A transaction of a cluster commits although counters may have wrapped around since it read.
    TurnsNotChecked,
    /// A transaction by verbs takes the turns of an owner that an earlier round has read for those
    /// of this one.
    OldTurnsBelieved,
    /// A transaction of a cluster takes a row for unlocked if its lock's outcome is unknown.
    UnknownLocksForgotten,
    /// A transaction of a cluster takes a row for unlocked although its owner was not asked.
    UnlocksNotRepeated,
    /// What a node that learns a shard has of a dead coordinator's transaction does not count.
    LearnersNotAsked,
    /// A transaction that runs again forgets what it has locked at an owner that could not be asked
    /// to free it.
    OwedForgotten,
    /// A transaction of a cluster goes on before the unlocks of claims have arrived that it has
    /// given up.
    ClaimsNotAwaited,
    /// A transaction of a cluster waits for another node beyond its deadline.
    DeadlinesIgnored,
    /// A single row that was read by verbs is not validated.
    SingleReadsBelieved,
    /// A transaction of a cluster inserts a row that another one has inserted since it was missing.
    InsertedOver,
    /// A transaction of a cluster that is given up leaves a lock that a swap may have taken at an
    /// outdated place.
    StaleLocksKept,
    /// The pieces that an analysis has merged run apart.
    MergeLeftOut,
    /// Additions of a chopped transaction are deferred, whatever the analysis says.
    DeferralWithoutPremise,
    /// A piece runs twice.
    PieceRepeated,
    /// A piece that is run again begins with what its failed run has handed over.
    FailedRunHandedOver,
    /// Pieces access what they have not declared.
    UndeclaredAllowed,
    /// A publication does not wait for publishers and subscribers.
    BarrierSkipped,
    /// A publication leaves what it has published.
    AdditionsRepeated,
    /// A two-round read waits for no transaction.
    MomentNotAwaited,
    /// A transaction that runs alone runs beside itself.
    AloneIgnored,
    /// What is left of a chopped transaction is not logged.
    RemainderDropped,
    /// The last piece of a chopped transaction leaves what was left.
    RemainderNotRemoved,
    /// A database serves before what is left of chopped transactions is finished.
    UnfinishedServed,
    /// How far a transaction of a cluster has come is noted after its piece has committed.
    ProgressApart,
    /// A piece of a cluster's transaction runs whether it is the next one or not.
    ProgressNotCompared,
    /// A lock that verbs take late counts as taken before its owner's line was read.
    LateLinesNotRead,
    /// A transaction by verbs does not look at the views of the owners whose rows it locks, leases
    /// or validates.
    ViewNotRead,
    /// A node serves requests of an old view, and says so of none.
    OldViewServed,
    /// A node does not give its view to those that it refuses since they are in another.
    ViewWithheld,
    /// A transaction begins to write records, and is decided, although its node has closed the
    /// view.
    DecidedAfterPrepare,
    /// When the view changes, all transactions of dead coordinators are completed that have
    /// records.
    AllCompleted,
    /// When the view changes, all transactions of dead coordinators are undone.
    AllUndone,
    /// When the view changes, the next primary has not applied all that is settled.
    SettledNotTold,
    /// A transaction's records are settled although an owner has not been told to carry it out.
    SettledTooSoon,
    /// Locks of dead coordinators are freed before what they had decided is carried out.
    UnlockedBeforeCarried,
    /// A row of a dead coordinator is not carried out if its version is there.
    TornRowsLeft,
    /// The driver of a change takes nodes for quiet that are no members, and have ended meanwhile.
    EndsOverlooked,
    /// A transaction's lock-ahead log in memory that outlives the process names no rows.
    LockAheadLeftOut,
    /// A transaction writes its rows without a write-ahead log in such memory.
    WriteAheadLeftOut,
    /// An owner that recovers from such logs frees what is decided, and does not write it.
    DecidedNotCarried,
    /// An owner that is started again does not look into the logs of others in such memory.
    RestoreLeftOut,
    /// An owner that is started again lets transactions be decided whose locks it has lost.
    LostLocksDecided,
    /// A node returns what it has read although it has no lease.
    LeaseIgnored,
    /// What a body has found that works on fetched rows is returned without a lease.
    LeaseNotConfirmed,
    /// The memory of members stays open to nodes that the view is without.
    AccessLeft,
    /// A node that learns a group's rows copies its first table alone.
    PartLearnt,
    /// A shard of which no replica is left is served without rows, though no operator has said so.
    LostServedEmpty,
    /// A lost shard is served by any node whose directory has rows of it, and not by the last one.
    StaleServed,
    /// Rows that a directory has, and are worth nothing, stay in its log.
    OldRowsLeft,
    /// A node does not note in its directory that all were ready for a view.
    ReadyNotNoted,
    /// A node says that it has noted it before its directory has the note.
    NotesNotAwaited,
    /// Where all nodes have ended, what their directories have noted is ignored.
    NotesIgnored,
    /// A visitor, which has the key and is no node, is served as a node is.
    VisitorsBelieved,
    /// A node that closes tells no other node, and does not wait for what others have begun there.
    ClosedAtOnce,
    /// A transaction of a cluster uses places in the memory of one incarnation in another's.
    IncarnationsMixed,
}
