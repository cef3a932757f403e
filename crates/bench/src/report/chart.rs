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
pub(crate) fn path() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| {
        let refusal = "this build draws no charts: build with `--features plots`";
        if cfg!(feature = "plots") { Ok(path) } else { Err(refusal) }
    })
}

/// A chart of several series over one pair of axes.
#[cfg_attr(not(feature = "plots"), expect(dead_code, reason = "only drawing reads it"))]
#[derive(Debug)]
pub(crate) struct Chart {
    pub(crate) title: String,
    /// The line under the title: says whether the numbers are simulated or measured.
    pub(crate) caption: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) series: Vec<Series>,
}

#[cfg_attr(not(feature = "plots"), expect(dead_code, reason = "only drawing reads all of it"))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    pub(crate) title: &'static str,
    pub(crate) quantity: Quantity,
    pub(crate) scale: Scale,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Linear, from zero.
    Linear,
    /// Logarithmic: every tick is twice the one before. Points at zero are left out.
    Doubling,
    /// One place for each name; the values are indices.
    Named(&'static [&'static str]),
}

#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
    /// The published values.
    pub(crate) published: Vec<(f64, f64)>,
}

impl Chart {
    pub(crate) fn write(&self, path: &Path) -> Result<(), Error> {
        fs::write(path, self.svg()?).map_err(|source| Error::File { path: path.to_owned(), source })
    }

    #[cfg(not(feature = "plots"))]
    fn svg(&self) -> Result<String, Error> {
        Err(Error::Chart("the feature `plots` is not in this build".to_owned()))
    }
}
