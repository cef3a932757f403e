//! DrTM, section 8.2: how many of TPC-C's pieces end under the lock.

use drtm_drive::{Latencies, Pace, Until, run_in};
use drtm_htm::{FallbackLock, Native, Rtm};
use drtm_report::{
    chart::{Axis, Scale as AxisScale},
    units::{self, Quantity},
};
use drtm_tpcc::{Chances, ChoppedTpcc, Kind as Transaction, MixName, Scale};
use drtm_txn::DefaultConfig;

use super::{
    effort::Effort,
    panel::{Curve, Found, Kind, Measured, Panel, Published, Study},
};
use crate::{
    Error,
    htm::{
        MEASURED, describe,
        working_set::{Name, Scope},
    },
    pieces::{Counts, Elided, Pieces, counts_of, largest_and_all, piece_footprints},
};

pub(super) const STUDIES: &[Study] = &[Study { panels: &[PIECES, LARGEST, ALL, GAIN], measure }];

const SHARE: Axis = Axis { title: "under the lock", quantity: Quantity::LockRate, scale: AxisScale::Linear };
const RATIO: Axis = Axis { title: "chopped over whole", quantity: Quantity::Ratio, scale: AxisScale::Linear };

const PIECES: Panel = Panel {
    name: "drtm-s82a",
    title: "DrTM 8.2: how many runs of a transaction's pieces end under the lock",
    x: None,
    y: SHARE,
    published: &[Published::of(NEW_ORDER, 0.006), Published::of(PAYMENT, 0.001), Published::of(DELIVERY, 0.018)],
    note: "Simulated: pieces that do not fit into a cache's sets and ways, without conflicts. Each piece counts \
           as one htm transaction with its commit. A DELIVERY is of all ten districts here, and so is each of \
           its pieces.",
};

const LARGEST: Panel = Panel {
    name: "drtm-s82b",
    title: "DrTM 8.2: the same of the largest piece",
    x: None,
    y: SHARE,
    published: &[Published::of(NEW_ORDER, 0.054), Published::of(PAYMENT, 0.001), Published::of(DELIVERY, 0.214)],
    note: "The piece that touches most: of NEW-ORDER the one from the district to the lines, of DELIVERY the \
           lines.",
};

const ALL: Panel = Panel {
    name: "drtm-s82c",
    title: "DrTM 8.2: how many of TPC-C's transactions do not fit, in pieces and whole",
    x: None,
    y: SHARE,
    published: &[],
    note: "Capacity aborts over transactions of the standard mix. ORDER-STATUS and STOCK-LEVEL have none in \
           pieces, as in the paper: they read by two rounds, without htm transactions.",
};

const GAIN: Panel = Panel {
    name: "drtm-s82d",
    title: "DrTM 8.2: capacity aborts of TPC-C in pieces over those of whole transactions",
    x: None,
    y: RATIO,
    published: &[],
    note: "Without conflicts. \"Writers\" leaves out ORDER-STATUS and STOCK-LEVEL on both sides.",
};

const NEW_ORDER: &str = "new-order";
const PAYMENT: &str = "payment";
const DELIVERY: &str = "delivery";

const WRITERS: [(&str, Transaction); 3] =
    [(NEW_ORDER, Transaction::NewOrder), (PAYMENT, Transaction::Payment), (DELIVERY, Transaction::Delivery)];

fn tpcc<'s>(scope: &Scope, threads: usize) -> Result<ChoppedTpcc<'s>, Error> {
    let scale = Scale::sized(threads, scope.is_tiny)?;
    Ok(ChoppedTpcc::new(scale, MixName::Standard, Chances::STANDARD, scope.seed))
}

fn measure(effort: &Effort) -> Result<Measured, Error> {
    let scope = effort.scope();
    let memory = effort.pace(1).memory;
    let (traced, readers) = piece_footprints(tpcc(&scope, 1)?, scope.transactions, memory, scope.profile)?;
    let transactions: u64 = readers.iter().map(|reader| reader.count).sum();
    let (pieces, transactions) =
        if effort.engine.simulates() { (traced.clone(), transactions) } else { in_rtm(&scope, memory)? };
    let whole = Name::Tpcc.rows(&scope)?;
    let kind = Kind::of(effort.engine);

    let mut curves: [Vec<Curve>; 4] = Default::default();
    for (series, transaction) in WRITERS {
        let Some((largest, _)) = largest_and_all(&traced, transaction) else { continue };
        let (Some((_, all)), Some(one)) = (largest_and_all(&pieces, transaction), pieces.get(&(transaction, largest)))
        else {
            continue;
        };
        curves[0].push(value(series, kind, share(&all)));
        curves[1].push(value(series, kind, share(one)));
    }
    let too_large: u64 = pieces.values().map(|counts| counts.too_large).sum();
    let chopped = units::share(too_large, transactions);
    let of_whole = |are_wanted: fn(&str) -> bool| {
        let rows = || whole.iter().filter(|row| are_wanted(row.transaction));
        let too_large: f64 =
            rows().map(|row| row.fallback_rate * row.capacity_share.unwrap_or(0.0) * row.count as f64).sum();
        too_large / whole.iter().map(|row| row.count as f64).sum::<f64>()
    };
    let is_writer = |name: &str| WRITERS.iter().any(|(writer, _)| *writer == name);
    let (all, writers) = (of_whole(|_| true), of_whole(is_writer));
    curves[2] = vec![value("in pieces", kind, chopped), value("whole", kind, all)];
    curves[3] = vec![value("all transactions", kind, chopped / all), value("writers", kind, chopped / writers)];
    let source = if effort.engine.simulates() {
        format!("SIMULATED: {}; undisturbed", describe(&scope.profile))
    } else {
        format!("{MEASURED}; which piece is the largest by one thread without it")
    };
    Ok(Measured { curves: curves.into(), source, failure: None })
}

fn value(series: &'static str, kind: Kind, y: f64) -> Curve {
    Curve { series, found: Found::Points { kind, points: vec![(None, y)] } }
}

fn share(counts: &Counts) -> f64 {
    units::share(counts.fallbacks, counts.runs)
}

/// Runs pieces in RTM, with a thread for each processor. Returns what became of them, and the
/// number of transactions.
fn in_rtm(scope: &Scope, memory: u64) -> Result<(Pieces, u64), Error> {
    let rtm: Native = Rtm::detect().map_err(drtm_drive::Error::no_rtm)?.into();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let pace = Pace { threads, until: Until::Transactions(scope.transactions), memory, prefault: 0 };
    let lock = FallbackLock::new();
    let tpcc = tpcc(scope, threads)?.within(|| Box::new(Elided::new(rtm, &lock)));
    let finished = run_in::<DefaultConfig, _>(&tpcc, Native::without_htm(), pace)?;
    if let [first, ..] = finished.violations.as_slice() {
        let violations = finished.violations.len();
        return Err(drtm_drive::Error::Inconsistent { violations, first: first.clone() }.into());
    }
    let counted = |name: &str| finished.counted.iter().filter(|(of, _)| of == name).map(|(_, count)| count).sum();
    let transactions = finished.tally.latencies.iter().map(Latencies::count).sum();
    Ok((counts_of(counted), transactions))
}
