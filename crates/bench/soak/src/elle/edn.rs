//! Writes a record in the format of Jepsen's histories, which Elle and other checkers read.
//!
//! One map per line, for each invocation and each completion, in the order of their times:
//!
//! ```text
//! {:index 0, :type :invoke, :process 0, :time 1200, :f :txn, :value [[:append 3 1] [:r 4 nil]]}
//! {:index 1, :type :ok, :process 0, :time 3400, :f :txn, :value [[:append 3 1] [:r 4 [2 5]]]}
//! ```
//!
//! - `:type` is `:invoke`, then `:ok` if the transaction committed, `:fail` if it aborted, or
//!   `:info` if the outcome is unknown. Reads are `nil` in an invocation, and if the transaction
//!   did not commit.
//! - Lists: `[:append key value]` and `[:r key [value ...]]`. Registers: `[:w key value]` and `[:r
//!   key value]`. A `nil` on an `:ok` means that the register is absent. Each write follows a read
//!   of the same key in its transaction.
//! - The predicate workload has two more operations, which Elle does not know. `[:scan [from to]
//!   [[key value] ...]]` reads all registers from `from` up to, but without, `to`. `[:remove key
//!   removed]` removes a register; `removed` is `true` if it was present.

use std::io::{self, Write};

use drtm_history::Outcome;

use super::record::{Observed, Operation};

/// Writes a record, which is sorted by invocation.
pub(super) fn write(record: &[Observed], out: &mut impl Write) -> io::Result<()> {
    // At equal times the invocation comes first: a transaction never seems to end before another
    // began unless it did.
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

/// Writes one operation, with its result if that is known.
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
