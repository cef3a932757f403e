//! `cargo +nightly fuzz run tcp`: see `../wire.rs`.

#![no_main]

#[path = "../wire.rs"]
#[allow(dead_code, reason = "each target uses one of them")]
mod wire;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wire::tcp(bytes));
