//! `fabric multi`: transactions of several operations, and what each optimisation adds: DrTM+H's
//! Fig. 6.

use clap::{Args as ClapArgs, ValueEnum, value_parser};
use drtm_drive::FabricName;
use drtm_rdma::{Batch, NodeId, Port, Transport, VerbError, Verbs};
use drtm_report::{
    Report,
    chart::{Axis, Scale},
    name_of, prose, table,
    units::Quantity,
};
use serde::Serialize;

use super::{
    latency::check_raw,
    plot::{Plot, Svg},
    rate::VirtualTime,
    raw,
    testbed::{OnTestbed, Pace, Room, Testbed, Turn, Window, on, place, throughput},
    verb::VerbName,
};
use crate::Error;

/// Measure transactions of several operations
///
/// Each transaction reads or writes --ops places of random other nodes, by one-sided verbs or by
/// messages. Optimisations are added one after the other: coroutines; all operations of a
/// transaction at once (outstanding requests); one doorbell for all that can share one; and, for
/// writes, no acknowledgement of each (passive acknowledgement). With --raw, as many accesses are
/// made directly; messages are compared with two threads that spin. The floor of tcp is two threads
/// that poll sockets and exchange as many bytes as a transaction's frames have.
///
/// On `sim:PROFILE` this predicts DrTM+H's Fig. 6 from a model that knows primitives only: gains of
/// coroutines and of passive acknowledgement stand beside the published ones, with the deviation.
/// Nothing is measured there: every row says "simulated".
///
/// JSON: [{fabric, simulated, workload, verb, bytes, step, median_ns, p99_ns, per_s, gain,
/// raw_median_ns, raw_per_s, published, deviation}]
/// (transactions of one node, and what one takes; `gain` is over the step before; `published` where
/// --ops and --bytes are those of the paper; null where there is none)
#[derive(Debug, ClapArgs)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The fabrics: local, shm, tcp, tcp-clear (not encrypted), verbs (the first RDMA device, in a
    /// build with the feature `verbs`), sim:ConnectX-3 (cx3), sim:ConnectX-4 (cx4)
    #[arg(long, value_delimiter = ',', value_name = "FABRIC,...", default_value = "local")]
    fabric: Vec<FabricName>,

    /// By which verbs: read, write, message [default: all three]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "VERB,...")]
    verb: Vec<VerbName>,

    /// Bytes of each operation, up to 1024
    #[arg(long, value_parser = value_parser!(u16).range(1..=1024), default_value_t = 64, value_name = "N")]
    bytes: u16,

    /// Measure the floor beside it, on this machine's fabrics
    #[arg(long)]
    raw: bool,

    /// Operations of a transaction
    #[arg(long, value_parser = value_parser!(u8).range(1..=32), default_value_t = 10, value_name = "N")]
    ops: u8,

    /// Coroutines of each worker, from the second step on
    #[arg(long, value_parser = value_parser!(u16).range(2..=64), default_value_t = 8, value_name = "N")]
    coroutines: u16,

    /// Milliseconds for each step, on this machine's fabrics
    #[arg(long, value_parser = value_parser!(u64).range(1..=60_000), default_value_t = 100, value_name = "MS")]
    millis: u64,

    #[command(flatten)]
    virtual_time: VirtualTime,

    #[command(flatten)]
    svg: Svg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Workload {
    Reads,
    Writes,
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

impl Step {
    const ALL: [Self; 5] = [Self::Base, Self::Coroutines, Self::Outstanding, Self::Doorbell, Self::PassiveAck];
    /// What they are called, in that order.
    const NAMES: [&'static str; 5] = ["base", "coroutines", "outstanding", "doorbell", "passive-ack"];
}

#[derive(Debug, Serialize)]
struct Row {
    fabric: FabricName,
    simulated: bool,
    workload: Workload,
    verb: VerbName,
    bytes: usize,
    step: Step,
    median_ns: u64,
    p99_ns: u64,
    per_s: f64,
    gain: Option<f64>,
    raw_median_ns: Option<u64>,
    raw_per_s: Option<f64>,
    published: Option<f64>,
    deviation: Option<f64>,
}

/// The most that an operation moves.
const MOST: usize = 1024;

/// What DrTM+H's transactions have.
const PUBLISHED_OPS: u8 = 10;
const PUBLISHED_BYTES: usize = 64;

/// Messages without a reply before one with, where acknowledgement is passive: transactions.
const BETWEEN_REPLIES: u64 = 10;

#[derive(Clone, Copy, Debug)]
struct Transaction {
    workload: Workload,
    verb: VerbName,
    bytes: usize,
    step: Step,
    ops: usize,
    nodes: u16,
    memory: u64,
}

impl Transaction {
    fn target<P: Port>(&self, verbs: Verbs<'_, P>, random: &mut fastrand::Rng) -> drtm_rdma::Remote {
        let node = NodeId((verbs.endpoint().node().0 + random.u16(1..self.nodes)) % self.nodes);
        place(node, 64 * random.u64(0..(self.memory - self.bytes as u64) / 64))
    }

    /// Returns a request whose first byte says how many words the reply has.
    fn request(&self) -> ([u8; MOST], usize) {
        let mut request = [0; MOST];
        match self.workload {
            Workload::Reads => {
                request[0] = (self.bytes / 8) as u8;
                (request, 16)
            }
            Workload::Writes => (request, self.bytes),
        }
    }

    /// Runs one operation after the other.
    async fn in_turns<P: Port>(&self, verbs: Verbs<'_, P>, random: &mut fastrand::Rng) -> Result<(), VerbError> {
        let (request, length) = self.request();
        let (value, words) = ([7; MOST / 8], self.bytes / 8);
        for _ in 0..self.ops {
            let at = self.target(verbs, random);
            match self.verb {
                VerbName::Message => drop(verbs.call(at.node, &request[..length]).await?),
                _ if self.workload == Workload::Reads => drop(verbs.read(at, words).await?),
                _ => verbs.write(at, &value[..words]).await?,
            }
        }
        Ok(())
    }

    /// Posts all at once, with a doorbell for each or as few as can be.
    async fn at_once<P: Port>(&self, verbs: Verbs<'_, P>, random: &mut fastrand::Rng) -> Result<(), VerbError> {
        let (request, length) = self.request();
        let passive = self.step == Step::PassiveAck;
        let (mut reads, mut writes, mut calls) = (Vec::new(), Vec::new(), Vec::new());
        let mut batch = verbs.batch();
        let (value, words) = ([7; MOST / 8], self.bytes / 8);
        let asks = passive && self.verb == VerbName::Message && random.u64(0..BETWEEN_REPLIES) == 0;
        for op in 0..self.ops {
            let (at, last) = (self.target(verbs, random), op + 1 == self.ops);
            match self.verb {
                VerbName::Message if passive && !(last && asks) => {
                    let message = &request[..length];
                    let sent = with_room(verbs, &mut batch, |batch| batch.send(at.node, message)).await?;
                    sent.unsignaled();
                }
                VerbName::Message => {
                    let message = &request[..length];
                    calls.push(with_room(verbs, &mut batch, |batch| batch.call(at.node, message)).await?);
                }
                _ if self.workload == Workload::Reads => reads.push(batch.read(at, words)?),
                _ => {
                    let write = batch.write(at, &value[..words])?;
                    if passive && !last { write.unsignaled() } else { writes.push(write) }
                }
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

/// Posts an operation when there is room for it. Where acknowledgement is passive, nothing is
/// waited for, so a slow fabric has more messages under way than there are buffers.
async fn with_room<'e, P: Port, T>(
    verbs: Verbs<'e, P>,
    batch: &mut Batch<'e, P>,
    mut post: impl FnMut(&mut Batch<'e, P>) -> Result<T, VerbError>,
) -> Result<T, VerbError> {
    loop {
        match post(batch) {
            Err(VerbError::BuffersExhausted { .. } | VerbError::QueueFull { .. } | VerbError::TooManyCalls { .. }) => {
                std::mem::replace(batch, verbs.batch()).ring();
                verbs.endpoint().yield_now().await;
            }
            outcome => return outcome,
        }
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

impl OnTestbed for (Transaction, usize, Window, u64) {
    type Output = Pace;

    fn on<B: Testbed>(self, testbed: &B) -> Result<Pace, Error> {
        let (turn, coroutines, window, seed) = self;
        let (nodes, memory) = (testbed.nodes(), testbed.bytes());
        let turn = Transaction { nodes, memory, ..turn };
        Ok(throughput(testbed, 0..nodes, coroutines, window, seed, &turn)?.of_one(nodes))
    }
}

impl Args {
    pub(crate) fn execute(&self, seed: u64, report: &Report) -> Result<(), Error> {
        check_raw(self.raw, &self.fabric)?;
        if self.verb.iter().any(|verb| matches!(verb, VerbName::Cas | VerbName::Faa)) {
            return Err(drtm_drive::Error::Options {
                option: "--verb cas or faa",
                with: "multi",
                instead: "its transactions read and write: use --verb read,write,message",
            }
            .into());
        }
        let is_wanted = |verb| self.verb.is_empty() || self.verb.contains(&verb);
        let mut rows = Vec::new();
        for &fabric in &self.fabric {
            for (workload, verb) in [
                (Workload::Reads, VerbName::Read),
                (Workload::Reads, VerbName::Message),
                (Workload::Writes, VerbName::Write),
                (Workload::Writes, VerbName::Message),
            ] {
                if is_wanted(verb) {
                    rows.extend(self.ladder(fabric, workload, verb, seed)?);
                }
            }
        }
        report.text(&text(&rows))?;
        self.svg.draw(|| plot(&rows))?;
        Ok(report.result(&rows)?)
    }

    fn ladder(&self, fabric: FabricName, workload: Workload, verb: VerbName, seed: u64) -> Result<Vec<Row>, Error> {
        let simulated = fabric.is_simulated();
        let window = if simulated { self.virtual_time.window() } else { Window::of_millis(self.millis) };
        let (bytes, ops) = (usize::from(self.bytes).next_multiple_of(8), self.ops.into());
        let raw = self.raw && !simulated;
        let raw = raw.then(|| raw::measure(fabric, (verb, bytes), ops, window, seed)).transpose()?;
        let as_published = self.ops == PUBLISHED_OPS && bytes == PUBLISHED_BYTES;
        let mut rows: Vec<Row> = Vec::new();
        for step in Step::ALL.into_iter().filter(|step| workload == Workload::Writes || *step != Step::PassiveAck) {
            let coroutines = if step == Step::Base { 1 } else { self.coroutines.into() };
            // Where and how many nodes, the testbed knows.
            let turn = Transaction { workload, verb, bytes, step, ops, nodes: 0, memory: 0 };
            let room = Room::of(bytes, coroutines * ops);
            let run = (turn, coroutines, window, seed);
            let Pace { per_s, median_ns, p99_ns } = on(fabric, Transport::Datagrams, seed, room, run)?;
            let gain = rows.last().map(|before| per_s / before.per_s);
            let published = published(fabric, workload, verb, step).filter(|_| as_published);
            rows.push(Row {
                fabric,
                simulated,
                workload,
                verb,
                bytes,
                step,
                median_ns,
                p99_ns,
                per_s,
                gain,
                raw_median_ns: raw.map(|raw| raw.median_ns),
                raw_per_s: raw.map(|raw| raw.per_s),
                published,
                deviation: gain.zip(published).map(|(gain, published)| gain / published - 1.0),
            });
        }
        Ok(rows)
    }
}

/// Returns what DrTM+H 4.2 says of the cluster of ConnectX-4: 7 and 6.46 times by coroutines, 1.13
/// and 1.96 times by passive acknowledgement.
fn published(fabric: FabricName, workload: Workload, verb: VerbName, step: Step) -> Option<f64> {
    if !matches!(fabric, FabricName::Sim(profile) if profile.symmetric) {
        return None;
    }
    match (workload, verb, step) {
        (Workload::Reads, VerbName::Read, Step::Coroutines) => Some(7.0),
        (Workload::Reads, VerbName::Message, Step::Coroutines) => Some(6.46),
        (Workload::Writes, VerbName::Write, Step::PassiveAck) => Some(1.13),
        (Workload::Writes, VerbName::Message, Step::PassiveAck) => Some(1.96),
        _ => None,
    }
}

fn text(rows: &[Row]) -> String {
    let or = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let times = |gain: f64| format!("{gain:.2}x");
    let shown = table(
        &[
            "fabric",
            "workload",
            "by",
            "and with",
            "per s",
            "median ns",
            "p99 ns",
            "raw per s",
            "gain",
            "published",
            "deviation",
        ],
        4,
        rows.iter().map(|row| {
            vec![
                row.fabric.to_string(),
                name_of(&row.workload),
                name_of(&row.verb),
                name_of(&row.step),
                format!("{:.0}", row.per_s),
                row.median_ns.to_string(),
                row.p99_ns.to_string(),
                or(row.raw_per_s.map(|rate| format!("{rate:.0}"))),
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

fn plot(rows: &[Row]) -> Plot {
    const STEPS: Axis = Axis { title: "and with", quantity: Quantity::Ratio, scale: Scale::Named(&Step::NAMES) };
    const RATE: Axis =
        Axis { title: "transactions/s of a node", quantity: Quantity::Throughput, scale: Scale::Doubling };
    let mut plot = Plot::new("Transactions of several operations", STEPS, RATE);
    for row in rows {
        let at = row.step as u8;
        let name = format!("{}, {}", name_of(&row.workload), name_of(&row.verb));
        plot.point(row.fabric, &name, (f64::from(at), row.per_s), None);
        if let Some(per_s) = row.raw_per_s {
            plot.floor(&name, (f64::from(at), per_s));
        }
    }
    plot
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_named_in_their_order() {
        assert_eq!(Step::ALL.map(|step| name_of(&step)), Step::NAMES);
        assert!(Step::ALL.iter().enumerate().all(|(at, step)| *step as usize == at));
    }
}
