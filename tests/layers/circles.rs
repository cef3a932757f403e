//! Finds files that depend on each other in a circle.
//!
//! File A depends on file B if A names an item that B defines. Names are followed through `use`,
//! re-exports and aliases to the file that defines the item, so a facade (`pub use`) ties nothing
//! together. Two kinds of arrows are left out:
//!
//! - `mod` and the re-exports of a module's own children: they only say where code is;
//! - from a file to the parent modules that it is part of.
//!
//! Code is read as text: comments, `#[cfg(test)]` modules and the bodies of macros' rules are not
//! understood, and of what `use path::*` imports only paths of two names or more are seen. An item
//! that a macro defines counts as one of the module that its path ends in.

use std::collections::{BTreeMap, BTreeSet};

/// A module's path, without the crate's name: empty for the root.
type Path = Vec<String>;

/// What one file defines and names.
#[derive(Debug, Default)]
struct File {
    definitions: BTreeSet<String>,
    /// What a name stands for, by `use`.
    aliases: BTreeMap<String, Path>,
    /// Modules whose names are all imported (`use path::*`).
    globs: Vec<Path>,
    /// Paths in code, as written.
    mentions: BTreeSet<Path>,
}

/// The files of one crate.
#[derive(Debug)]
pub(crate) struct Crate {
    files: BTreeMap<Path, File>,
}

impl Crate {
    /// Reads a crate's files: a module's path with `::`, and its text.
    pub(crate) fn new<'t>(texts: impl IntoIterator<Item = (&'t str, &'t str)>) -> Self {
        let parse = |(path, text): (&str, &str)| {
            (path.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect(), File::parse(text))
        };
        Self { files: texts.into_iter().map(parse).collect() }
    }

    /// Returns the circles: groups of files each of which depends on all others of its group.
    pub(crate) fn circles(&self) -> Vec<Vec<String>> {
        let reach: BTreeMap<&Path, BTreeSet<&Path>> =
            self.files.keys().map(|file| (file, self.reached_from(file))).collect();
        let mut circles = BTreeSet::new();
        for (file, reached) in &reach {
            if reached.contains(file) {
                let back = |other: &&&Path| reach[**other].contains(file);
                circles.insert(reached.iter().filter(back).map(|path| path.join("::")).collect::<Vec<_>>());
            }
        }
        circles.into_iter().collect()
    }

    /// Returns what ties a circle: each arrow between two of its files.
    pub(crate) fn arrows(&self, circle: &[String]) -> Vec<String> {
        let mut arrows = Vec::new();
        for (from, file) in &self.files {
            for mention in &file.mentions {
                let Some(to) = self.arrow(from, mention) else { continue };
                if [from, to].iter().all(|end| circle.contains(&end.join("::"))) {
                    arrows.push(format!("{} -> {}: {}", from.join("::"), to.join("::"), mention.join("::")));
                }
            }
        }
        arrows
    }

    /// Returns what a file depends on, directly or not.
    fn reached_from<'c>(&'c self, start: &Path) -> BTreeSet<&'c Path> {
        let mut reached = BTreeSet::new();
        let mut waiting = vec![start];
        while let Some(from) = waiting.pop() {
            for to in self.files[from].mentions.iter().filter_map(|mention| self.arrow(from, mention)) {
                if reached.insert(to) {
                    waiting.push(to);
                }
            }
        }
        reached
    }

    /// Returns the file that `mention`, in `from`, makes it depend on: not itself, and not a
    /// parent.
    fn arrow<'c>(&'c self, from: &Path, mention: &Path) -> Option<&'c Path> {
        let to = self.definer(from, mention, 0)?;
        (!from.starts_with(to)).then_some(to)
    }

    /// Returns the file that defines what `path` means in `module`; `None` if another crate does.
    fn definer<'c>(&'c self, module: &Path, path: &[String], depth: usize) -> Option<&'c Path> {
        // Aliases that stand for each other end here.
        let (first, rest) = path.split_first().filter(|_| depth < 16)?;
        let (file, own) = self.files.get_key_value(module).map(|(path, file)| (file, path))?;
        let child: Path = module.iter().chain([first]).cloned().collect();
        match first.as_str() {
            "crate" => self.within(&Path::new(), rest, depth),
            "self" => self.within(module, rest, depth),
            "super" => self.within(&module[..module.len().checked_sub(1)?].to_vec(), rest, depth),
            _ if self.files.contains_key(&child) => self.within(&child, rest, depth),
            name if file.definitions.contains(name) => Some(own),
            name => match file.aliases.get(name) {
                Some(target) => {
                    let whole: Path = target.iter().chain(rest).cloned().collect();
                    // A crate's name may be that of what is imported from it.
                    (whole != path).then(|| self.definer(module, &whole, depth + 1))?
                }
                None => {
                    let modules = file.globs.iter().filter_map(|glob| self.module(module, glob));
                    modules.filter(|other| other != module).find_map(|other| self.definer(&other, path, depth + 1))
                }
            },
        }
    }

    /// Returns the module that a path of modules, in `from`, leads to.
    fn module(&self, from: &Path, path: &[String]) -> Option<Path> {
        let mut module = from.clone();
        for part in path {
            match part.as_str() {
                "crate" => module.clear(),
                "self" => {}
                "super" => drop(module.pop()?),
                child => module.push(child.to_owned()),
            }
        }
        self.files.contains_key(&module).then_some(module)
    }

    /// Likewise for a path that begins in a module of the crate: what is found nowhere is its own.
    fn within<'c>(&'c self, module: &Path, path: &[String], depth: usize) -> Option<&'c Path> {
        let (own, _) = self.files.get_key_value(module)?;
        if path.is_empty() { Some(own) } else { self.definer(module, path, depth).or(Some(own)) }
    }
}

impl File {
    fn parse(text: &str) -> Self {
        let mut file = Self::default();
        let code = without_tests(text);
        let mut lines = code.lines().map(|line| line.split_once("//").map_or(line, |(code, _)| code));
        while let Some(line) = lines.next() {
            let words = line.trim_start();
            let visible = words.strip_prefix("pub").map_or(words, |rest| {
                let rest = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')).map_or(rest, |(_, rest)| rest);
                rest.trim_start()
            });
            if let Some(tree) = visible.strip_prefix("use ") {
                let mut tree = tree.to_owned();
                while !tree.contains(';') {
                    let Some(next) = lines.next() else { break };
                    tree.push_str(next.trim());
                }
                let is_export = words.len() != visible.len();
                file.import(&Path::new(), tree.split(';').next().unwrap_or_default(), is_export);
            } else {
                if line.len() == words.len() {
                    file.definitions.extend(defined(visible));
                }
                file.mentions.extend(paths(line));
            }
        }
        file
    }

    /// Notes what a `use` tree imports. A re-export is followed by those that use it.
    fn import(&mut self, prefix: &Path, tree: &str, is_export: bool) {
        let tree = tree.trim();
        let extended = |path: &str| -> Path {
            prefix
                .iter()
                .cloned()
                .chain(path.split("::").filter(|part| !part.is_empty()).map(|part| part.trim().to_owned()))
                .collect()
        };
        if let Some((path, list)) = tree.split_once('{') {
            let prefix = extended(path);
            let list = list.strip_suffix('}').unwrap_or(list);
            let (mut depth, mut start) = (0, 0);
            for (at, symbol) in list.char_indices().chain([(list.len(), ',')]) {
                match symbol {
                    '{' => depth += 1,
                    '}' => depth -= 1,
                    ',' if depth == 0 => {
                        self.import(&prefix, &list[start..at], is_export);
                        start = at + 1;
                    }
                    _ => {}
                }
            }
        } else if let Some(path) = tree.strip_suffix("::*") {
            self.globs.push(extended(path));
        } else if !tree.is_empty() {
            let (path, name) = tree.split_once(" as ").map_or((tree, None), |(path, name)| (path, Some(name.trim())));
            let mut path = extended(path);
            if path.last().is_some_and(|last| last == "self") {
                path.pop();
            }
            let Some(last) = path.last().cloned() else { return };
            if !is_export {
                self.mentions.insert(path.clone());
            }
            self.aliases.insert(name.map_or(last, str::to_owned), path);
        }
    }
}

/// A file's text up to the tests in it.
fn without_tests(text: &str) -> &str {
    text.find("#[cfg(test)]\nmod tests {").map_or(text, |end| &text[..end])
}

/// The name that a line defines, if it does.
fn defined(line: &str) -> Option<String> {
    let mut words = line.split(|symbol: char| !symbol.is_alphanumeric() && symbol != '_' && symbol != '!');
    let mut word = words.next()?;
    while ["const", "async", "unsafe", "default", "extern"].contains(&word) {
        let next = words.next()?;
        if word == "const" && !["fn", "unsafe", "async"].contains(&next) {
            return Some(next.to_owned());
        }
        word = next;
    }
    let kinds = ["fn", "struct", "enum", "union", "trait", "type", "static", "macro_rules!"];
    kinds.contains(&word).then(|| words.find(|word| !word.is_empty() && *word != "mut")).flatten().map(str::to_owned)
}

/// The paths of two names or more in a line of code.
fn paths(line: &str) -> impl Iterator<Item = Path> {
    let is_part = |symbol: char| symbol.is_alphanumeric() || symbol == '_' || symbol == ':';
    line.split(move |symbol| !is_part(symbol)).filter_map(|token| {
        let token = token.trim_matches(':');
        let path: Path = token.split("::").map(str::to_owned).collect();
        (path.len() > 1 && path.iter().all(|part| !part.is_empty() && !part.contains(':'))).then_some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::Crate;

    fn circles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        Crate::new(files.iter().copied()).circles()
    }

    #[test]
    fn a_circle_is_found_however_its_names_are_written() {
        let upper = "use crate::lower::Floor;\npub struct Roof(Floor);";
        for lower in [
            "use crate::upper::Roof;\npub struct Floor;",
            "use super::upper::{self, Roof as Top};\npub struct Floor;",
            "use crate::Roof;\npub struct Floor;",
            "use super::*;\npub struct Floor;\nfn under(_: Roof) {}\nconst TOP: u8 = Roof::TOP;",
            "pub struct Floor;\nfn under() {\n    crate::upper::build();\n}",
            "use crate::{\n    upper::{\n        Roof,\n    },\n};\npub struct Floor;",
        ] {
            let root = ("", "mod lower;\nmod upper;\npub use upper::Roof;");
            assert_eq!(circles(&[root, ("lower", lower), ("upper", upper)]), [["lower", "upper"]], "{lower}");
        }
    }

    #[test]
    fn a_circle_of_three_is_found_and_told_with_its_arrows() {
        let files = Crate::new([
            ("", "mod a;"),
            ("a", "use crate::b::B;\npub struct A;"),
            ("b", "use crate::c::d::D;\npub struct B;"),
            ("c", "pub mod d;"),
            ("c::d", "use crate::a::A;\npub struct D;"),
            ("e", "use crate::a::A;"),
        ]);
        let found = files.circles();
        assert_eq!(found, [["a", "b", "c::d"]]);
        let arrows = ["a -> b: crate::b::B", "b -> c::d: crate::c::d::D", "c::d -> a: crate::a::A"];
        assert_eq!(files.arrows(&found[0]), arrows);
    }

    #[test]
    fn facades_parents_tests_and_comments_tie_nothing_together() {
        let parent = "mod left;\nmod right;\npub use left::Left;\npub use right::Right;\npub struct Shared;\n\
            fn make() {\n    left::make();\n}";
        let left = "use super::{Right, Shared};\npub struct Left;\npub fn make() {}";
        let right = "// As crate::parent::Left.\nuse super::Shared;\npub struct Right;\n\
            #[cfg(test)]\nmod tests {\n    use super::super::Left;\n}";
        let files = [("", "mod parent;"), ("parent", parent), ("parent::left", left), ("parent::right", right)];
        assert!(circles(&files).is_empty());
    }
}
