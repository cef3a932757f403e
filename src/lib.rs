//! x
pub use drtm_htm as htm;
