#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub use drtm_htm as htm;
pub use drtm_kv as kv;
pub use drtm_rdma as rdma;
#[doc(inline)]
pub use drtm_txn::*;

#[doc = include_str!("../docs/choosing-tables-and-codecs.md")]
pub mod guide {}
