//! Checks `docs/limits.md` against the code: every row of its tables is one of these, with this
//! value.

use std::{collections::BTreeMap, time::Duration};

use drtm_kv::{MAX_KEY, MAX_VALUE, record_bytes};

use crate::{
    Builder, Durability, Options, db, durability,
    memory::arena,
    model::bounds,
    schema::{catalog, codec},
    tx::{state, ticket},
};

fn bytes(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let whole = units.iter().find(|(bits, _)| bytes >= 1 << bits && bytes.is_multiple_of(1 << bits));
    whole.map_or_else(|| format!("{} B", count(bytes)), |(bits, unit)| format!("{} {unit}", bytes >> bits))
}

/// Formats a number with commas between its thousands.
fn count(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

fn time(time: Duration) -> String {
    if time < Duration::from_secs(1) { format!("{} ms", time.as_millis()) } else { format!("{} s", time.as_secs()) }
}

/// Returns the limits, under the names in the document.
fn limits() -> BTreeMap<&'static str, String> {
    let defaults = Builder::new();
    let options = Options::new();
    let unlimited = |is_bounded: bool, otherwise: &str| if is_bounded { "bounded" } else { otherwise }.to_owned();
    BTreeMap::from([
        ("longest key, encoded", bytes(MAX_KEY as u64)),
        ("longest value, encoded", bytes(MAX_VALUE as u64)),
        ("longest key that is kept in the index itself", bytes(size_of::<u64>() as u64)),
        ("tables and indexes that are open at the same time", count(catalog::MOST_TABLES as u64)),
        ("tables that a directory has ever had", count(catalog::MOST_IDS.into())),
        ("longest name of a table with a log", bytes(u16::MAX.into())),
        ("highest version of a table's definition", count(u16::MAX.into())),
        ("longest description of a table's types that a log has whole", bytes(codec::describe::LONGEST as u64)),
        ("most that a value of `Bincode` makes its reader allocate", bytes(codec::BINCODE_LIMIT as u64)),
        ("memory of a database, if the process may use as much", bytes(db::MEMORY)),
        ("least memory of a database", bytes(bounds::LEAST_MEMORY)),
        ("most memory of a database", bytes(drtm_kv::MOST_MEMORY)),
        ("memory for older versions, which snapshots need", bytes(defaults.older_versions)),
        ("header of a record", bytes(record_bytes(None, 0))),
        ("bytes of keys, or of values, that one transaction keeps", bytes(arena::MOST_BYTES as u64)),
        ("bytes that one transaction writes with a log", bytes(defaults.most_logged as u64)),
        ("runs of a closure", unlimited(options.is_bounded(), "as many as it takes")),
        ("time until a closure is not run again", unlimited(options.is_bounded(), "unlimited")),
        ("runs that fail before a transaction asks for the ticket", count(bounds::TRIES.into())),
        ("rows that failed runs read or write before it asks sooner", count(bounds::ROWS_TRIED as u64)),
        ("runs that fail in spite of its claims before all writers wait", count(ticket::CLAIMING.into())),
        ("time for which a starved transaction holds the ticket at first", time(ticket::TERM)),
        ("time to which that doubles, if the transaction needs more", time(ticket::LONGEST_TERM)),
        ("threads with a transaction in one database at a time", count(drtm_kv::MOST_WORKERS.into())),
        ("snapshots that cost writers one look each", count(bounds::SNAPSHOT_SLOTS as u64)),
        ("reads of a read-only transaction before it continues in a snapshot", count(state::LONG_READ as u64)),
        ("time that `Db::close` waits for transactions", time(db::PATIENCE)),
        (
            "when a commit of a database with a path returns",
            match db::DURABILITY {
                Durability::Sync => "durable".to_owned(),
                other => format!("{other:?}"),
            },
        ),
        ("time until an `Async` commit is written", time(defaults.flush_within)),
        ("time that a `Sync` commit waits", unlimited(defaults.sync_within.is_some(), "unlimited")),
        ("bytes of log between checkpoints", bytes(defaults.checkpoint_every)),
        ("bytes of log that wait in one thread's buffer", bytes(durability::MOST_PENDING)),
        ("size from which on a segment ends", bytes(defaults.segment_bytes)),
        ("version of the log's format", durability::format::VERSION.to_string()),
    ])
}

#[test]
fn the_document_has_all_limits_as_they_are() {
    let document = include_str!("../../../../docs/limits.md");
    let rows = document.lines().filter_map(|line| line.strip_prefix("| ")).filter(|line| !line.starts_with("limit |"));
    let written: BTreeMap<&str, String> = rows
        .map(|row| {
            let mut cells = row.split(" | ");
            (cells.next().unwrap_or_default(), cells.next().unwrap_or_default().trim_end_matches(" |").to_owned())
        })
        .collect();
    assert_eq!(written, limits());
}

#[test]
fn numbers_are_written_as_people_read_them() {
    assert_eq!(
        [bytes(8), bytes(4_096), bytes(1 << 30), bytes(u32::MAX.into())],
        ["8 B", "4 KiB", "1 GiB", "4,294,967,295 B"]
    );
    assert_eq!([time(Duration::from_millis(10)), time(Duration::from_secs(5))], ["10 ms", "5 s"]);
}
