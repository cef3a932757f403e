//! Draws charts with plotters.

use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::{Axis, Chart, Scale, Series};
use crate::{Error, units::Quantity};

const WIDTH: u32 = 960;
/// The height of the axes with their labels.
const BODY: u32 = 492;
/// The legend's offset from the top, and the distance of its lines.
const LEGEND: i32 = 86;
const LINE: i32 = 22;
const LEFT: i32 = 24;
const FONT: &str = "sans-serif";
const INK: RGBColor = RGBColor(34, 40, 49);
const FAINT_INK: RGBColor = RGBColor(92, 101, 112);
const GRID: RGBColor = RGBColor(226, 230, 235);

const KB: f64 = 1024.0;

/// Colours that differ in print and for the colour-blind (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(90, 90, 90),
];

impl Chart {
    pub(super) fn svg(&self) -> Result<String, Error> {
        let mut svg = String::new();
        self.draw(&mut svg).map_err(|error| Error::Chart(error.to_string()))?;
        Ok(svg)
    }

    fn draw(&self, svg: &mut String) -> Result<(), Box<dyn std::error::Error>> {
        let legend = self.legend();
        let head = legend.last().map_or(LEGEND, |(_, at)| at.1) + LINE;
        let root = SVGBackend::with_string(svg, (WIDTH, BODY + head as u32)).into_drawing_area();
        root.fill(&WHITE)?;
        self.head(&root, &legend)?;
        let (_, body) = root.split_vertically(head);
        let range = |axis: Axis, of: fn((f64, f64)) -> f64| axis.range(self.points().map(of));
        let mut chart = ChartBuilder::on(&body)
            .margin(18)
            .margin_top(0)
            .x_label_area_size(52)
            .y_label_area_size(78)
            .build_cartesian_2d(range(self.x, |point| point.0), range(self.y, |point| point.1))?;
        let label = |axis: Axis| move |at: &f64| axis.label(*at);
        chart
            .configure_mesh()
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .axis_style(FAINT_INK)
            .x_desc(self.x.title)
            .y_desc(self.y.title)
            .x_labels(15)
            .y_labels(11)
            .x_label_formatter(&label(self.x))
            .y_label_formatter(&label(self.y))
            .label_style((FONT, 15).into_font().color(&FAINT_INK))
            .axis_desc_style((FONT, 16).into_font().color(&INK))
            .draw()?;
        for (series, (colour, mark)) in self.coloured() {
            let line: Vec<_> = self.placed(&series.points).collect();
            chart.draw_series(LineSeries::new(line.iter().copied(), colour.stroke_width(2)))?;
            chart.draw_series(line.iter().map(|&at| Circle::new(at, 3, mark)))?;
        }
        for (series, (colour, _)) in self.coloured() {
            chart.draw_series(self.placed(&series.published).map(|at| EmptyElement::at(at) + diamond(0, colour)))?;
        }
        drop(chart);
        root.present()?;
        Ok(())
    }

    /// Draws title, caption and legend above the axes, where they hide nothing.
    fn head<B: DrawingBackend>(
        &self,
        root: &DrawingArea<B, Shift>,
        legend: &[(Option<&Series>, (i32, i32))],
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let place = Pos::new(HPos::Left, VPos::Center);
        let title = (FONT, 23).into_font().style(FontStyle::Bold).color(&INK).pos(place);
        let caption = (FONT, 14).into_font().color(&FAINT_INK).pos(place);
        let entry = (FONT, 15).into_font().color(&INK).pos(place);
        root.draw_text(&self.title, &title, (LEFT, 28))?;
        root.draw_text(&self.caption, &caption, (LEFT, 56))?;
        let looks = self.coloured().map(|(_, look)| Some(look)).chain([None]);
        for (&(series, at), look) in legend.iter().zip(looks) {
            match look {
                Some((colour, mark)) => {
                    let line = PathElement::new([(0, 0), (24, 0)], colour.stroke_width(2));
                    root.draw(&(EmptyElement::at(at) + line + Circle::new((12, 0), 3, mark)))?;
                }
                None => root.draw(&(EmptyElement::at(at) + diamond(12, INK)))?,
            }
            root.draw_text(name_in_legend(series), &entry, (at.0 + 32, at.1))?;
        }
        Ok(())
    }

    /// Returns the legend's entries with their places: all series, and then the published values if
    /// any.
    fn legend(&self) -> Vec<(Option<&Series>, (i32, i32))> {
        let published = self.series.iter().any(|series| !series.published.is_empty());
        let entries = self.series.iter().map(Some).chain(published.then_some(None));
        let (mut x, mut y) = (LEFT, LEGEND);
        entries
            .map(|series| {
                let width = 32 + text_width(name_in_legend(series)) + 24;
                if x > LEFT && x + width > WIDTH as i32 {
                    (x, y) = (LEFT, y + LINE);
                }
                let at = (x, y);
                x += width;
                (series, at)
            })
            .collect()
    }

    /// Returns each series with its colour and its marks. Marks are hollow where colours repeat.
    fn coloured(&self) -> impl Iterator<Item = (&Series, (RGBColor, ShapeStyle))> {
        self.series.iter().enumerate().map(|(number, series)| {
            let colour = COLOURS[number % COLOURS.len()];
            let is_first = (number / COLOURS.len()).is_multiple_of(2);
            (series, (colour, if is_first { colour.filled() } else { colour.stroke_width(1) }))
        })
    }

    /// Returns all points that lie on the axes.
    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.series.iter().flat_map(|series| self.placed(&series.points).chain(self.placed(&series.published)))
    }

    fn placed(&self, points: &[(f64, f64)]) -> impl Iterator<Item = (f64, f64)> {
        points.iter().filter_map(|&(x, y)| Some((self.x.place(x)?, self.y.place(y)?)))
    }
}

impl Axis {
    /// Returns a value's position on the axis; `None` if it has none.
    fn place(self, value: f64) -> Option<f64> {
        match self.scale {
            // Kilobytes, so that ticks are at whole ones.
            Scale::Linear if self.quantity == Quantity::Bytes => Some(value / KB),
            Scale::Linear | Scale::Named(_) => Some(value),
            Scale::Doubling => (value > 0.0).then(|| value.log2()),
        }
    }

    /// Returns the label of a tick.
    fn label(self, at: f64) -> String {
        match self.scale {
            Scale::Linear if self.quantity == Quantity::AbortRate => format!("{at:.1}"),
            Scale::Linear if self.quantity == Quantity::Bytes => self.quantity.show(at * KB),
            Scale::Linear => self.quantity.show(at),
            Scale::Doubling if at.fract() == 0.0 => self.quantity.show(at.exp2()),
            Scale::Named(names) if at.fract() == 0.0 => names.get(at as usize).map_or("", |name| name).to_owned(),
            Scale::Doubling | Scale::Named(_) => String::new(),
        }
    }

    /// Returns the axis's range, with a little room behind the last point.
    fn range(self, places: impl Iterator<Item = f64>) -> std::ops::Range<f64> {
        let (low, high) =
            places.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), at| (low.min(at), high.max(at)));
        match self {
            Self { scale: Scale::Named(names), .. } => -0.4..names.len() as f64 - 0.6,
            Self { quantity: Quantity::AbortRate, .. } => 0.0..1.05,
            _ if low > high => 0.0..1.0,
            Self { scale: Scale::Linear, .. } => 0.0..(high * 1.05).max(1.0),
            Self { scale: Scale::Doubling, .. } => low.floor()..high.ceil().max(low.floor() + 1.0) + 0.15,
        }
    }
}

fn name_in_legend(series: Option<&Series>) -> &str {
    series.map_or("published", |series| &series.name)
}

/// Estimates the width of a legend's entry. The chart's viewer chooses the font.
fn text_width(text: &str) -> i32 {
    const CHARACTER: usize = 8;
    i32::try_from(text.chars().count() * CHARACTER).unwrap_or(i32::MAX / 2)
}

/// Returns a hollow diamond around a point that is `x` to the right.
fn diamond(x: i32, colour: RGBColor) -> PathElement<(i32, i32)> {
    const REACH: i32 = 8;
    PathElement::new([(x - REACH, 0), (x, -REACH), (x + REACH, 0), (x, REACH), (x - REACH, 0)], colour.stroke_width(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doubling_axis_has_ticks_at_powers_of_two_and_no_zero() {
        let axis = Axis { title: "", quantity: Quantity::Bytes, scale: Scale::Doubling };
        assert_eq!(axis.place(0.0), None);
        assert_eq!(axis.place(4096.0), Some(12.0));
        assert_eq!(axis.label(12.0), "4 KB");
        assert_eq!(axis.label(12.5), "");
    }

    #[test]
    fn a_named_axis_has_a_tick_for_each_name_and_none_between() {
        let axis = Axis { title: "", quantity: Quantity::Ratio, scale: Scale::Named(&["one", "two"]) };
        assert_eq!([0.0, 0.5, 1.0, 2.0].map(|at| axis.label(at)), ["one", "", "two", ""]);
        let range = axis.range([0.0, 1.0].into_iter());
        assert!(range.contains(&0.0) && range.contains(&1.0) && !range.contains(&2.0));
        assert_eq!(axis.label(-0.0), "one");
    }

    #[test]
    fn a_legend_goes_on_in_the_next_line_before_it_is_too_wide() {
        let axis = Axis { title: "x", quantity: Quantity::Bytes, scale: Scale::Doubling };
        let series = (0..12).map(|number| Series {
            name: format!("a series with a long name, {number}"),
            points: vec![(64.0, 1.0)],
            published: vec![(64.0, 2.0)],
        });
        let series = series.collect();
        let chart = Chart { title: "t".to_owned(), caption: "c".to_owned(), x: axis, y: axis, series };
        let legend = chart.legend();
        assert_eq!(legend.len(), 13, "and what was published");
        assert!(legend.last().is_some_and(|(series, at)| series.is_none() && at.1 > LEGEND));
        for (series, at) in &legend {
            assert!(at.0 + 32 + text_width(name_in_legend(*series)) <= WIDTH as i32, "{at:?}");
        }
        assert_eq!(chart.svg().expect("drawn").matches("a series with").count(), 12);
    }

    #[test]
    fn an_empty_chart_can_be_drawn() {
        let axis = Axis { title: "x", quantity: Quantity::Bytes, scale: Scale::Doubling };
        let series = Series { name: "none".to_owned(), points: Vec::new(), published: Vec::new() };
        let chart = Chart { title: "t".to_owned(), caption: "c".to_owned(), x: axis, y: axis, series: vec![series] };
        let svg = chart.svg().expect("drawn");
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
    }
}
