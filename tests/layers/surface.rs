//! Lists what the facade exports: each name, and the public items of what it stands for.
//!
//! Code is read as text, in the form that `rustfmt` gives it. What is `#[doc(hidden)]` is left out.
//! Methods by traits are not listed, but those of a trait are.

use std::collections::{BTreeMap, BTreeSet};

/// The files of a crate: the path of each one's module, and its text.
pub(crate) type Files = Vec<(String, String)>;

/// Returns the lines of the list, in order: `name`, or `name::item`. `facade` is its text, and
/// `crates` the files of the others, by their names in code.
pub(crate) fn list(facade: &str, crates: &BTreeMap<String, Files>) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for (module, path) in reexports(facade) {
        let prefix = if module.is_empty() { String::new() } else { format!("{module}::") };
        match path.as_slice() {
            [of, name] if is_module(&crates[of], name) => {
                add_module(&mut lines, &format!("{prefix}{name}::"), name, &crates[of]);
            }
            [of, name] => {
                let (of, file) = origin(of, name, crates);
                add(&mut lines, &prefix, name, &crates[&of], &file);
            }
            other => panic!("{other:?}: a crate's own name is expected"),
        }
    }
    lines
}

/// Adds what a module re-exports, and the public modules that it has.
fn add_module(lines: &mut BTreeSet<String>, prefix: &str, module: &str, files: &Files) {
    let text = &files.iter().find(|(found, _)| found == module).expect("a module has a file").1;
    for (_, path) in reexports(text) {
        let [file, item] = path.as_slice() else { panic!("{path:?} is deeper than a file") };
        add(lines, prefix, item, files, &format!("{module}::{file}"));
    }
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("pub mod ").and_then(|rest| rest.strip_suffix(';')) {
            add_module(lines, &format!("{prefix}{name}::"), &format!("{module}::{name}"), files);
        }
    }
}

fn is_module(files: &Files, name: &str) -> bool {
    let declared = format!("pub mod {name};");
    files.iter().any(|(module, text)| module.is_empty() && text.lines().any(|line| line == declared))
}

/// Returns the crate and the file of its root that a name comes from.
fn origin(of: &str, name: &str, crates: &BTreeMap<String, Files>) -> (String, String) {
    let root = &crates[of].iter().find(|(module, _)| module.is_empty()).expect("a crate has a root").1;
    let from = reexports(root).find(|(_, path)| path.last().is_some_and(|last| last == name));
    match from {
        Some((_, path)) if crates.contains_key(&path[0]) => origin(&path[0], name, crates),
        Some((_, path)) => (of.to_owned(), path[0].clone()),
        // A macro is at the root, wherever it is written.
        None => (of.to_owned(), name.to_owned()),
    }
}

/// Returns what a file re-exports: the module in which it does, and the path.
fn reexports(text: &str) -> impl Iterator<Item = (String, Vec<String>)> {
    let (mut found, mut module, mut hidden) = (Vec::new(), String::new(), false);
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let words = line.trim_start();
        if let Some(name) = line.strip_prefix("pub mod ").and_then(|rest| rest.strip_suffix(" {")) {
            name.clone_into(&mut module);
        } else if line == "}" {
            module.clear();
        } else if words.starts_with("#[doc(hidden)]") {
            hidden = true;
        } else if let Some(tree) = words.strip_prefix("pub use ") {
            let mut tree = tree.to_owned();
            while !tree.contains(';') {
                tree.push_str(lines.next().unwrap_or(";").trim());
            }
            let tree = tree.trim_end_matches(';').trim_start_matches("self::");
            let (path, names) = tree.rsplit_once("::").unwrap_or(("", tree));
            let (path, names) = tree.split_once("::{").unwrap_or((path, names));
            for name in names.trim_end_matches('}').split(',').map(str::trim).filter(|name| !name.is_empty()) {
                let path = path.split("::").chain([name]).map(str::to_owned).collect();
                found.extend((!hidden).then(|| (module.clone(), path)));
            }
            hidden = false;
        } else if !words.starts_with("#[") && !words.starts_with("//") {
            hidden = false;
        }
    }
    found.into_iter()
}

/// Adds a name with its items: those of its definition, and of its own implementations. These are
/// in the same file, beside it or below; or anywhere, if no other file defines such a name.
fn add(lines: &mut BTreeSet<String>, prefix: &str, name: &str, files: &Files, file: &str) {
    lines.insert(format!("{prefix}{name}"));
    let folder = file.rsplit_once("::").map(|(folder, _)| folder);
    let is_beside = |module: &str| folder.is_some() && module.rsplit_once("::").map(|(folder, _)| folder) == folder;
    let is_near = |module: &str| is_beside(module) || module == file || module.starts_with(&format!("{file}::"));
    let is_only = files.iter().filter(|(_, text)| text.lines().any(|line| defines(line, name))).count() == 1;
    for (_, text) in files.iter().filter(|(module, _)| is_only || is_near(module)) {
        for item in items(text, name) {
            lines.insert(format!("{prefix}{name}::{item}"));
        }
    }
}

/// Returns whether a line begins the definition of a type or a trait of this name, public or not.
fn defines(line: &str, name: &str) -> bool {
    let kinds = ["struct ", "enum ", "trait "];
    let rest = line.strip_prefix("pub ").or_else(|| line.strip_prefix("pub(crate) ")).unwrap_or(line);
    kinds.iter().any(|kind| rest.strip_prefix(kind).is_some_and(|rest| is_named(rest, name)))
}

/// Returns whether a text begins with this name.
fn is_named(text: &str, name: &str) -> bool {
    let is_longer = |rest: &str| rest.starts_with(|next: char| next.is_alphanumeric() || next == '_');
    text.strip_prefix(name).is_some_and(|rest| !is_longer(rest))
}

/// What the lines at hand are a part of.
#[derive(Clone, Copy, PartialEq)]
enum Within {
    Nothing,
    Fields,
    Variants,
    Trait,
    Methods,
}

/// Returns the public items of a type or a trait that a file has.
fn items(text: &str, name: &str) -> Vec<String> {
    let (mut items, mut within, mut hidden, mut header) = (Vec::new(), Within::Nothing, false, String::new());
    for line in text.lines() {
        if line.starts_with('}') {
            within = Within::Nothing;
        } else if within == Within::Nothing {
            // A header can have several lines.
            if line.starts_with("pub ") || line.starts_with("impl") {
                line.clone_into(&mut header);
            } else if !header.is_empty() {
                header.push_str(line);
            }
            if header.ends_with('{') {
                within = begun(&header, name);
                header.clear();
            } else if header.ends_with(';') || header.ends_with('}') {
                header.clear();
            }
        } else if line.trim_start().starts_with("#[doc(hidden)]") {
            hidden = true;
        } else if let Some(line) = line.strip_prefix("    ").filter(|line| !line.starts_with([' ', '#', '/'])) {
            let item = match within {
                Within::Nothing => None,
                Within::Variants => Some(line),
                Within::Trait => line.split(' ').any(|word| ["fn", "const", "type"].contains(&word)).then_some(line),
                Within::Fields | Within::Methods => line.strip_prefix("pub "),
            };
            let named = item.map(|item| item.split(['(', '<', ':', ',', ' ', ';', '=']));
            let keywords = ["", "fn", "const", "type", "async", "unsafe"];
            let named = named.and_then(|mut words| words.find(|word| !keywords.contains(word)));
            items.extend(named.filter(|word| !hidden && word.starts_with(char::is_alphabetic)).map(str::to_owned));
            hidden = false;
        }
    }
    items
}

/// Returns what begins with a header, if it is of this name.
fn begun(header: &str, name: &str) -> Within {
    if let Some(rest) = header.strip_prefix("impl") {
        let own = without_parameters(rest).trim_start();
        return if is_named(own, name) && !own.contains(" for ") { Within::Methods } else { Within::Nothing };
    }
    let kinds = [("struct ", Within::Fields), ("enum ", Within::Variants), ("trait ", Within::Trait)];
    let rest = header.strip_prefix("pub ").unwrap_or_default();
    let begun = kinds.into_iter().find(|(kind, _)| rest.strip_prefix(kind).is_some_and(|rest| is_named(rest, name)));
    begun.map_or(Within::Nothing, |(_, within)| within)
}

/// Returns what follows the parameters that a header begins with, if there are any.
fn without_parameters(header: &str) -> &str {
    let mut depth = 0;
    for (at, symbol) in header.char_indices() {
        match symbol {
            '<' => depth += 1,
            '>' if !header[..at].ends_with('-') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return header[at..].trim_start_matches('>');
        }
    }
    ""
}
