//! The workspace's own rules: who may know whom, and who may be unsafe.

use std::{fs, path::Path};

/// The crates from the ground up. Each may depend on those before it, and on no others of the workspace.
const LAYERS: [&str; 5] = ["htm", "rdma", "kv", "txn", "bench"];

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap_or_else(|why| panic!("{path}: {why}"))
}

#[test]
fn no_arrow_runs_upward() {
    for (height, layer) in LAYERS.iter().enumerate() {
        let manifest = read(&format!("crates/{layer}/Cargo.toml"));
        for above in LAYERS[height..].iter().filter(|above| above != &layer) {
            assert!(!manifest.contains(&format!("\ndrtm-{above}")), "{layer} depends on {above}");
        }
        assert!(!manifest.contains("\ndrtm."), "{layer} depends on the facade");
    }
}

#[test]
fn unsafe_code_is_forbidden_outside_htm_and_rdma() {
    for layer in LAYERS.iter().filter(|layer| !["htm", "rdma"].contains(layer)) {
        assert!(read(&format!("crates/{layer}/src/lib.rs")).contains("#![forbid(unsafe_code)]"), "{layer}");
    }
    assert!(read("src/lib.rs").contains("#![forbid(unsafe_code)]"));
}

#[test]
fn every_crate_takes_part_in_the_lints() {
    for manifest in
        LAYERS.map(|layer| format!("crates/{layer}/Cargo.toml")).iter().map(String::as_str).chain(["Cargo.toml"])
    {
        assert!(read(manifest).contains("[lints]\nworkspace = true"), "{manifest}");
    }
}
