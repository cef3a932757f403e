//! Studies of regions alone.

use drtm_htm::Profile;
use drtm_report::units;

use super::{
    effort::Effort,
    panel::{Curve, Kind, Measured},
};
use crate::{
    Error,
    htm::{EngineName, Load, MEASURED, Setup, Testbed, abort_rate, describe},
};

/// Regions that touch memory, or spin.
#[derive(Debug)]
pub(super) struct Regions {
    /// The emulated processor, if nothing is measured.
    pub(super) profile: Profile,
    pub(super) threads: usize,
    pub(super) measure: fn(Setup) -> Result<Vec<Line>, Error>,
}

/// A series of one panel.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) series: &'static str,
    pub(super) points: Vec<(usize, f64)>,
}

impl Regions {
    pub(super) fn measure(&self, effort: &Effort) -> Result<Measured, Error> {
        let machine = effort.engine.machine(self.profile)?;
        let lines = (self.measure)(Setup { threads: self.threads, seed: effort.seed, ..Setup::on(machine) })?;
        let curve = |line: Line| Curve::new(line.series, Kind::of(effort.engine), line.points);
        let curves = vec![lines.into_iter().map(curve).collect()];
        Ok(Measured { curves, source: self.source(effort.engine), failure: None })
    }

    /// Returns where the numbers come from.
    fn source(&self, engine: EngineName) -> String {
        let threads = units::threads(self.threads);
        if engine.simulates() {
            let profile = describe(&self.profile);
            format!("SIMULATED on the emulated engine: {profile}, virtual 4 ms timer; {threads}")
        } else {
            format!(
                "{MEASURED}; {threads}, not pinned to cores; the study's own code shares the cache with its regions"
            )
        }
    }
}

/// Measures abort rates of loads that differ in one number.
pub(super) fn line(
    series: &'static str,
    setup: Setup,
    points: &[usize],
    load: impl Fn(usize) -> Load,
) -> Result<Line, Error> {
    let loads: Vec<Load> = points.iter().map(|&x| load(x)).collect();
    let testbed = Testbed::new(setup, &loads)?;
    let measure = |(&x, &load): (&usize, &Load)| Ok((x, abort_rate(&testbed.run(load, load.default_attempts())?)));
    Ok(Line { series, points: points.iter().zip(&loads).map(measure).collect::<Result<_, Error>>()? })
}
