//! Additions that are deferred: which columns of which publishers.
//!
//! # Why the premise is enough
//!
//! A publication is a moment when neither a publisher nor a subscriber is under way. So each of
//! them is wholly before or after it. A publisher's additions take effect with the first
//! publication after it. So it comes after all subscribers before that moment, and before those
//! after it. If no path of conflicts leads from publishers to subscribers, nothing else orders the
//! two groups. The transactions between two publications can then be put in order as first all
//! those that are connected to subscribers, then all those that are connected to publishers.
//!
//! All deferrals share one publication. With one for each, two deferrals could make a cycle: each
//! one's publishers conflict with the other's subscribers.

use crate::{
    cycle::{Cycle, Step, Through},
    describe::Kind,
    footprint::Touch,
    graph::{Graph, Moment},
    mutation::{self, Mutation},
    program::{PieceId, Program},
};

/// An addition that is deferred: of one transaction, to columns of one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deferral {
    /// The publisher's place in the program.
    pub publisher: usize,
    /// The places of its subscribers: transactions that read or write the columns, and those that
    /// read them by two rounds.
    pub subscribers: Vec<usize>,
    /// The column, with its table: `customer.balance`.
    pub column: String,
    pub(crate) table: usize,
    pub(crate) columns: u64,
}

impl Deferral {
    /// Returns whether a piece accesses the columns. A search does not.
    pub(crate) fn concerns(&self, program: &Program, piece: PieceId) -> bool {
        let mut accesses = program.at(piece).accesses.iter().filter(|access| access.kind != Kind::Search);
        accesses.any(|access| access.table == self.table && access.columns & self.columns != 0)
    }
}

/// An addition that cannot be deferred, as another path leads to a subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undeferred {
    /// The publisher's place in the program.
    pub publisher: usize,
    /// The column, with its table.
    pub column: String,
    /// The path, piece by piece.
    pub path: String,
}

/// Returns what could be deferred: columns that a transaction only adds to, and that others access
/// otherwise.
pub(crate) fn candidates(program: &Program, touches: &[Vec<Vec<Touch>>], readers: &[Vec<Touch>]) -> Vec<Deferral> {
    let columns = program
        .tables
        .iter()
        .enumerate()
        .flat_map(|(table, known)| (0..known.columns.len().max(1)).map(move |place| (table, place, 1 << place)));
    let mut found = Vec::new();
    for (table, place, columns) in columns {
        let of_table = |touch: &&Touch| touch.table == table;
        let uses = |touched: &[Touch]| touched.iter().filter(of_table).any(|touch| touch.uses(columns));
        let known = &program.tables[table];
        let column = known.columns.get(place).map_or(String::new(), |column| format!(".{column}"));
        let users = (0..touches.len()).filter(|&place| uses(&touches[place].concat()) || uses(&readers[place]));
        let subscribers: Vec<usize> = users.collect();
        for (publisher, pieces) in touches.iter().enumerate() {
            let adds = pieces.iter().flatten().filter(of_table).any(|touch| touch.adds_to(columns));
            if adds && !subscribers.is_empty() && !subscribers.contains(&publisher) {
                let (subscribers, column) = (subscribers.clone(), format!("{}{column}", known.name));
                found.push(Deferral { publisher, subscribers, column, table, columns });
            }
        }
    }
    found
}

/// Takes what is deferred off what pieces touch.
pub(crate) fn take_off(touches: &mut [Vec<Vec<Touch>>], deferrals: &[Deferral]) {
    for deferral in deferrals {
        for touch in touches[deferral.publisher].iter_mut().flatten().filter(|touch| touch.table == deferral.table) {
            touch.defer(deferral.columns);
        }
    }
}

/// The transactions that take part in publications.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parties {
    pub(crate) publishers: Vec<bool>,
    pub(crate) subscribers: Vec<bool>,
    /// Two-round reads that need a publication first.
    pub(crate) publishing_reads: Vec<bool>,
}

impl Parties {
    /// Returns the parties of `deferrals`, or the path that violates the premise.
    pub(crate) fn new(graph: &Graph, deferrals: &[Deferral]) -> Result<Self, Vec<Step>> {
        let count = graph.transactions();
        let mut parties = Self {
            publishers: vec![false; count],
            subscribers: vec![false; count],
            publishing_reads: vec![false; count],
        };
        if deferrals.is_empty() {
            return Ok(parties);
        }
        let is_read =
            |transaction: usize| graph.moments.iter().any(|moment| moment.through == Through::Read { transaction });
        for deferral in deferrals {
            parties.publishers[deferral.publisher] = true;
            for &subscriber in &deferral.subscribers {
                let group = if is_read(subscriber) { &mut parties.publishing_reads } else { &mut parties.subscribers };
                group[subscriber] = true;
            }
        }
        let mut excluded = vec![true; count];
        if let Some(path) = parties.other_path(graph, &excluded) {
            return Err(path);
        }
        // A two-round read that follows a publication orders nothing that the publication does not.
        // So those wait for one that would complete a path, and no others.
        for transaction in (0..count).filter(|&place| is_read(place)) {
            excluded[transaction] = parties.publishing_reads[transaction];
            if parties.other_path(graph, &excluded).is_some() {
                excluded[transaction] = true;
                parties.publishing_reads[transaction] = true;
            }
        }
        if mutation::includes(Mutation::ReadsBeforePublication) {
            parties.publishing_reads = vec![false; count];
        }
        Ok(parties)
    }

    /// Returns a path from a publisher to a subscriber, if there is one, which does not pass reads
    /// that are `excluded`.
    fn other_path(&self, graph: &Graph, excluded: &[bool]) -> Option<Vec<Step>> {
        if mutation::includes(Mutation::DeferralWithoutPremise) {
            return None;
        }
        let open = |moment: &Moment| match moment.through {
            Through::Read { transaction } => !excluded[transaction],
            Through::Publication => true,
        };
        // The publication connects publishers with each other, and subscribers with each other.
        // Since any path from one group to the other counts, it adds none.
        let of = |group: &[bool]| (0..group.len()).filter(|&place| group[place]).collect::<Vec<_>>();
        for publisher in of(&self.publishers) {
            for subscriber in of(&self.subscribers) {
                if publisher == subscriber {
                    return Some(Vec::new());
                }
                if let Some(path) = graph.path(publisher, subscriber, open) {
                    return Some(path);
                }
            }
        }
        None
    }
}

impl Undeferred {
    pub(crate) fn new(program: &Program, deferral: &Deferral, path: &[Step]) -> Self {
        let path = if path.is_empty() {
            format!("{} is a subscriber, too", program.transactions[deferral.publisher].name)
        } else {
            Cycle::open(program, path).to_string()
        };
        Self { publisher: deferral.publisher, column: deferral.column.clone(), path }
    }
}
