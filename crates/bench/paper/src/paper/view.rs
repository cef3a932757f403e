//! The table and the chart of a panel.

use drtm_report::{
    chart::{Chart, Series},
    prose, table,
};

use super::panel::{Curve, Kind, Measured, Panel, Row};

impl Panel {
    pub(super) fn text(&self, rows: &[Row], measured: &Measured) -> String {
        let Self { name, title, y, .. } = self;
        let show = |value: Option<f64>| value.map_or_else(String::new, |value| y.quantity.show(value));
        let cells = rows.iter().map(|row| {
            let place = self.x.is_some().then(|| self.show_x(row.x));
            let values = [show(row.y), show(row.published), row.kind.name().to_owned()];
            [row.series.to_owned()].into_iter().chain(place).chain(values).collect()
        });
        let place = self.x.map(|axis| axis.title);
        let headers: Vec<&str> = ["series"].into_iter().chain(place).chain([y.title, "published", "ours is"]).collect();
        let mut text = format!("{title} ({name})\n{}\n\n{}\n\n", measured.source, table(&headers, 1, cells));
        let mut reasons: Vec<(&str, &str)> = rows.iter().filter_map(|row| Some((row.series, row.why?))).collect();
        reasons.dedup();
        for (series, why) in reasons {
            text += &prose(&format!("Unavailable, {series}: {why}."));
            text.push('\n');
        }
        text + &prose(self.note) + "\n"
    }

    /// Returns the chart. `None` if there is no horizontal axis, or no value.
    pub(super) fn chart(&self, curves: &[Curve], measured: &Measured) -> Option<Chart> {
        let placed = |x: Option<usize>, y: f64| Some((x? as f64, y));
        let series = curves.iter().filter(|curve| !curve.points().is_empty()).map(|curve| Series {
            name: curve.series.to_owned(),
            points: curve.points().iter().filter_map(|&(x, y)| placed(x, y)).collect(),
            published: self
                .published
                .iter()
                .filter(|value| value.series == curve.series)
                .filter_map(|value| placed(value.x, value.y))
                .collect(),
        });
        let series: Vec<Series> = series.collect();
        let caption = measured.source.clone();
        let chart = |x| Chart { title: self.title.to_owned(), caption, x, y: self.y, series };
        self.x.map(chart).filter(|chart| !chart.series.is_empty())
    }
}

impl Kind {
    /// Returns the label of an engine's results.
    pub(super) fn of(engine: crate::htm::EngineName) -> Self {
        if engine.simulates() { Self::Simulated } else { Self::Measured }
    }
}
