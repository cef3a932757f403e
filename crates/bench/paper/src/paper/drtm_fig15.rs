//! DrTM, Fig. 15: TPC-C and SmallBank on one node, by threads.

use drtm_drive::EngineName;
use drtm_htm::{FallbackLock, Native, Rtm};
use drtm_report::{
    chart::{Axis, Scale as AxisScale},
    units::Quantity,
};
use drtm_tpcc::{Chances, ChoppedTpcc, MixName, Scale, Tpcc};
use drtm_txn::DefaultConfig;
use drtm_workloads::smallbank::{Hot, SmallBank};

use super::{
    effort::{Effort, Sum},
    entries::{Entry, Grid, NO_RTM, PER_SECOND, THREADS},
    panel::{Curve, Found, Kind, Measured, Panel, Published, Study},
    silo::{NOT_GIVEN, Silo},
};
use crate::{Error, pieces::Elided};

pub(super) const STUDIES: &[Study] = &[
    Study { panels: &[TPCC, TPCC_GAIN], measure: tpcc },
    Study { panels: &[SMALLBANK, SMALLBANK_GAIN], measure: smallbank },
];

const RATIO: Axis = Axis { title: "ratio", quantity: Quantity::Ratio, scale: AxisScale::Linear };

const DRTM_RTM: &str = "DrTM: RTM";
const DRTM_EMULATED: &str = "DrTM: emulated";
const DRTM_LOCKS: &str = "DrTM: record locks";
const DBX_RTM: &str = "DBX: RTM";
const DBX_EMULATED: &str = "DBX: emulated";
const LOCKS: &str = "record locks";
const SILO: &str = "Silo";

const TPCC: Panel = Panel {
    name: "drtm-fig15a",
    title: "DrTM Fig. 15: TPC-C's standard mix, a warehouse for each thread",
    x: Some(THREADS),
    y: PER_SECOND,
    published: &[],
    note: "DrTM's transactions run in pieces. In RTM each piece is one htm transaction with all that it does, \
           as in the paper. The emulated engine, and record locks, have only the commit of each piece in an \
           htm transaction, or under locks: they show what chopping alone does. DBX commits whole \
           transactions in htm transactions, and \"record locks\" by locks. What is emulated is slow, and can \
           only be compared with what is.",
};

const TPCC_GAIN: Panel = Panel {
    name: "drtm-fig15b",
    title: "DrTM Fig. 15: TPC-C, DrTM over others, the least and the most by threads",
    x: None,
    y: RATIO,
    published: &[
        Published::of(RTM_OVER_DBX.0, 1.5),
        Published::of(RTM_OVER_DBX.1, 1.8),
        Published::of(OVER_SILO.0, 1.9),
        Published::of(OVER_SILO.1, 2.3),
    ],
    note: "The paper runs 1 to 8 threads on as many cores. Silo is compared with the fastest of DrTM's series \
           that are measured.",
};

const SMALLBANK: Panel = Panel {
    name: "drtm-fig15c",
    title: "DrTM Fig. 15: SmallBank",
    x: Some(THREADS),
    y: PER_SECOND,
    published: &[],
    note: "The transactions are whole, as in the paper: they fit. In RTM, DrTM's are one htm transaction each.",
};

const SMALLBANK_GAIN: Panel = Panel {
    name: "drtm-fig15d",
    title: "DrTM Fig. 15: SmallBank, DrTM over others, the least and the most by threads",
    x: None,
    y: RATIO,
    published: &[
        Published::of(RTM_OVER_DBX.0, 1.2),
        Published::of(RTM_OVER_DBX.1, 1.3),
        Published::of(OVER_SILO.0, 3.1),
        Published::of(OVER_SILO.1, 3.9),
    ],
    note: "As for TPC-C.",
};

/// The names of the least and the most of a ratio.
type Range = (&'static str, &'static str);

const RTM_OVER_DBX: Range = ("RTM, over DBX, least", "RTM, over DBX, most");
const EMULATED_OVER_DBX: Range = ("emulated, over DBX, least", "emulated, over DBX, most");
const OVER_LOCKS: Range = ("record locks, over whole, least", "record locks, over whole, most");
const OVER_SILO: Range = ("over Silo, least", "over Silo, most");

const WHOLE_IS_NOT_EMULATED: &str = "the emulation cannot run a whole transaction of the database, and of \
                                     what it can, DrTM's does the same as DBX's";
const SAME_LOCKS: &str = "without htm transactions, what is whole is the same for DrTM and DBX";
const NO_SMALLBANK: &str = "its release has no SmallBank: the paper's authors have written one";

/// Returns the size of TPC-C: the specification's beside Silo, which has no other.
pub(super) fn size(effort: &Effort, warehouses: usize) -> Result<Scale, Error> {
    let scale = Scale::sized(warehouses, effort.is_quick)?;
    Ok(if effort.is_quick || effort.silo.is_some() { scale } else { scale.with_customers(300)?.with_items(10_000)? })
}

/// Says where numbers are from.
pub(super) fn source(effort: &Effort) -> String {
    let size = match (effort.is_quick, &effort.silo) {
        (false, None) => "; scaled down to 300 customers a district and 10000 items",
        _ => "",
    };
    format!("{}{size}", effort.source())
}

fn tpcc(effort: &Effort) -> Result<Measured, Error> {
    let effort = &effort.of_many();
    let lock = FallbackLock::new();
    let chopped = |threads: usize| {
        let scale = size(effort, threads)?;
        Ok::<_, Error>(ChoppedTpcc::new(scale, MixName::Standard, Chances::STANDARD, effort.seed))
    };
    let whole = |threads: usize| {
        let scale = size(effort, threads)?;
        Ok::<Tpcc, Error>(Tpcc::new(scale, MixName::Standard, Chances::STANDARD, effort.seed))
    };
    let in_rtm = match Rtm::detect() {
        Err(_) => Entry::absent(DRTM_RTM, NO_RTM),
        Ok(rtm) => {
            let (lock, rtm) = (&lock, Native::from(rtm));
            let within = move |threads| Ok(chopped(threads)?.within(move || Box::new(Elided::new(rtm, lock))));
            let pace = |threads| effort.pace(threads);
            Entry::within::<DefaultConfig, _>(DRTM_RTM, Native::without_htm(), pace, within)
        }
    };
    let silo = match &effort.silo {
        None => Entry::absent(SILO, NOT_GIVEN),
        Some(program) => {
            let silo = Silo { program: program.clone(), seconds: effort.time(), log: None };
            Entry::of(SILO, Kind::Measured, move |threads| {
                let silo = silo.clone();
                Ok(Some(Box::new(move || silo.run(threads))))
            })
        }
    };
    let entries = [
        in_rtm,
        Entry::on(DRTM_EMULATED, effort, EngineName::Emulated, chopped),
        Entry::on(DRTM_LOCKS, effort, EngineName::None, chopped),
        Entry::on(DBX_RTM, effort, EngineName::Rtm, whole),
        Entry::on(DBX_EMULATED, effort, EngineName::Emulated, whole),
        Entry::on(LOCKS, effort, EngineName::None, whole),
        silo,
    ];
    let grid = Grid::measure(effort, &entries, &effort.threads)?;
    let gains = [
        range(&grid, RTM_OVER_DBX, (&[0], 3), Kind::Measured, NO_RTM),
        range(&grid, EMULATED_OVER_DBX, (&[1], 4), Kind::Simulated, ""),
        range(&grid, OVER_LOCKS, (&[2], 5), Kind::Measured, ""),
        range(&grid, OVER_SILO, (&[0, 2], 6), Kind::Measured, NOT_GIVEN),
    ];
    let curves = vec![grid.throughput(), gains.into_iter().flatten().collect()];
    Ok(Measured { curves, source: source(effort), failure: None })
}

fn smallbank(effort: &Effort) -> Result<Measured, Error> {
    let effort = &effort.of_many();
    let customers = if effort.is_quick { 2_000 } else { 100_000 };
    let bank = |_| Ok(SmallBank::new(customers, Hot::default(), effort.seed)?);
    let entries = [
        Entry::whole(DRTM_RTM, effort, true, bank),
        Entry::absent(DRTM_EMULATED, WHOLE_IS_NOT_EMULATED),
        Entry::absent(DRTM_LOCKS, SAME_LOCKS),
        Entry::on(DBX_RTM, effort, EngineName::Rtm, bank),
        Entry::on(DBX_EMULATED, effort, EngineName::Emulated, bank),
        Entry::on(LOCKS, effort, EngineName::None, bank),
        Entry::absent(SILO, NO_SMALLBANK),
    ];
    let grid = Grid::measure(effort, &entries, &effort.threads)?;
    let gains = [
        range(&grid, RTM_OVER_DBX, (&[0], 3), Kind::Measured, NO_RTM),
        range(&grid, EMULATED_OVER_DBX, (&[1], 4), Kind::Simulated, WHOLE_IS_NOT_EMULATED),
        range(&grid, OVER_SILO, (&[0], 6), Kind::Measured, NO_SMALLBANK),
    ];
    let curves = vec![grid.throughput(), gains.into_iter().flatten().collect()];
    Ok(Measured { curves, source: effort.source(), failure: None })
}

/// Returns the least and the most of a ratio over all numbers of threads: of the fastest of some
/// entries over another one, or the reason why there is none.
pub(super) fn range(
    grid: &Grid,
    names: Range,
    (of, over): (&[usize], usize),
    kind: Kind,
    why: &'static str,
) -> [Curve; 2] {
    let rate = |sums: &[Option<Sum>], place: usize| Some(sums.get(place)?.as_ref()?.rates.median);
    let ratios = grid.sums.iter().filter_map(|(_, sums)| {
        let fastest = of.iter().filter_map(|&place| rate(sums, place)).reduce(f64::max)?;
        Some(fastest / rate(sums, over)?)
    });
    least_and_most(ratios.collect(), names, kind, why)
}

/// Returns the least and the most of some values, or the reason why there are none.
pub(super) fn least_and_most(values: Vec<f64>, names: Range, kind: Kind, why: &'static str) -> [Curve; 2] {
    let curve = |series, best: fn(f64, f64) -> f64| match values.iter().copied().reduce(best) {
        Some(value) => Curve { series, found: Found::Points { kind, points: vec![(None, value)] } },
        None => Curve::absent(series, why),
    };
    [curve(names.0, f64::min), curve(names.1, f64::max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_and_the_most_are_found_and_nothing_has_its_reason() {
        let found = least_and_most(vec![1.5, 0.5, 1.0], OVER_SILO, Kind::Measured, "");
        let is = |curve: &Curve, series, value| {
            curve.series == series && matches!(&curve.found, Found::Points { points, .. } if points == &[(None, value)])
        };
        assert!(is(&found[0], OVER_SILO.0, 0.5) && is(&found[1], OVER_SILO.1, 1.5), "{found:?}");
        let [least, _] = least_and_most(Vec::new(), OVER_SILO, Kind::Measured, NOT_GIVEN);
        assert!(matches!(least.found, Found::Absent { why: NOT_GIVEN }));
    }
}
