//! Writes elements of SVG.

use std::fmt::Write;

use crate::markup::Escaped;

/// A place, from the top left.
pub(super) type At = (f64, f64);

/// The width of a character in a wide font: the viewer chooses it.
const CHARACTER: f64 = 7.4;

/// The colours of series. The style sheet has as many.
const COLOURS: usize = 7;

/// Returns the class of a series' colour.
pub(super) fn colour(series: usize) -> String {
    format!("s{}", series % COLOURS)
}

/// Estimates the width of a text.
pub(super) fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * CHARACTER
}

/// Elements, one after the other.
#[derive(Debug, Default)]
pub(super) struct Pen(pub(super) String);

impl Pen {
    pub(super) fn text(&mut self, (x, y): At, class: &str, text: &str) {
        self.put(format_args!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", Escaped(text)));
    }

    pub(super) fn line(&mut self, (x1, y1): At, (x2, y2): At, class: &str) {
        self.put(format_args!("<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"));
    }

    /// Draws a line through points.
    pub(super) fn through(&mut self, points: &[At], class: &str) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        self.put(format_args!("<polyline class=\"{class}\" points=\"{}\"/>", points.join(" ")));
    }

    pub(super) fn bar(&mut self, (x, y): At, (width, height): (f64, f64), class: &str, hint: &str) {
        self.put(format_args!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\">\
             <title>{}</title></rect>",
            Escaped(hint)
        ));
    }

    /// Draws a series' mark. The shapes follow each other by the series' numbers.
    pub(super) fn mark(&mut self, series: usize, at: At, hint: &str) {
        const SHAPES: [&[(f64, f64)]; 4] = [
            &[(-3.4, -3.4), (3.4, -3.4), (3.4, 3.4), (-3.4, 3.4)],
            &[(0.0, -4.6), (4.4, 3.6), (-4.4, 3.6)],
            &[(0.0, 4.6), (4.4, -3.6), (-4.4, -3.6)],
            &[
                (-1.4, -4.4),
                (1.4, -4.4),
                (1.4, -1.4),
                (4.4, -1.4),
                (4.4, 1.4),
                (1.4, 1.4),
                (1.4, 4.4),
                (-1.4, 4.4),
                (-1.4, 1.4),
                (-4.4, 1.4),
                (-4.4, -1.4),
                (-1.4, -1.4),
            ],
        ];
        let class = format!("mark {}", colour(series));
        match (series % (SHAPES.len() + 1)).checked_sub(1).and_then(|shape| SHAPES.get(shape)) {
            Some(corners) => self.polygon(at, corners, &class, hint),
            None => self.put(format_args!(
                "<circle class=\"{class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.6\"><title>{}</title></circle>",
                at.0,
                at.1,
                Escaped(hint)
            )),
        }
    }

    /// Draws the mark of a published value.
    pub(super) fn diamond(&mut self, at: At, class: &str, hint: &str) {
        self.polygon(at, &[(-6.0, 0.0), (0.0, -6.0), (6.0, 0.0), (0.0, 6.0)], &format!("published {class}"), hint);
    }

    fn polygon(&mut self, (x, y): At, corners: &[(f64, f64)], class: &str, hint: &str) {
        let points: Vec<String> =
            corners.iter().map(|corner| format!("{:.1},{:.1}", x + corner.0, y + corner.1)).collect();
        self.put(format_args!(
            "<polygon class=\"{class}\" points=\"{}\"><title>{}</title></polygon>",
            points.join(" "),
            Escaped(hint)
        ));
    }

    fn put(&mut self, element: std::fmt::Arguments<'_>) {
        // A string takes everything.
        let _ = self.0.write_fmt(element);
        self.0.push('\n');
    }
}
