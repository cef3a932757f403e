//! A chopping's graph as a picture: pieces below each other, conflicts as brackets beside them.
//!
//! One instance of each transaction is drawn. A piece that conflicts with itself in another
//! instance has a loop. So nothing crosses a piece, and each conflict has a line of its own, with
//! its tables at both ends.

mod layout;

use crate::chopping::Chopping;
use layout::{Layout, Line, Row, Style, Tile};

/// What the picture looks like on a light background and on a dark one.
const STYLE: &str = "\
text { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace; fill: #1f2328; }
.ground { fill: #ffffff; }
.name { font-weight: bold; font-size: 14px; }
.note { fill: #59636e; }
.piece { fill: #f6f8fa; stroke: #818b98; }
.conflicting { fill: #fff5eb; stroke: #bc4c00; }
.deferred { fill: #dafbe1; stroke: #1a7f37; }
.whole { fill: #ddf4ff; stroke: #0969da; }
.s { stroke: #818b98; stroke-width: 2; }
.c { fill: none; stroke: #bc4c00; stroke-width: 1.5; }
.d { fill: none; stroke: #1a7f37; stroke-width: 1.5; stroke-dasharray: 5 4; }
.label { font-size: 11px; fill: #953800; }
.published { font-size: 11px; fill: #1a7f37; }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc; }
.ground { fill: #0d1117; }
.note { fill: #9198a1; }
.piece { fill: #151b23; stroke: #656c76; }
.conflicting { fill: #2b1d10; stroke: #db6d28; }
.deferred { fill: #12261e; stroke: #3fb950; }
.whole { fill: #121d2f; stroke: #4493f8; }
.s { stroke: #656c76; }
.c { stroke: #db6d28; }
.d { stroke: #3fb950; }
.label { fill: #f0883e; }
.published { fill: #3fb950; }
}
";

impl Chopping {
    /// Returns the graph as an SVG picture, which is readable on light and on dark backgrounds.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_chopping::{Chopping, Options, Program, programs};
    ///
    /// let program = Program::parse(programs::TPCC)?;
    /// let svg = Chopping::finest(&program, Options::ALL).to_svg();
    /// assert!(svg.starts_with("<svg") && svg.contains("new-order"));
    /// # Ok::<(), drtm_chopping::TextError>(())
    /// ```
    #[must_use]
    pub fn to_svg(&self) -> String {
        let layout = Layout::new(self);
        let (width, height) = (layout.width, layout.height);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\">\n<style>\n{STYLE}</style>\n\
             <rect class=\"ground\" width=\"{width}\" height=\"{height}\"/>\n"
        );
        for Row { x, y, text, style } in &layout.rows {
            let text = escaped(text);
            svg += &format!("<text class=\"{}\" x=\"{x}\" y=\"{y}\">{text}</text>\n", style.class());
        }
        // Lines between pieces first, so that the pieces' borders are over their ends.
        for &(x, from, to) in &layout.siblings {
            svg += &format!("<line class=\"s\" x1=\"{x}\" y1=\"{from}\" x2=\"{x}\" y2=\"{to}\"/>\n");
        }
        for line in &layout.lines {
            svg += &bracket(line);
        }
        for Tile { x, y, width, height, style, rows, .. } in &layout.tiles {
            let class = style.class();
            svg += &format!(
                "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>\n"
            );
            for Row { x, y, text, style } in rows {
                svg += &format!("<text class=\"{}\" x=\"{x}\" y=\"{y}\">{}</text>\n", style.class(), escaped(text));
            }
        }
        svg += "</svg>\n";
        svg
    }
}

/// Draws a conflict: a bracket from one piece to another, or a loop.
fn bracket(line: &Line) -> String {
    const ROUND: i32 = 6;
    let Line { x, from, to, track, label, style } = line;
    let (class, text_class) = if *style == Style::Deferred { ("d", "published") } else { ("c", "label") };
    let label = escaped(label);
    let path = match to {
        None => format!("M{x} {} h14 a5 5 0 0 1 0 10 h-14", from - 5),
        Some(to) => {
            let corner = format!("a{ROUND} {ROUND} 0 0 1");
            let (right, end) = (track - ROUND, to - ROUND);
            format!("M{x} {from} H{right} {corner} {ROUND} {ROUND} V{end} {corner} -{ROUND} {ROUND} H{x}")
        }
    };
    let labels = match to {
        None => vec![(x + 26, from + 3)],
        Some(to) => vec![(x + 10, from - 4), (x + 10, to - 4)],
    };
    let texts =
        labels.iter().map(|(x, y)| format!("<text class=\"{text_class}\" x=\"{x}\" y=\"{y}\">{label}</text>\n"));
    format!("<path class=\"{class}\" d=\"{path}\"/>\n{}", texts.collect::<String>())
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
