//! The table and the chart of a panel.

use drtm_report::{
    chart::{Bar, Bars, Chart, Drawing, Series, Span},
    prose, table,
    units::Quantity,
};

use super::panel::{Kind, Measured, Panel, Row};

impl Panel {
    pub(super) fn text(&self, rows: &[Row], measured: &Measured) -> String {
        let Self { name, title, y, .. } = self;
        let has_seeds = rows.iter().any(|row| row.least.is_some());
        let show = |value: Option<f64>| value.map_or_else(String::new, |value| y.quantity.show(value));
        let cells = rows.iter().map(|row| {
            let place = self.x.is_some().then(|| self.show_x(row.x));
            let values = [show(row.y), show(row.published), row.kind.name().to_owned()];
            let seeds = has_seeds.then(|| row.between(y.quantity));
            [row.series.to_string()].into_iter().chain(place).chain(values).chain(seeds).collect()
        });
        let place = self.x.map(|axis| axis.title);
        let headers = ["series"].into_iter().chain(place).chain([y.title, "published", "ours is"]);
        let headers: Vec<&str> = headers.chain(has_seeds.then_some("by seeds")).collect();
        let mut text = format!("{title} ({name})\n{}\n\n{}\n\n", measured.source, table(&headers, 1, cells));
        let mut reasons: Vec<(&str, &str)> =
            rows.iter().filter_map(|row| Some((&*row.series, row.why.as_deref()?))).collect();
        reasons.dedup();
        for (series, why) in reasons {
            text += &prose(&format!("Unavailable, {series}: {why}."));
            text.push('\n');
        }
        text + &prose(self.note) + "\n"
    }

    /// Returns the chart: lines, or bars if there is no horizontal axis. `None` if there is nothing
    /// to draw.
    pub(super) fn chart(&self, rows: &[Row], source: &str) -> Option<Drawing> {
        let (title, caption) = (self.title.to_owned(), source.to_owned());
        let Some(x) = self.x else {
            let bar = |row: &Row| {
                let [ours, published] = [row.y, row.published].map(|value| value.map(Span::of));
                Bar { name: row.series.to_string(), ours, published }
            };
            let bars: Vec<Bar> = rows.iter().map(bar).collect();
            let is_empty = bars.iter().all(|bar| bar.ours.is_none() && bar.published.is_none());
            return (!is_empty).then(|| Bars { title, caption, axis: self.y, bars }.draw());
        };
        let mut series: Vec<Series> = Vec::new();
        for row in rows {
            let place = series.iter().position(|series| series.name == row.series).unwrap_or(series.len());
            if place == series.len() {
                let (points, published) = (Vec::new(), Vec::new());
                series.push(Series { name: row.series.to_string(), points, published });
            }
            let at = |y: Option<f64>| Some((row.x? as f64, y?));
            series[place].points.extend(at(row.y));
            series[place].published.extend(at(row.published));
        }
        // A row without a value comes after the others.
        series.iter_mut().for_each(|series| series.points.sort_by(|one, other| one.0.total_cmp(&other.0)));
        let is_empty = series.iter().all(Series::is_empty);
        (!is_empty).then(|| Chart { title, caption, x, y: self.y, series }.draw())
    }
}

impl Row {
    /// Formats what the seeds lie between, and that over the median. Empty if there was one seed.
    pub(super) fn between(&self, quantity: Quantity) -> String {
        let (Some(least), Some(most), Some(median)) = (self.least, self.most, self.y) else { return String::new() };
        let share = if median == 0.0 { 0.0 } else { 100.0 * (most - least) / median };
        format!("{} to {} ({share:.1} %)", quantity.show(least), quantity.show(most))
    }
}

impl Kind {
    /// Returns the label of an engine's results.
    pub(super) fn of(engine: crate::htm::EngineName) -> Self {
        if engine.simulates() { Self::Simulated } else { Self::Measured }
    }
}
