//! The result of an analysis: which pieces of each transaction run together, and why.

use crate::{
    analysis::Analysis,
    claims::Claim,
    cycle::Through,
    deferral::{Deferral, Undeferred},
    graph::Graph,
    insist::{self, Refusal},
    merge::Merge,
    options::Options,
    program::{PieceId, Program},
};

/// A chopping of all transactions of a program, which is serializable if each part runs as a
/// transaction of its own, and if the executor keeps what the [options](Options) promise.
///
/// # Example
///
/// A transfer withdraws first, which may abort, and then deposits. Audits read both accounts, by
/// two rounds. Since withdrawals read the balance that others add to, the two pieces must be one.
///
/// ```
/// use drtm_chopping::{Chopping, Options, Piece, Program, Table, Transaction, Why};
///
/// const ACCOUNT: Table = Table::new("account", &["balance"]);
///
/// const TRANSFER: Transaction = Transaction::new("transfer", &[
///     Piece::new("withdraw", &[ACCOUNT.update("balance")]).may_abort(),
///     Piece::new("deposit", &[ACCOUNT.add("balance")]),
/// ]);
/// const AUDIT: Transaction = Transaction::new("audit", &[Piece::new("sum", &[ACCOUNT.read("balance")])]);
///
/// let program = Program::new(&[TRANSFER, AUDIT])?;
/// let chopping = Chopping::finest(&program, Options::ALL);
/// let transfer = chopping.transaction("transfer").unwrap();
/// assert_eq!(transfer.pieces().len(), 1);
/// assert!(matches!(transfer.merges()[0].why, Why::Cycle(_)));
/// # Ok::<(), drtm_chopping::ProgramError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Chopping {
    program: Program,
    options: Options,
    transactions: Vec<Chopped>,
    claims: Vec<Claim>,
    deferrals: Vec<Deferral>,
    undeferred: Vec<Undeferred>,
    publication: Vec<usize>,
    links: Vec<Joint>,
    before: Edges,
}

/// How many edges a graph has, over two instances of each transaction that can run beside itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Edges {
    /// Edges between consecutive pieces of one instance.
    pub s: usize,
    /// Edges between conflicting pieces of different instances.
    pub c: usize,
}

/// How a transaction runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Execution {
    /// Piece by piece.
    Pieces,
    /// As a whole, by two rounds of reads, while no transaction that it conflicts with is under
    /// way.
    TwoRounds {
        /// Whether a publication of what was deferred comes first.
        after_publication: bool,
    },
}

/// A transaction as it is chopped.
#[derive(Clone, Debug)]
pub struct Chopped {
    name: String,
    execution: Execution,
    waits_for: Vec<usize>,
    pieces: Vec<Merged>,
    merges: Vec<Merge>,
}

/// What runs as one transaction: one piece of the description, or several that were merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    members: Vec<PieceId>,
    may_abort: bool,
    has_effect: bool,
    conflicts: bool,
}

/// A C-edge between merged pieces, for all instances of their transactions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Joint {
    /// The transaction and the place of the merged piece.
    pub(crate) from: (usize, usize),
    pub(crate) to: (usize, usize),
    pub(crate) tables: Vec<usize>,
}

impl Chopping {
    /// Returns the finest chopping that is serializable. There is exactly one, but for the order of
    /// pieces that do not depend on each other.
    #[must_use]
    pub fn finest(program: &Program, options: Options) -> Self {
        Self::new(&Analysis::new(program, options), options, &[])
    }

    /// Checks a chopping that the caller wants: for some transactions by name, the names of the
    /// pieces that run together, in the order in which they run. The other transactions are chopped
    /// as in [`finest`](Self::finest).
    ///
    /// # Errors
    ///
    /// Returns an error that names the first SC-cycle if the chopping is not serializable. It also
    /// returns one if pieces depend on later ones, are missing, or may abort too late.
    pub fn insist(program: &Program, options: Options, wanted: &[(&str, &[&[&str]])]) -> Result<Self, Refusal> {
        let analysis = Analysis::new(program, options);
        let mut choppings = Vec::new();
        for &(name, pieces) in wanted {
            let transaction = program.transactions.iter().position(|known| known.name == name);
            let unknown = || Refusal::Unknown { what: "transaction", name: name.to_owned() };
            let transaction = transaction.ok_or_else(unknown)?;
            if choppings.iter().any(|(other, _)| *other == transaction) {
                return Err(Refusal::Twice { transaction: name.to_owned() });
            }
            choppings.push((transaction, insist::check(&analysis, transaction, pieces)?));
        }
        Ok(Self::new(&analysis, options, &choppings))
    }

    /// Returns the chopping with the `wanted` pieces of some transactions, unchecked.
    pub(crate) fn new(analysis: &Analysis<'_>, options: Options, wanted: &[(usize, Vec<Vec<usize>>)]) -> Self {
        let program = analysis.program;
        let chop = |transaction: usize| {
            let name = program.transactions[transaction].name.clone();
            let id = |piece| PieceId { transaction, piece };
            if analysis.is_read[transaction] {
                let after_publication = analysis.parties.publishing_reads[transaction];
                let members = (0..program.transactions[transaction].pieces.len()).map(id).collect();
                let pieces = vec![Merged::new(program, &analysis.graph, members)];
                return Chopped {
                    name,
                    execution: Execution::TwoRounds { after_publication },
                    waits_for: analysis.graph.waits_for(Through::Read { transaction }),
                    pieces,
                    merges: Vec::new(),
                };
            }
            let (pieces, merges) = match wanted.iter().find(|(wanted, _)| *wanted == transaction) {
                Some((_, pieces)) => (pieces.clone(), Vec::new()),
                None => analysis.finest(transaction),
            };
            let merged =
                |members: Vec<usize>| Merged::new(program, &analysis.graph, members.into_iter().map(id).collect());
            let pieces = pieces.into_iter().map(merged).collect();
            Chopped { name, execution: Execution::Pieces, waits_for: Vec::new(), pieces, merges }
        };
        let transactions: Vec<Chopped> = (0..program.transactions.len()).map(chop).collect();
        let single = |transaction: usize| -> Vec<Vec<PieceId>> {
            (0..program.transactions[transaction].pieces.len())
                .map(|piece| vec![PieceId { transaction, piece }])
                .collect()
        };
        let apart: Vec<_> = (0..transactions.len()).map(single).collect();
        let links = joints(&analysis.graph, &members(&transactions));
        Self {
            program: program.clone(),
            options,
            claims: analysis.claims.clone(),
            deferrals: analysis.deferrals.clone(),
            undeferred: analysis.undeferred.clone(),
            publication: analysis.graph.waits_for(Through::Publication),
            before: edges(program, &transactions, &apart, &joints(&analysis.graph, &apart)),
            transactions,
            links,
        }
    }

    /// Returns the program.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Returns the optimisations that were used.
    #[must_use]
    pub fn options(&self) -> Options {
        self.options
    }

    /// Returns the transactions, in the program's order.
    #[must_use]
    pub fn transactions(&self) -> &[Chopped] {
        &self.transactions
    }

    /// Returns the transaction of this name, or `None` if there is none.
    #[must_use]
    pub fn transaction(&self, name: &str) -> Option<&Chopped> {
        self.transactions.iter().find(|chopped| chopped.name == name)
    }

    /// Returns the claims that were stated, and whether they hold.
    #[must_use]
    pub fn claims(&self) -> &[Claim] {
        &self.claims
    }

    /// Returns the additions that are deferred.
    #[must_use]
    pub fn deferrals(&self) -> &[Deferral] {
        &self.deferrals
    }

    /// Returns the additions that cannot be deferred, with the path that forbids it.
    #[must_use]
    pub fn undeferred(&self) -> &[Undeferred] {
        &self.undeferred
    }

    /// Returns the places of the transactions that are not under way at a publication of what was
    /// deferred: its publishers and subscribers.
    #[must_use]
    pub fn publication(&self) -> &[usize] {
        &self.publication
    }

    /// Returns how many edges the chopping's graph has.
    #[must_use]
    pub fn edges(&self) -> Edges {
        edges(&self.program, &self.transactions, &members(&self.transactions), &self.links)
    }

    /// Returns how many edges the graph has before any pieces are merged.
    #[must_use]
    pub fn edges_before(&self) -> Edges {
        self.before
    }

    /// Returns whether additions of a piece are deferred.
    ///
    /// # Panics
    ///
    /// Panics if the piece is another program's.
    #[must_use]
    pub fn is_deferred(&self, piece: PieceId) -> bool {
        let of = |one: &&Deferral| one.publisher == piece.transaction;
        self.deferrals.iter().filter(of).any(|one| one.concerns(&self.program, piece))
    }

    pub(crate) fn links(&self) -> &[Joint] {
        &self.links
    }
}

impl Chopped {
    /// Returns the transaction's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns how it runs.
    #[must_use]
    pub fn execution(&self) -> Execution {
        self.execution
    }

    /// Returns the places of the transactions that are not under way at the moment that it reads,
    /// if it is read by two rounds.
    #[must_use]
    pub fn waits_for(&self) -> &[usize] {
        &self.waits_for
    }

    /// Returns its pieces in the order in which they run.
    #[must_use]
    pub fn pieces(&self) -> &[Merged] {
        &self.pieces
    }

    /// Returns why pieces were merged: one merge less than there are members, for each merged piece
    /// of the finest chopping.
    #[must_use]
    pub fn merges(&self) -> &[Merge] {
        &self.merges
    }
}

impl Merged {
    fn new(program: &Program, graph: &Graph, members: Vec<PieceId>) -> Self {
        Self {
            may_abort: members.iter().any(|&member| program.at(member).may_abort),
            has_effect: members.iter().any(|&member| program.at(member).has_effect()),
            conflicts: members.iter().any(|&member| !graph.links(member).is_empty()),
            members,
        }
    }

    /// Returns the pieces of the description that run as one, in the program's order.
    #[must_use]
    pub fn members(&self) -> &[PieceId] {
        &self.members
    }

    /// Returns whether the user can abort the transaction in it. No piece before it has an effect
    /// then.
    #[must_use]
    pub fn may_abort(&self) -> bool {
        self.may_abort
    }

    /// Returns whether it leaves anything behind. After the first piece that does, the transaction
    /// cannot be aborted.
    #[must_use]
    pub fn has_effect(&self) -> bool {
        self.has_effect
    }

    /// Returns whether it has C-edges. If it has none, it can be cut further at will: one row at a
    /// time.
    #[must_use]
    pub fn conflicts(&self) -> bool {
        self.conflicts
    }
}

/// Returns the members of all merged pieces.
fn members(transactions: &[Chopped]) -> Vec<Vec<Vec<PieceId>>> {
    let of = |chopped: &Chopped| chopped.pieces.iter().map(|piece| piece.members.clone()).collect();
    transactions.iter().map(of).collect()
}

/// Returns the C-edges between merged pieces, each once.
fn joints(graph: &Graph, pieces: &[Vec<Vec<PieceId>>]) -> Vec<Joint> {
    let places: Vec<(usize, usize)> =
        pieces.iter().enumerate().flat_map(|(place, all)| (0..all.len()).map(move |piece| (place, piece))).collect();
    let mut joints = Vec::new();
    for (nth, &from) in places.iter().enumerate() {
        for &to in &places[nth..] {
            let links = pieces[from.0][from.1].iter().flat_map(|&member| graph.links(member));
            let between = links.filter(|link| pieces[to.0][to.1].contains(&link.to));
            let mut tables: Vec<usize> = between.flat_map(|link| link.tables.iter().copied()).collect();
            tables.sort_unstable();
            tables.dedup();
            if !tables.is_empty() {
                joints.push(Joint { from, to, tables });
            }
        }
    }
    joints
}

fn edges(program: &Program, transactions: &[Chopped], pieces: &[Vec<Vec<PieceId>>], joints: &[Joint]) -> Edges {
    let instances = |transaction: usize| if program.transactions[transaction].alone { 1 } else { 2 };
    let in_pieces = |transaction: &usize| transactions[*transaction].execution == Execution::Pieces;
    let s = (0..pieces.len()).filter(in_pieces).map(|place| (pieces[place].len() - 1) * instances(place)).sum();
    let c = joints.iter().map(|joint| match joint {
        Joint { from, to, .. } if from == to => 1,
        Joint { from, to, .. } if from.0 == to.0 => 2,
        Joint { from, to, .. } => instances(from.0) * instances(to.0),
    });
    Edges { s, c: c.sum() }
}
