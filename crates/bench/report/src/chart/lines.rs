//! Lines through the values of series.

use std::path::Path;

use super::{
    Axis, Drawing, WIDTH,
    axis::Laid,
    pen::{At, Pen, colour, text_width},
};
use crate::{Error, table::wrap};

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

/// A line of a chart, and the published values beside it.
#[derive(Debug)]
pub struct Series {
    /// The name beside the line.
    pub name: String,
    /// The measured or simulated values.
    pub points: Vec<(f64, f64)>,
    /// The published values.
    pub published: Vec<(f64, f64)>,
}

/// Where the axes begin, from the top.
const TOP: f64 = 26.0;
/// The least height of the axes.
const LOW: f64 = 200.0;
/// The height of a line of a name, and the distance of names.
const LINE: f64 = 13.0;
const BETWEEN: f64 = 4.0;
/// Most characters of a line of a name.
const COLUMNS: usize = 16;

/// A series' name beside its line.
struct Label {
    series: usize,
    lines: Vec<String>,
    /// The middle.
    y: f64,
}

impl Label {
    fn height(&self) -> f64 {
        self.lines.len() as f64 * LINE + BETWEEN
    }
}

impl Chart {
    /// Draws the chart into a file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        self.draw().write(path)
    }

    /// Draws the chart.
    #[must_use]
    pub fn draw(&self) -> Drawing {
        let mut labels: Vec<Label> = self.labels();
        let height = LOW.max(labels.iter().map(Label::height).sum());
        let bottom = TOP + height;
        let names = labels.iter().flat_map(|label| &label.lines).map(|line| text_width(line)).fold(0.0, f64::max);
        let right = WIDTH - names - 28.0;
        let y = self.y.along(self.values().map(|point| point.1), (bottom, TOP));
        let ticks = y.ticks(5);
        let left = ticks.iter().map(|(_, label)| text_width(label)).fold(0.0, f64::max) + 10.0;
        let x = self.x.across(self.values().map(|point| point.0), (left, right));
        let mut pen = Pen::default();
        pen.text((2.0, 12.0), "strong", &self.y.heading());
        if self.series.iter().any(|series| !series.published.is_empty()) {
            pen.text((WIDTH - 2.0, 12.0), "end", "published");
            pen.diamond((WIDTH - 10.0 - text_width("published"), 8.0), "", "published");
        }
        for (at, label) in &ticks {
            pen.line((left, *at), (right, *at), "grid");
            pen.text((left - 5.0, at + 4.0), "faint end", label);
        }
        pen.line((left, bottom), (right, bottom), "axis");
        for (at, label) in x.ticks_at(self.values().map(|point| point.0)) {
            pen.line((at, bottom), (at, bottom + 4.0), "axis");
            pen.text((at, bottom + 17.0), "faint middle", &label);
        }
        pen.text((left.midpoint(right), bottom + 34.0), "middle", &self.x.heading());
        for (number, series) in self.series.iter().enumerate() {
            self.line(&mut pen, number, series, (&x, &y));
        }
        for label in &mut labels {
            let series = &self.series[label.series];
            let places = |points: &[(f64, f64)]| points.iter().rev().find_map(|point| y.at(point.1));
            label.y = places(&series.points).or_else(|| places(&series.published)).unwrap_or(bottom);
        }
        spread(&mut labels, (TOP, bottom));
        for label in &labels {
            let first = label.y - (label.lines.len() - 1) as f64 * LINE / 2.0;
            pen.mark(label.series, (right + 10.0, first), "");
            for (number, line) in label.lines.iter().enumerate() {
                pen.text((right + 19.0, first + 4.0 + number as f64 * LINE), "", line);
            }
        }
        let (title, caption) = (self.title.clone(), self.caption.clone());
        Drawing { title, caption, height: bottom + 42.0, body: pen.0 }
    }

    /// Draws a series: lines from published to our values, the line, its marks, published values.
    fn line(&self, pen: &mut Pen, number: usize, series: &Series, (x, y): (&Laid, &Laid)) {
        let class = colour(number);
        let at = |point: (f64, f64)| Some((x.at(point.0)?, y.at(point.1)?));
        for published in &series.published {
            let ours = series.points.iter().find(|point| point.0 == published.0);
            if let Some((ours, there)) = ours.and_then(|point| at(*point)).zip(at(*published)) {
                pen.line(ours, there, &format!("gap {class}"));
            }
        }
        let hint = |what: &str, point: (f64, f64)| {
            format!(
                "{}{what}: {} at {}",
                series.name,
                self.y.quantity.briefly(point.1),
                self.x.quantity.briefly(point.0)
            )
        };
        let placed: Vec<(At, (f64, f64))> =
            series.points.iter().filter_map(|&point| Some((at(point)?, point))).collect();
        let line: Vec<At> = placed.iter().map(|(at, _)| *at).collect();
        if line.len() > 1 {
            pen.through(&line, &format!("line {class}"));
        }
        for (at, point) in placed {
            pen.mark(number, at, &hint("", point));
        }
        for (at, point) in series.published.iter().filter_map(|&point| Some((at(point)?, point))) {
            pen.diamond(at, &class, &hint(", published", point));
        }
    }

    fn labels(&self) -> Vec<Label> {
        let named = self.series.iter().enumerate().filter(|(_, series)| !series.is_empty());
        named
            .map(|(number, series)| {
                let lines = wrap(&series.name, COLUMNS).lines().map(str::to_owned).collect();
                Label { series: number, lines, y: 0.0 }
            })
            .collect()
    }

    fn values(&self) -> impl Iterator<Item = (f64, f64)> {
        self.series.iter().flat_map(|series| series.points.iter().chain(&series.published)).copied()
    }
}

impl Series {
    /// Returns whether there is nothing to draw.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.points.is_empty() && self.published.is_empty()
    }
}

/// Moves names apart that would cover each other, and into the chart.
fn spread(labels: &mut [Label], (top, bottom): (f64, f64)) {
    labels.sort_by(|one, other| one.y.total_cmp(&other.y));
    let mut free = top;
    for label in labels.iter_mut() {
        let half = label.height() / 2.0;
        label.y = label.y.max(free + half);
        free = label.y + half;
    }
    let mut free = bottom;
    for label in labels.iter_mut().rev() {
        let half = label.height() / 2.0;
        label.y = label.y.min(free - half);
        free = label.y - half;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{chart::Scale, units::Quantity};

    const AXIS: Axis = Axis { title: "x", quantity: Quantity::Bytes, scale: Scale::Doubling };

    fn chart(series: Vec<Series>) -> Chart {
        Chart { title: "t".to_owned(), caption: "SIMULATED".to_owned(), x: AXIS, y: AXIS, series }
    }

    #[test]
    fn every_series_has_its_name_and_its_marks() {
        let series = |number: usize| Series {
            name: format!("<number {number}>"),
            points: vec![(64.0, 1.0), (128.0, number as f64)],
            published: vec![(64.0, 2.0)],
        };
        let drawing = chart((1..=12).map(series).collect()).draw();
        let svg = drawing.element();
        assert_eq!(svg.matches(">&lt;number").count(), 12 + 12 * 2 + 12, "names, and hints of marks");
        assert!(!svg.contains("<number"), "{svg}");
        assert_eq!(svg.matches("class=\"published s").count(), 12);
        assert_eq!(svg.matches("polyline").count(), 12);
    }

    #[test]
    fn names_do_not_cover_each_other() {
        let mut labels: Vec<Label> =
            (0..6).map(|series| Label { series, lines: vec![String::new(); 1 + series % 2], y: 100.0 }).collect();
        spread(&mut labels, (0.0, 200.0));
        let edges: Vec<_> =
            labels.iter().map(|label| (label.y - label.height() / 2.0, label.y + label.height() / 2.0)).collect();
        assert!(edges.windows(2).all(|pair| pair[0].1 <= pair[1].0 + 1e-9), "{edges:?}");
        assert!(edges[0].0 >= 0.0 && edges[5].1 <= 200.0, "{edges:?}");
    }

    #[test]
    fn an_empty_chart_can_be_drawn_and_values_without_a_place_are_left_out() {
        let none = Series { name: "none".to_owned(), points: vec![(0.0, f64::NAN)], published: Vec::new() };
        let svg = chart(vec![none]).draw().file();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>") && svg.contains("SIMULATED"), "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf\""), "{svg}");
    }
}
