//! Bars of single values, one under the other.

use super::{
    Axis, Drawing, Scale, WIDTH,
    pen::{At, Pen, colour, text_width},
};
use crate::{table::wrap, units::Quantity};

/// Single values, each with its name.
#[derive(Debug)]
pub struct Bars {
    /// The title.
    pub title: String,
    /// The line under the title: says whether the numbers are simulated or measured.
    pub caption: String,
    /// The axis of the values.
    pub axis: Axis,
    /// The values, from top to bottom.
    pub bars: Vec<Bar>,
}

/// A value or a range of values, beside what was published.
#[derive(Debug)]
pub struct Bar {
    /// The name above it.
    pub name: String,
    /// What was measured or simulated, if anything.
    pub ours: Option<Span>,
    /// What was published, if anything.
    pub published: Option<Span>,
}

/// A value, or the range of several.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// The least; `None` if only the most is known.
    pub low: Option<f64>,
    /// The most.
    pub high: f64,
}

impl Span {
    /// Returns a single value.
    #[must_use]
    pub const fn of(value: f64) -> Self {
        Self { low: Some(value), high: value }
    }

    /// Returns a range.
    #[must_use]
    pub const fn between(low: f64, high: f64) -> Self {
        Self { low: Some(low), high }
    }

    /// Returns a range of which only the most is known.
    #[must_use]
    pub const fn up_to(high: f64) -> Self {
        Self { low: None, high }
    }

    /// Returns whether it is one value.
    #[must_use]
    pub fn is_single(self) -> bool {
        self.low == Some(self.high)
    }

    /// Formats the values.
    #[must_use]
    pub fn show(self, show: impl Fn(f64) -> String) -> String {
        match self.low {
            None => format!("up to {}", show(self.high)),
            Some(_) if self.is_single() => show(self.high),
            Some(low) => format!("{} to {}", show(low), show(self.high)),
        }
    }
}

const TOP: f64 = 25.0;
const LINE: f64 = 15.0;
const THICK: f64 = 11.0;
const LEFT: f64 = 6.0;
/// Where bars end, and where the numbers of a bar begin.
const RIGHT: f64 = 192.0;
const NUMBERS: f64 = 204.0;
/// Most characters of a line of a name.
const COLUMNS: usize = 52;

impl Bars {
    /// Draws the bars.
    #[must_use]
    pub fn draw(&self) -> Drawing {
        let spans = self.bars.iter().flat_map(|bar| [bar.ours, bar.published]).flatten();
        let values = spans.flat_map(|span| [span.low, Some(span.high)]).flatten();
        let is_ratio = self.axis.quantity == Quantity::Ratio;
        let axis = self.axis.along(values.chain(is_ratio.then_some(1.0)), (LEFT, RIGHT));
        let (mut rows, mut y) = (Pen::default(), TOP);
        for bar in &self.bars {
            for line in wrap(&bar.name, COLUMNS).lines() {
                y += LINE;
                rows.text((LEFT - 4.0, y - 3.0), "", line);
            }
            self.bar(&mut rows, bar, y + 3.0, |value| axis.at(value));
            y += THICK + 12.0;
        }
        let mut pen = Pen::default();
        pen.text((2.0, 12.0), "strong", &self.axis.heading());
        pen.text((NUMBERS, 12.0), "strong", "ours");
        pen.text((WIDTH - 2.0, 12.0), "end", "published");
        pen.diamond((WIDTH - 76.0, 8.0), "", "published");
        for (at, label) in axis.ticks(4) {
            pen.line((at, TOP), (at, y), "grid");
            // The first tick is near the edge: its label is moved into the chart.
            let middle = at.max(text_width(&label) / 2.0);
            pen.text((middle, y + 14.0), "faint middle", &label);
        }
        if let Some(at) = axis.at(1.0).filter(|_| is_ratio) {
            pen.line((at, TOP), (at, y), "axis");
        }
        pen.0.push_str(&rows.0);
        Drawing { title: self.title.clone(), caption: self.caption.clone(), height: y + 22.0, body: pen.0 }
    }

    fn bar(&self, pen: &mut Pen, bar: &Bar, top: f64, at: impl Fn(f64) -> Option<f64>) {
        let (class, middle) = (colour(0), top + THICK / 2.0);
        let show = |value| self.axis.quantity.briefly(value);
        if let Some(ours) = bar.ours {
            let numbers = ours.show(show);
            let hint = format!("{}: {numbers}", bar.name);
            let from =
                if ours.is_single() && self.axis.scale == Scale::Linear { Some(LEFT) } else { ours.low.and_then(&at) };
            if let Some((from, to)) = from.or(at(ours.high)).zip(at(ours.high)) {
                // So that a value is seen even where it is zero, or has no length.
                let (from, width) = (from.min(to), (to - from).abs().max(2.0));
                pen.bar((from, top), (width, THICK), &format!("bar {class}"), &hint);
            }
            pen.text((NUMBERS, middle + 4.0), "strong", &numbers);
        } else {
            pen.text((NUMBERS, middle + 4.0), "faint", "none");
        }
        let numbers = match bar.published {
            Some(published) => {
                let hint = format!("{}, published: {}", bar.name, published.show(show));
                let ends: Vec<At> = published
                    .low
                    .into_iter()
                    .chain([published.high])
                    .filter_map(|value| Some((at(value)?, middle)))
                    .collect();
                if let [from, to] = ends[..] {
                    pen.line(from, to, "reach");
                }
                let ends = if published.is_single() { &ends[..ends.len().min(1)] } else { &ends[..] };
                ends.iter().for_each(|end| pen.diamond(*end, "", &hint));
                published.show(show)
            }
            None => "missing".to_owned(),
        };
        pen.text((WIDTH - 2.0, middle + 4.0), "faint end", &numbers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_show_values_ranges_and_what_is_missing() {
        let bar = |name: &str, ours, published| Bar { name: name.to_owned(), ours, published };
        let bars = vec![
            bar("one", Some(Span::of(1.5)), Some(Span::of(1.25))),
            bar("range", Some(Span::between(1.1, 1.6)), Some(Span::between(1.4, 2.9))),
            bar("bound", None, Some(Span::up_to(1.28))),
            bar("<alone>", Some(Span::of(0.0)), None),
        ];
        let axis = Axis { title: "ratio", quantity: Quantity::Ratio, scale: Scale::Linear };
        let svg = Bars { title: "t".to_owned(), caption: "c".to_owned(), axis, bars }.draw().element();
        for text in [">1.5<", ">1.1 to 1.6<", ">1.4 to 2.9<", ">up to 1.28<", ">missing<", ">none<", ">&lt;alone&gt;<"]
        {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert_eq!(svg.matches("<rect").count(), 3, "a zero can be seen");
        assert_eq!(svg.matches("class=\"published ").count(), 1 + 1 + 2 + 1, "the key, a value, two ends, a bound");
    }

    #[test]
    fn the_label_of_zero_lies_within_the_chart() {
        let bars = vec![Bar { name: "one".to_owned(), ours: Some(Span::of(7_000.0)), published: None }];
        let axis = Axis { title: "time", quantity: Quantity::Microseconds, scale: Scale::Linear };
        let svg = Bars { title: "t".to_owned(), caption: "c".to_owned(), axis, bars }.draw().element();
        let label = svg.lines().find(|line| line.contains(">0 us<")).expect("a label of zero");
        let x = label.split_once("x=\"").and_then(|(_, rest)| rest.split_once('"')).map(|(x, _)| x);
        let x: f64 = x.and_then(|x| x.parse().ok()).expect("a place");
        assert!(x >= text_width("0 us") / 2.0 - 0.1, "{label}");
    }
}
