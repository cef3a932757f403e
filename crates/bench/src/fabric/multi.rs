//! `fabric multi`: transactions of several operations, and what each optimisation adds: DrTM+H's
//! Fig. 6.

use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum, value_parser};
use drtm_rdma::{NodeId, Port, SimConfig, Transport, VerbError, Verbs};
use serde::Serialize;

use super::{
    bed::{Bed, Local, Shm, Simulated, Turn, Window, place, throughput},
    names::FabricName,
    rate::SIMULATED,
};
use crate::{
    Error,
    names::name_of,
    report::{Report, prose, table},
};

/// Measure transactions of several operations
///
/// Each transaction reads or writes --ops places of random other nodes, of 64 bytes, by one-sided
/// verbs or by messages. Optimisations are added one after the other: coroutines; all operations of
/// a transaction at once (outstanding requests); one doorbell for all that can share one; and, for
/// writes, no acknowledgement of each (passive acknowledgement).
///
/// On `sim:PROFILE` this predicts DrTM+H's Fig. 6 from a model that knows primitives only: gains of
/// coroutines and of passive acknowledgement stand beside the published ones, with the deviation.
/// Nothing is measured there: every row says "simulated".
///
/// JSON: [{fabric, simulated, workload, primitive, step, per_s, gain, published, deviation}]
/// (transactions of one node; `gain` is over the step before)
#[derive(Debug, ClapArgs)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The fabrics: local, shm, sim:ConnectX-3 (cx3), sim:ConnectX-4 (cx4)
    #[arg(long, value_delimiter = ',', value_name = "FABRIC,...", default_value = "local")]
    fabric: Vec<FabricName>,

    /// Operations of a transaction
    #[arg(long, value_parser = value_parser!(u8).range(1..=32), default_value_t = 10, value_name = "N")]
    ops: u8,

    /// Coroutines of each worker, from the second step on
    #[arg(long, value_parser = value_parser!(u16).range(2..=64), default_value_t = 8, value_name = "N")]
    coroutines: u16,

    /// Milliseconds for each step, on local and shm
    #[arg(long, value_parser = value_parser!(u64).range(1..=60_000), default_value_t = 100, value_name = "MS")]
    millis: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Workload {
    Reads,
    Writes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Means {
    OneSided,
    Messages,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Step {
    Base,
    Coroutines,
    Outstanding,
    Doorbell,
    PassiveAck,
}

#[derive(Debug, Serialize)]
struct Row {
    fabric: FabricName,
    simulated: bool,
    workload: Workload,
    primitive: Means,
    step: Step,
    per_s: f64,
    gain: Option<f64>,
    published: Option<f64>,
    deviation: Option<f64>,
}

const BYTES: usize = 64;

/// Messages without a reply before one with, where acknowledgement is passive: transactions.
const BETWEEN_REPLIES: u64 = 10;

#[derive(Clone, Copy, Debug)]
struct Transaction {
    workload: Workload,
    means: Means,
    step: Step,
    ops: usize,
    nodes: u16,
    memory: u64,
}

impl Transaction {
    fn target<P: Port>(&self, verbs: Verbs<'_, P>, random: &mut fastrand::Rng) -> drtm_rdma::Remote {
        let node = NodeId((verbs.endpoint().node().0 + random.u16(1..self.nodes)) % self.nodes);
        place(node, 64 * random.u64(0..self.memory / 64))
    }

    /// A request whose first byte says how many words the reply has.
    fn request(&self) -> ([u8; BYTES], usize) {
        let mut request = [0; BYTES];
        match self.workload {
            Workload::Reads => {
                request[0] = (BYTES / 8) as u8;
                (request, 16)
            }
            Workload::Writes => (request, BYTES),
        }
    }

    /// One operation after the other.
    async fn in_turns<P: Port>(&self, verbs: Verbs<'_, P>, random: &mut fastrand::Rng) -> Result<(), VerbError> {
        let (request, length) = self.request();
        for _ in 0..self.ops {
            let at = self.target(verbs, random);
            match (self.means, self.workload) {
                (Means::OneSided, Workload::Reads) => drop(verbs.read(at, BYTES / 8).await?),
                (Means::OneSided, Workload::Writes) => verbs.write(at, &[7; BYTES / 8]).await?,
                (Means::Messages, _) => drop(verbs.call(at.node, &request[..length]).await?),
            }
        }
        Ok(())
    }

    /// All at once, with a doorbell for each or as few as can be.
    async fn at_once<P: Port>(&self, verbs: Verbs<'_, P>, random: &mut fastrand::Rng) -> Result<(), VerbError> {
        let (request, length) = self.request();
        let passive = self.step == Step::PassiveAck;
        let (mut reads, mut writes, mut calls) = (Vec::new(), Vec::new(), Vec::new());
        let mut batch = verbs.batch();
        let asks = passive && self.means == Means::Messages && random.u64(0..BETWEEN_REPLIES) == 0;
        for op in 0..self.ops {
            let (at, last) = (self.target(verbs, random), op + 1 == self.ops);
            match (self.means, self.workload) {
                (Means::OneSided, Workload::Reads) => reads.push(batch.read(at, BYTES / 8)?),
                (Means::OneSided, Workload::Writes) => {
                    let write = batch.write(at, &[7; BYTES / 8])?;
                    if passive && !last { write.unsignaled() } else { writes.push(write) }
                }
                (Means::Messages, _) if passive && !(last && asks) => {
                    batch.send(at.node, &request[..length])?.unsignaled();
                }
                (Means::Messages, _) => calls.push(batch.call(at.node, &request[..length])?),
            }
            if self.step < Step::Doorbell {
                std::mem::replace(&mut batch, verbs.batch()).ring();
            }
        }
        batch.ring();
        for read in reads {
            read.await?;
        }
        for write in writes {
            write.await?;
        }
        for call in calls {
            call.await?;
        }
        if passive {
            verbs.endpoint().yield_now().await;
        }
        Ok(())
    }
}

impl<P: Port> Turn<P> for Transaction {
    async fn take(&self, verbs: Verbs<'_, P>, random: &mut fastrand::Rng) -> Result<u64, VerbError> {
        if self.step < Step::Outstanding {
            self.in_turns(verbs, random).await?;
        } else {
            self.at_once(verbs, random).await?;
        }
        Ok(1)
    }
}

impl Args {
    pub(crate) fn carry_out(&self, seed: u64, report: &Report) -> Result<(), Error> {
        let mut rows = Vec::new();
        for &fabric in &self.fabric {
            for workload in [Workload::Reads, Workload::Writes] {
                for means in [Means::OneSided, Means::Messages] {
                    rows.extend(self.ladder(fabric, workload, means, seed)?);
                }
            }
        }
        report.text(&text(&rows))?;
        report.result(&rows)
    }

    fn ladder(&self, fabric: FabricName, workload: Workload, means: Means, seed: u64) -> Result<Vec<Row>, Error> {
        let steps = [Step::Base, Step::Coroutines, Step::Outstanding, Step::Doorbell, Step::PassiveAck];
        let mut rows: Vec<Row> = Vec::new();
        for step in steps.into_iter().filter(|step| workload == Workload::Writes || *step != Step::PassiveAck) {
            let per_s = self.step(fabric, workload, means, step, seed)?;
            let gain = rows.last().map(|before| per_s / before.per_s);
            let published = published(fabric, workload, means, step);
            let deviation = gain.zip(published).map(|(gain, published)| gain / published - 1.0);
            let simulated = fabric.is_simulated();
            rows.push(Row { fabric, simulated, workload, primitive: means, step, per_s, gain, published, deviation });
        }
        Ok(rows)
    }

    fn step(&self, fabric: FabricName, workload: Workload, means: Means, step: Step, seed: u64) -> Result<f64, Error> {
        let counted = Duration::from_millis(self.millis);
        let window = Window { warm: counted / 10, counted };
        match fabric {
            FabricName::Local => self.on(&Local::new()?, window, (workload, means, step), seed),
            FabricName::Shm => self.on(&Shm::new()?, window, (workload, means, step), seed),
            FabricName::Sim(profile) => {
                let (nodes, workers, _) = profile.cluster;
                let config = SimConfig::new(profile).seed(seed).transport(Transport::Datagrams);
                let bed = Simulated::new(config, nodes, workers)?;
                self.on(&bed, SIMULATED, (workload, means, step), seed)
            }
        }
    }

    fn on<B: Bed>(
        &self,
        bed: &B,
        window: Window,
        (workload, means, step): (Workload, Means, Step),
        seed: u64,
    ) -> Result<f64, Error> {
        let coroutines = if step == Step::Base { 1 } else { self.coroutines.into() };
        let (nodes, memory) = (bed.nodes(), bed.bytes());
        let turn = Transaction { workload, means, step, ops: self.ops.into(), nodes, memory };
        let (per_s, _) = throughput(bed, 0..nodes, coroutines, window, seed, (&turn, false))?;
        Ok(per_s / f64::from(nodes))
    }
}

/// DrTM+H 4.2, of the cluster of ConnectX-4: 7 and 6.46 times by coroutines, 1.13 and 1.96 times by
/// passive acknowledgement.
fn published(fabric: FabricName, workload: Workload, means: Means, step: Step) -> Option<f64> {
    if !matches!(fabric, FabricName::Sim(profile) if profile.symmetric) {
        return None;
    }
    match (workload, means, step) {
        (Workload::Reads, Means::OneSided, Step::Coroutines) => Some(7.0),
        (Workload::Reads, Means::Messages, Step::Coroutines) => Some(6.46),
        (Workload::Writes, Means::OneSided, Step::PassiveAck) => Some(1.13),
        (Workload::Writes, Means::Messages, Step::PassiveAck) => Some(1.96),
        _ => None,
    }
}

fn text(rows: &[Row]) -> String {
    let or = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let times = |gain: f64| format!("{gain:.2}x");
    let shown = table(
        &["fabric", "workload", "by", "and with", "per s", "gain", "published", "deviation"],
        4,
        rows.iter().map(|row| {
            vec![
                row.fabric.to_string(),
                name_of(&row.workload),
                name_of(&row.primitive),
                name_of(&row.step),
                format!("{:.0}", row.per_s),
                or(row.gain.map(times)),
                or(row.published.map(times)),
                or(row.deviation.map(|deviation| format!("{:+.1} %", 100.0 * deviation))),
            ]
        }),
    );
    let note = prose(
        "Transactions of one node; a step's gain is over the step before. Published: DrTM+H 4.2, Fig. 6. Simulated rows \
         are predictions of a model that was calibrated from primitives only.",
    );
    format!("{shown}\n\n{note}")
}
