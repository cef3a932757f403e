//! DrTM, Table I: what transactions of SmallBank and TPC-C touch when each is one region.

use drtm_report::{
    chart::{Axis, Scale},
    units::Quantity,
};

use super::{
    effort::Effort,
    panel::{Curve, Found, Kind, Measured, Panel, Published, Study},
};
use crate::{
    Error,
    htm::{
        MEASURED, describe,
        working_set::{Name, Row},
    },
};

pub(super) const STUDIES: &[Study] = &[Study { panels: &[READ, WRITTEN, FALLBACKS, CAPACITY], measure }];

const BYTES: Axis = Axis { title: "bytes", quantity: Quantity::MeanBytes, scale: Scale::Linear };
const SHARE: Axis = Axis { title: "under the lock", quantity: Quantity::LockRate, scale: Scale::Linear };
const OF_FALLBACKS: Axis = Axis { title: "for capacity", quantity: Quantity::Ratio, scale: Scale::Linear };

const READ: Panel = Panel {
    name: "drtm-tab1a",
    title: "DrTM Table I: bytes read by a transaction",
    x: None,
    y: BYTES,
    published: &[
        Published::of("send-payment", 905.0),
        Published::of("amalgamate", 1_432.0),
        Published::of("balance", 902.0),
        Published::of("deposit-checking", 684.0),
        Published::of("write-check", 967.0),
        Published::of("transact-savings", 640.0),
        Published::of("new-order", 6_757.0),
        Published::of("payment", 1_040.0),
        Published::of("delivery", 12_216.0),
        Published::of("order-status", 2_186.0),
        Published::of("stock-level", 38_516.0),
    ],
    note: "Whole cache lines of the store: buckets, nodes, records. The paper's store has other layouts, and \
           counts private memory, which is left out here. Its SmallBank looks customers up by their names; \
           this one has their numbers.",
};

const WRITTEN: Panel = Panel {
    name: "drtm-tab1b",
    title: "DrTM Table I: bytes written by a transaction",
    x: None,
    y: BYTES,
    published: &[
        Published::of("send-payment", 396.0),
        Published::of("amalgamate", 437.0),
        Published::of("balance", 286.0),
        Published::of("deposit-checking", 322.0),
        Published::of("write-check", 347.0),
        Published::of("transact-savings", 323.0),
        Published::of("new-order", 1_174.0),
        Published::of("payment", 646.0),
        Published::of("delivery", 2_378.0),
        Published::of("order-status", 715.0),
        Published::of("stock-level", 838.0),
    ],
    note: "Read-only transactions write a line that marks their thread as active; in the paper they write \
           private memory only.",
};

const FALLBACKS: Panel = Panel {
    name: "drtm-tab1c",
    title: "DrTM Table I: how many transactions end under the lock",
    x: None,
    y: SHARE,
    published: &[
        Published::of("send-payment", 0.0),
        Published::of("amalgamate", 0.0),
        Published::of("balance", 0.0),
        Published::of("deposit-checking", 0.0),
        Published::of("write-check", 0.0),
        Published::of("transact-savings", 0.0),
        Published::of("new-order", 0.972),
        Published::of("payment", 0.582),
        Published::of("delivery", 1.0),
        Published::of("order-status", 0.450),
        Published::of("stock-level", 1.0),
    ],
    note: "Simulated: the transactions that do not fit into a cache's sets and ways, without conflicts. The \
           paper's threads conflict, too: nearly all of its PAYMENTs that fall back do so for that. A \
           read-only transaction writes the line that marks its thread as active, and once it has written \
           anything a region holds far less. So STOCK-LEVEL overflows; DBX reports the same because of \
           private memory, which is not in the model. Checked: SmallBank always fits.",
};

const CAPACITY: Panel = Panel {
    name: "drtm-tab1d",
    title: "DrTM Table I: how many of those that end under the lock do for capacity",
    x: None,
    y: OF_FALLBACKS,
    published: &[
        Published::of("new-order", 0.999),
        Published::of("payment", 0.008),
        Published::of("delivery", 0.954),
        Published::of("order-status", 0.430),
        Published::of("stock-level", 0.916),
    ],
    note: "In simulation there is no other cause; there is no value if no transaction falls back.",
};

fn measure(effort: &Effort) -> Result<Measured, Error> {
    let scope = effort.scope();
    let (bank, tpcc) = (Name::Smallbank.rows(&scope)?, Name::Tpcc.rows(&scope)?);
    let rows: Vec<&Row> = bank.iter().chain(&tpcc).collect();
    let kind = Kind::of(effort.engine);
    let column = |kind, value: fn(&Row) -> Option<f64>| {
        let curve = |row: &&Row| {
            let points = value(row).map(|y| (None, y)).into_iter().collect();
            Curve { series: row.transaction, found: Found::Points { kind, points } }
        };
        rows.iter().map(curve).collect::<Vec<_>>()
    };
    let curves = vec![
        column(kind, |row| Some(row.read_bytes)),
        column(kind, |row| Some(row.write_bytes)),
        column(kind, |row| Some(row.fallback_rate)),
        column(kind, |row| row.capacity_share),
    ];
    let source = if effort.engine.simulates() {
        format!("SIMULATED: {}; undisturbed", describe(&scope.profile))
    } else {
        format!("{MEASURED}; the bytes by one thread without it")
    };
    let failure = if effort.engine.simulates() { too_large(&bank) } else { None };
    Ok(Measured { curves, source, failure })
}

/// Returns an error if a transaction of SmallBank does not fit into a region.
fn too_large(bank: &[Row]) -> Option<Error> {
    let row = bank.iter().find(|row| row.fallback_rate > 0.0)?;
    let what = format!("{} of SmallBank does not fit into a region", row.transaction);
    Some(Error::Figure { figure: FALLBACKS.name, what })
}
