//! The file: a record in the form of Jepsen's histories, which Elle and other checkers read.
//!
//! One map a line, for each invocation and each completion, in the order of their times:
//!
//! ```text
//! {:index 0, :type :invoke, :process 0, :time 1200, :f :txn, :value [[:append 3 1] [:r 4 nil]]}
//! {:index 1, :type :ok, :process 0, :time 3400, :f :txn, :value [[:append 3 1] [:r 4 [2 5]]]}
//! ```
//!
//! - `:type` is `:invoke`, then `:ok` if the transaction committed, `:fail` if it did not, or
//!   `:info` if that is not known. Reads of an invocation, and of a transaction that did not
//!   commit, are `nil`.
//! - Lists: `[:append key value]` and `[:r key [value ...]]`. Registers: `[:w key value]` and `[:r
//!   key value]`, where `nil` on an `:ok` means that there is none; each write follows a read of
//!   the same key in its transaction.
//! - The predicate workload has two operations more, which Elle does not know: `[:scan [from to]
//!   [[key value] ...]]` reads all registers from `from` up to, but without, `to`; and `[:remove
//!   key removed]` removes a register, where `removed` is `true` if it was there.

use std::io::{self, Write};

use super::record::{Observed, Operation};
use crate::history::Outcome;

/// Writes a record, which is in the order of invocations.
pub(super) fn write(record: &[Observed], out: &mut impl Write) -> io::Result<()> {
    // Where two happen in one moment, the invocation comes first: nothing is said to have ended
    // before something else began unless it had.
    let mut events: Vec<(u64, bool, &Observed)> = Vec::with_capacity(2 * record.len());
    for observed in record {
        events.push((observed.invoked, false, observed));
        let completed = if observed.outcome == Outcome::Unknown { u64::MAX } else { observed.completed };
        events.push((completed, true, observed));
    }
    events.sort_by_key(|(time, is_completion, observed)| (*time, *is_completion, observed.process));
    for (index, (time, is_completion, observed)) in events.into_iter().enumerate() {
        let kind = match (is_completion, observed.outcome) {
            (false, _) => "invoke",
            (true, Outcome::Committed) => "ok",
            (true, Outcome::Aborted) => "fail",
            (true, Outcome::Unknown) => "info",
        };
        let process = observed.process;
        // Jepsen's times are signed.
        let time = time.min(i64::MAX as u64);
        write!(out, "{{:index {index}, :type :{kind}, :process {process}, :time {time}, :f :txn, :value ")?;
        let operations = observed.operations.iter();
        list(operations, out, |operation, out| micro_op(operation, kind == "ok", out))?;
        writeln!(out, "}}")?;
    }
    Ok(())
}

/// Writes one operation: with what it saw, if that is known.
fn micro_op(operation: &Operation, is_known: bool, out: &mut impl Write) -> io::Result<()> {
    match operation {
        Operation::Append { key, value } => write!(out, "[:append {key} {value}]"),
        Operation::Write { key, value, .. } => write!(out, "[:w {key} {value}]"),
        Operation::List { key, seen } if is_known => {
            write!(out, "[:r {key} ")?;
            list(seen.iter(), out, |value, out| write!(out, "{value}"))?;
            write!(out, "]")
        }
        Operation::Read { key, seen: Some(value) } if is_known => write!(out, "[:r {key} {value}]"),
        Operation::List { key, .. } | Operation::Read { key, .. } => write!(out, "[:r {key} nil]"),
        Operation::Remove { key, version } if is_known => write!(out, "[:remove {key} {}]", *version != 0),
        Operation::Remove { key, .. } => write!(out, "[:remove {key} nil]"),
        Operation::Scan { keys, seen } => {
            write!(out, "[:scan [{} {}] ", keys.start, keys.end)?;
            if is_known {
                list(seen.iter(), out, |(key, value), out| write!(out, "[{key} {value}]"))?;
            } else {
                write!(out, "nil")?;
            }
            write!(out, "]")
        }
    }
}

/// Writes a vector.
fn list<T, W: Write>(
    items: impl Iterator<Item = T>,
    out: &mut W,
    mut item: impl FnMut(T, &mut W) -> io::Result<()>,
) -> io::Result<()> {
    write!(out, "[")?;
    for (place, next) in items.enumerate() {
        if place > 0 {
            write!(out, " ")?;
        }
        item(next, out)?;
    }
    write!(out, "]")
}
