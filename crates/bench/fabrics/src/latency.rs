//! `fabric latency`: one operation at a time.

use clap::{Args as ClapArgs, value_parser};
use drtm_drive::FabricName;
use drtm_rdma::Transport;
use drtm_report::{Report, name_of, prose, table};
use serde::Serialize;

use super::{
    plot::{BYTES, MEDIAN, Plot, Svg},
    raw,
    testbed::{OnTestbed, Pace, Room, Testbed, Verb, Window, on, throughput},
    verb::VerbName,
};
use crate::Error;

/// Measure one operation at a time
///
/// One coroutine of one worker accesses another node's memory at random, or calls it: 128 MiB on
/// this machine's fabrics, more than caches hold. With --raw, the same accesses are made directly,
/// and a message is compared with two threads that spin. The floor of tcp is two threads that poll
/// sockets and exchange as many bytes as the operation's frames have. That of verbs is two bare
/// queue pairs of one thread.
///
/// On `sim:PROFILE` nothing is measured: times are those of the simulated cluster, and every row
/// says "simulated".
///
/// JSON: [{fabric, simulated, verb, bytes, median_ns, p99_ns, per_s, raw_median_ns, raw_per_s}]
/// (the raw ones are null without --raw)
#[derive(Debug, ClapArgs)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(flatten)]
    what: What,

    /// Milliseconds for each; of a simulated cluster, as many of virtual time, but 5 at the most
    #[arg(long, value_parser = value_parser!(u64).range(1..=60_000), default_value_t = 200, value_name = "MS")]
    millis: u64,

    #[command(flatten)]
    svg: Svg,
}

/// Virtual milliseconds that say all there is to say of one operation at a time.
const MOST_VIRTUAL_MILLIS: u64 = 5;

/// What is measured, and of what.
#[derive(Debug, ClapArgs)]
pub(super) struct What {
    /// The fabrics: local, shm, tcp, tcp-clear (not encrypted), verbs (the first RDMA device, in a
    /// build with the feature `verbs`), sim:ConnectX-3 (cx3), sim:ConnectX-4 (cx4)
    #[arg(long, value_delimiter = ',', value_name = "FABRIC,...", default_value = "local")]
    pub(super) fabric: Vec<FabricName>,

    /// The verbs [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "VERB,...")]
    pub(super) verb: Vec<VerbName>,

    /// Bytes of each operation, up to 4096; atomics have 8 [default: 64]
    #[arg(long, value_parser = value_parser!(u16).range(1..=4096), value_delimiter = ',', value_name = "N,...")]
    pub(super) bytes: Vec<u16>,

    /// Measure the floor beside it, on this machine's fabrics
    #[arg(long)]
    pub(super) raw: bool,
}

/// Refuses a floor where nothing is measured.
pub(super) fn check_raw(raw: bool, fabrics: &[FabricName]) -> Result<(), Error> {
    if raw && fabrics.iter().all(|fabric| fabric.is_simulated()) {
        return Err(drtm_drive::Error::Options {
            option: "--raw",
            with: "--fabric sim",
            instead: "a simulated cluster has no floor on this machine",
        }
        .into());
    }
    Ok(())
}

impl What {
    /// Refuses what makes no sense, and gives each fabric, verb and size once.
    pub(super) fn each(&self) -> Result<Vec<(FabricName, VerbName, usize)>, Error> {
        check_raw(self.raw, &self.fabric)?;
        let verbs = if self.verb.is_empty() { &VerbName::ALL[..] } else { &self.verb };
        let sizes = if self.bytes.is_empty() { &[64][..] } else { &self.bytes };
        let mut each = Vec::new();
        for &fabric in &self.fabric {
            for &verb in verbs {
                for &bytes in sizes {
                    let one = (fabric, verb, verb.bytes(bytes.into()));
                    if !each.contains(&one) {
                        each.push(one);
                    }
                }
            }
        }
        Ok(each)
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
}

struct Alone {
    verb: VerbName,
    bytes: usize,
    window: Window,
    seed: u64,
}

impl OnTestbed for Alone {
    type Output = Pace;

    fn on<B: Testbed>(self, testbed: &B) -> Result<Pace, Error> {
        let turn = Verb {
            verb: self.verb,
            bytes: self.bytes,
            at_a_time: 1,
            nodes: testbed.nodes(),
            server: None,
            memory: testbed.bytes(),
        };
        throughput(&Solo(testbed), 0..1, 1, self.window, self.seed, &turn)
    }
}

/// A testbed with one worker of each node.
struct Solo<'b, B>(&'b B);

impl<B: Testbed> Testbed for Solo<'_, B> {
    type Port = B::Port;

    fn nodes(&self) -> u16 {
        self.0.nodes()
    }

    fn workers(&self) -> usize {
        1
    }

    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn run(&self, jobs: Vec<(drtm_rdma::NodeId, super::testbed::Job<B::Port>)>) -> Result<(), Error> {
        self.0.run(jobs)
    }
}

impl Args {
    pub(crate) fn execute(&self, seed: u64, report: &Report) -> Result<(), Error> {
        let mut rows = Vec::new();
        for (fabric, verb, bytes) in self.what.each()? {
            let simulated = fabric.is_simulated();
            let window = Window::of_millis(if simulated { self.millis.min(MOST_VIRTUAL_MILLIS) } else { self.millis });
            let (alone, room) = (Alone { verb, bytes, window, seed }, Room::of(bytes, 1));
            let Pace { median_ns, p99_ns, per_s } = on(fabric, Transport::Connection, seed, room, alone)?;
            let raw = self.what.raw && !simulated;
            let raw = raw.then(|| raw::measure(fabric, (verb, bytes), 1, window, seed)).transpose()?;
            rows.push(Row {
                fabric,
                simulated,
                verb,
                bytes,
                median_ns,
                p99_ns,
                per_s,
                raw_median_ns: raw.map(|raw| raw.median_ns),
                raw_per_s: raw.map(|raw| raw.per_s),
            });
        }
        report.text(&text(&rows))?;
        self.svg.draw(|| plot(&rows))?;
        Ok(report.result(&rows)?)
    }
}

fn text(rows: &[Row]) -> String {
    let or = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let shown = table(
        &["fabric", "verb", "bytes", "median ns", "p99 ns", "per s", "raw median ns", "raw per s"],
        2,
        rows.iter().map(|row| {
            vec![
                row.fabric.to_string(),
                name_of(&row.verb),
                row.bytes.to_string(),
                row.median_ns.to_string(),
                row.p99_ns.to_string(),
                format!("{:.0}", row.per_s),
                or(row.raw_median_ns.map(|ns| ns.to_string())),
                or(row.raw_per_s.map(|rate| format!("{rate:.0}"))),
            ]
        }),
    );
    let note = prose("Times include reading the clock, here and in the raw ones. Simulated rows are virtual time.");
    format!("{shown}\n\n{note}")
}

fn plot(rows: &[Row]) -> Plot {
    let mut plot = Plot::new("One operation at a time", BYTES, MEDIAN);
    for row in rows {
        let (name, bytes) = (name_of(&row.verb), row.bytes as f64);
        plot.point(row.fabric, &name, (bytes, row.median_ns as f64), None);
        if let Some(median) = row.raw_median_ns {
            plot.floor(&name, (bytes, median as f64));
        }
    }
    plot
}
