//! `fabric rate`: many operations at a time; and of a simulated cluster, what its model was
//! calibrated from, measured again.

use std::time::Instant;

use clap::{Args as ClapArgs, value_parser};
use drtm_drive::FabricName;
use drtm_rdma::{NicProfile, NodeId, Primitive, SimConfig, Transport};
use drtm_report::{Report, name_of, prose, table};
use serde::Serialize;

use super::{
    latency::What,
    plot::{BYTES, OPERATIONS, Plot, Svg},
    raw,
    testbed::{OnTestbed, Pace, Room, Simulated, Testbed, Verb, Window, on, throughput},
    verb::VerbName,
};
use crate::Error;

/// Measure many operations at a time
///
/// Each worker's coroutines post so many operations each, with a doorbell for each of them
/// (messages share one), and wait for all. On this machine's fabrics, one worker accesses another
/// node.
///
/// On `sim:PROFILE` the primitives that the profile was calibrated from are run on the cluster that
/// they were published for, beside what was published: `residual` is the simulated rate over the
/// published one, minus one. It says how well the model fits its own inputs, and nothing else. With
/// --verb or --bytes, those are simulated instead.
///
/// JSON: [{fabric, simulated, verb, bytes, median_ns, p99_ns, per_s, raw_median_ns, raw_per_s,
/// published, residual, source, events_per_s}]
/// (times are of all that a coroutine has under way at once; null where there is none;
/// `events_per_s` is how fast the simulation runs on this machine)
#[derive(Debug, ClapArgs)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(flatten)]
    what: What,

    /// Coroutines of each worker
    #[arg(long, value_parser = value_parser!(u16).range(1..=64), default_value_t = 4, value_name = "N")]
    coroutines: u16,

    /// Operations that each coroutine has under way
    #[arg(long, value_parser = value_parser!(u16).range(1..=64), default_value_t = 16, value_name = "N")]
    outstanding: u16,

    /// Milliseconds for each, on this machine's fabrics
    #[arg(long, value_parser = value_parser!(u64).range(1..=60_000), default_value_t = 200, value_name = "MS")]
    millis: u64,

    #[command(flatten)]
    virtual_time: VirtualTime,

    #[command(flatten)]
    svg: Svg,
}

/// How much of a cluster's time is simulated.
#[derive(Debug, ClapArgs)]
pub(super) struct VirtualTime {
    /// Microseconds of virtual time for each, on a simulated cluster
    ///
    /// 300 are some tens of thousands of operations of each node.
    #[arg(long, value_parser = value_parser!(u64).range(1..=10_000), default_value_t = 300, value_name = "US")]
    virtual_us: u64,
}

impl VirtualTime {
    pub(super) fn window(&self) -> Window {
        Window::of_virtual_micros(self.virtual_us)
    }
}

#[derive(Debug, Serialize)]
struct Row {
    fabric: FabricName,
    simulated: bool,
    verb: VerbName,
    bytes: usize,
    median_ns: u64,
    p99_ns: u64,
    per_s: f64,
    raw_median_ns: Option<u64>,
    raw_per_s: Option<f64>,
    published: Option<f64>,
    residual: Option<f64>,
    source: Option<&'static str>,
    events_per_s: Option<f64>,
}

struct Many<'a> {
    args: &'a Args,
    verb: VerbName,
    bytes: usize,
    window: Window,
    seed: u64,
}

impl OnTestbed for Many<'_> {
    type Output = Pace;

    fn on<B: Testbed>(self, testbed: &B) -> Result<Pace, Error> {
        let turn = Verb {
            verb: self.verb,
            bytes: self.bytes,
            at_a_time: self.args.outstanding.into(),
            nodes: testbed.nodes(),
            server: None,
            memory: testbed.bytes(),
        };
        throughput(testbed, 0..1, self.args.coroutines.into(), self.window, self.seed, &turn)
    }
}

/// What is simulated of a primitive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) verb: VerbName,
    pub(super) bytes: usize,
    pub(super) coroutines: usize,
    pub(super) at_a_time: usize,
    /// Queue pairs from each worker to each node.
    pub(super) connections: usize,
    pub(super) window: Window,
}

/// Measures a primitive on a profile's own cluster: one node's pace, and how many events it took.
pub(super) fn simulate(profile: &'static NicProfile, run: Run, seed: u64) -> Result<(Pace, u64), Error> {
    let (nodes, workers, _) = profile.cluster;
    let Run { verb, coroutines, at_a_time, .. } = run;
    let config = SimConfig::new(profile).seed(seed).connections(run.connections).transport(Transport::Datagrams);
    let (bytes, operations) = (verb.bytes(run.bytes), coroutines * at_a_time);
    let testbed = Simulated::new(config, nodes, workers, Room::of(bytes, operations))?;
    let server = (!profile.symmetric).then_some(NodeId(0));
    let turn = Verb { verb, bytes, at_a_time, nodes, server, memory: testbed.bytes() };
    let clients = if profile.symmetric { 0..nodes } else { 1..nodes };
    let pace = throughput(&testbed, clients, coroutines, run.window, seed, &turn)?;
    Ok((if profile.symmetric { pace.of_one(nodes) } else { pace }, testbed.events()))
}

fn verb_of(primitive: Primitive) -> VerbName {
    match primitive {
        Primitive::Read => VerbName::Read,
        Primitive::Write => VerbName::Write,
        Primitive::Atomic => VerbName::Cas,
        Primitive::Call => VerbName::Message,
    }
}

impl Args {
    pub(crate) fn execute(&self, seed: u64, report: &Report) -> Result<(), Error> {
        let is_calibration = self.what.verb.is_empty() && self.what.bytes.is_empty();
        let mut rows = Vec::new();
        for (fabric, verb, bytes) in self.what.each()? {
            match fabric {
                FabricName::Sim(_) if is_calibration => {}
                FabricName::Sim(profile) => rows.push(self.simulated(profile, verb, bytes, seed)?),
                _ => rows.push(self.measured(fabric, verb, bytes, seed)?),
            }
        }
        for &fabric in &self.what.fabric {
            if let (FabricName::Sim(profile), true) = (fabric, is_calibration) {
                for input in profile.inputs {
                    rows.push(self.simulated(profile, verb_of(input.primitive), input.bytes, seed)?);
                }
            }
        }
        report.text(&text(&rows))?;
        self.svg.draw(|| plot(&rows))?;
        Ok(report.result(&rows)?)
    }

    fn measured(&self, fabric: FabricName, verb: VerbName, bytes: usize, seed: u64) -> Result<Row, Error> {
        let window = Window::of_millis(self.millis);
        let operations = usize::from(self.outstanding);
        let many = Many { args: self, verb, bytes, window, seed };
        let room = Room::of(bytes, operations * usize::from(self.coroutines));
        let Pace { per_s, median_ns, p99_ns } = on(fabric, Transport::Connection, seed, room, many)?;
        let raw = self.what.raw.then(|| raw::measure(fabric, (verb, bytes), operations, window, seed)).transpose()?;
        Ok(Row {
            fabric,
            simulated: false,
            verb,
            bytes,
            median_ns,
            p99_ns,
            per_s,
            raw_median_ns: raw.map(|raw| raw.median_ns),
            raw_per_s: raw.map(|raw| raw.per_s * operations as f64),
            published: None,
            residual: None,
            source: None,
            events_per_s: None,
        })
    }

    fn simulated(&self, profile: &'static NicProfile, verb: VerbName, bytes: usize, seed: u64) -> Result<Row, Error> {
        let run = Run {
            verb,
            bytes,
            coroutines: self.coroutines.into(),
            at_a_time: self.outstanding.into(),
            connections: 1,
            window: self.virtual_time.window(),
        };
        let start = Instant::now();
        let (Pace { per_s, median_ns, p99_ns }, events) = simulate(profile, run, seed)?;
        let events_per_s = Some(events as f64 / start.elapsed().as_secs_f64());
        let input = profile.inputs.iter().find(|input| verb_of(input.primitive) == verb && input.bytes == bytes);
        Ok(Row {
            fabric: FabricName::Sim(profile),
            simulated: true,
            verb,
            bytes,
            median_ns,
            p99_ns,
            per_s,
            raw_median_ns: None,
            raw_per_s: None,
            published: input.map(|input| input.per_s),
            residual: input.map(|input| per_s / input.per_s - 1.0),
            source: input.map(|input| input.source),
            events_per_s,
        })
    }
}

fn text(rows: &[Row]) -> String {
    let or = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let rate = |rate: f64| if rate < 1e6 { format!("{:.1}k", rate / 1e3) } else { format!("{:.2}M", rate / 1e6) };
    let shown = table(
        &["fabric", "verb", "bytes", "per s", "median ns", "p99 ns", "raw per s", "published", "residual", "events/s"],
        2,
        rows.iter().map(|row| {
            vec![
                row.fabric.to_string(),
                name_of(&row.verb),
                row.bytes.to_string(),
                rate(row.per_s),
                row.median_ns.to_string(),
                row.p99_ns.to_string(),
                or(row.raw_per_s.map(rate)),
                or(row.published.map(rate)),
                or(row.residual.map(|residual| format!("{:+.1} %", 100.0 * residual))),
                or(row.events_per_s.map(rate)),
            ]
        }),
    );
    let mut text = shown;
    if rows.iter().any(|row| row.simulated) {
        let note = prose(
            "Simulated rows: one node's rate on the cluster that the published one was measured on. What was published is \
             what the model was calibrated from, so that the residual says how well it fits, and predicts nothing.",
        );
        text = format!("{text}\n\n{note}");
        for row in rows {
            if let Some(source) = row.source {
                text = format!("{text}\n  {}, {} bytes: {source}", name_of(&row.verb), row.bytes);
            }
        }
    }
    text
}

fn plot(rows: &[Row]) -> Plot {
    let mut plot = Plot::new("Many operations at a time", BYTES, OPERATIONS);
    for row in rows {
        let (name, bytes) = (name_of(&row.verb), row.bytes as f64);
        plot.point(row.fabric, &name, (bytes, row.per_s), row.published);
        if let Some(per_s) = row.raw_per_s {
            plot.floor(&name, (bytes, per_s));
        }
    }
    plot
}
