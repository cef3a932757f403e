// Where the README's links lead in documentation: of two definitions the first one counts.
//! [`htm`]: crate::htm
//! [`kv`]: https://docs.rs/drtm-kv
//! [`rdma`]: https://docs.rs/drtm-rdma
//! [`txn`]: crate::Db
//! [cluster]: crate::guide::cluster
//! [durability]: crate::guide::durability
//! [from-hashmap]: crate::guide::from_hashmap
//! [from-redb]: crate::guide::from_redb
//! [guide]: crate::guide
//! [limits]: crate::guide::limits
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

#[cfg(feature = "postcard")]
#[doc(inline)]
pub use drtm_txn::Postcard;
#[doc(inline)]
pub use drtm_txn::{
    AsKey, Builder, Checkpoint, ChoppedError, Codec, CodecError, Column, Columns, Commit, CommitToken, Compacted,
    Config, Conflict, Db, DefaultConfig, Definition, Durability, Entry, EntryIn, Error, Flat, Flow, Hash, Index,
    IndexDef, IndexKeys, IndexOf, Key, KeyRange, KeyReader, KeyedRow, Kind, Lend, LogError, MemoryUse, Mode, Multi,
    OccupiedEntry, OccupiedIn, OneNode, Options, Ordered, Pairs, Part, PlainData, PlainRow, Pod, PodRef, Point,
    PrefetchMask, Prefetched, Prefix, Progress, Range, Raw, ReadOnly, RecoveryStep, Row, RowChange, Rows, Savepoint,
    Shortage, Sink, SinkError, Snapshot, Sorted, Stats, Stored, Table, TableDef, TableOf, TableStats, Transaction, Tx,
    Unique, Uniqueness, Update, VacantEntry, VacantIn, Within, part, prefix, ready, within,
};
#[cfg(feature = "bincode")]
#[doc(inline)]
pub use drtm_txn::{Bincode, Serde};
// What the derive macro and `prefix` name.
#[doc(hidden)]
pub use drtm_txn::{PairEnd, PrefixEnd};

#[cfg(all(feature = "cluster", not(feature = "model")))]
#[doc(inline)]
pub use drtm_txn::cluster;

#[cfg(all(feature = "chopping", not(feature = "model")))]
#[doc(inline)]
pub use drtm_txn::chopped;

/// Which transactions can run in pieces: descriptions and their analysis. [`chopped`] runs them.
#[cfg(all(feature = "chopping", not(feature = "model")))]
pub mod chopping {
    #[doc(inline)]
    pub use drtm_chopping::{
        ALL_COLUMNS, Access, Chopped, Chopping, Claim, Cycle, Deferral, Edge, Edges, Execution, Kind, Merge, Merged,
        Options, Piece, PieceId, Program, ProgramError, Refusal, Table, TextError, Transaction, Undeferred, Vertex,
        Why, programs,
    };
}

/// The layer below: transactional memory. An application names an engine where it chooses one
/// ([`Config`], [`Builder::build_with`]); all else is in the crate `drtm-htm`.
pub mod htm {
    #[doc(inline)]
    pub use drtm_htm::{Emulated, EmulatedConfig, Engine, EngineError, Native, NoHtm, Profile, Rtm};
}

/// The layer below a cluster: fabrics, which connect nodes. All else is in the crate `drtm-rdma`.
#[cfg(all(feature = "cluster", not(feature = "model")))]
pub mod rdma {
    #[doc(inline)]
    pub use drtm_rdma::{
        Executor, Fabric, FabricError, Incarnation, JoinError, LocalConfig, LocalFabric, NodeEvent, NodeId, Phase,
        Presence, ShmConfig, ShmFabric, VerbError, block_on, run,
    };
    #[cfg(feature = "tcp")]
    #[doc(inline)]
    pub use drtm_rdma::{Refusal, Refusals, TcpConfig, TcpError, TcpFabric, TcpLimits, VisitError};
    #[cfg(feature = "verbs")]
    #[doc(inline)]
    pub use drtm_rdma::{VerbsConfig, VerbsError, VerbsFabric};
}

/// Who is a member of a cluster: engines of agreement.
#[cfg(all(feature = "cluster", not(feature = "model")))]
pub mod membership {
    #[doc(inline)]
    pub use drtm_membership::{Answer, Configuration, Directory, DirectoryOptions, Error, Membership};
    #[cfg(feature = "etcd")]
    #[doc(inline)]
    pub use drtm_membership::{Etcd, EtcdOptions};
}

#[doc = include_str!("../docs/choosing-tables-and-codecs.md")]
pub mod guide {
    // Its programs are of a cluster.
    #[cfg_attr(any(not(doctest), feature = "cluster"), doc = include_str!("../docs/cluster.md"))]
    pub mod cluster {}

    #[cfg(all(feature = "chopping", not(feature = "model")))]
    #[doc = include_str!("../docs/chopping.md")]
    pub mod chopping {}

    #[doc = include_str!("../docs/durability.md")]
    pub mod durability {}

    #[doc = include_str!("../docs/security.md")]
    pub mod security {}

    #[doc = include_str!("../docs/limits.md")]
    pub mod limits {}

    #[doc = include_str!("../docs/from-hashmap.md")]
    pub mod from_hashmap {}

    /// [limits]: crate::guide::limits
    // Its programs are tested by drtm-bench, which can have redb.
    #[cfg_attr(not(doctest), doc = include_str!("../docs/from-redb.md"))]
    pub mod from_redb {}
}
