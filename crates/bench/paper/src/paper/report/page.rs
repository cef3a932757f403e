//! The page: one file of HTML, without scripts, that fetches nothing.

use std::fmt::{Display, Write};

use drtm_report::{
    Escaped,
    chart::{self, Axis, Bar, Bars, Ranks, Scale},
    units::Quantity,
};

use super::{
    Shown,
    claims::known,
    origin::Origin,
    verdict::{Comparison, Counts, Picture, Verdict},
};
use crate::paper::{
    panel::{Kind, Panel, Row},
    studies,
};

const STYLE: &str = include_str!("page.css");

/// Forbids everything that a page could fetch or run. Its style is in it.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// The parts of the page, by the beginnings of figures' names.
const PAPERS: [(&str, &str); 5] = [
    ("dbx-", "DBX: Using Restricted Transactional Memory to Build a Scalable In-Memory Database"),
    ("drtm-", "DrTM: Fast In-Memory Transaction Processing Using RDMA and HTM"),
    ("drtmh-", "DrTM+H: Deconstructing RDMA-enabled Distributed Transactions"),
    ("hades-", "HADES: Hardware-Assisted Distributed Transactions"),
    ("", "Not of a paper"),
];

/// Returns the page of these figures.
pub(super) fn page(shown: &[Shown<'_>], counts: &Counts) -> String {
    let mut page = Page::default();
    page.put(format_args!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>drtm: figures of the papers</title>\n<style>\n{}{STYLE}</style>\n</head>\n<body>\n",
        chart::STYLE
    ));
    page.head(shown, counts);
    page.summary(shown);
    for (start, title) in PAPERS {
        let of_paper = |shown: &&Shown<'_>| paper_of(shown.panel) == start;
        if shown.iter().any(|shown| of_paper(&shown)) {
            page.put(format_args!("<h2>{}</h2>\n", Escaped(title)));
            shown.iter().filter(of_paper).for_each(|shown| page.figure(shown));
        }
    }
    page.put(format_args!("</body>\n</html>\n"));
    page.0
}

fn paper_of(panel: &Panel) -> &'static str {
    PAPERS.iter().map(|(start, _)| *start).find(|start| panel.name.starts_with(start)).unwrap_or("")
}

/// Returns a table's row.
fn row(name: &str, cells: &[(&str, String)]) -> String {
    let cell = |(attributes, content): &(&str, String)| {
        let space = if attributes.is_empty() { "" } else { " " };
        format!("<{name}{space}{attributes}>{content}</{name}>")
    };
    format!("<tr>{}</tr>\n", cells.iter().map(cell).collect::<String>())
}

fn badge(verdict: Verdict) -> String {
    format!("<span class=\"verdict {}\">{}</span>", verdict.name().replace(' ', "-"), verdict.name())
}

/// Returns escaped text.
fn text(shown: impl AsRef<str>) -> String {
    Escaped(shown.as_ref()).to_string()
}

fn ours(comparison: &Comparison) -> String {
    match &comparison.ours {
        Ok(ours) => text(ours),
        Err(why) => format!("<span class=\"small\">{}</span>", text(why)),
    }
}

#[derive(Default)]
struct Page(String);

impl Page {
    fn put(&mut self, html: impl Display) {
        // A string takes everything.
        let _ = write!(self.0, "{html}");
    }

    fn head(&mut self, shown: &[Shown<'_>], counts: &Counts) {
        self.put("<h1>What drtm reproduces of the papers</h1>\n");
        let origins = shown.iter().map(|shown| &shown.outcome.origin);
        if origins.clone().any(|origin| origin.is_quick) {
            self.put(
                "<p class=\"warning\"><b>A quick run.</b> Databases and clusters were tiny, and ran for an instant: this \
                 checks that everything works. Only what is computed (exact) means anything; speeds and their verdicts do \
                 not. It takes at most three minutes; figures for which there was no time are listed below.</p>\n",
            );
        }
        self.put(
            "<p>Each figure is drawn with our values and the published ones (diamonds) in one picture. <b>Simulated</b> \
             values follow from a model of a processor or of a cluster in virtual time, <b>measured</b> ones are this \
             machine's, and <b>exact</b> ones are computed. Nothing is tuned to a figure that it is to predict.</p>\n",
        );
        self.put("<ul class=\"counts\">\n");
        for verdict in Verdict::ALL {
            self.put(format_args!(
                "<li><b>{}</b>{}<br>{}</li>\n",
                counts.of(verdict),
                badge(verdict),
                verdict.meaning()
            ));
        }
        self.put("</ul>\n<dl>\n");
        let mut made: Vec<(&Origin, usize)> = Vec::new();
        for origin in origins {
            let is_same = |other: &Origin| {
                (&other.machine, &other.commit, &other.day) == (&origin.machine, &origin.commit, &origin.day)
            };
            match made.iter_mut().find(|(other, _)| is_same(other)) {
                Some((_, figures)) => *figures += 1,
                None => made.push((origin, 1)),
            }
        }
        let recorded = |what: &str| if what.is_empty() { "not recorded".to_owned() } else { text(what) };
        for (origin, figures) in &made {
            let all = if made.len() == 1 { String::new() } else { format!(" ({figures} figures)") };
            self.put(format_args!("<dt>Machine{all}</dt><dd>{}</dd>\n", recorded(&origin.machine)));
            self.put(format_args!(
                "<dt>Commit, day</dt><dd><code>{}</code>, {}</dd>\n",
                recorded(&origin.commit),
                recorded(&origin.day)
            ));
        }
        let absent = studies().flat_map(|study| study.panels);
        let absent: Vec<&str> =
            absent.map(|panel| panel.name).filter(|name| shown.iter().all(|shown| shown.panel.name != *name)).collect();
        if !absent.is_empty() {
            self.put(format_args!("<dt>Not in these results</dt><dd>{}</dd>\n", text(absent.join(", "))));
        }
        self.put("</dl>\n");
    }

    fn summary(&mut self, shown: &[Shown<'_>]) {
        self.put("<h2 id=\"summary\">Summary</h2>\n<table class=\"stack\">\n<thead>");
        let heads = ["figure", "what stands out", "verdict"].map(|head| ("", head.to_owned()));
        self.put(row("th", &heads));
        self.put("</thead>\n<tbody>\n");
        for shown in shown {
            let link = format!("<a href=\"#{0}\">{0}</a> {1}", shown.panel.name, text(short(shown.panel)));
            let worst = shown.comparisons.iter().find(|comparison| comparison.verdict == shown.verdict);
            let worst = worst.map_or_else(String::new, |comparison| match &comparison.ours {
                Ok(ours) => {
                    format!("{}: {}, published {}", text(&comparison.what), text(ours), text(&comparison.published))
                }
                Err(why) => format!("{}: {}", text(&comparison.what), text(why)),
            });
            let worst = shown.outcome.failure.as_ref().map_or(worst, |failure| format!("failed: {}", text(failure)));
            self.put(row("td", &[("", link), ("class=\"small\"", worst), ("", badge(shown.verdict))]));
        }
        self.put("</tbody>\n</table>\n");
    }

    fn figure(&mut self, shown: &Shown<'_>) {
        let Shown { panel, outcome, comparisons, verdict } = shown;
        let name = panel.name;
        let mut kinds: Vec<Kind> = Vec::new();
        for kind in outcome.rows.iter().map(|row| row.kind).filter(|kind| *kind != Kind::Unavailable) {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        let kinds = kinds.iter().map(|kind| match kind {
            Kind::Simulated => "<span class=\"kind\">SIMULATED</span>".to_owned(),
            kind => format!("<span class=\"kind\">{}</span>", kind.name()),
        });
        let kinds: String = kinds.collect();
        let quick = if outcome.origin.is_quick { "<span class=\"kind\">quick: tiny</span>" } else { "" };
        self.put(format_args!(
            "<article id=\"{name}\">\n<h3>{}</h3>\n<div>{}{kinds}{quick}</div>\n<div class=\"beside\">\n<figure>\n",
            text(panel.title),
            badge(*verdict)
        ));
        match panel.chart(&outcome.rows, &outcome.source) {
            Some(drawing) => self.put(format_args!("{}\n", drawing.element())),
            None => self.put("<p class=\"small\">There is no value to draw.</p>\n"),
        }
        self.pictures(panel, comparisons);
        self.put(format_args!("<figcaption>{}</figcaption>\n</figure>\n<div>\n", text(&outcome.source)));
        if let Some(failure) = &outcome.failure {
            self.put(format_args!("<p class=\"warning\"><b>Failed.</b> {}</p>\n", text(failure)));
        }
        self.comparisons(comparisons);
        let cause = known(name).cause;
        if verdict.is_bad() {
            let cause = if cause.is_empty() { "Not known." } else { cause };
            self.put(format_args!("<p><b>Cause.</b> {}</p>\n", text(cause)));
        }
        if !panel.note.is_empty() {
            self.put(format_args!("<p class=\"small\">{}</p>\n", text(panel.note)));
        }
        if !outcome.origin.command.is_empty() {
            let Origin { command, commit, seconds, .. } = &outcome.origin;
            let seconds = if *seconds > 0.0 { format!(", {seconds} s") } else { String::new() };
            self.put(format_args!(
                "<p class=\"small\"><code>{}</code><br>commit {}{seconds}</p>\n",
                text(command),
                text(commit)
            ));
        }
        self.put("</div>\n</div>\n");
        self.values(panel, &outcome.rows);
        self.put("</article>\n");
    }

    /// Draws what the figure's own axes do not show: ratios and orders.
    fn pictures(&mut self, panel: &Panel, comparisons: &[Comparison]) {
        let ratio = |comparison: &Comparison| match &comparison.picture {
            Some(Picture::Ratio { ours, published }) => {
                Some(Bar { name: comparison.what.clone(), ours: *ours, published: Some(*published) })
            }
            _ => None,
        };
        let bars: Vec<Bar> = comparisons.iter().filter_map(ratio).collect();
        if !bars.is_empty() {
            let axis = Axis { title: "one over the other", quantity: Quantity::Ratio, scale: Scale::Linear };
            let (title, caption) = (format!("{}: ratios", panel.title), String::new());
            self.put(format_args!("{}\n", Bars { title, caption, axis, bars }.draw().element()));
        }
        for comparison in comparisons {
            if let Some(Picture::Order { published, ours }) = &comparison.picture {
                let (title, published) = (format!("{}: {}", panel.title, comparison.what), published.clone());
                self.put(format_args!("{}\n", Ranks { title, published, ours: ours.clone() }.draw().element()));
            }
        }
    }

    fn comparisons(&mut self, comparisons: &[Comparison]) {
        if comparisons.is_empty() {
            return self.put("<p>The paper's text gives no value of this figure.</p>\n");
        }
        self.put("<table class=\"stack\">\n<thead>");
        let heads = ["what", "published", "ours", "verdict"].map(|head| ("", head.to_owned()));
        self.put(row("th", &heads));
        self.put("</thead>\n<tbody>\n");
        for comparison in comparisons {
            let cells = [
                ("", text(&comparison.what)),
                ("data-of=\"published\"", text(&comparison.published)),
                ("data-of=\"ours\"", ours(comparison)),
                ("", badge(comparison.verdict)),
            ];
            self.put(row("td", &cells));
        }
        self.put("</tbody>\n</table>\n");
    }

    fn values(&mut self, panel: &Panel, rows: &[Row]) {
        self.put(format_args!(
            "<details>\n<summary>All {} values</summary>\n<div class=\"scroll\"><table>\n<thead>",
            rows.len()
        ));
        const NUMBER: &str = "class=\"number\"";
        let place = panel.x.map(|axis| (NUMBER, text(axis.title)));
        let heads = [("", "series".to_owned())].into_iter().chain(place);
        let heads =
            heads.chain([(NUMBER, text(panel.y.title)), (NUMBER, "published".to_owned()), ("", "ours is".to_owned())]);
        self.put(row("th", &heads.collect::<Vec<_>>()));
        self.put("</thead>\n<tbody>\n");
        let show = |value: Option<f64>| value.map(|value| text(panel.y.quantity.precisely(value)));
        for shown in rows {
            let place = panel.x.map(|_| (NUMBER, text(panel.place(shown.x))));
            let kind = match &shown.why {
                Some(why) => format!("{}: {}", shown.kind.name(), text(why)),
                None if shown.least.is_some() => {
                    format!("{}, seeds {}", shown.kind.name(), shown.between(panel.y.quantity))
                }
                None => shown.kind.name().to_owned(),
            };
            let cells = [("", text(&shown.series))].into_iter().chain(place).chain([
                (NUMBER, show(shown.y).unwrap_or_default()),
                (NUMBER, show(shown.published).unwrap_or_else(|| "missing".to_owned())),
                ("", kind),
            ]);
            self.put(row("td", &cells.collect::<Vec<_>>()));
        }
        self.put("</tbody>\n</table></div>\n</details>\n");
    }
}

/// Returns a panel's title without the paper's name, which its own name has.
fn short(panel: &Panel) -> &'static str {
    panel.title.split_once(": ").map_or(panel.title, |(_, title)| title)
}
