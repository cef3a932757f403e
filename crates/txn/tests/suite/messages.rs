//! Messages of the compiler, for mistakes that a newcomer makes.
//!
//! Each program is compiled against the crate that this test is linked with.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::SystemTime,
};

/// Returns the newest library of the crate beside this program: it was built of the same source.
fn library(deps: &Path) -> PathBuf {
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libdrtm_txn-") && name.ends_with(".rlib")
    };
    let built = |path: &PathBuf| fs::metadata(path).and_then(|file| file.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    let entries = fs::read_dir(deps).expect("a folder of dependencies");
    let libraries = entries.map(|entry| entry.expect("an entry").path()).filter(is_ours);
    libraries.max_by_key(built).expect("the crate was built for this test")
}

/// Compiles a program, which must fail, and returns the compiler's message.
fn message(name: &str, program: &str) -> String {
    let this = env::current_exe().expect("the name of this program");
    let deps = this.parent().expect("a folder");
    let folder = env::temp_dir().join(format!("drtm-messages-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let source = folder.join("program.rs");
    fs::write(&source, program).expect("room");
    let compiled = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .args(["--edition=2024", "--crate-type=lib", "--emit=metadata", "--out-dir"])
        .arg(&folder)
        .arg(format!("-Ldependency={}", deps.display()))
        .arg(format!("--extern=drtm={}", library(deps).display()))
        .arg(&source)
        // Messages show the crate's source, by its name within the workspace.
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .output()
        .expect("the compiler");
    fs::remove_dir_all(&folder).expect("it is there");
    let message = String::from_utf8(compiled.stderr).expect("text");
    assert!(!compiled.status.success(), "{name} compiles");
    message
}

#[track_caller]
fn says(name: &str, program: &str, parts: &[&str]) {
    let message = message(name, program);
    for part in parts {
        assert!(message.contains(part), "the message of {name} does not say {part:?}:\n{message}");
    }
}

#[test]
fn a_range_of_a_hash_table_is_told_of_ordered_ones() {
    const PROGRAM: &str = "
        use drtm::{Db, Error, Pod, TableDef};
        const SCORES: TableDef<u64, Pod<u64>> = TableDef::hash(\"scores\");
        pub fn count(db: &Db) -> Result<u64, Error> {
            let scores = db.table(SCORES)?;
            db.read(|tx| tx.range(scores, ..)?.count())
        }";
    says("range", PROGRAM, &["a hash table has no order, and so no ranges", "`TableDef::ordered`", "`Tx::walk`"]);
}

#[test]
fn plain_data_that_is_none_is_told_of_other_codecs() {
    const PROGRAM: &str = "
        use drtm::{Pod, TableDef};
        pub const NAMES: TableDef<u64, Pod<String>> = TableDef::hash(\"names\");";
    says("pod", PROGRAM, &["`String` is no plain data", "`Postcard<T>`", "`Raw`", "of `zerocopy`"]);
}

#[test]
fn a_closure_with_its_own_error_type_is_told_of_try_transact() {
    const PROGRAM: &str = "
        use drtm::{Db, Error};
        pub enum Refused { Overdrawn, Database(Error) }
        impl From<Error> for Refused {
            fn from(error: Error) -> Self { Self::Database(error) }
        }
        pub fn withdraw(db: &Db) -> Result<(), Refused> {
            Ok(db.CALL(|_| -> Result<(), Refused> { Err(Refused::Overdrawn) })?)
        }";
    says("transact", &PROGRAM.replace("CALL", "transact"), &["with another error type: `try_transact`"]);
    says("read", &PROGRAM.replace("CALL", "read"), &["with another error type: `try_read`"]);
    let with = PROGRAM.replace("CALL(", "transact_with(drtm::Options::new(), ");
    says("transact_with", &with, &["with another error type: `try_transact_with`"]);
}
