//! The results of a study, and the rows that scripts read.

use std::borrow::Cow;

use drtm_report::{chart::Axis, units::Quantity};
use serde::{Deserialize, Serialize};

use super::effort::Effort;
use crate::Error;

/// An experiment.
#[derive(Debug)]
pub(super) struct Study {
    /// The panels that it fills.
    pub(super) panels: &'static [Panel],
    /// Runs the experiment.
    pub(super) measure: fn(&Effort) -> Result<Measured, Error>,
}

/// One diagram of a figure, or one column of a table.
#[derive(Debug)]
pub(super) struct Panel {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// The horizontal axis. `None` if series are single values.
    pub(super) x: Option<Axis>,
    pub(super) y: Axis,
    /// The values in the paper's text.
    pub(super) published: &'static [Published],
    /// What a reader must know: what differs here, and what a model lacks.
    pub(super) note: &'static str,
}

/// A value in the paper's text.
#[derive(Debug)]
pub(super) struct Published {
    pub(super) series: &'static str,
    pub(super) x: Option<usize>,
    pub(super) y: f64,
}

impl Published {
    pub(super) const fn at(series: &'static str, x: usize, y: f64) -> Self {
        Self { series, x: Some(x), y }
    }

    /// Returns the single value of a series.
    pub(super) const fn of(series: &'static str, y: f64) -> Self {
        Self { series, x: None, y }
    }
}

/// The results of an experiment.
#[derive(Debug)]
pub(super) struct Measured {
    /// The curves of each panel of the study.
    pub(super) curves: Vec<Vec<Curve>>,
    /// Where the numbers come from.
    pub(super) source: String,
    /// A violated condition.
    pub(super) failure: Option<Error>,
}

/// The results of a series.
#[derive(Debug)]
pub(super) struct Curve {
    pub(super) series: &'static str,
    pub(super) found: Found,
}

#[derive(Debug)]
pub(super) enum Found {
    Points {
        kind: Kind,
        points: Vec<(Option<usize>, f64)>,
    },
    /// Points that were simulated with several seeds.
    Seeds {
        points: Vec<(Option<usize>, Seeded)>,
    },
    /// Returns a series that is not available here.
    Absent {
        why: &'static str,
    },
}

/// A value by several seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Seeded {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Seeded {
    /// Returns what values lie between. There is at least one.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (last, middle) = (values.len() - 1, values.len() / 2);
        Self { median: f64::midpoint(values[last / 2], values[middle]), least: values[0], most: values[last] }
    }
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// By computation alone.
    Exact,
    /// From a model.
    Simulated,
    /// From this machine.
    Measured,
    /// There is no value.
    Unavailable,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Simulated => "simulated",
            Self::Measured => "measured",
            Self::Unavailable => "unavailable",
        }
    }
}

impl Curve {
    pub(super) fn new(series: &'static str, kind: Kind, points: impl IntoIterator<Item = (usize, f64)>) -> Self {
        let points = points.into_iter().map(|(x, y)| (Some(x), y)).collect();
        Self { series, found: Found::Points { kind, points } }
    }

    /// Returns a series that is a single value.
    pub(super) fn single(series: &'static str, kind: Kind, value: f64) -> Self {
        Self { series, found: Found::Points { kind, points: vec![(None, value)] } }
    }

    pub(super) const fn absent(series: &'static str, why: &'static str) -> Self {
        Self { series, found: Found::Absent { why } }
    }
}

/// A point of a figure, as scripts rely on it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) figure: Cow<'static, str>,
    pub(super) series: Cow<'static, str>,
    pub(super) x: Option<usize>,
    pub(super) y: Option<f64>,
    pub(super) published: Option<f64>,
    pub(super) kind: Kind,
    /// What the seeds lie between, where there were several: `y` is their median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) least: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) most: Option<f64>,
    x_unit: Option<Cow<'static, str>>,
    y_unit: Cow<'static, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<Cow<'static, str>>,
}

/// The reason why a published point has no value.
const NOT_ASKED: &str = "there is no such value in this run";

impl Panel {
    /// Returns the name of the figure that this is a panel of: without the letter after its number,
    /// and without what says that it has the times of another panel.
    pub(super) fn figure(&self) -> &'static str {
        if let Some(figure) = self.name.strip_suffix("-times") {
            return figure;
        }
        let figure = self.name.trim_end_matches(|c: char| c.is_ascii_lowercase());
        if figure.ends_with(|c: char| c.is_ascii_digit()) { figure } else { self.name }
    }

    /// Returns the rows of all points, and then of published points without a measured one.
    pub(super) fn rows(&self, curves: &[Curve]) -> Vec<Row> {
        curves.iter().flat_map(|curve| self.rows_of(curve)).collect()
    }

    fn rows_of(&self, curve: &Curve) -> Vec<Row> {
        let published = || self.published.iter().filter(|value| value.series == curve.series);
        let at = |x| published().find(|value| value.x == x).map(|value| value.y);
        let missing = |x, why: &'static str| Row {
            kind: Kind::Unavailable,
            why: Some(Cow::Borrowed(why)),
            ..self.row(curve.series, x, at(x))
        };
        match &curve.found {
            Found::Points { kind, points } => {
                let found =
                    points.iter().map(|&(x, y)| Row { y: Some(y), kind: *kind, ..self.row(curve.series, x, at(x)) });
                let others = published().filter(|value| points.iter().all(|(x, _)| *x != value.x));
                found.chain(others.map(|value| missing(value.x, NOT_ASKED))).collect()
            }
            Found::Seeds { points } => {
                let found = points.iter().map(|&(x, Seeded { median, least, most })| Row {
                    y: Some(median),
                    kind: Kind::Simulated,
                    least: Some(least),
                    most: Some(most),
                    ..self.row(curve.series, x, at(x))
                });
                let others = published().filter(|value| points.iter().all(|(x, _)| *x != value.x));
                found.chain(others.map(|value| missing(value.x, NOT_ASKED))).collect()
            }
            Found::Absent { why } if published().next().is_none() => vec![missing(None, why)],
            Found::Absent { why } => published().map(|value| missing(value.x, why)).collect(),
        }
    }

    fn row(&self, series: &'static str, x: Option<usize>, published: Option<f64>) -> Row {
        let x_unit = self.x.map(|axis| axis.quantity.unit().into());
        let (figure, y_unit) = (self.name.into(), self.y.quantity.unit().into());
        let series = series.into();
        Row {
            figure,
            series,
            x,
            y: None,
            published,
            kind: Kind::Unavailable,
            least: None,
            most: None,
            x_unit,
            y_unit,
            why: None,
        }
    }

    /// Formats a place on the horizontal axis, with its unit; empty if there is none.
    pub(super) fn place(&self, x: Option<usize>) -> String {
        let Some((axis, x)) = self.x.zip(x) else { return String::new() };
        let (quantity, unit) = (axis.quantity, axis.quantity.unit());
        let value = quantity.precisely(x as f64);
        let unit = if x == 1 { unit.strip_suffix('s').unwrap_or(unit) } else { unit };
        if quantity.shows_unit() { value } else { format!("{value} {unit}") }
    }

    /// Formats a value of the horizontal axis.
    pub(super) fn show_x(&self, x: Option<usize>) -> String {
        let quantity = self.x.map_or(Quantity::Bytes, |axis| axis.quantity);
        x.map_or_else(String::new, |x| quantity.show(x as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drtm_report::chart::Scale;

    const THREADS: Axis = Axis { title: "threads", quantity: Quantity::Threads, scale: Scale::Linear };
    const PANEL: Panel = Panel {
        name: "some-fig7b",
        title: "a figure",
        x: Some(THREADS),
        y: Axis { title: "abort rate", quantity: Quantity::AbortRate, scale: Scale::Linear },
        published: &[Published::at("ours", 1, 0.5), Published::at("ours", 8, 0.75), Published::at("theirs", 8, 0.9)],
        note: "",
    };

    #[test]
    fn rows_carry_the_published_value_where_there_is_one() {
        let rows = PANEL.rows(&[Curve::new("ours", Kind::Measured, [(1, 0.4), (2, 0.45)])]);
        let told: Vec<_> = rows.iter().map(|row| (row.x, row.y, row.published, row.kind)).collect();
        let expected = [
            (Some(1), Some(0.4), Some(0.5), Kind::Measured),
            (Some(2), Some(0.45), None, Kind::Measured),
            (Some(8), None, Some(0.75), Kind::Unavailable),
        ];
        assert_eq!(told, expected);
        assert!(rows[1].why.is_none() && rows[2].why.is_some());
        assert_eq!((&*rows[0].figure, PANEL.figure()), ("some-fig7b", "some-fig7"));
        assert_eq!(Panel { name: "some-storage", ..PANEL }.figure(), "some-storage");
        assert_eq!(Panel { name: "some-storage-times", ..PANEL }.figure(), "some-storage");
    }

    #[test]
    fn what_cannot_be_had_is_listed_with_the_reason_and_no_value() {
        for (series, at) in [("theirs", (Some(8), Some(0.9))), ("nobody's", (None, None))] {
            let rows = PANEL.rows(&[Curve::absent(series, "no such machine")]);
            let told: Vec<_> = rows.iter().map(|row| (row.x, row.published, row.y, row.why.as_deref())).collect();
            assert_eq!(told, [(at.0, at.1, None, Some("no such machine"))]);
        }
    }
}
