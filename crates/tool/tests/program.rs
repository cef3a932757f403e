//! The program `drtm`, as an operator runs it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use drtm_txn::{Builder, Durability, Raw, TableDef};

const TEXTS: TableDef<u64, Raw> = TableDef::hash("texts");

/// Runs `drtm`: its exit status, stdout and stderr.
fn drtm(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_drtm")).args(arguments).output().expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// A closed database of a hundred rows.
fn database(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("drtm-tool-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    let db = Builder::new().path(&path).create(true).durability(Durability::Sync).build().expect("a database");
    let texts = db.table(TEXTS).expect("a table");
    for key in 0..100_u64 {
        db.transact(|tx| tx.put(texts, key, &[7; 100])).expect("space");
    }
    db.close().expect("a disk");
    path
}

fn in_words(path: &Path) -> &str {
    path.to_str().expect("a name")
}

#[test]
fn a_whole_log_is_verified_and_a_damaged_one_is_salvaged() {
    let path = database("damaged");
    let directory = in_words(&path);
    let (status, json, said) = drtm(&["log", "verify", directory, "--json"]);
    let verdict: serde_json::Value = serde_json::from_str(&json).expect("one value");
    assert_eq!((status, &verdict["readable"]), (Some(0), &true.into()), "{said}");

    let file = path.join("0000000000000001.log");
    let mut bytes = fs::read(&file).expect("a segment");
    let middle = bytes.iter().rposition(|byte| *byte == 7).expect("rows") / 2;
    bytes[middle] ^= 1;
    fs::write(&file, bytes).expect("space");
    let (status, _, said) = drtm(&["log", "verify", directory]);
    assert!(status == Some(1) && said.starts_with("drtm: ") && said.contains("`drtm log salvage`"), "{said}");

    let copy = path.with_extension("copy");
    let _ = fs::remove_dir_all(&copy);
    let (status, _, said) = drtm(&["log", "salvage", directory, "--into", in_words(&copy)]);
    assert_eq!(status, Some(0), "{said}");
    assert_eq!(drtm(&["log", "verify", in_words(&copy)]).0, Some(0));
    for directory in [path, copy] {
        fs::remove_dir_all(directory).expect("it is there");
    }
}

#[test]
fn wrong_usage_is_refused_and_help_says_where_other_commands_are() {
    let (status, _, said) = drtm(&["log", "inspect", "/nowhere/at/all"]);
    assert!(status == Some(2) && said.contains("holds no log"), "{said}");
    let (status, help, _) = drtm(&["--help"]);
    assert!(status == Some(0) && help.contains("`drtm-bench`"), "{help}");
}
