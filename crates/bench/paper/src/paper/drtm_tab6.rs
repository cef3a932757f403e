//! DrTM, Table VI: one-sided READs that find a key.

use drtm_report::{
    chart::{Axis, Scale},
    units::Quantity,
};

use super::{
    effort::Effort,
    panel::{Curve, Kind, Measured, Panel, Published, Study},
};
use crate::{Error, kv::lookups::table_6};

pub(super) const STUDIES: &[Study] = &[
    Study { panels: &[UNIFORM], measure: |effort| measure(effort, false) },
    Study { panels: &[ZIPF], measure: |effort| measure(effort, true) },
];

const OCCUPANCY: Axis = Axis { title: "occupancy", quantity: Quantity::Percent, scale: Scale::Linear };
const READS: Axis = Axis { title: "READs per lookup", quantity: Quantity::Reads, scale: Scale::Linear };

const CLUSTER: &str = "cluster chaining";
const CUCKOO: &str = "cuckoo hashing";
const HOPSCOTCH: &str = "hopscotch hashing";

/// Returns the values of three tables, at 50, 75 and 90 percent.
const fn table([a, b, c]: [f64; 3], [d, e, f]: [f64; 3], [g, h, i]: [f64; 3]) -> [Published; 9] {
    [
        Published::at(CLUSTER, 50, a),
        Published::at(CLUSTER, 75, b),
        Published::at(CLUSTER, 90, c),
        Published::at(CUCKOO, 50, d),
        Published::at(CUCKOO, 75, e),
        Published::at(CUCKOO, 90, f),
        Published::at(HOPSCOTCH, 50, g),
        Published::at(HOPSCOTCH, 75, h),
        Published::at(HOPSCOTCH, 90, i),
    ]
}

const UNIFORM: Panel = Panel {
    name: "drtm-tab6a",
    title: "DrTM Table VI: READs that find a key, uniform keys",
    x: Some(OCCUPANCY),
    y: READS,
    published: &table([1.008, 1.052, 1.100], [1.348, 1.652, 1.956], [1.000, 1.011, 1.044]),
    note: "Counted on the in-process fabric, and every answer is checked. Cluster chaining is this store's table. \
           drtm-bench kv lookups counts them with other sizes, and with caches.",
};

const ZIPF: Panel = Panel {
    name: "drtm-tab6b",
    title: "DrTM Table VI: READs that find a key, Zipf keys (0.99)",
    published: &table([1.004, 1.039, 1.091], [1.304, 1.712, 1.924], [1.000, 1.020, 1.040]),
    note: "The hottest key has 5 to 6 % of the lookups, so that one hash seed decides: these are means over several, \
           and the published values come from one.",
    ..UNIFORM
};

fn measure(effort: &Effort, is_zipf: bool) -> Result<Measured, Error> {
    let (records, seeds) = match (effort.is_quick, is_zipf) {
        (true, false) => (10_000, 1),
        (true, true) => (10_000, 2),
        (false, false) => (100_000, 1),
        (false, true) => (100_000, 32),
    };
    let lookups = table_6(is_zipf, records, seeds, effort.seed)?;
    let curve = |series: &'static str| {
        let points = lookups.iter().filter(|lookup| lookup.scheme == series);
        Curve::new(series, Kind::Exact, points.map(|lookup| (lookup.occupancy, lookup.reads)))
    };
    let curves = vec![[CLUSTER, CUCKOO, HOPSCOTCH].map(curve).into()];
    let source =
        format!("counted in tables of about {records} keys, {seeds} hash seed{}", if seeds == 1 { "" } else { "s" });
    Ok(Measured { curves, source, failure: None })
}
