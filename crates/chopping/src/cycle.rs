//! SC-cycles, named piece by piece.

use std::fmt;

use crate::program::{PieceId, Program};

/// What a path of conflicts goes through besides transactions that run in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Through {
    /// A transaction that is read by two rounds.
    Read {
        /// Its place in the program.
        transaction: usize,
    },
    /// The publication of what was deferred.
    Publication,
}

/// A step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A C-edge.
    Conflict { from: PieceId, to: PieceId, tables: Vec<usize> },
    /// Between a transaction and a moment that waits for it.
    Moment { transaction: usize, through: Through },
}

/// A vertex of an SC-cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Vertex {
    /// A piece.
    Piece {
        /// Which piece.
        id: PieceId,
        /// Which instance of its transaction: 1, or 2.
        instance: u8,
        /// The names of its transaction and its own.
        name: String,
    },
    /// A moment at which something happens at once.
    Moment {
        /// What happens.
        what: String,
    },
    /// A transaction as a whole, at an end of a path.
    Transaction {
        /// Its name.
        name: String,
    },
}

/// An edge of an SC-cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Edge {
    /// Two pieces of one instance of a transaction.
    Sibling,
    /// Two pieces of different instances that conflict.
    Conflict {
        /// The tables on which they conflict.
        tables: Vec<String>,
    },
    /// A moment that waits for a transaction to end.
    Waits,
}

/// A cycle with both S-edges and C-edges: if its pieces are run apart, the transactions may not be
/// serializable.
///
/// It is displayed piece by piece, and ends where it begins. `=` is an S-edge, `-[table]-` a
/// C-edge; `#2` is the transaction's other instance.
///
/// # Example
///
/// ```
/// use drtm_chopping::{Chopping, Options, Piece, Program, Refusal, Table, Transaction};
///
/// const A: Table = Table::new("a", &[]);
/// const B: Table = Table::new("b", &[]);
///
/// const T: Transaction =
///     Transaction::new("t", &[Piece::new("first", &[A.update("*")]), Piece::new("second", &[B.update("*")])]);
///
/// let program = Program::new(&[T])?;
/// let apart: [&[&str]; 2] = [&["first"], &["second"]];
/// let refused = Chopping::insist(&program, Options::ALL, &[("t", &apart)]).unwrap_err();
/// let Refusal::Cycle(cycle) = refused else { panic!("{refused}") };
/// assert_eq!(cycle.to_string(), "t/first -[a]- t#2/first = t#2/second -[b]- t/second = t/first");
/// # Ok::<(), drtm_chopping::ProgramError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle {
    vertices: Vec<Vertex>,
    edges: Vec<Edge>,
}

impl Cycle {
    /// Returns the cycle that a path makes, which leaves a transaction in `from` and comes back in
    /// another piece.
    pub(crate) fn new(program: &Program, from: PieceId, path: &[Step]) -> Self {
        let mut cycle = Self { vertices: vec![piece(program, from, 1)], edges: Vec::new() };
        cycle.follow(program, Some(from.transaction), path);
        cycle.edges.push(Edge::Sibling);
        cycle
    }

    /// Returns a path between two transactions in the form of a cycle that is open.
    pub(crate) fn open(program: &Program, path: &[Step]) -> Self {
        let mut open = Self { vertices: Vec::new(), edges: Vec::new() };
        open.follow(program, None, path);
        open
    }

    /// Appends a path. A piece of `home` in which it ends is of the first instance.
    fn follow(&mut self, program: &Program, home: Option<usize>, path: &[Step]) {
        let last = path.len().saturating_sub(1);
        for (place, step) in path.iter().enumerate() {
            match step {
                Step::Conflict { from, to, tables } => {
                    let instance = |piece: &PieceId| if Some(piece.transaction) == home { 2 } else { 1 };
                    let from_instance = if place == 0 { 1 } else { instance(from) };
                    self.arrive(piece(program, *from, from_instance));
                    let tables = tables.iter().map(|&table| program.tables[table].name.clone()).collect();
                    self.edges.push(Edge::Conflict { tables });
                    self.vertices.push(piece(program, *to, if place == last { 1 } else { instance(to) }));
                }
                Step::Moment { transaction, through } => {
                    let name = program.transactions[*transaction].name.clone();
                    let moment = moment(program, *through);
                    if self.vertices.last() != Some(&moment) {
                        if self.vertices.is_empty() {
                            self.vertices.push(Vertex::Transaction { name });
                        }
                        self.edges.push(Edge::Waits);
                        self.vertices.push(moment);
                    } else if place == last {
                        self.edges.push(Edge::Waits);
                        self.vertices.push(Vertex::Transaction { name });
                    }
                }
            }
        }
    }

    /// Goes on to a vertex, where it is not there already.
    fn arrive(&mut self, vertex: Vertex) {
        let Some(last) = self.vertices.last() else {
            self.vertices.push(vertex);
            return;
        };
        if *last != vertex {
            self.edges.push(if matches!(last, Vertex::Moment { .. }) { Edge::Waits } else { Edge::Sibling });
            self.vertices.push(vertex);
        }
    }

    /// Returns the vertices in order.
    #[must_use]
    pub fn vertices(&self) -> &[Vertex] {
        &self.vertices
    }

    /// Returns the edges in order. The first is between the first two vertices, the last one closes
    /// the cycle.
    #[must_use]
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }
}

fn moment(program: &Program, through: Through) -> Vertex {
    let what = match through {
        Through::Read { transaction } => format!("({})", program.transactions[transaction].name),
        Through::Publication => "(publication)".to_owned(),
    };
    Vertex::Moment { what }
}

fn piece(program: &Program, id: PieceId, instance: u8) -> Vertex {
    let number = if instance == 1 { "" } else { "#2" };
    let name = format!("{}{number}/{}", program.transactions[id.transaction].name, program.piece_name(id));
    Vertex::Piece { id, instance, name }
}

impl fmt::Display for Vertex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Piece { name, .. } => f.write_str(name),
            Self::Moment { what } => f.write_str(what),
            Self::Transaction { name } => f.write_str(name),
        }
    }
}

impl fmt::Display for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sibling => f.write_str("="),
            Self::Conflict { tables } => write!(f, "-[{}]-", tables.join(", ")),
            Self::Waits => f.write_str("-"),
        }
    }
}

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, vertex) in self.vertices.iter().enumerate() {
            write!(f, "{vertex}")?;
            if let Some(edge) = self.edges.get(place) {
                write!(f, " {edge} ")?;
            }
        }
        // A path that is open has an edge less.
        if self.edges.len() == self.vertices.len()
            && let Some(first) = self.vertices.first()
        {
            write!(f, "{first}")?;
        }
        Ok(())
    }
}
