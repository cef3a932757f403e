//! The table and the chart of `htm limits`.

use drtm_report::{
    chart::{Axis, Chart, Scale, Series},
    prose, table,
    units::{self, Quantity},
};

use super::{
    super::{
        Order,
        machine::{MEASURED, NamedProfile, describe},
        sweep::Kind,
    },
    Args, Row,
};

const READ: Axis = Axis { title: "read by a region", quantity: Quantity::Bytes, scale: Scale::Doubling };
const WRITTEN: Axis = Axis { title: "written by a region", quantity: Quantity::Bytes, scale: Scale::Doubling };
const DURATION: Axis = Axis { title: "duration of a region", quantity: Quantity::Microseconds, scale: Scale::Linear };
const ABORT_RATE: Axis = Axis { title: "abort rate", quantity: Quantity::AbortRate, scale: Scale::Linear };

/// A row's position on the horizontal axis, and its series.
type Place = fn(&Row) -> (f64, String);

impl Args {
    fn title(&self) -> String {
        let what = match self.kind {
            _ if self.duration_us.is_some() => return "Limits of a region: duration".to_owned(),
            Kind::Read => "reads",
            Kind::Write => "writes",
            Kind::ReadWrite => "reads before writes",
            Kind::WriteRead => "writes before reads",
        };
        let how = match self.order {
            Order::Sequential => "in sequence",
            Order::Random => "at random",
        };
        format!("Limits of a region: {what}, {how}")
    }

    /// Describes the source of the numbers, and whether they are simulated.
    fn source(&self) -> String {
        let threads = units::threads(self.threads.into());
        if self.engine.simulates() {
            let NamedProfile { name, profile } = self.profile();
            let half = if self.hyperthread { ", halved by a sibling" } else { "" };
            format!(
                "SIMULATED on the emulated engine, {name}{half}: {}, virtual 4 ms timer; {threads}",
                describe(&profile)
            )
        } else {
            format!("{MEASURED}; {threads}")
        }
    }

    pub(super) fn text(&self, rows: &[Row]) -> String {
        let mut text = format!("{}\n{}\n\n{}\n", self.title(), self.source(), self.table(rows));
        if self.duration_us.is_none() && self.order == Order::Random {
            text += "\n";
            text += &prose(
                "Every region draws its lines anew, all distinct, from 64 MB for each thread or from eight times the \
                 largest working set, whichever is more.",
            );
            text += "\n";
        }
        text
    }

    fn table(&self, rows: &[Row]) -> String {
        let cells = |row: &Row| {
            let rate = Quantity::AbortRate.show(row.abort_rate);
            let counts = [row.attempts, row.capacity, row.conflict, row.system].map(|count| count.to_string());
            let what = match row.duration_us {
                Some(us) => vec![Quantity::Microseconds.show(us as f64)],
                None => vec![units::bytes(row.bytes_read), units::bytes(row.bytes_written)],
            };
            what.into_iter().chain([rate]).chain(counts).collect()
        };
        let what: &[&str] = if self.duration_us.is_some() { &["duration"] } else { &["read", "written"] };
        table(
            &[what, &["abort rate", "attempts", "capacity", "conflict", "system"]].concat(),
            0,
            rows.iter().map(cells),
        )
    }

    /// Draws abort rates over the varied size. If reads and writes both vary, each written size is
    /// a line.
    pub(super) fn chart(&self, rows: &[Row]) -> Chart {
        let (x, place): (Axis, Place) = match self.kind {
            _ if self.duration_us.is_some() => {
                (DURATION, |row| (row.duration_us.unwrap_or(0) as f64, "spinning".to_owned()))
            }
            Kind::Write => (WRITTEN, |row| (row.bytes_written as f64, "writes".to_owned())),
            Kind::Read => (READ, |row| (row.bytes_read as f64, "reads".to_owned())),
            Kind::ReadWrite | Kind::WriteRead => {
                (READ, |row| (row.bytes_read as f64, format!("{} written", units::bytes(row.bytes_written))))
            }
        };
        let mut series: Vec<Series> = Vec::new();
        for row in rows {
            let (x, name) = place(row);
            let point = (x, row.abort_rate);
            match series.last_mut() {
                Some(last) if last.name == name => last.points.push(point),
                _ => series.push(Series { name, points: vec![point], published: Vec::new() }),
            }
        }
        Chart { title: self.title(), caption: self.source(), x, y: ABORT_RATE, series }
    }
}
