//! `cargo +nightly fuzz run checkpoint`: see `../readers.rs`.

#![no_main]

#[path = "../readers.rs"]
#[allow(dead_code, reason = "each target uses one reader")]
mod readers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| readers::checkpoint(bytes));
