//! Figures of the papers, regenerated: `drtm-bench paper`.
//!
//! A [`Panel`] is one diagram of a figure: how to measure it, what the paper's text says of it, and what a model
//! can and cannot reproduce. Published values are compared with and shown, and nothing is computed from them.

mod dbx_fig1;
mod drtm_fig2;

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::{
    Args as ClapArgs,
    builder::{PossibleValuesParser, TypedValueParser},
};
use drtm_htm::Profile;
use serde::Serialize;

use crate::{
    Error,
    htm::{EngineName, Load, MEASURED, Rig, Setup, abort_rate, describe},
    report::{
        Report,
        chart::{Axis, Chart, Series},
        prose, table,
    },
    units,
};

/// Regenerate figures of the papers, beside the values that their texts give
///
/// A figure's name stands for all its panels: dbx-fig1 is dbx-fig1a to dbx-fig1d.
///
/// JSON: [{figure, series, x, y, published, kind, x_unit, y_unit}], where published is the
/// paper's value at that x or null, and kind is "simulated" on the emulated engine and
/// "measured" on real hardware.
#[derive(Debug, ClapArgs)]
#[command(verbatim_doc_comment, after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The figure, or one of its panels
    #[arg(value_parser = Selection::parser(), required_unless_present = "all")]
    figure: Option<Selection>,

    /// Every figure
    #[arg(long, conflicts_with = "figure")]
    all: bool,

    /// What runs the regions
    #[arg(long, value_enum, default_value_t, value_name = "ENGINE")]
    engine: EngineName,

    /// Draw charts, too: into this file if its name ends in .svg, else into this directory
    #[arg(long, value_name = "DIR-or-FILE")]
    svg: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
Panels:
  dbx-fig1a    abort rate against working set, 4 threads
  dbx-fig1b    the same on 8 hardware threads of 4 cores
  dbx-fig1c    how much can be read together with how much written, in both orders
  dbx-fig1d    abort rate against duration
  drtm-fig2a   abort rate against working set, in sequence
  drtm-fig2b   the same at random

Examples:
  drtm-bench paper dbx-fig1a                    a table, with the published values
  drtm-bench paper drtm-fig2 --svg figures      both panels, and figures/drtm-fig2a.svg, figures/drtm-fig2b.svg
  drtm-bench paper --all --json                 everything, for a script";

/// All panels, in the order of the papers.
const PANELS: [&Panel; 6] = [&dbx_fig1::A, &dbx_fig1::B, &dbx_fig1::C, &dbx_fig1::D, &drtm_fig2::A, &drtm_fig2::B];

/// One diagram of a figure.
#[derive(Debug)]
struct Panel {
    name: &'static str,
    title: &'static str,
    x: Axis,
    y: Axis,
    /// What is emulated where nothing is measured.
    profile: Profile,
    threads: usize,
    measure: fn(Setup) -> Result<Vec<Curve>, Error>,
    /// What the paper's text says. Every `x` here is one that is measured.
    published: &'static [Published],
    /// What of a simulated result comes from the model, and what the model lacks.
    model: &'static str,
}

/// A series as it came out.
#[derive(Debug)]
struct Curve {
    series: &'static str,
    points: Vec<(usize, f64)>,
}

/// A value in the paper's text.
#[derive(Debug)]
struct Published {
    series: &'static str,
    x: usize,
    y: f64,
}

/// A point of a figure, as scripts rely on it.
#[derive(Debug, Serialize)]
struct Row {
    figure: &'static str,
    series: &'static str,
    x: usize,
    y: f64,
    published: Option<f64>,
    kind: &'static str,
    x_unit: &'static str,
    y_unit: &'static str,
}

/// The panels that one name stands for.
#[derive(Clone, Debug)]
struct Selection(Vec<&'static Panel>);

impl Selection {
    fn parser() -> impl TypedValueParser<Value = Self> {
        let mut names: Vec<&str> = PANELS.iter().flat_map(|panel| [panel.figure(), panel.name]).collect();
        names.sort_unstable();
        names.dedup();
        PossibleValuesParser::new(names)
            .map(|name| Self(PANELS.into_iter().filter(|panel| panel.name == name || panel.figure() == name).collect()))
    }
}

impl Args {
    pub(crate) fn carry_out(&self, seed: u64, report: &Report) -> Result<(), Error> {
        let panels: &[&Panel] = self.figure.as_ref().map_or(&PANELS, |Selection(panels)| panels);
        let into_file = self.svg.as_deref().is_some_and(is_svg);
        if into_file && panels.len() > 1 {
            return Err(Error::Options {
                option: "--svg with the name of one file",
                with: "several panels",
                instead: "name a directory",
            });
        }
        let mut rows = Vec::new();
        for panel in panels {
            let machine = self.engine.machine(panel.profile)?;
            let curves = (panel.measure)(Setup { threads: panel.threads, seed, ..Setup::on(machine) })?;
            let panel_rows = panel.rows(&curves, self.engine);
            report.text(&panel.text(&panel_rows, self.engine))?;
            if let Some(path) = &self.svg {
                let path = if into_file { path.clone() } else { file_in(path, panel.name)? };
                panel.chart(&curves, self.engine).write(&path)?;
            }
            rows.extend(panel_rows);
        }
        report.result(&rows)
    }
}

fn is_svg(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("svg"))
}

fn file_in(directory: &Path, name: &str) -> Result<PathBuf, Error> {
    fs::create_dir_all(directory).map_err(|source| Error::File { path: directory.to_owned(), source })?;
    Ok(directory.join(name).with_extension("svg"))
}

impl Panel {
    /// The name of the figure that this is a panel of.
    fn figure(&self) -> &'static str {
        self.name.trim_end_matches(|c: char| c.is_ascii_lowercase())
    }

    fn published(&self, series: &str, x: usize) -> Option<f64> {
        self.published.iter().find(|value| value.series == series && value.x == x).map(|value| value.y)
    }

    fn rows(&self, curves: &[Curve], engine: EngineName) -> Vec<Row> {
        let row = |series, x, y| Row {
            figure: self.name,
            series,
            x,
            y,
            published: self.published(series, x),
            kind: kind(engine),
            x_unit: self.x.quantity.unit(),
            y_unit: self.y.quantity.unit(),
        };
        curves
            .iter()
            .flat_map(|curve| curve.points.iter().map(move |&(x, y)| (curve.series, x, y)))
            .map(|(series, x, y)| row(series, x, y))
            .collect()
    }

    /// Where the numbers come from.
    fn source(&self, engine: EngineName) -> String {
        let threads = units::threads(self.threads);
        if engine.simulates() {
            let profile = describe(&self.profile);
            format!("SIMULATED on the emulated engine: {profile}, virtual 4 ms timer; {threads}")
        } else {
            format!("{MEASURED}; {threads}")
        }
    }

    fn text(&self, rows: &[Row], engine: EngineName) -> String {
        let ours = format!("{}, {}", self.y.title, kind(engine));
        let cells = |row: &Row| {
            let published = row.published.map_or_else(String::new, |y| self.y.quantity.show(y));
            vec![row.series.to_owned(), self.x.quantity.show(row.x as f64), self.y.quantity.show(row.y), published]
        };
        let table = table(&["series", self.x.title, &ours, "published"], 1, rows.iter().map(cells));
        let Self { name, title, .. } = self;
        let head = format!("{title} ({name})\n{}", self.source(engine));
        let note = if engine.simulates() {
            format!("Model: {}", self.model)
        } else {
            "Threads were not pinned to cores, and the study's own code shares the cache with its regions.".to_owned()
        };
        format!("{head}\n\n{table}\n\n{}\n", prose(&note))
    }

    fn chart(&self, curves: &[Curve], engine: EngineName) -> Chart {
        let series = curves.iter().map(|curve| Series {
            name: curve.series.to_owned(),
            points: curve.points.iter().map(|&(x, y)| (x as f64, y)).collect(),
            published: self
                .published
                .iter()
                .filter(|value| value.series == curve.series)
                .map(|value| (value.x as f64, value.y))
                .collect(),
        });
        Chart {
            title: self.title.to_owned(),
            caption: self.source(engine),
            x: self.x,
            y: self.y,
            series: series.collect(),
        }
    }
}

/// How results of an engine are labelled.
fn kind(engine: EngineName) -> &'static str {
    if engine.simulates() { "simulated" } else { "measured" }
}

/// Abort rates of loads that differ in one number.
fn curve(series: &'static str, setup: Setup, points: &[usize], load: impl Fn(usize) -> Load) -> Result<Curve, Error> {
    let loads: Vec<Load> = points.iter().map(|&x| load(x)).collect();
    let rig = Rig::new(setup, &loads)?;
    let measure = |(&x, &load): (&usize, &Load)| Ok((x, abort_rate(&rig.run(load, load.default_attempts())?)));
    Ok(Curve { series, points: points.iter().zip(&loads).map(measure).collect::<Result<_, Error>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_s_name_stands_for_its_panels() {
        let names: Vec<_> = PANELS.iter().map(|panel| (panel.figure(), panel.name)).collect();
        assert_eq!(names[0], ("dbx-fig1", "dbx-fig1a"));
        assert_eq!(names[5], ("drtm-fig2", "drtm-fig2b"));
    }

    #[test]
    fn rows_carry_the_published_value_where_there_is_one() {
        let curve = Curve { series: "write", points: vec![(31 << 10, 0.5), (32 << 10, 0.5)] };
        let rows = dbx_fig1::A.rows(&[curve], EngineName::Emulated);
        assert_eq!(rows.iter().map(|row| row.published).collect::<Vec<_>>(), [Some(0.90), None]);
        assert!(rows.iter().all(|row| row.kind == "simulated" && row.figure == "dbx-fig1a"));
    }
}
