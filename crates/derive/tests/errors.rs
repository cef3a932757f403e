//! What the compiler says of items that cannot be keys, and where.

use std::{
    env,
    env::consts::{DLL_PREFIX, DLL_SUFFIX},
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::SystemTime,
};

/// Returns the compiled macro: the newest one beside this program.
fn compiled_macro() -> PathBuf {
    let program = env::current_exe().expect("this program's path");
    let beside = fs::read_dir(program.parent().expect("a folder")).expect("the folder can be read");
    let files = beside.filter_map(|entry| {
        let entry = entry.ok()?;
        let name = entry.file_name().into_string().ok()?;
        let is_it = name.starts_with(&format!("{DLL_PREFIX}drtm_derive-")) && name.ends_with(DLL_SUFFIX);
        is_it.then(|| {
            (entry.metadata().and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH), entry.path())
        })
    });
    files.max().expect("cargo has built the macro beside its tests").1
}

/// Has an item derive a key, and returns what the compiler says of that.
fn refused(name: &str, item: &str) -> String {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.rs"));
    fs::write(&source, format!("#[derive(drtm_derive::Key)]\n{item}\n")).expect("the source is written");
    let output = Command::new(env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned()))
        .args(["--edition=2024", "--crate-type=lib", "--emit=metadata", "-o"])
        .arg(source.with_extension("rmeta"))
        .arg(format!("--extern=drtm_derive={}", compiled_macro().display()))
        .arg(&source)
        .output()
        .expect("a compiler");
    assert!(!output.status.success(), "it is accepted: {item}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Checks that an item is refused with one error, with this message at this line and column.
fn check(name: &str, item: &str, message: &str, place: (u32, u32)) {
    let said = refused(name, item);
    assert!(said.contains(&format!("error: {message}")), "{item}: {said}");
    assert!(said.contains(&format!("{name}.rs:{}:{}\n", place.0, place.1)), "{item}: {said}");
    assert_eq!(said.matches("error:").count(), 2, "an error, and how many there are: {said}");
}

#[test]
fn generic_structs_are_refused_where_they_say_so() {
    let message = "a key cannot be generic";
    check("generic", "struct Pair<T>(T, T);", message, (2, 12));
    check("lifetime", "pub struct Name<'a> { name: &'a str }", message, (2, 16));
    check("number", "struct Bytes<const N: usize>([u8; N]);", message, (2, 13));
    check("bound", "struct Bound(u8) where u8: Copy;", message, (2, 18));
    check("bound_named", "struct Bound where u8: Copy { a: u8 }", message, (2, 14));
}

#[test]
fn what_is_no_struct_with_fields_is_refused() {
    check("variants", "pub(crate) enum Colour { Red, Green }", "`Key` is derived for structs only", (2, 12));
    check("union", "union Word { a: u64, b: i64 }", "`Key` is derived for structs only", (2, 1));
    check("unit", "struct Nothing;", "a key needs a field", (2, 8));
    check("empty", "struct Nothing {}", "a key needs a field", (2, 8));
    check("empty_tuple", "struct Nothing();", "a key needs a field", (2, 8));
}

#[test]
fn options_that_there_are_not_are_refused() {
    check("option", "#[key(order = reverse)] struct Id(u64);", "the only option is `#[key(crate = path)]`", (2, 6));
    check("of_field", "struct Id(#[key(skip)] u64);", "the only option is `#[key(crate = path)]`", (2, 16));
    check("on_field", "struct Id(#[key(crate = a)] u64);", "`#[key(crate = path)]` belongs to the struct", (2, 10));
}
