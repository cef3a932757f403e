//! `fabric rate`: many operations at a time; and of a simulated cluster, what its model was
//! calibrated from, measured again.

use std::time::{Duration, Instant};

use clap::{Args as ClapArgs, value_parser};
use drtm_rdma::{NicProfile, NodeId, Primitive, SimConfig, Transport};
use serde::Serialize;

use super::{
    bed::{Bed, OnBed, Simulated, Verb, Window, on, throughput},
    latency::What,
    names::{FabricName, VerbName},
    raw,
};
use crate::{
    Error,
    names::name_of,
    report::{Report, prose, table},
};

/// Measure many operations at a time
///
/// Each worker's coroutines post so many operations each, with a doorbell for each of them
/// (messages share one), and wait for all. On local and shm, one worker accesses another node.
///
/// On `sim:PROFILE` the primitives that the profile was calibrated from are run on the cluster that
/// they were published for, beside what was published: `residual` is the simulated rate over the
/// published one, minus one. It says how well the model fits its own inputs, and nothing else.
/// --verb and --bytes do not matter there.
///
/// JSON: [{fabric, simulated, verb, bytes, per_s, raw_per_s, published, residual, source, events_per_s}]
/// (null where there is none; `events_per_s` is how fast the simulation runs on this machine)
#[derive(Debug, ClapArgs)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    what: What,

    /// Coroutines of each worker
    #[arg(long, value_parser = value_parser!(u16).range(1..=64), default_value_t = 4, value_name = "N")]
    coroutines: u16,

    /// Operations that each coroutine has under way
    #[arg(long, value_parser = value_parser!(u16).range(1..=64), default_value_t = 16, value_name = "N")]
    outstanding: u16,

    /// Milliseconds for each
    #[arg(long, value_parser = value_parser!(u64).range(1..=60_000), default_value_t = 200, value_name = "MS")]
    millis: u64,
}

#[derive(Debug, Serialize)]
struct Row {
    fabric: FabricName,
    simulated: bool,
    verb: VerbName,
    bytes: usize,
    per_s: f64,
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

impl OnBed for Many<'_> {
    type Output = f64;

    fn on<B: Bed>(self, bed: &B) -> Result<f64, Error> {
        let turn = Verb {
            verb: self.verb,
            bytes: self.bytes,
            at_a_time: self.args.outstanding.into(),
            nodes: bed.nodes(),
            server: None,
            memory: bed.bytes(),
        };
        let coroutines = self.args.coroutines.into();
        Ok(throughput(bed, 0..1, coroutines, self.window, self.seed, (&turn, false))?.0)
    }
}

/// Virtual time that is simulated of a cluster: some tens of thousands of operations of each node.
pub(super) const SIMULATED: Window = Window { warm: Duration::from_micros(100), counted: Duration::from_micros(300) };

/// The rate of a primitive on a profile's own cluster, of one node, and how many events it took.
pub(super) fn simulate(
    profile: &'static NicProfile,
    (verb, bytes): (VerbName, usize),
    (coroutines, at_a_time): (usize, usize),
    connections: usize,
    seed: u64,
) -> Result<(f64, u64), Error> {
    let (nodes, workers, _) = profile.cluster;
    let config = SimConfig::new(profile).seed(seed).connections(connections).transport(Transport::Datagrams);
    let bed = Simulated::new(config, nodes, workers)?;
    let server = (!profile.symmetric).then_some(NodeId(0));
    let turn = Verb { verb, bytes: verb.bytes(bytes), at_a_time, nodes, server, memory: bed.bytes() };
    let clients = if profile.symmetric { 0..nodes } else { 1..nodes };
    let (per_s, _) = throughput(&bed, clients, coroutines, SIMULATED, seed, (&turn, false))?;
    let of_one = if profile.symmetric { per_s / f64::from(nodes) } else { per_s };
    Ok((of_one, bed.events()))
}

impl Args {
    pub(crate) fn carry_out(&self, seed: u64, report: &Report) -> Result<(), Error> {
        let mut rows = Vec::new();
        for &fabric in &self.what.fabric {
            if let FabricName::Sim(profile) = fabric {
                rows.extend(self.calibration(profile, seed)?);
            }
        }
        for (fabric, verb, bytes) in self.what.each()? {
            if fabric.is_simulated() {
                continue;
            }
            let counted = Duration::from_millis(self.millis);
            let window = Window { warm: counted / 10, counted };
            let many = Many { args: self, verb, bytes, window, seed };
            let per_s = on(fabric, Transport::Connection, seed, many)?;
            let raw = self.what.raw.then(|| raw::measure(verb, bytes, window, seed)).transpose()?;
            rows.push(Row {
                fabric,
                simulated: false,
                verb,
                bytes,
                per_s,
                raw_per_s: raw.map(|(_, rate)| rate),
                published: None,
                residual: None,
                source: None,
                events_per_s: None,
            });
        }
        report.text(&text(&rows))?;
        report.result(&rows)
    }

    fn calibration(&self, profile: &'static NicProfile, seed: u64) -> Result<Vec<Row>, Error> {
        let mut rows = Vec::new();
        for input in profile.inputs {
            let verb = match input.primitive {
                Primitive::Read => VerbName::Read,
                Primitive::Write => VerbName::Write,
                Primitive::Atomic => VerbName::Cas,
                Primitive::Call => VerbName::Message,
            };
            let start = Instant::now();
            let width = (self.coroutines.into(), self.outstanding.into());
            let (per_s, events) = simulate(profile, (verb, input.bytes), width, 1, seed)?;
            rows.push(Row {
                fabric: FabricName::Sim(profile),
                simulated: true,
                verb,
                bytes: input.bytes,
                per_s,
                raw_per_s: None,
                published: Some(input.per_s),
                residual: Some(per_s / input.per_s - 1.0),
                source: Some(input.source),
                events_per_s: Some(events as f64 / start.elapsed().as_secs_f64()),
            });
        }
        Ok(rows)
    }
}

fn text(rows: &[Row]) -> String {
    let or = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let rate = |rate: f64| format!("{:.2}M", rate / 1e6);
    let shown = table(
        &["fabric", "verb", "bytes", "per s", "raw per s", "published", "residual", "events/s"],
        2,
        rows.iter().map(|row| {
            vec![
                row.fabric.to_string(),
                name_of(&row.verb),
                row.bytes.to_string(),
                rate(row.per_s),
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
            "Simulated rows: one node's rate on the cluster that the published one was measured on. They are what the \
             model was calibrated from, so that the residual says how well it fits, and predicts nothing.",
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
