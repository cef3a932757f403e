// Where the README's links lead in documentation: of two definitions the first one counts.
//! [`htm`]: crate::htm
//! [`kv`]: crate::kv
//! [`rdma`]: crate::rdma
//! [`txn`]: crate::Db
//! [cluster]: crate::guide::cluster
//! [durability]: crate::guide::durability
//! [from-hashmap]: crate::guide::from_hashmap
//! [from-redb]: crate::guide::from_redb
//! [guide]: crate::guide
//! [limits]: crate::guide::limits
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

#[doc(inline)]
pub use drtm_txn::*;

/// Which transactions can run in pieces, each as a transaction of its own, and stay serializable.
pub mod chopping {
    #[doc(inline)]
    pub use drtm_chopping::*;
}

/// A lower layer: transactional memory. Applications need it to choose an engine
/// ([`Config`]), and seldom otherwise.
pub mod htm {
    pub use drtm_htm::*;
}

/// A lower layer: records, hash tables and trees in memory that other nodes can read. Transactions
/// know nothing of what is done to a store directly, so no application mixes them.
pub mod kv {
    pub use drtm_kv::*;
}

/// A lower layer: memory regions, and one-sided verbs and messages between nodes.
pub mod rdma {
    pub use drtm_rdma::*;
}

#[doc = include_str!("../docs/choosing-tables-and-codecs.md")]
pub mod guide {
    #[doc = include_str!("../docs/cluster.md")]
    pub mod cluster {}

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
