//! `fabric connections`: what it costs to have more queue pairs than a NIC holds.

use clap::{Args as ClapArgs, value_parser};
use drtm_drive::FabricName;
use drtm_rdma::{Buffers, Cost, NicProfile, NodeId, Port, SimConfig, Transport, VerbError, Verbs};
use drtm_report::{
    Report,
    chart::{Axis, Scale},
    prose, table,
    units::Quantity,
};
use serde::Serialize;

use super::{
    plot::{Plot, Svg},
    rate::{Run, VirtualTime, simulate},
    testbed::{Room, Simulated, Testbed, Turn, Window, place, throughput},
    verb::VerbName,
};
use crate::Error;

/// Simulate the queue pairs of a larger cluster
///
/// Each worker has --connections queue pairs to each node and uses them in turns, as DrTM+H did to
/// emulate 80 nodes on 16. READs of several sizes are simulated with one and with as many, and so
/// are two mixes of verbs.
///
/// The mixes stand for what DrTM+H does for a transaction of its Fig. 12 (TPC-C's NEW-ORDER, and
/// SmallBank): as many reads, locks, log writes and commit writes, of such sizes, and processor
/// time between them. They are no transactions: nothing is looked up, and nothing conflicts. The
/// published drops stand beside them for orientation.
///
/// Everything here is simulated.
///
/// JSON: [{fabric, simulated, workload, bytes, connections, per_s, drop, published, deviation}]
/// (`per_s` of one node; `drop` from one connection to as many; `deviation` in percentage points)
#[derive(Debug, ClapArgs)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The simulated fabrics: sim:ConnectX-3 (cx3), sim:ConnectX-4 (cx4)
    #[arg(long, value_delimiter = ',', value_name = "FABRIC,...", default_value = "sim:ConnectX-4")]
    fabric: Vec<FabricName>,

    /// Queue pairs from each worker to each node
    #[arg(long, value_parser = value_parser!(u16).range(2..=64), default_value_t = 5, value_name = "N")]
    connections: u16,

    #[command(flatten)]
    virtual_time: VirtualTime,

    #[command(flatten)]
    svg: Svg,
}

/// Sizes of READs.
const SIZES: [usize; 4] = [16, 64, 128, 512];

#[derive(Debug, Serialize)]
struct Row {
    fabric: FabricName,
    simulated: bool,
    workload: &'static str,
    bytes: Option<usize>,
    connections: u16,
    per_s: f64,
    drop: Option<f64>,
    published: Option<f64>,
    deviation: Option<f64>,
}

/// Verbs as a transaction of DrTM+H has them.
#[derive(Clone, Copy, Debug)]
struct Mix {
    name: &'static str,
    /// Records read and written, and their bytes.
    records: usize,
    bytes: usize,
    log_bytes: usize,
    /// What the application does between phases.
    nanos: u64,
    published: f64,
    nodes: u16,
    memory: u64,
}

/// DrTM+H 5: NEW-ORDER, always distributed: some ten records of about 100 bytes, and 300 logged
/// for each of two backups. Its processor time follows from no primitive: 8 us are assumed.
const NEW_ORDER: Mix = Mix {
    name: "tpcc-no-mix",
    records: 10,
    bytes: 128,
    log_bytes: 1_024,
    nanos: 8_000,
    published: 0.05,
    nodes: 0,
    memory: 0,
};

/// SmallBank: two records of 16 bytes, and hardly any processor time.
const SMALLBANK: Mix = Mix {
    name: "smallbank-mix",
    records: 2,
    bytes: 16,
    log_bytes: 64,
    nanos: 200,
    published: 0.09,
    nodes: 0,
    memory: 0,
};

impl Mix {
    fn target<P: Port>(&self, verbs: Verbs<'_, P>, random: &mut fastrand::Rng) -> drtm_rdma::Remote {
        let node = NodeId((verbs.endpoint().node().0 + random.u16(1..self.nodes)) % self.nodes);
        place(node, 64 * random.u64(0..(self.memory - 4_096) / 64))
    }
}

impl<P: Port> Turn<P> for Mix {
    async fn take(&self, verbs: Verbs<'_, P>, random: &mut fastrand::Rng) -> Result<u64, VerbError> {
        let endpoint = verbs.endpoint();
        let words = self.bytes / 8;
        let records: Vec<_> = (0..self.records).map(|_| self.target(verbs, random)).collect();
        // Execute.
        let mut batch = verbs.batch();
        let reads = records.iter().map(|at| batch.read(*at, words)).collect::<Result<Vec<_>, _>>()?;
        batch.ring();
        for read in reads {
            read.await?;
        }
        endpoint.charge(Cost::Nanos(self.nanos));
        // Lock and validate, in one round trip.
        let mut batch = verbs.batch();
        let mut locks = Vec::new();
        for at in &records {
            locks.push(batch.compare_swap(*at, 0, 0)?);
            batch.read(*at + 8, 1)?.unsignaled();
        }
        batch.ring();
        for lock in locks {
            lock.await?;
        }
        // Log, at two backups.
        let log = [7; 512];
        let mut batch = verbs.batch();
        let logs = (0..2).map(|_| batch.write(self.target(verbs, random), &log[..self.log_bytes / 8]));
        let logs = logs.collect::<Result<Vec<_>, _>>()?;
        batch.ring();
        for log in logs {
            log.await?;
        }
        // Write back and unlock, not waited for.
        let mut batch = verbs.batch();
        for at in &records {
            batch.write(*at + 8, &log[..words])?.unsignaled();
            batch.write(*at, &[0])?.unsignaled();
        }
        batch.ring();
        Ok(1)
    }
}

impl Args {
    pub(crate) fn execute(&self, seed: u64, report: &Report) -> Result<(), Error> {
        let mut rows = Vec::new();
        for &fabric in &self.fabric {
            let FabricName::Sim(profile) = fabric else {
                return Err(drtm_drive::Error::Options {
                    option: "--fabric local, shm or tcp",
                    with: "connections",
                    instead: "only a simulated NIC has queue pairs to hold: use --fabric sim:PROFILE",
                }
                .into());
            };
            let window = self.virtual_time.window();
            for bytes in SIZES {
                let read = |connections| {
                    let run = Run { verb: VerbName::Read, bytes, coroutines: 4, at_a_time: 16, connections, window };
                    Ok(simulate(profile, run, seed)?.0.per_s)
                };
                rows.extend(self.pair(fabric, "read", Some(bytes), None, read)?);
            }
            for mix in [NEW_ORDER, SMALLBANK] {
                let run = |connections| mixed(profile, mix, connections, (window, seed));
                let published = profile.symmetric.then_some(mix.published);
                rows.extend(self.pair(fabric, mix.name, None, published, run)?);
            }
        }
        report.text(&text(&rows))?;
        self.svg.draw(|| plot(&rows))?;
        Ok(report.result(&rows)?)
    }

    fn pair(
        &self,
        fabric: FabricName,
        workload: &'static str,
        bytes: Option<usize>,
        published: Option<f64>,
        run: impl Fn(usize) -> Result<f64, Error>,
    ) -> Result<[Row; 2], Error> {
        let [one, many] = [run(1)?, run(self.connections.into())?];
        let drop = 1.0 - many / one;
        let row = |connections, per_s| Row {
            fabric,
            simulated: true,
            workload,
            bytes,
            connections,
            per_s,
            drop: None,
            published: None,
            deviation: None,
        };
        let deviation = published.map(|published| 100.0 * (drop - published));
        Ok([row(1, one), Row { drop: Some(drop), published, deviation, ..row(self.connections, many) }])
    }
}

/// Coroutines of each worker where mixes are simulated.
const COROUTINES: usize = 10;

fn mixed(
    profile: &'static NicProfile,
    mix: Mix,
    connections: usize,
    (window, seed): (Window, u64),
) -> Result<f64, Error> {
    let (nodes, workers, _) = profile.cluster;
    let config = SimConfig::new(profile).seed(seed).connections(connections).transport(Transport::Datagrams);
    // Records are locked, read, written and unlocked, at most all of these at a time.
    let records = Room::of(mix.bytes, COROUTINES * (4 * mix.records + 2));
    let logs = Room::of(mix.log_bytes, 2 * COROUTINES);
    let room = Room { buffers: Buffers { medium: logs.buffers.medium, ..records.buffers }, ..records };
    let testbed = Simulated::new(config, nodes, workers, room)?;
    let mix = Mix { nodes, memory: testbed.bytes(), ..mix };
    Ok(throughput(&testbed, 0..nodes, COROUTINES, window, seed, &mix)?.of_one(nodes).per_s)
}

fn text(rows: &[Row]) -> String {
    let or = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let shown = table(
        &["fabric", "workload", "bytes", "connections", "per s", "drop", "published", "deviation"],
        2,
        rows.iter().map(|row| {
            vec![
                row.fabric.to_string(),
                row.workload.to_owned(),
                or(row.bytes.map(|bytes| bytes.to_string())),
                row.connections.to_string(),
                format!("{:.0}", row.per_s),
                or(row.drop.map(percent)),
                or(row.published.map(percent)),
                or(row.deviation.map(|points| format!("{points:+.1} points"))),
            ]
        }),
    );
    let note = prose(
        "All simulated. The mixes have the verbs of a transaction and none of its logic. Published: DrTM+H 6.2, Fig. 12, \
         for whole transactions.",
    );
    format!("{shown}\n\n{note}")
}

fn plot(rows: &[Row]) -> Plot {
    const NAMES: [&str; 6] = ["READ 16 B", "READ 64 B", "READ 128 B", "READ 512 B", "NEW-ORDER mix", "SmallBank mix"];
    const WORKLOADS: Axis = Axis { title: "", quantity: Quantity::Ratio, scale: Scale::Named(&NAMES) };
    const LEFT: Axis = Axis { title: "over one connection", quantity: Quantity::Ratio, scale: Scale::Linear };
    let mut plot = Plot::new("Throughput with more queue pairs", WORKLOADS, LEFT);
    for row in rows {
        let place = match row.bytes {
            Some(bytes) => SIZES.iter().position(|size| *size == bytes),
            None => [NEW_ORDER, SMALLBANK].iter().position(|mix| mix.name == row.workload).map(|at| SIZES.len() + at),
        };
        if let (Some(place), Some(drop)) = (place, row.drop) {
            let name = format!("{} connections", row.connections);
            plot.point(row.fabric, &name, (place as f64, 1.0 - drop), row.published.map(|drop| 1.0 - drop));
        }
    }
    plot
}
