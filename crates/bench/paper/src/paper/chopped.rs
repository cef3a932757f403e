//! Not of a paper: what chopping does for TPC-C in one warehouse, where threads conflict.

use drtm_drive::EngineName;
use drtm_report::{
    chart::{Axis, Scale as AxisScale},
    units::Quantity,
};
use drtm_tpcc::{Chances, ChoppedTpcc, MixName, Tpcc};

use super::{
    drtm_fig15::{size, source},
    effort::{Effort, Sum},
    entries::{ABORT_RATE, Entry, Grid, PER_SECOND, THREADS},
    panel::{Curve, Kind, Measured, Panel, Study},
};
use crate::Error;

pub(super) const STUDIES: &[Study] = &[Study { panels: &[THROUGHPUT, GAIN, ABORTS], measure }];

const RATIO: Axis = Axis { title: "chopped over whole", quantity: Quantity::Ratio, scale: AxisScale::Linear };

const THROUGHPUT: Panel = Panel {
    name: "chopped-w1a",
    title: "TPC-C in one warehouse by record locks, whole and in pieces",
    x: Some(THREADS),
    y: PER_SECOND,
    published: &[],
    note: "PAYMENT only; ten NEW-ORDERs to a DELIVERY, which delivers ten orders; and the standard mix.",
};

const GAIN: Panel = Panel {
    name: "chopped-w1b",
    title: "TPC-C in one warehouse by record locks, pieces over whole transactions",
    x: Some(THREADS),
    y: RATIO,
    published: &[],
    note: "Pieces cost a commit each. They gain where many threads truly run at the same time, and conflict.",
};

const ABORTS: Panel = Panel {
    name: "chopped-w1c",
    title: "TPC-C in one warehouse by record locks: conflicts",
    x: Some(THREADS),
    y: ABORT_RATE,
    published: &[],
    note: "Conflicts over conflicts and transactions. A conflict of a piece repeats that piece only.",
};

/// Each mix, with the names of its whole transactions, of its pieces, and of the ratio.
const MIXES: [(MixName, [&str; 3]); 3] = [
    (MixName::Payment, ["payment, whole", "payment, chopped", "payment"]),
    (
        MixName::Delivered,
        ["new-order and delivery, whole", "new-order and delivery, chopped", "new-order and delivery"],
    ),
    (MixName::Standard, ["standard mix, whole", "standard mix, chopped", "standard mix"]),
];

fn measure(effort: &Effort) -> Result<Measured, Error> {
    let effort = &effort.of_many();
    let threads = match (effort.has_threads, effort.is_quick) {
        (true, _) | (_, true) => effort.threads.clone(),
        _ => vec![2, 16],
    };
    let mut entries = Vec::new();
    for (mix, [whole, chopped, _]) in MIXES {
        let of_whole = move |_| Ok(Tpcc::new(size(effort, 1)?, mix, Chances::STANDARD, effort.seed));
        entries.push(Entry::on::<Tpcc>(whole, effort, EngineName::None, of_whole));
        let of_pieces = move |_| Ok(ChoppedTpcc::new(size(effort, 1)?, mix, Chances::STANDARD, effort.seed));
        entries.push(Entry::on(chopped, effort, EngineName::None, of_pieces));
    }
    let grid = Grid::measure(effort, &entries, &threads)?;
    let rate = |sums: &[Option<Sum>], place: usize| Some(sums.get(place)?.as_ref()?.rates.median);
    let gain = |(place, (_, [_, _, series])): (usize, (MixName, [&'static str; 3]))| {
        let points = grid
            .sums
            .iter()
            .filter_map(|(threads, sums)| Some((*threads, rate(sums, 2 * place + 1)? / rate(sums, 2 * place)?)));
        Curve::new(series, Kind::Measured, points)
    };
    let gains = MIXES.into_iter().enumerate().map(gain).collect();
    let curves = vec![grid.throughput(), gains, grid.curves(|sum, _| Some(sum.abort_rate()))];
    Ok(Measured { curves, source: source(effort), failure: None })
}
