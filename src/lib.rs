#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub use drtm_htm as htm;
