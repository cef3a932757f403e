//! The description of a graph, in the notation of the module above.

use std::{collections::HashMap, fmt::Write};

use super::graph::{Branch, Content, Form, Graph, Leaf, Slot, parts_of};

/// Returns the description of a type.
pub(super) fn of(graph: &Graph) -> String {
    let mut text = Text { graph, out: String::new(), named: HashMap::new(), count: HashMap::new(), path: Vec::new() };
    text.part(graph.part(Slot::ROOT));
    text.out
}

struct Text<'g> {
    graph: &'g Graph,
    out: String,
    /// The names of the types in the text, by their nodes.
    named: HashMap<usize, String>,
    /// How many types have a name.
    count: HashMap<&'static str, usize>,
    /// The unnamed types around.
    path: Vec<usize>,
}

impl Text<'_> {
    fn add(&mut self, text: &str) {
        self.out.push_str(text);
    }

    fn part(&mut self, node: Option<usize>) {
        let Some(number) = node else { return self.add("?") };
        let node = &self.graph.nodes[number];
        let name = match &node.form {
            Form::Leaf(leaf) => return self.add(name_of(*leaf)),
            Form::Struct(name, _) | Form::TupleStruct(name, _) | Form::Newtype(name) => Some(*name),
            Form::UnitStruct(name) | Form::Enum(name, _) => Some(*name),
            Form::Option | Form::Sequence | Form::Map | Form::Tuple(_) => None,
        };
        match name {
            Some(name) => {
                if let Some(known) = self.named.get(&number) {
                    let reference = format!("^{known}");
                    return self.add(&reference);
                }
                let count = self.count.entry(name).or_default();
                *count += 1;
                let own = if *count == 1 { quoted(name) } else { format!("{}'{count}", quoted(name)) };
                self.add(&own);
                self.named.insert(number, own);
            }
            None => {
                if let Some(at) = self.path.iter().position(|outer| *outer == number) {
                    let levels = self.path.len() - at;
                    // It is not the text that fails.
                    let _ = write!(self.out, "^{levels}");
                    return;
                }
                self.path.push(number);
            }
        }
        self.inside(number);
        if name.is_none() {
            self.path.pop();
        }
    }

    fn inside(&mut self, number: usize) {
        let node = &self.graph.nodes[number];
        let first = node.branches.first();
        match &node.form {
            Form::Leaf(_) => {}
            Form::UnitStruct(_) => self.add("()"),
            Form::Option => {
                self.nth(first, 0);
                self.add("?");
            }
            Form::Sequence => {
                self.add("[");
                self.nth(first, 0);
                self.add("]");
            }
            Form::Map => {
                self.add("{");
                self.nth(first, 0);
                self.add(":");
                self.nth(first, 1);
                self.add("}");
            }
            Form::Tuple(length) | Form::TupleStruct(_, length) => self.tuple(first, *length),
            Form::Newtype(_) => self.tuple(first, 1),
            Form::Struct(_, fields) => self.fields(first, fields),
            Form::Enum(_, variants) => {
                self.add("<");
                for (at, (variant, branch)) in variants.iter().zip(&node.branches).enumerate() {
                    self.add(if at > 0 { "|" } else { "" });
                    self.add(&quoted(variant));
                    match branch.content {
                        None => self.add("?"),
                        Some(Content::Unit) => {}
                        Some(Content::Newtype) => self.tuple(Some(branch), 1),
                        Some(Content::Tuple(length)) => self.tuple(Some(branch), length),
                        Some(Content::Struct(fields)) => self.fields(Some(branch), fields),
                    }
                }
                self.add(">");
            }
        }
    }

    /// Describes a part of a branch.
    fn nth(&mut self, branch: Option<&Branch>, part: usize) {
        self.part(branch.and_then(|branch| *branch.parts.get(part)?));
    }

    fn fields(&mut self, branch: Option<&Branch>, fields: &[&str]) {
        self.add("{");
        for (at, field) in fields.iter().enumerate() {
            self.add(if at > 0 { "," } else { "" });
            self.add(&quoted(field));
            self.add(":");
            self.nth(branch, at);
        }
        self.add("}");
    }

    fn tuple(&mut self, branch: Option<&Branch>, length: usize) {
        self.add("(");
        // Parts that follow each other and read alike are counted.
        let mut last: Option<(usize, usize)> = None;
        for at in 0..length {
            let before = self.out.len();
            self.nth(branch, if parts_of(length) < length { 0 } else { at });
            let own = self.out.split_off(before);
            match &mut last {
                Some((begin, times)) if self.out[*begin..] == own => *times += 1,
                _ => {
                    self.times(last);
                    self.add(if at > 0 { "," } else { "" });
                    last = Some((self.out.len(), 1));
                    self.add(&own);
                }
            }
        }
        self.times(last);
        self.add(")");
    }

    fn times(&mut self, part: Option<(usize, usize)>) {
        if let Some((_, times)) = part.filter(|(_, times)| *times > 1) {
            // It is not the text that fails.
            let _ = write!(self.out, "*{times}");
        }
    }
}

const fn name_of(leaf: Leaf) -> &'static str {
    match leaf {
        Leaf::Bool => "bool",
        Leaf::Number(name) => name,
        Leaf::Char => "char",
        Leaf::String => "string",
        Leaf::Bytes => "bytes",
        Leaf::Unit => "()",
    }
}

/// Returns a name, in quotes if it is no identifier.
fn quoted(name: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || letter == '_';
    if !name.is_empty() && name.chars().all(is_plain) { name.to_owned() } else { format!("{name:?}") }
}
