//! Charts: lines through measured values, diamonds for published values. `drawing` draws them, with
//! the feature `plots`.

#[cfg(feature = "plots")]
mod drawing;

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::builder::{PathBufValueParser, TypedValueParser};

use crate::{Error, units::Quantity};

/// Returns the parser of an option that names a chart's file. A build without `plots` refuses it.
pub fn path() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| {
        let refusal = "this build draws no charts: build with `--features plots`";
        if cfg!(feature = "plots") { Ok(path) } else { Err(refusal) }
    })
}

/// A chart of several series over one pair of axes.
#[derive(Debug)]
pub struct Chart {
    /// The title.
    pub title: String,
    /// The line under the title: says whether the numbers are simulated or measured.
    pub caption: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The lines.
    pub series: Vec<Series>,
}

/// An axis of a chart.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// Its title, without the unit.
    pub title: &'static str,
    /// The quantity of its values.
    pub quantity: Quantity,
    /// How values become places.
    pub scale: Scale,
}

/// How values become places on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Linear, from zero.
    Linear,
    /// Logarithmic: every tick is twice the one before. Points at zero are left out.
    Doubling,
    /// One place for each name; the values are indices.
    Named(&'static [&'static str]),
}

/// A line of a chart, and the published values beside it.
#[derive(Debug)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// The measured or simulated values.
    pub points: Vec<(f64, f64)>,
    /// The published values.
    pub published: Vec<(f64, f64)>,
}

impl Chart {
    /// Draws the chart into a file.
    ///
    /// # Errors
    ///
    /// Returns an error if the chart cannot be drawn, or the file not be written.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        fs::write(path, self.svg()?).map_err(Error::file(path))
    }

    #[cfg(not(feature = "plots"))]
    fn svg(&self) -> Result<String, Error> {
        Err(Error::Chart("the feature `plots` is not in this build".to_owned()))
    }
}
