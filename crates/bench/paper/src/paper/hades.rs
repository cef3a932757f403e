//! HADES: what its filters and its storage come to, and how fast its simulated machine runs.

use std::time::Instant;

use drtm_rdma::{
    NodeId,
    machine::{Fetch, Filter, Kind as Access, Line, MachineProfile, Node, Progress, Shape, Storage, TxId},
};
use drtm_report::{
    chart::{Axis, Scale},
    units::Quantity,
};

use super::{
    effort::Effort,
    panel::{Curve, Kind, Measured, Panel, Published, Study},
};
use crate::Error;

pub(super) const STUDIES: &[Study] = &[
    Study { panels: &[PLAIN, SPLIT], measure: false_positives },
    Study { panels: &[STORAGE, TAGS], measure: storage },
    Study { panels: &[SPEED], measure: speed },
];

const LINES: Axis = Axis { title: "lines", quantity: Quantity::Lines, scale: Scale::Linear };
const FALSE: Axis = Axis { title: "false positives", quantity: Quantity::FalsePositives, scale: Scale::Decades };

/// The lines of Table IV.
const COUNTS: [usize; 4] = [10, 20, 50, 100];

const THEORY: &str = "theory";
const SIMULATED: &str = "simulated";

/// Returns a row of Table IV, for both series.
const fn table_4([a, b, c, d]: [f64; 4]) -> [Published; 8] {
    let [w, x, y, z] = COUNTS;
    [
        Published::at(THEORY, w, a),
        Published::at(THEORY, x, b),
        Published::at(THEORY, y, c),
        Published::at(THEORY, z, d),
        Published::at(SIMULATED, w, a),
        Published::at(SIMULATED, x, b),
        Published::at(SIMULATED, y, c),
        Published::at(SIMULATED, z, d),
    ]
}

const PLAIN: Panel = Panel {
    name: "hades-tab4a",
    title: "HADES Table IV: false positives of a filter of 1024 bits",
    x: Some(LINES),
    y: FALSE,
    published: &table_4([0.04, 0.138, 0.877, 3.26]),
    note: "Theory: two independent hashes, of which the paper does not give the number. Simulated: the machine's \
           filter, with both bits from one CRC of the address, and random lines of 64 GB.",
};

const SPLIT: Panel = Panel {
    name: "hades-tab4b",
    title: "HADES Table IV: false positives of a filter of 512 bits by a hash and 4096 by the cache's index",
    x: Some(LINES),
    y: FALSE,
    published: &table_4([0.003, 0.022, 0.093, 0.439]),
    note: "Theory: one hash in each part. The published values are within 40 % of it, on either side.",
};

const KILOBYTES: Axis = Axis { title: "storage", quantity: Quantity::Kilobytes, scale: Scale::Linear };
const BITS: Axis = Axis { title: "bits of a tag", quantity: Quantity::Bits, scale: Scale::Linear };

const SMALL_CORE: &str = "N=5, C=5: cores";
const SMALL_NIC: &str = "N=5, C=5: NIC";
const LARGE_CORE: &str = "N=90, C=16: cores";
const LARGE_NIC: &str = "N=90, C=16: NIC";
const SMALL: &str = "N=5, C=5";
const LARGE: &str = "N=90, C=16";

const STORAGE: Panel = Panel {
    name: "hades-storage",
    title: "HADES section VI: storage of a node",
    x: None,
    y: KILOBYTES,
    published: &[
        Published::of(SMALL_CORE, 7.0),
        Published::of(SMALL_NIC, 11.0),
        Published::of(LARGE_CORE, 22.4),
        Published::of(LARGE_NIC, 43.1),
    ],
    note: "From the parts as the paper rounds them: 0.7 KB for a core's pair of filters (5632 bits are 704 bytes), \
           0.25 KB for a NIC's, and 100 bytes of 1024 for a transaction's entry (section VI: less than 100 bytes; \
           Table III: 90).",
};

const TAGS: Panel = Panel {
    name: "hades-tags",
    title: "HADES section VI: bits of a directory tag",
    x: None,
    y: BITS,
    published: &[Published::of(SMALL, 4.0), Published::of(LARGE, 5.0)],
    note: "As the paper computes it: the logarithm of the number of transactions. 32 transactions and no \
           transaction are 33 states, so the second one needs 6 bits, or one that says whether there is a tag.",
};

const PER_SECOND: Axis = Axis { title: "lines/s", quantity: Quantity::Operations, scale: Scale::Linear };

const SPEED: Panel = Panel {
    name: "hades-speed",
    title: "HADES: how many accesses of lines are simulated in a second of this machine",
    x: None,
    y: PER_SECOND,
    published: &[],
    note: "One thread, no network and no events. Transactions of ten lines among a million, half of them written: \
           on one node, and with all lines at another node.",
};

fn false_positives(effort: &Effort) -> Result<Measured, Error> {
    let profile = MachineProfile::HADES;
    let (hashed, indexed) = profile.write_bits;
    let shapes = [Shape::Hashed { bits: profile.read_bits }, Shape::Split { hashed, indexed }];
    let set = |bits: u32, added: usize| 1.0 - (1.0 - 1.0 / f64::from(bits)).powf(added as f64);
    let plain = |lines| set(profile.read_bits, 2 * lines).powi(2);
    let split = |lines| set(hashed, lines) * set(indexed, lines);
    let theories: [&dyn Fn(usize) -> f64; 2] = [&plain, &split];
    let filters = if effort.is_quick { 2_000 } else { 200_000 };
    let curves = shapes.into_iter().zip(theories).map(|(shape, theory)| {
        vec![
            Curve::new(THEORY, Kind::Exact, COUNTS.map(|lines| (lines, 100.0 * theory(lines)))),
            Curve::new(
                SIMULATED,
                Kind::Simulated,
                COUNTS.map(|lines| (lines, share(shape, lines, filters, effort.seed))),
            ),
        ]
    });
    let source = format!("{filters} simulated filters with each number of lines, and 100 probes of each");
    Ok(Measured { curves: curves.collect(), source, failure: None })
}

/// Returns how many of 100 lines that were not added a filter has.
fn share(shape: Shape, lines: usize, filters: usize, seed: u64) -> f64 {
    const PROBES: usize = 100;
    const MEMORY: u64 = (64 << 30) / Line::BYTES;
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut filter = Filter::new(shape);
    let mut met = 0;
    for _ in 0..filters {
        filter.clear();
        (0..lines).for_each(|_| filter.add(Line(rng.u64(..MEMORY))));
        // A probe is one of the added lines in one of ten million cases.
        met += (0..PROBES).filter(|_| filter.may_have(Line(rng.u64(..MEMORY)))).count();
    }
    100.0 * met as f64 / (filters * PROBES) as f64
}

fn storage(_: &Effort) -> Result<Measured, Error> {
    let small = Storage::of(&MachineProfile::HADES);
    let large = Storage::of(&MachineProfile::cluster(90, 16, 5));
    let core = |storage: Storage| storage.core_pairs as f64 * 0.7;
    let nic = |storage: Storage| storage.nic_pairs as f64 * 0.25 + storage.entries as f64 * 100.0 / 1024.0;
    let single = |(series, value)| Curve::single(series, Kind::Exact, value);
    let sizes =
        [(SMALL_CORE, core(small)), (SMALL_NIC, nic(small)), (LARGE_CORE, core(large)), (LARGE_NIC, nic(large))];
    let tags = [(SMALL, f64::from(small.tag_bits)), (LARGE, f64::from(large.tag_bits))];
    let curves = vec![sizes.map(single).into(), tags.map(single).into()];
    Ok(Measured { curves, source: "by computation alone".to_owned(), failure: None })
}

fn speed(effort: &Effort) -> Result<Measured, Error> {
    let transactions = if effort.is_quick { 2_000 } else { 300_000 };
    let single = |series, run: fn(usize, u64) -> Option<usize>| {
        let begun = Instant::now();
        let lines = run(transactions, effort.seed).ok_or(Error::Figure {
            figure: "hades-speed",
            what: "a transaction without competitors was squashed".to_owned(),
        })?;
        Ok::<_, Error>(Curve::single(series, Kind::Measured, lines as f64 / begun.elapsed().as_secs_f64()))
    };
    let curves = vec![vec![single("own node", on_one_node)?, single("another node", on_another_node)?]];
    Ok(Measured { curves, source: format!("{transactions} transactions, one after the other"), failure: None })
}

/// Lines of a transaction, and lines of memory that they are drawn from.
const ACCESSES: usize = 10;
const DRAWN: u64 = 1 << 20;

/// Runs transactions on one node. Returns how many lines were accessed.
fn on_one_node(transactions: usize, seed: u64) -> Option<usize> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut node = Node::new(NodeId(0), &MachineProfile::HADES);
    let mut now = 0;
    for at in 0..transactions {
        let tx = node.begin(at % 5)?;
        for access in 0..ACCESSES {
            let kind = if access % 2 == 0 { Access::Read } else { Access::Write };
            let served = node.access(now, tx, Line(rng.u64(..DRAWN)), kind);
            now += served.cycles;
            served.stop.is_none().then_some(())?;
        }
        commit(&mut [&mut node], tx.node, tx)?;
    }
    Some(transactions * ACCESSES)
}

/// Runs transactions all of whose lines are at another node.
fn on_another_node(transactions: usize, seed: u64) -> Option<usize> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let [mut own, mut other] = [0, 1].map(|id| Node::new(NodeId(id), &MachineProfile::HADES));
    let mut now = 0;
    for at in 0..transactions {
        let tx = own.begin(at % 5)?;
        for access in 0..ACCESSES {
            let line = [Line(rng.u64(..DRAWN))];
            let (fetch, written) = if access % 2 == 0 { (Fetch::Read, &[][..]) } else { (Fetch::Write, &line[..]) };
            let served = other.fetch(now, tx, fetch, &line);
            own.record(tx, NodeId(1), written);
            now += served.cycles;
            served.stop.is_none().then_some(())?;
        }
        commit(&mut [&mut own, &mut other], tx.node, tx)?;
    }
    Some(transactions * ACCESSES)
}

/// Commits a transaction. `None` if it was squashed.
fn commit(nodes: &mut [&mut Node], own: NodeId, tx: TxId) -> Option<()> {
    loop {
        let step = nodes[usize::from(own.0)].commit_step(tx);
        let mut messages = step.messages;
        while let Some((to, message)) = messages.pop() {
            messages.extend(nodes[usize::from(to.0)].receive(0, &message).messages);
        }
        match step.progress {
            Progress::Committed => return Some(()),
            Progress::Stopped(_) => return None,
            _ => {}
        }
    }
}
