//! What has been seen of a type: nodes, and the choices that are still open.

use std::collections::HashMap;

/// The most nodes of a type.
const MOST_NODES: usize = 1 << 16;

/// A value without parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Leaf {
    Bool,
    /// An integer or a float, by its name.
    Number(&'static str),
    Char,
    String,
    Bytes,
    Unit,
}

/// What a type asks a deserializer for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Form {
    Leaf(Leaf),
    Option,
    Sequence,
    Map,
    Tuple(usize),
    Struct(&'static str, &'static [&'static str]),
    TupleStruct(&'static str, usize),
    Newtype(&'static str),
    UnitStruct(&'static str),
    Enum(&'static str, &'static [&'static str]),
}

impl Form {
    /// Returns the number of branches. A type without a choice has one, with its parts.
    fn branches(&self) -> usize {
        match self {
            Self::Leaf(_) | Self::UnitStruct(_) => 0,
            Self::Enum(_, variants) => variants.len(),
            _ => 1,
        }
    }

    /// Returns whether its branches may be left out.
    fn is_optional(&self) -> bool {
        matches!(self, Self::Option | Self::Sequence | Self::Map)
    }

    /// Returns whether a value of it is one of several branches, or none.
    fn is_choice(&self) -> bool {
        self.is_optional() || matches!(self, Self::Enum(..))
    }
}

/// What is in a variant of an enum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Unit,
    Newtype,
    Tuple(usize),
    Struct(&'static [&'static str]),
}

/// How far a branch of a choice has been seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Not,
    /// It failed when this many branches had been finished. Later it may find an end.
    Failed(u32),
    /// It was the branch with this number to be finished.
    Finished(u32),
}

/// A variant of an enum, or what is in another composite type.
#[derive(Debug)]
pub(super) struct Branch {
    pub(super) content: Option<Content>,
    /// The nodes of its parts. `None` for one that was not seen.
    pub(super) parts: Vec<Option<usize>>,
    seen: Seen,
    /// Whether the way through it to an open choice has failed.
    is_closed: bool,
}

/// A type, or a value without parts in its place.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) form: Form,
    pub(super) branches: Vec<Branch>,
    /// The made-up value of a leaf that is tried next.
    attempt: usize,
}

/// The place of a part: a node's branch, and the part's number in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) node: usize,
    pub(super) branch: usize,
    pub(super) part: usize,
}

impl Slot {
    /// The place of the described type: node 0 stands for no type, and has it as its part.
    pub(super) const ROOT: Self = Self { node: 0, branch: 0, part: 0 };
}

/// What to answer at a choice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    /// The branch. `None` leaves out what is optional.
    pub(super) branch: Option<usize>,
    purpose: Purpose,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// To see the branch.
    See,
    /// To come to an open choice further in.
    Pass,
    /// To end.
    End,
}

/// What has been seen of a type.
#[derive(Debug)]
pub(super) struct Graph {
    pub(super) nodes: Vec<Node>,
    /// Nodes of composite types, by the names of their visitors' types.
    by_type: HashMap<(&'static str, Form), usize>,
    /// The number of branches that have been finished.
    finished: u32,
    /// The choices of the present pass that a value is being made up for.
    path: Vec<usize>,
    /// The last leaf that was read in this pass, and how many values there are for it.
    last: Option<(usize, usize)>,
    /// Whether this pass has seen anything new, or has settled why it failed.
    has_learnt: bool,
    is_settled: bool,
    /// Whether this deserializer itself has refused.
    has_refused: bool,
}

impl Default for Graph {
    fn default() -> Self {
        let root = Node { form: Form::Tuple(1), branches: vec![Branch::new()], attempt: 0 };
        Self {
            nodes: vec![root],
            by_type: HashMap::new(),
            finished: 0,
            path: Vec::new(),
            last: None,
            has_learnt: false,
            is_settled: false,
            has_refused: false,
        }
    }
}

impl Branch {
    fn new() -> Self {
        Self { content: None, parts: Vec::new(), seen: Seen::Not, is_closed: false }
    }
}

impl Graph {
    pub(super) fn begin_pass(&mut self) {
        self.path.clear();
        self.last = None;
        (self.has_learnt, self.is_settled, self.has_refused) = (false, false, false);
    }

    /// Ends a pass. Returns whether another may see more.
    pub(super) fn end_pass(&mut self, is_done: bool) -> bool {
        if !is_done {
            self.settle(None);
        }
        self.has_learnt
    }

    /// Returns the part in a place, if it has been seen.
    pub(super) fn part(&self, at: Slot) -> Option<usize> {
        *self.nodes[at.node].branches[at.branch].parts.get(at.part)?
    }

    /// Returns the node of a composite type, whose visitor has a type of this name, and notes it in
    /// its place. `None` if there are too many nodes.
    pub(super) fn composite(&mut self, at: Slot, visitor: &'static str, form: Form) -> Option<usize> {
        let key = (visitor, form);
        let node = match self.by_type.get(&key) {
            Some(node) => *node,
            None => {
                let node = self.add(key.1.clone())?;
                self.by_type.insert(key, node);
                node
            }
        };
        self.note(at, node);
        Some(node)
    }

    /// Returns the node of a leaf, and which value is to be made up for it. There are `values`.
    pub(super) fn leaf(&mut self, at: Slot, leaf: Leaf, values: usize) -> Option<usize> {
        let is_leaf = |node: &usize| matches!(self.nodes[*node].form, Form::Leaf(_));
        let node = match self.part(at).filter(is_leaf) {
            Some(node) => node,
            None => {
                let node = self.add(Form::Leaf(leaf))?;
                self.note(at, node);
                node
            }
        };
        self.last = Some((node, values));
        Some(self.nodes[node].attempt)
    }

    fn add(&mut self, form: Form) -> Option<usize> {
        if self.nodes.len() == MOST_NODES {
            self.has_refused = true;
            return None;
        }
        let branches = (0..form.branches()).map(|_| Branch::new()).collect();
        self.nodes.push(Node { form, branches, attempt: 0 });
        Some(self.nodes.len() - 1)
    }

    fn note(&mut self, at: Slot, node: usize) {
        let parts = &mut self.nodes[at.node].branches[at.branch].parts;
        if parts.len() <= at.part {
            parts.resize(at.part + 1, None);
        }
        parts[at.part].get_or_insert(node);
    }

    /// Notes what is in a variant.
    pub(super) fn note_content(&mut self, node: usize, branch: usize, content: Content) {
        self.nodes[node].branches[branch].content.get_or_insert(content);
    }

    /// Notes that this deserializer refuses a request, whatever the value would be.
    pub(super) fn refuse(&mut self) {
        self.has_refused = true;
    }

    /// Chooses a branch of a node: one that has not been seen, or that leads to such a one.
    /// `None` if no branch is known to end.
    pub(super) fn choose(&mut self, node: usize) -> Option<Choice> {
        let branches = &self.nodes[node].branches;
        if !self.path.contains(&node) {
            if let Some(branch) = branches.iter().position(|branch| self.is_open(branch)) {
                return Some(Choice { branch: Some(branch), purpose: Purpose::See });
            }
            let leads = |branch: &Branch| !branch.is_closed && self.leads_to_open(node, branch);
            if let Some(branch) = branches.iter().position(leads) {
                return Some(Choice { branch: Some(branch), purpose: Purpose::Pass });
            }
        }
        let first = branches.iter().enumerate().filter_map(|(number, branch)| match branch.seen {
            Seen::Finished(order) => Some((order, number)),
            _ => None,
        });
        // The first branch of a type to be finished has only others within it that were finished
        // before it, so it ends.
        let branch = match first.min() {
            _ if self.nodes[node].form.is_optional() => None,
            Some((_, number)) => Some(number),
            None => {
                self.has_refused = true;
                return None;
            }
        };
        Some(Choice { branch, purpose: Purpose::End })
    }

    fn is_open(&self, branch: &Branch) -> bool {
        match branch.seen {
            Seen::Not => true,
            Seen::Failed(finished) => finished < self.finished,
            Seen::Finished(_) => false,
        }
    }

    /// Returns whether there is an open choice within a branch of a node, on a way that no choice
    /// of the path is on.
    fn leads_to_open(&self, node: usize, branch: &Branch) -> bool {
        let mut is_met = vec![false; self.nodes.len()];
        self.path.iter().chain([&node]).for_each(|node| is_met[*node] = true);
        let mut next: Vec<usize> = branch.parts.iter().copied().flatten().collect();
        while let Some(node) = next.pop() {
            if std::mem::replace(&mut is_met[node], true) {
                continue;
            }
            let Node { form, branches, .. } = &self.nodes[node];
            if form.is_choice() && branches.iter().any(|branch| self.is_open(branch)) {
                return true;
            }
            next.extend(branches.iter().flat_map(|branch| branch.parts.iter().copied().flatten()));
        }
        false
    }

    /// Begins to make up the value of a choice.
    pub(super) fn enter(&mut self, node: usize) {
        self.path.push(node);
    }

    /// Ends it.
    pub(super) fn leave(&mut self, node: usize, choice: Choice, is_done: bool) {
        while self.path.pop().is_some_and(|last| last != node) {}
        match choice {
            Choice { branch: Some(branch), purpose } if !is_done => self.settle(Some((node, branch, purpose))),
            Choice { branch: Some(branch), purpose: Purpose::See } => {
                self.nodes[node].branches[branch].seen = Seen::Finished(self.finished);
                self.finished += 1;
                self.has_learnt = true;
            }
            _ => {}
        }
    }

    /// Settles what is to be tried in place of what has failed, once in a pass: another value of
    /// the last leaf, or another branch of the innermost choice.
    fn settle(&mut self, choice: Option<(usize, usize, Purpose)>) {
        if self.is_settled {
            return;
        }
        if let Some((leaf, values)) = self.last
            && !self.has_refused
            && self.nodes[leaf].attempt + 1 < values
        {
            self.nodes[leaf].attempt += 1;
        } else if let Some((node, branch, purpose)) = choice {
            let finished = self.finished;
            let branch = &mut self.nodes[node].branches[branch];
            match purpose {
                Purpose::See => branch.seen = Seen::Failed(finished),
                Purpose::Pass => branch.is_closed = true,
                // The choice around it may do without.
                Purpose::End => return,
            }
        } else {
            return;
        }
        (self.is_settled, self.has_learnt) = (true, true);
    }

    /// Returns whether everything has been seen.
    pub(super) fn is_whole(&self) -> bool {
        self.nodes.iter().enumerate().all(|(number, Node { form, branches, .. })| {
            let is_choice = form.is_choice();
            branches.iter().all(|branch| {
                let expected = match (form, branch.content) {
                    _ if number == 0 => 1,
                    (Form::Struct(_, fields), _) => fields.len(),
                    (Form::TupleStruct(_, length) | Form::Tuple(length), _) => parts_of(*length),
                    (Form::Map, _) => 2,
                    (Form::Enum(..), None) => return false,
                    (Form::Enum(..), Some(content)) => match content {
                        Content::Unit => 0,
                        Content::Newtype => 1,
                        Content::Tuple(length) => parts_of(length),
                        Content::Struct(fields) => fields.len(),
                    },
                    _ => 1,
                };
                let is_seen = !is_choice || matches!(branch.seen, Seen::Finished(_));
                is_seen && branch.parts.len() >= expected && branch.parts.iter().all(Option::is_some)
            })
        })
    }
}

/// The most parts of a tuple that are told apart. Longer ones are arrays, whose parts are alike.
const MOST_PARTS: usize = 64;

/// Returns the number of parts that stand for those of a tuple.
pub(super) fn parts_of(length: usize) -> usize {
    if length > MOST_PARTS { 1 } else { length }
}
