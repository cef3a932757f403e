//! What is known of a program before its transactions are chopped: which are read by two rounds,
//! what pieces touch, and what is deferred.

use crate::{
    claims::{self, Claim},
    cycle::{Step, Through},
    deferral::{self, Deferral, Parties, Undeferred},
    footprint::{Touch, conflict},
    graph::{Graph, Moment},
    merge::{Merge, Merger, Needs},
    mutation::{self, Mutation},
    options::Options,
    program::{KnownPiece, PieceId, Program},
};

/// The graph of a program, and what led to it.
pub(crate) struct Analysis<'p> {
    pub(crate) program: &'p Program,
    pub(crate) graph: Graph,
    /// The pieces' order within each transaction.
    pub(crate) needs: Vec<Needs>,
    /// Which transactions are read by two rounds.
    pub(crate) is_read: Vec<bool>,
    pub(crate) parties: Parties,
    pub(crate) claims: Vec<Claim>,
    pub(crate) deferrals: Vec<Deferral>,
    pub(crate) undeferred: Vec<Undeferred>,
}

/// The merged pieces of a transaction, as places of their members, and the reasons.
pub(crate) type Pieces = (Vec<Vec<usize>>, Vec<Merge>);

impl<'p> Analysis<'p> {
    pub(crate) fn new(program: &'p Program, options: Options) -> Self {
        let is_read: Vec<bool> =
            program.transactions.iter().map(|known| options.two_rounds && !known.has_effect()).collect();
        let all = touches(program, options);
        let needs = (0..all.len()).map(|transaction| needs(program, &all[transaction], transaction, options)).collect();
        let claims =
            if options.claims { claims::find(program, |transaction| !is_read[transaction]) } else { Vec::new() };

        let mut in_pieces = grant(program, &all, &claims);
        let mut readers = vec![Vec::new(); all.len()];
        let mut reads = Vec::new();
        for transaction in (0..all.len()).filter(|&place| is_read[place]) {
            in_pieces[transaction].iter_mut().for_each(Vec::clear);
            readers[transaction] = all[transaction].concat();
            let conflicts = |other: usize| all[other].iter().any(|piece| conflict(piece, &readers[transaction]));
            let waits_for = (0..all.len()).map(|other| !is_read[other] && conflicts(other)).collect();
            reads.push(Moment { through: Through::Read { transaction }, waits_for });
        }

        let mut draft = Draft { program, needs, touches: in_pieces, reads, deferrals: Vec::new() };
        let candidates =
            if options.deferral { deferral::candidates(program, &draft.touches, &readers) } else { Vec::new() };
        let undeferred = draft.defer(&candidates);
        let (graph, parties) = draft.graph(&draft.deferrals).unwrap_or_else(|_| unreachable!("it was built before"));
        let Draft { needs, deferrals, .. } = draft;
        Self { program, graph, needs, is_read, parties, claims, deferrals, undeferred }
    }

    /// Returns the finest pieces of a transaction.
    pub(crate) fn finest(&self, transaction: usize) -> Pieces {
        finest(self.program, &self.needs, &self.graph, transaction)
    }
}

fn finest(program: &Program, needs: &[Needs], graph: &Graph, transaction: usize) -> Pieces {
    Merger::new(program, transaction, &needs[transaction]).finest(program, graph)
}

/// What decides on deferrals.
struct Draft<'p> {
    program: &'p Program,
    needs: Vec<Needs>,
    touches: Vec<Vec<Vec<Touch>>>,
    reads: Vec<Moment>,
    deferrals: Vec<Deferral>,
}

impl Draft<'_> {
    /// Returns the graph with some additions deferred, or the path that forbids that.
    fn graph(&self, deferrals: &[Deferral]) -> Result<(Graph, Parties), Vec<Step>> {
        let mut touches = self.touches.clone();
        deferral::take_off(&mut touches, deferrals);
        let mut graph = Graph::new(self.program, &touches, self.reads.clone());
        let parties = Parties::new(&graph, deferrals)?;
        for moment in &mut graph.moments {
            if let Through::Read { transaction } = moment.through
                && parties.publishing_reads[transaction]
            {
                for (waits_for, is_party) in moment.waits_for.iter_mut().zip(parties.both()) {
                    *waits_for |= is_party;
                }
            }
        }
        if !deferrals.is_empty() {
            graph.moments.push(Moment { through: Through::Publication, waits_for: parties.both().collect() });
        }
        if mutation::includes(Mutation::MomentsForgotten) {
            graph.moments.clear();
        }
        Ok((graph, parties))
    }

    /// Returns how many pieces all transactions have together.
    fn count(&self, graph: &Graph) -> usize {
        let pieces = |transaction| finest(self.program, &self.needs, graph, transaction).0.len();
        (0..self.program.transactions.len()).map(pieces).sum()
    }

    /// Returns how many pieces there are with these deferrals, or the path that forbids them.
    fn count_with(&self, deferrals: &[Deferral]) -> Result<usize, Vec<Step>> {
        self.graph(deferrals).map(|(graph, _)| self.count(&graph))
    }

    /// Defers what makes pieces finer: all candidates of a publisher, or single ones. Returns those
    /// that the premise forbids.
    fn defer(&mut self, candidates: &[Deferral]) -> Vec<Undeferred> {
        let mut undeferred = Vec::new();
        let mut most = self.count_with(&[]).unwrap_or_else(|_| unreachable!("nothing is deferred"));
        for publisher in 0..self.program.transactions.len() {
            let own: Vec<Deferral> = candidates.iter().filter(|one| one.publisher == publisher).cloned().collect();
            let together = (own.len() > 1).then(|| own.clone());
            for set in together.into_iter().chain(own.into_iter().map(|one| vec![one])) {
                let mut trial = self.deferrals.clone();
                trial.extend(set.iter().filter(|one| !self.deferrals.contains(one)).cloned());
                match self.count_with(&trial) {
                    Ok(count) if count > most => (self.deferrals, most) = (trial, count),
                    Err(path) if set.len() == 1 => undeferred.push(Undeferred::new(self.program, &set[0], &path)),
                    // It gains nothing, or single ones will say why it is forbidden.
                    Ok(_) | Err(_) => {}
                }
            }
        }
        // What is not needed after all waits for no publication.
        for one in self.deferrals.clone() {
            let without: Vec<_> = self.deferrals.iter().filter(|other| **other != one).cloned().collect();
            if self.count_with(&without) == Ok(most) {
                self.deferrals = without;
            }
        }
        undeferred
    }
}

/// Returns what each access of each piece touches.
fn touches(program: &Program, options: Options) -> Vec<Vec<Vec<Touch>>> {
    let of_piece =
        |piece: &KnownPiece| piece.accesses.iter().map(|access| Touch::new(program, access, options)).collect();
    program.transactions.iter().map(|known| known.pieces.iter().map(of_piece).collect()).collect()
}

/// Returns what pieces touch if accesses to claimed rows count as accesses by the pieces that claim
/// them.
fn grant(program: &Program, touches: &[Vec<Vec<Touch>>], claims: &[Claim]) -> Vec<Vec<Vec<Touch>>> {
    let mut granted: Vec<Vec<Vec<Touch>>> = touches.iter().map(|pieces| vec![Vec::new(); pieces.len()]).collect();
    for (transaction, pieces) in touches.iter().enumerate() {
        for (piece, touched) in pieces.iter().enumerate() {
            let known = &program.transactions[transaction].pieces[piece];
            for (access, touch) in std::iter::zip(&known.accesses, touched) {
                let by = access.claimed_by.map(|piece| PieceId { transaction, piece });
                let holds = |claim: &&Claim| {
                    Some(claim.by) == by && claim.table_number == access.table && claim.void_by.is_none()
                };
                let counts_in = claims.iter().find(holds).map_or(piece, |claim| claim.by.piece);
                granted[transaction][counts_in].push(*touch);
            }
        }
    }
    granted
}

/// Returns the order within a transaction.
fn needs(program: &Program, touches: &[Vec<Touch>], transaction: usize, options: Options) -> Needs {
    let known = &program.transactions[transaction].pieces;
    let of = |after: usize| {
        let is_needed = |before: &usize| {
            let stated = known[after].after.contains(before) && !mutation::includes(Mutation::DependenciesForgotten);
            let own =
                conflict(&touches[*before], &touches[after]) && !mutation::includes(Mutation::OwnConflictsForgotten);
            !options.reordering || stated || own
        };
        (0..after).filter(is_needed).collect()
    };
    (0..known.len()).map(of).collect()
}

impl Parties {
    /// Returns for each transaction whether it publishes or subscribes.
    fn both(&self) -> impl Iterator<Item = bool> + '_ {
        self.publishers.iter().zip(&self.subscribers).map(|(publishes, subscribes)| *publishes || *subscribes)
    }
}
