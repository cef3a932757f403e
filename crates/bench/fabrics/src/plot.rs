//! What the commands' charts have in common: series by fabric, and a caption that says what is
//! simulated.

use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use drtm_report::{
    chart::{Axis, Chart, Scale, Series},
    units::Quantity,
};

use crate::Error;
use drtm_drive::FabricName;

pub(super) const BYTES: Axis = Axis { title: "payload", quantity: Quantity::Bytes, scale: Scale::Doubling };
pub(super) const MEDIAN: Axis = Axis { title: "median", quantity: Quantity::Nanoseconds, scale: Scale::Doubling };
pub(super) const OPERATIONS: Axis =
    Axis { title: "operations/s", quantity: Quantity::Operations, scale: Scale::Doubling };

/// Where a chart goes, if there is to be one.
#[derive(Debug, ClapArgs)]
pub(super) struct Svg {
    /// Draw a chart, too
    #[arg(long = "svg", value_name = "FILE")]
    path: Option<PathBuf>,
}

impl Svg {
    /// Draws what `plot` gives.
    pub(super) fn draw(&self, plot: impl FnOnce() -> Plot) -> Result<(), Error> {
        self.path.as_deref().map_or(Ok(()), |path| plot().write(path))
    }
}

/// A chart that is collected row by row.
#[derive(Debug)]
pub(super) struct Plot {
    title: &'static str,
    x: Axis,
    y: Axis,
    series: Vec<Series>,
    simulates: bool,
    measures: bool,
}

impl Plot {
    pub(super) fn new(title: &'static str, x: Axis, y: Axis) -> Self {
        Self { title, x, y, series: Vec::new(), simulates: false, measures: false }
    }

    /// Adds a point of a fabric's series, and what was published for the same place.
    pub(super) fn point(&mut self, fabric: FabricName, name: &str, at: (f64, f64), published: Option<f64>) {
        self.simulates |= fabric.is_simulated();
        self.measures |= !fabric.is_simulated();
        let series = self.series(format!("{fabric} {name}"));
        series.points.push(at);
        series.published.extend(published.map(|value| (at.0, value)));
    }

    /// Adds a point of the floor. It is the same for all fabrics of this machine, so the first one
    /// counts.
    pub(super) fn floor(&mut self, name: &str, at: (f64, f64)) {
        let series = self.series(format!("raw {name}"));
        if series.points.iter().all(|point| point.0 != at.0) {
            series.points.push(at);
        }
    }

    fn series(&mut self, name: String) -> &mut Series {
        let place = self.series.iter().position(|series| series.name == name).unwrap_or(self.series.len());
        if place == self.series.len() {
            self.series.push(Series { name, points: Vec::new(), published: Vec::new() });
        }
        &mut self.series[place]
    }

    fn write(mut self, path: &Path) -> Result<(), Error> {
        for series in &mut self.series {
            series.points.sort_by(|one, other| one.0.total_cmp(&other.0));
        }
        let caption = match (self.simulates, self.measures) {
            (true, false) => "SIMULATED: nothing here was measured",
            (true, true) => "SIMULATED where the name says so, measured on this machine elsewhere",
            (false, _) => "measured on this machine",
        };
        let Self { title, x, y, series, .. } = self;
        Chart { title: title.to_owned(), caption: caption.to_owned(), x, y, series }.write(path)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use drtm_rdma::NicProfile;

    use super::*;

    #[test]
    fn points_join_their_series_and_the_floor_is_there_once() {
        let mut plot = Plot::new("t", BYTES, MEDIAN);
        for fabric in [FabricName::Local, FabricName::Shm, FabricName::Sim(&NicProfile::CONNECTX_3)] {
            plot.point(fabric, "read", (64.0, 10.0), None);
            plot.point(fabric, "read", (8.0, 9.0), Some(7.0));
            plot.floor("read", (64.0, 5.0));
        }
        let names: Vec<_> = plot.series.iter().map(|series| (&*series.name, series.points.len())).collect();
        let expected = [("local read", 2), ("raw read", 1), ("shm read", 2), ("sim:ConnectX-3 (simulated) read", 2)];
        assert_eq!(names, expected);
        assert_eq!(plot.series[0].published, [(8.0, 7.0)]);
        assert!(plot.simulates && plot.measures);
    }
}
