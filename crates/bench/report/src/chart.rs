//! Charts in SVG: lines through our values, bars of single values, and orders, each beside what was
//! published. Published values are diamonds.
//!
//! Series differ by colour and by the shape of their marks, and have their names beside them. A
//! chart is as wide as a phone; [`STYLE`] has its colours, for light and for dark screens.
//!
//! # Example
//!
//! ```
//! use drtm_report::{
//!     chart::{Axis, Bar, Bars, Scale, Span},
//!     units::Quantity,
//! };
//!
//! let axis = Axis { title: "storage", quantity: Quantity::Kilobytes, scale: Scale::Linear };
//! let cores = Bar { name: "cores".to_owned(), ours: Some(Span::of(7.0)), published: Some(Span::of(7.1)) };
//! let bars = Bars { title: "Storage".to_owned(), caption: "computed".to_owned(), axis, bars: vec![cores] };
//! assert!(bars.draw().element().starts_with("<svg"));
//! ```

mod axis;
mod bars;
mod lines;
mod pen;
mod ranks;

use std::{fs, path::Path};

use self::pen::Pen;
pub use self::{
    axis::{Axis, Scale},
    bars::{Bar, Bars, Span},
    lines::{Chart, Series},
    ranks::Ranks,
};
use crate::{Error, markup::Escaped, table::wrap};

/// The style sheet of charts: once in a page, and in each file that is a chart alone.
pub const STYLE: &str = include_str!("chart/style.css");

/// The width of all charts.
const WIDTH: f64 = 400.0;

/// A chart that has been drawn.
#[derive(Debug)]
pub struct Drawing {
    title: String,
    caption: String,
    height: f64,
    body: String,
}

impl Drawing {
    /// Returns the chart as an element of a page that has [`STYLE`]. The page shows title and
    /// caption.
    #[must_use]
    pub fn element(&self) -> String {
        let Self { title, height, body, .. } = self;
        let title = Escaped(title);
        format!(
            "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{title}\">{body}</svg>"
        )
    }

    /// Returns the chart as a file, with title and caption.
    #[must_use]
    pub fn file(&self) -> String {
        const LINE: f64 = 15.0;
        let mut head = Pen::default();
        let mut y = 4.0;
        for (text, class, columns) in [(&self.title, "title", 46), (&self.caption, "faint", 52)] {
            for line in wrap(text, columns).lines() {
                y += LINE;
                head.text((8.0, y), class, line);
            }
        }
        y += LINE;
        let (head, body, height) = (head.0, &self.body, self.height + y);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 {WIDTH} {height:.0}\" \
             width=\"{:.0}\" height=\"{:.0}\">\n<style>{STYLE}</style>\n\
             <rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n{head}<g transform=\"translate(0 {y:.0})\">\
             {body}</g></svg>\n",
            2.0 * WIDTH,
            2.0 * height
        )
    }

    /// Writes the chart into a file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        fs::write(path, self.file()).map_err(Error::file(path))
    }
}
