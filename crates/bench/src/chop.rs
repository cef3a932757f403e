//! `drtm-bench chop`: which transactions of a program can run in pieces.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use clap::{Args as ClapArgs, ValueEnum};
use drtm_chopping::{Chopped, Chopping, Execution, Merged, Options, Program, Refusal, Why, programs};
use drtm_report::Report;
use serde::Serialize;

use crate::Error;

/// Chop transactions into pieces that can run as transactions of their own
///
/// Reads a program, TPC-C's or SmallBank's or from a file, and finds the finest pieces with which
/// all transactions stay serializable, whatever their interleaving. It says for each two pieces
/// that must be one why they must: the cycle of conflicts that they would be on.
///
/// A file has a line for each table, transaction and piece:
///
///   table account balance
///   transaction transfer
///   piece withdraw, may abort: update account.balance
///   piece deposit after nothing: add account.balance
///
/// An access is read, update or add TABLE.COLUMN; or insert, append, remove or search TABLE. The
/// documentation of drtm's `chopping::Program::parse` has all of the format.
///
/// With --insist, checks the pieces that it names for a transaction, in their order, and refuses
/// them if they are not serializable: exit status 1.
///
/// JSON: {transactions: [{name, execution, pieces: [{name, operations, merged, why, conflicts,
/// may_abort}]}], edges: {s, c}, edges_before: {s, c}, cycles, serializable, deferred: [{publisher,
/// subscribers, column}], refused}, where merged are the names of the pieces that are one, why is
/// null for a single one, cycles is how many SC-cycles were merged, and refused is the reason or
/// null
#[derive(Debug, ClapArgs)]
#[command(verbatim_doc_comment, after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The program: tpcc, smallbank, or a file
    #[arg(long, value_name = "tpcc|smallbank|FILE", default_value = "tpcc")]
    workload: OsString,

    /// Optimisations to leave out; all for the classical analysis
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME,...")]
    without: Vec<Optimisation>,

    /// Pieces that a transaction must have
    #[arg(long, value_name = "TRANSACTION: PIECE PIECE | PIECE ...", value_parser = Wanted::parse)]
    insist: Vec<Wanted>,

    /// Write the graph for Graphviz into this file
    #[arg(long, value_name = "FILE")]
    dot: Option<PathBuf>,

    /// Draw the graph into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
Examples:
  drtm-bench chop --svg tpcc.svg                    the pieces of TPC-C, and a picture
  drtm-bench chop --without all                     the classical analysis, without optimisations
  drtm-bench chop --workload shop.txt               a program of your own
  drtm-bench chop --insist 'payment: warehouse | district customer-idx customer district-idx history'";

/// An optimisation that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Optimisation {
    /// Pieces in another order than the program's
    Reordering,
    /// Additions that commute
    Commutativity,
    /// Searches that conflict with insertions and removals only
    SplitSearch,
    /// Transactions that only read, as a whole
    TwoRounds,
    /// Rows that belong to the transaction that removed their key
    Claims,
    /// Additions that are published later
    Deferral,
    /// All of these
    All,
}

/// The pieces that a transaction must have.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    transaction: String,
    pieces: Vec<Vec<String>>,
}

impl Wanted {
    fn parse(text: &str) -> Result<Self, String> {
        let (transaction, pieces) = text.split_once(':').ok_or("write TRANSACTION: PIECE PIECE | PIECE ...")?;
        let names = |piece: &str| piece.split_whitespace().map(str::to_owned).collect();
        Ok(Self { transaction: transaction.trim().to_owned(), pieces: pieces.split('|').map(names).collect() })
    }
}

/// What scripts read.
#[derive(Debug, Serialize)]
struct Outcome {
    transactions: Vec<TransactionRow>,
    edges: EdgeRow,
    edges_before: EdgeRow,
    cycles: usize,
    serializable: bool,
    deferred: Vec<DeferralRow>,
    refused: Option<String>,
}

#[derive(Debug, Serialize)]
struct TransactionRow {
    name: String,
    execution: &'static str,
    pieces: Vec<PieceRow>,
}

#[derive(Debug, Serialize)]
struct PieceRow {
    name: String,
    operations: Vec<String>,
    merged: Vec<String>,
    why: Option<String>,
    conflicts: bool,
    may_abort: bool,
}

#[derive(Debug, Serialize)]
struct EdgeRow {
    s: usize,
    c: usize,
}

#[derive(Debug, Serialize)]
struct DeferralRow {
    publisher: String,
    subscribers: Vec<String>,
    column: String,
}

impl Args {
    pub(crate) fn execute(&self, report: &Report) -> Result<(), Error> {
        let program = self.program()?;
        let (chopping, refused) = match self.insisted(&program) {
            Ok(chopping) => (chopping, None),
            Err(refused) => (Chopping::finest(&program, self.options()), Some(refused)),
        };
        match &refused {
            None => report.text(chopping.to_string().trim_end())?,
            Some(refused) => report.text(&format!("refused: {refused}\n\nThe finest chopping is\n\n{chopping}"))?,
        }
        let write = |path: &Option<PathBuf>, text: fn(&Chopping) -> String| match path {
            Some(path) => fs::write(path, text(&chopping)).map_err(drtm_report::Error::file(path)),
            None => Ok(()),
        };
        write(&self.dot, Chopping::to_dot)?;
        write(&self.svg, Chopping::to_svg)?;
        report.result(&Outcome::new(&chopping, refused.as_ref()))?;
        refused.map_or(Ok(()), |refused| Err(refused.into()))
    }

    fn program(&self) -> Result<Program, Error> {
        let text = match self.workload.to_str() {
            Some("tpcc") => programs::TPCC.to_owned(),
            Some("smallbank") => programs::SMALLBANK.to_owned(),
            _ => {
                let path = Path::new(&self.workload);
                fs::read_to_string(path).map_err(|source| Error::Unreadable { path: path.to_owned(), source })?
            }
        };
        Ok(Program::parse(&text)?)
    }

    fn options(&self) -> Options {
        let has = |one| !self.without.contains(&one) && !self.without.contains(&Optimisation::All);
        Options {
            reordering: has(Optimisation::Reordering),
            commutativity: has(Optimisation::Commutativity),
            split_search: has(Optimisation::SplitSearch),
            two_rounds: has(Optimisation::TwoRounds),
            claims: has(Optimisation::Claims),
            deferral: has(Optimisation::Deferral),
        }
    }

    fn insisted(&self, program: &Program) -> Result<Chopping, Refusal> {
        let names: Vec<Vec<Vec<&str>>> = self
            .insist
            .iter()
            .map(|wanted| wanted.pieces.iter().map(|piece| piece.iter().map(String::as_str).collect()).collect())
            .collect();
        let pieces: Vec<Vec<&[&str]>> = names.iter().map(|pieces| pieces.iter().map(Vec::as_slice).collect()).collect();
        let wanted: Vec<(&str, &[&[&str]])> = std::iter::zip(&self.insist, &pieces)
            .map(|(wanted, pieces)| (wanted.transaction.as_str(), pieces.as_slice()))
            .collect();
        Chopping::insist(program, self.options(), &wanted)
    }
}

impl Outcome {
    fn new(chopping: &Chopping, refused: Option<&Refusal>) -> Self {
        let merges = chopping.transactions().iter().flat_map(Chopped::merges);
        let name = |&place: &usize| chopping.transactions()[place].name().to_owned();
        let deferred = chopping.deferrals().iter().map(|deferral| DeferralRow {
            publisher: name(&deferral.publisher),
            subscribers: deferral.subscribers.iter().map(name).collect(),
            column: deferral.column.clone(),
        });
        let (edges, before) = (chopping.edges(), chopping.edges_before());
        Self {
            transactions: chopping.transactions().iter().map(|one| TransactionRow::new(chopping, one)).collect(),
            edges: EdgeRow { s: edges.s, c: edges.c },
            edges_before: EdgeRow { s: before.s, c: before.c },
            cycles: merges.filter(|merge| matches!(merge.why, Why::Cycle(_))).count(),
            serializable: refused.is_none(),
            deferred: deferred.collect(),
            refused: refused.map(ToString::to_string),
        }
    }
}

impl TransactionRow {
    fn new(chopping: &Chopping, chopped: &Chopped) -> Self {
        let execution = match chopped.execution() {
            Execution::TwoRounds { after_publication: false } => "two-rounds",
            Execution::TwoRounds { after_publication: true } => "two-rounds-after-publication",
            _ => "pieces",
        };
        let pieces = chopped.pieces().iter().map(|piece| PieceRow::new(chopping, chopped, piece));
        Self { name: chopped.name().to_owned(), execution, pieces: pieces.collect() }
    }
}

impl PieceRow {
    fn new(chopping: &Chopping, chopped: &Chopped, piece: &Merged) -> Self {
        let program = chopping.program();
        let name = |member| program.piece_name(member);
        let merged: Vec<String> = piece.members().iter().map(|&member| name(member).to_owned()).collect();
        let of = chopped.merges().iter().filter(|merge| piece.members().contains(&merge.first));
        let reasons: Vec<_> =
            of.map(|merge| format!("{} with {}: {}", name(merge.second), name(merge.first), merge.why)).collect();
        Self {
            name: merged.join(" + "),
            operations: piece.members().iter().map(|&member| program.operations(member)).collect(),
            why: (!reasons.is_empty()).then(|| reasons.join("; ")),
            merged,
            conflicts: piece.conflicts(),
            may_abort: piece.may_abort(),
        }
    }
}

#[cfg(test)]
mod tests {
    use drtm_report::Failure;

    use super::*;

    fn args(workload: &str, without: &[Optimisation], insist: &[&str]) -> Args {
        let insist = insist.iter().map(|text| Wanted::parse(text).expect("pieces")).collect();
        Args { workload: workload.into(), without: without.to_vec(), insist, dot: None, svg: None }
    }

    fn outcome(args: &Args) -> Outcome {
        let program = args.program().expect("a program");
        Outcome::new(&args.insisted(&program).expect("it is serializable"), None)
    }

    #[test]
    fn tpcc_has_seventeen_pieces_and_four_without_optimisations() {
        let pieces = |outcome: &Outcome| outcome.transactions.iter().take(3).map(|one| one.pieces.len()).sum::<usize>();
        let all = outcome(&args("tpcc", &[], &[]));
        assert_eq!((pieces(&all), all.cycles, all.serializable), (17, 4, true));
        assert_eq!(all.deferred[0].column, "customer.balance");
        let none = outcome(&args("tpcc", &[Optimisation::All], &[]));
        assert_eq!((pieces(&none), none.edges_before.c), (4, 111));
        let merged = &none.transactions[0].pieces[1];
        assert!(
            merged.merged.contains(&"stock".to_owned())
                && merged.why.as_ref().is_some_and(|why| why.contains("SC-cycle"))
        );
    }

    #[test]
    fn pieces_that_are_not_serializable_are_refused() {
        let refused = args("smallbank", &[], &["amalgamate: savings | from to"]);
        let program = refused.program().expect("a program");
        let refusal = refused.insisted(&program).unwrap_err();
        assert!(refusal.to_string().contains("amalgamate/savings -[savings]- amalgamate#2/savings"), "{refusal}");
        assert_eq!(Error::from(refusal).exit_status(), 1);
        assert_eq!(Wanted::parse("amalgamate"), Err("write TRANSACTION: PIECE PIECE | PIECE ...".to_owned()));
    }

    #[test]
    fn files_that_are_no_programs_are_refused() {
        let absent = args("no/such/file", &[], &[]).program().unwrap_err();
        assert!(absent.to_string().contains("no/such/file"), "{absent}");
        assert_eq!(absent.exit_status(), 2);
    }
}
