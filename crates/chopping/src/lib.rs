//! Transaction chopping: which transactions can run in pieces, each as a transaction of its own, so
//! that all stays serializable.
//!
//! A long transaction on hot rows conflicts for as long as it runs, and may be too large for an htm
//! transaction. Its pieces are shorter. Whether they may run apart depends on all transactions that
//! run beside it. This crate decides that before anything runs. It executes nothing.
//!
//! A [`Program`] describes transactions as [pieces](Piece) over tables. [`Chopping::finest`] merges
//! the pieces that must run together, and says why for each. [`Chopping::insist`] checks pieces
//! that the caller wants. A [`Chopping`] is displayed as text, and drawn by [`Chopping::to_svg`]
//! and [`Chopping::to_dot`].
//!
//! # Example
//!
//! ```
//! use drtm_chopping::{Chopping, Options, Piece, Program, Table, Transaction};
//!
//! const ITEM: Table = Table::new("item", &["price"]).stationary();
//! const STOCK: Table = Table::new("stock", &["amount"]);
//! const SALES: Table = Table::new("sales", &["sum"]);
//!
//! const SELL: Transaction = Transaction::new("sell", &[
//!     Piece::new("stock", &[STOCK.update("amount")]).after(&[]),
//!     Piece::new("price", &[ITEM.read("price")]).after(&[]).may_abort(),
//!     Piece::new("sum", &[SALES.add("sum")]).after(&["price"]),
//! ]);
//!
//! let program = Program::new(&[SELL])?;
//! let chopping = Chopping::finest(&program, Options::ALL);
//! let order: Vec<_> = chopping.transactions()[0].pieces().iter().map(|piece| piece.members()[0]).collect();
//! // What may abort runs first. Only the stock conflicts, with another sale's.
//! assert_eq!(order, ["price", "stock", "sum"].map(|name| program.piece("sell", name).unwrap()));
//! # Ok::<(), drtm_chopping::ProgramError>(())
//! ```
//!
//! # The graph
//!
//! Its vertices are the pieces of two instances of each transaction. An *S-edge* is between two
//! pieces of one instance. A *C-edge* is between pieces of different instances that conflict: they
//! access the same columns of a table, and do not commute. If no cycle has edges of both kinds, an
//! *SC-cycle*, any interleaving of the pieces is serializable (Shasha et al., 1995).
//!
//! An SC-cycle leaves an instance in one piece and comes back in another. So two pieces must be
//! merged if a path of conflicts connects them outside of their instance. Such a path goes through
//! another transaction however that one is chopped. So each transaction has one finest chopping,
//! which depends on no other's.
//!
//! Two instances are enough. A path that passes a third one can take a short cut: all instances of
//! a transaction have the same conflicts. For the same reason all pieces with C-edges of a
//! transaction that can run beside itself are one: the *conflicting piece*. What can be gained is
//! to have few pieces with C-edges, which the [`Options`] are about. A transaction that runs
//! [alone](Transaction::alone) can have several.
//!
//! The analysis knows columns and no keys, so it may merge pieces whose cycle no execution has. It
//! never leaves apart what must be together.
//!
//! # What an executor must keep
//!
//! 1. Pieces run as transactions, in their order, each exactly once. When one with an effect has
//!    run, the others run, too, whatever happens.
//! 2. The user aborts in a piece that [`may_abort`](Merged::may_abort), and in no other.
//! 3. All transactions that access the tables are in the program. Dependencies are as stated. A
//!    [claimed](Access::claimed_by) key is inserted once.
//! 4. A transaction that is read by [two rounds](Execution::TwoRounds) sees one moment, at which no
//!    transaction is under way that writes what it reads.
//! 5. [Deferred](Deferral) additions are published at a moment when neither a publisher nor a
//!    subscriber is under way. A read that comes [after a publication](Execution::TwoRounds) begins
//!    with one, at the same moment.
//!
//! Then the transactions are serializable as a whole. The order that explains them need not be that
//! of real time: a transaction that has seen a piece of another one may end before that one's next
//! piece has run, which another transaction that begins then does not see. Nor do deferred
//! additions keep that order: a transaction that begins after a publisher has ended may not see
//! them.

#![forbid(unsafe_code)]

mod analysis;
mod chopping;
mod claims;
mod cycle;
mod deferral;
mod describe;
mod dot;
mod footprint;
mod graph;
mod insist;
mod merge;
mod mutation;
mod options;
mod program;
pub mod programs;
mod report;
mod svg;
mod text;

#[cfg(test)]
mod tests;

pub use chopping::{Chopped, Chopping, Edges, Execution, Merged};
pub use claims::Claim;
pub use cycle::{Cycle, Edge, Vertex};
pub use deferral::{Deferral, Undeferred};
pub use describe::{ALL_COLUMNS, Access, Kind, Piece, Table, Transaction};
pub use insist::Refusal;
pub use merge::{Merge, Why};
pub use options::Options;
pub use program::{PieceId, Program, ProgramError};
pub use text::TextError;
