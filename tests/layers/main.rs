//! The workspace's own rules: which crate and which file may depend on which, where `unsafe` may
//! be, what the facade exports, and how wide comments are.

mod circles;
mod surface;
mod widths;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use circles::Crate;

/// The folders of the crates from the ground up. Each crate may depend on those before it, and on
/// no others of the workspace. Those with `unsafe` first, but for the three that depend on none of
/// the others.
const LAYERS: [&str; 18] = [
    "crates/derive",
    "crates/chopping",
    "crates/membership",
    "crates/htm",
    "crates/rdma",
    "crates/kv",
    "crates/txn",
    "crates/bench/history",
    "crates/bench/report",
    "crates/tool",
    "crates/bench/drive",
    "crates/bench/tpcc",
    "crates/bench/calvin",
    "crates/bench/workloads",
    "crates/bench/soak",
    "crates/bench/fabrics",
    "crates/bench/paper",
    "crates/bench",
];

/// The package of a folder.
fn package(layer: &str) -> String {
    format!("drtm-{}", layer.rsplit('/').next().unwrap_or_default())
}

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap_or_else(|why| panic!("{path}: {why}"))
}

#[test]
fn no_arrow_runs_upward() {
    for (height, layer) in LAYERS.iter().enumerate() {
        let manifest = dependencies(layer);
        for above in LAYERS[height..].iter().filter(|above| above != &layer) {
            assert!(!manifest.contains(&format!("\n{}", package(above))), "{layer} depends on {above}");
        }
        assert!(!manifest.contains("\ndrtm.") && !manifest.contains("\ndrtm ="), "{layer} depends on the facade");
    }
}

/// What a crate's manifest says but for its tests: examples of the lower crates use the facade.
fn dependencies(layer: &str) -> String {
    let manifest = read(&format!("{layer}/Cargo.toml"));
    manifest.split("\n[").filter(|section| !section.starts_with("dev-dependencies]")).collect::<Vec<_>>().join("\n[")
}

#[test]
fn the_macro_depends_on_nothing_and_some_on_no_other_crate_of_ours() {
    assert!(!dependencies("crates/derive").contains("dependencies]"));
    assert!(!dependencies("crates/chopping").contains("\ndrtm-"));
    assert!(!dependencies("crates/membership").contains("\ndrtm-"));
}

#[test]
fn the_checker_of_histories_knows_nothing_of_the_database() {
    assert!(!dependencies("crates/bench/history").contains("\ndrtm-"));
}

/// `cargo run --example tpcc` compiles all that tests and examples of the facade depend on.
#[test]
fn the_first_command_builds_no_study_and_no_bench() {
    let manifest = read("Cargo.toml");
    let (_, own) = manifest.split_once("[dev-dependencies]").expect("the facade has tests");
    let (own, _) = own.split_once("\n[").expect("more sections");
    for other in ["criterion", "drtm-bench", "drtm-calvin", "drtm-fabrics", "drtm-paper", "drtm-soak", "drtm-workloads"]
    {
        assert!(!own.contains(&format!("\n{other}")), "the examples build {other}");
    }
}

/// Lines of a package of the yardstick, tests included.
const MOST_LINES: usize = 12_000;

#[test]
fn packages_of_the_yardstick_are_small() {
    for layer in LAYERS.iter().filter(|layer| layer.starts_with("crates/bench") || **layer == "crates/tool") {
        let parts = ["src", "tests", "benches", "examples"];
        let folders = parts.map(|part| format!("{layer}/{part}")).into_iter();
        let files = folders.filter(|folder| Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).exists());
        let lines: usize = files.flat_map(|folder| texts(&folder, true)).map(|(_, text)| text.lines().count()).sum();
        assert!(lines > 0 && lines <= MOST_LINES, "{layer} has {lines} lines");
    }
}

/// Modules at the top of a crate: what a newcomer looks for. A file and its folder are one.
const MOST_ROOMS: usize = 15;

#[test]
fn a_crate_has_few_rooms() {
    for layer in ["crates/rdma", "crates/kv", "crates/txn"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(layer).join("src");
        let entries = fs::read_dir(&folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display()));
        let names = entries.map(|entry| entry.expect("it is listed").path().with_extension(""));
        let rooms = names.collect::<BTreeSet<_>>().len();
        assert!((2..=MOST_ROOMS).contains(&rooms), "{layer}/src has {rooms} modules");
    }
}

#[test]
fn unsafe_code_is_forbidden_outside_htm_and_rdma() {
    for layer in LAYERS.iter().filter(|layer| !["crates/htm", "crates/rdma"].contains(layer)) {
        assert!(read(&format!("{layer}/src/lib.rs")).contains("#![forbid(unsafe_code)]"), "{layer}");
    }
    assert!(read("src/lib.rs").contains("#![forbid(unsafe_code)]"));
}

#[test]
fn every_crate_takes_part_in_the_lints() {
    for manifest in LAYERS.map(|layer| format!("{layer}/Cargo.toml")).iter().map(String::as_str).chain(["Cargo.toml"]) {
        assert!(read(manifest).contains("[lints]\nworkspace = true"), "{manifest}");
    }
}

#[test]
fn no_files_depend_on_each_other_in_a_circle() {
    let mut found = Vec::new();
    for layer in LAYERS {
        let texts = texts(&format!("{layer}/src"), false);
        let files = Crate::new(texts.iter().map(|(module, text)| (module.as_str(), text.as_str())));
        for circle in files.circles() {
            found.push(format!("{layer}: {}\n  {}", circle.join(", "), files.arrows(&circle).join("\n  ")));
        }
    }
    assert!(found.is_empty(), "files depend on each other in a circle:\n{}", found.join("\n"));
}

/// Files of clusters that name nodes: where messages and verbs go, the view, and how nodes are
/// started. All others know shards.
const NAME_NODES: &[&str] = &[
    "acquire",
    "address",
    "builder",
    "carry",
    "change",
    "change::votes",
    "changing",
    "chopped::id",
    "claims",
    "clock",
    "closing",
    "closings",
    "coordinator",
    "deadline",
    "error",
    "events",
    "gather",
    "greet",
    "keeper",
    "learn",
    "log::backup",
    "log::backup::closing",
    "log::backup::learning",
    "log::commit",
    "log::cooperative",
    "log::cooperative::recover",
    "log::cooperative::restore",
    "log::copies",
    "log::outgoing",
    "log::pending",
    "log::reserve",
    "log::tell",
    "next_view",
    "node",
    "ordering",
    "orders",
    "peers",
    "place",
    "placing",
    "reach",
    "remembered",
    "renew",
    "replicas",
    "requests",
    "requests::apply",
    "requests::change",
    "requests::lines",
    "round",
    "shared",
    "smart_nic",
    "start",
    "state",
    "state::lines",
    "state::parts",
    "status",
    "status::visit",
    "tenure",
    "time",
    "view",
    "view::encoding",
    "view::lost",
    "voters",
    "worker",
];

#[test]
fn transactions_name_shards_and_no_nodes() {
    let names_nodes = |text: &str| {
        let (code, _) = text.split_once("\n#[cfg(test)]\nmod ").unwrap_or((text, ""));
        let mut lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        lines.any(|line| line.split(|letter: char| !letter.is_alphanumeric()).any(|word| word == "NodeId"))
    };
    let files = texts("crates/txn/src", false).into_iter().filter(|(_, text)| names_nodes(text));
    let mut found: Vec<String> = files.map(|(module, _)| module).collect();
    found.sort();
    let meant: Vec<String> = NAME_NODES.iter().map(|file| format!("cluster::{file}")).collect();
    assert_eq!(found, meant, "these name nodes, and those are meant to");
}

/// The files of a folder, with or without tests: the path of each one's module, and its text.
fn texts(src: &str, tests: bool) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(src);
    let (mut texts, mut folders) = (Vec::new(), vec![root.clone()]);
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display()));
        for path in entries.map(|entry| entry.expect("an entry of a folder").path()) {
            let is_test = !tests && path.file_stem().is_some_and(|name| name == "tests");
            if path.is_dir() && !is_test {
                folders.push(path);
            } else if path.extension().is_some_and(|kind| kind == "rs") && !is_test {
                let module = module_of(path.strip_prefix(&root).expect("within the folder"));
                texts.push((module, fs::read_to_string(&path).expect("a source file")));
            }
        }
    }
    texts
}

/// The path of a file's module: empty for the crate's root.
fn module_of(file: &Path) -> String {
    let module: PathBuf = match file.file_stem().and_then(|name| name.to_str()) {
        Some("lib" | "main") if file.components().count() == 1 => PathBuf::new(),
        Some("mod") => file.parent().map(Path::to_owned).unwrap_or_default(),
        _ => file.with_extension(""),
    };
    module.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("::")
}

/// An application of one node compiles itself and these (decision 84).
#[test]
fn an_application_builds_few_crates() {
    let tree = ["tree", "--package", "drtm", "--edges", "normal,build", "--prefix", "none", "--offline", "--locked"];
    let cargo = Command::new(env!("CARGO")).args(tree).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    let output = cargo.expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).expect("names are text");
    let crates: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(crates.contains("drtm-txn") && crates.len() <= 20, "{}: {crates:?}", crates.len());
}

/// A change of the surface is seen in `surface.txt`, which is written anew by
/// `DRTM_SURFACE=write cargo test --package drtm --test layers`.
#[test]
fn the_facade_exports_what_the_list_says() {
    let crates = ["htm", "rdma", "kv", "txn", "derive", "chopping", "membership"];
    let files = crates.map(|name| (format!("drtm_{name}"), texts(&format!("crates/{name}/src"), false)));
    let lines = surface::list(&read("src/lib.rs"), &files.into_iter().collect());
    let listed: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/layers/surface.txt");
    if std::env::var_os("DRTM_SURFACE").is_some_and(|value| value == "write") {
        fs::write(&path, &listed).expect("the list can be written");
    }
    let known = read("tests/layers/surface.txt");
    let known: BTreeSet<&str> = known.lines().collect();
    let found: BTreeSet<&str> = listed.lines().collect();
    let (added, removed) = (found.difference(&known), known.difference(&found));
    let changes: Vec<String> =
        added.map(|line| format!("+ {line}")).chain(removed.map(|line| format!("- {line}"))).collect();
    assert!(changes.is_empty(), "write the list anew (DRTM_SURFACE=write) if this is meant:\n{}", changes.join("\n"));
}

#[test]
fn comments_and_markdown_are_wrapped() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut found, mut folders) = (Vec::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display()));
        for path in entries.map(|entry| entry.expect("an entry of a folder").path()) {
            let name = path.strip_prefix(root).expect("within the folder").to_string_lossy().replace('\\', "/");
            let is_hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
            if is_hidden || name == "target" {
                continue;
            }
            let kind = path.extension().and_then(|kind| kind.to_str());
            if path.is_dir() {
                folders.push(path);
            } else if let Some(kind @ ("rs" | "md")) = kind {
                let lines = widths::too_wide(&fs::read_to_string(&path).expect("a text file"), kind == "md");
                found.extend(lines.iter().map(|line| format!("{name}:{line}")));
            }
        }
    }
    found.sort();
    assert!(found.is_empty(), "wider than 100 characters:\n{}", found.join("\n"));
}
