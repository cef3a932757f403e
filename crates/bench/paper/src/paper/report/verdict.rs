//! Our values beside published ones, and what is made of them.

use drtm_report::{chart::Span, units::Quantity};
use serde::Serialize;

use super::{
    super::panel::{Kind, Panel, Row},
    claims::{At, Claim},
};

/// How well a published value, or a figure, is reproduced. From good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    /// Computed, and the same to the last published digit.
    Exact,
    /// In the published order, and at most a quarter more or less.
    Within,
    /// In the published order, and further away.
    OrderOnly,
    /// In another order; or further away, where there is no order.
    Off,
    /// Nothing can be compared here.
    Unavailable,
    /// The paper's text gives no value.
    Unpublished,
}

/// A published value or order, and ours.
#[derive(Debug)]
pub(super) struct Comparison {
    pub(super) what: String,
    pub(super) published: String,
    /// Ours; or why there is no value.
    pub(super) ours: Result<String, String>,
    pub(super) verdict: Verdict,
    pub(super) picture: Option<Picture>,
}

/// What a comparison looks like, if the figure itself does not show it.
#[derive(Debug)]
pub(super) enum Picture {
    /// A ratio of two series.
    Ratio { ours: Option<Span>, published: Span },
    /// An order, best first.
    Order { published: Vec<Vec<String>>, ours: Vec<(String, String)> },
}

/// How many figures have each verdict, as scripts rely on it.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Counts {
    pub(super) figures: usize,
    pub(super) exact: usize,
    pub(super) within: usize,
    pub(super) order_only: usize,
    pub(super) off: usize,
    pub(super) unavailable: usize,
    pub(super) unpublished: usize,
}

impl Verdict {
    pub(super) const ALL: [Self; 6] =
        [Self::Exact, Self::Within, Self::OrderOnly, Self::Off, Self::Unavailable, Self::Unpublished];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Within => "within",
            Self::OrderOnly => "order only",
            Self::Off => "off",
            Self::Unavailable => "unavailable",
            Self::Unpublished => "no value published",
        }
    }

    pub(super) fn meaning(self) -> &'static str {
        match self {
            Self::Exact => "computed, and equal to the last published digit",
            Self::Within => "the published order, and at most 25 % more or less",
            Self::OrderOnly => "the published order, but further away",
            Self::Off => "another order, or a lone value that is further away",
            Self::Unavailable => "this run, or this machine, has no such value",
            Self::Unpublished => "the paper's text gives no number",
        }
    }

    /// Returns the verdict of a figure: that of its worst comparison, as far as there are values.
    pub(super) fn of(comparisons: &[Comparison]) -> Self {
        let verdicts = || comparisons.iter().map(|comparison| comparison.verdict);
        let compared = verdicts().filter(|verdict| *verdict < Self::Unavailable).max();
        compared.or(verdicts().next()).unwrap_or(Self::Unpublished)
    }

    pub(super) fn is_bad(self) -> bool {
        [Self::OrderOnly, Self::Off].contains(&self)
    }
}

impl Counts {
    pub(super) fn add(&mut self, verdict: Verdict) {
        self.figures += 1;
        *match verdict {
            Verdict::Exact => &mut self.exact,
            Verdict::Within => &mut self.within,
            Verdict::OrderOnly => &mut self.order_only,
            Verdict::Off => &mut self.off,
            Verdict::Unavailable => &mut self.unavailable,
            Verdict::Unpublished => &mut self.unpublished,
        } += 1;
    }

    pub(super) fn of(&self, verdict: Verdict) -> usize {
        match verdict {
            Verdict::Exact => self.exact,
            Verdict::Within => self.within,
            Verdict::OrderOnly => self.order_only,
            Verdict::Off => self.off,
            Verdict::Unavailable => self.unavailable,
            Verdict::Unpublished => self.unpublished,
        }
    }
}

/// Compares a figure's values, and what its paper says of them.
pub(super) fn compare(panel: &Panel, rows: &[Row], claims: &[Claim]) -> Vec<Comparison> {
    let mut comparisons = points(panel, rows);
    comparisons.extend(claims.iter().map(|claim| claimed(panel, rows, claim)));
    comparisons
}

/// Returns whether a speed of this machine, which says nothing beside another machine's.
fn is_speed(panel: &Panel, kind: Kind) -> bool {
    kind == Kind::Measured && [Quantity::Throughput, Quantity::Operations].contains(&panel.y.quantity)
}

/// A published value and ours.
type Pair = (f64, f64);

fn points(panel: &Panel, rows: &[Row]) -> Vec<Comparison> {
    let published = rows.iter().filter_map(|row| Some((row, row.published?)));
    let comparable = |row: &Row| row.y.filter(|_| !is_speed(panel, row.kind));
    let pairs: Vec<Pair> =
        published.clone().filter_map(|(row, published)| Some((published, comparable(row)?))).collect();
    let show = |value| panel.y.quantity.precisely(value);
    let comparison = |(row, published): (&Row, f64)| {
        let place = row.x.map(|_| format!(", {}", panel.place(row.x)));
        let (ours, verdict) = match (row.y, comparable(row)) {
            (Some(_), Some(ours)) => (Ok(show(ours)), point(panel, row.kind, (published, ours), &pairs)),
            (Some(ours), None) => {
                let why = format!("{}; speeds of two machines are not compared", show(ours));
                (Err(why), Verdict::Unavailable)
            }
            (None, _) => (Err(row.why.as_deref().unwrap_or("no value").to_owned()), Verdict::Unavailable),
        };
        let what = format!("{}{}", row.series, place.unwrap_or_default());
        Comparison { what, published: show(published), ours, verdict, picture: None }
    };
    published.map(comparison).collect()
}

/// Judges one value among all of its figure.
fn point(panel: &Panel, kind: Kind, pair: Pair, all: &[Pair]) -> Verdict {
    let (published, ours) = pair;
    if kind == Kind::Exact && rounds_to(ours, published) {
        return Verdict::Exact;
    }
    let in_order = |other: &Pair| match order(published, other.0) {
        0 => None,
        expected => Some(order(ours, other.1) == expected),
    };
    let beside_one = (panel.y.quantity == Quantity::Ratio).then_some((1.0, 1.0));
    let orders: Vec<bool> = all.iter().chain(&beside_one).filter_map(in_order).collect();
    match (orders.contains(&false), is_within(ours, published)) {
        (true, _) => Verdict::Off,
        (false, true) => Verdict::Within,
        (false, false) if orders.is_empty() => Verdict::Off,
        (false, false) => Verdict::OrderOnly,
    }
}

/// Returns which of two is more: 1, -1, or 0 if they differ by less than a hundredth.
fn order(one: f64, other: f64) -> i8 {
    match one - other {
        difference if difference.abs() <= 0.01 * one.abs().max(other.abs()) => 0,
        difference => {
            if difference > 0.0 {
                1
            } else {
                -1
            }
        }
    }
}

fn is_within(ours: f64, published: f64) -> bool {
    (ours - published).abs() <= 0.25 * published.abs()
}

/// Returns whether a value is the published one, in as many decimals as that has.
fn rounds_to(ours: f64, published: f64) -> bool {
    let decimals = published.to_string().split_once('.').map_or(0, |(_, decimals)| decimals.len());
    format!("{ours:.decimals$}") == format!("{published:.decimals$}")
}

fn claimed(panel: &Panel, rows: &[Row], claim: &Claim) -> Comparison {
    match *claim {
        Claim::Ratio { of, over, at, published } => {
            let values = [of, over].map(|series| values(rows, series, at));
            let [of_values, over_values] = &values;
            let beside = |&(x, of): &(Option<usize>, f64)| {
                let over = over_values.iter().find(|(other, _)| *other == x)?;
                Some(of / over.1).filter(|ratio| ratio.is_finite())
            };
            let ratios: Vec<f64> = of_values.iter().filter_map(beside).collect();
            let ours =
                ratios.iter().copied().map(Span::of).reduce(|all, one| {
                    Span::between(all.low.unwrap_or(all.high).min(one.high), all.high.max(one.high))
                });
            let show = |span: Span| span.show(|value| Quantity::Ratio.precisely(value));
            Comparison {
                what: format!("{of} over {over}, {}", at.name(panel)),
                published: show(published),
                ours: ours.map(show).ok_or_else(|| NOT_HERE.to_owned()),
                verdict: ours.map_or(Verdict::Unavailable, |ours| ratio(published, ours)),
                picture: Some(Picture::Ratio { ours, published }),
            }
        }
        Claim::Order { at, best_first } => ordered(panel, rows, at, best_first),
    }
}

const NOT_HERE: &str = "there is no such value in this run";

/// Judges a ratio. What is above one must be above one, at each place.
fn ratio(published: Span, ours: Span) -> Verdict {
    let least = (published.low, ours.low.unwrap_or(ours.high));
    let ends =
        || [least.0.map(|published| (published, least.1)), Some((published.high, ours.high))].into_iter().flatten();
    let in_order = ends().all(|(published, ours)| order(published, 1.0) == order(ours, 1.0));
    match (in_order, ends().all(|(published, ours)| is_within(ours, published))) {
        (false, _) => Verdict::Off,
        (true, true) => Verdict::Within,
        (true, false) => Verdict::OrderOnly,
    }
}

fn ordered(panel: &Panel, rows: &[Row], at: At, best_first: &'static [&'static [&'static str]]) -> Comparison {
    let groups = best_first.iter().enumerate();
    let names = groups.flat_map(|(rank, group)| group.iter().map(move |name| (rank, *name)));
    let value = |(rank, name): (usize, &'static str)| {
        let found = values(rows, name, at);
        Some((rank, name, found.first()?.1))
    };
    let mut found: Vec<(usize, &str, f64)> = names.clone().filter_map(value).collect();
    let is_whole = found.len() == names.count();
    let in_order = found.iter().all(|one| found.iter().all(|other| one.0 >= other.0 || order(one.2, other.2) == 1));
    found.sort_by(|one, other| other.2.total_cmp(&one.2));
    let published: Vec<Vec<String>> =
        best_first.iter().map(|group| group.iter().map(|name| (*name).to_owned()).collect()).collect();
    let said: Vec<String> = published.iter().map(|group| group.join(" and ")).collect();
    let show = |value: f64| panel.y.quantity.briefly(value);
    let ours: Vec<(String, String)> = found.iter().map(|(_, name, value)| ((*name).to_owned(), show(*value))).collect();
    let told: Vec<String> = ours.iter().map(|(name, value)| format!("{name} {value}")).collect();
    Comparison {
        what: format!("order, {}", at.name(panel)),
        published: said.join(" > "),
        ours: if is_whole { Ok(told.join(" > ")) } else { Err(NOT_HERE.to_owned()) },
        verdict: match (is_whole, in_order) {
            (false, _) => Verdict::Unavailable,
            (true, true) => Verdict::Within,
            (true, false) => Verdict::Off,
        },
        picture: Some(Picture::Order { published, ours }),
    }
}

/// Returns a series' values at these places; of its peak, without the place.
fn values(rows: &[Row], series: &str, at: At) -> Vec<(Option<usize>, f64)> {
    let of_series = rows.iter().filter(|row| row.series == series);
    let all = of_series.filter_map(|row| Some((row.x, row.y?)));
    match at {
        At::Each => all.collect(),
        At::X(x) => all.filter(|value| value.0 == Some(x)).collect(),
        At::Peak => all.map(|value| value.1).reduce(f64::max).map(|peak| (None, peak)).into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use drtm_report::chart::{Axis, Scale};

    use super::{
        super::super::panel::{Curve, Published},
        *,
    };

    const X: Axis = Axis { title: "threads", quantity: Quantity::Threads, scale: Scale::Linear };

    const fn panel(quantity: Quantity, published: &'static [Published]) -> Panel {
        let y = Axis { title: "y", quantity, scale: Scale::Linear };
        Panel { name: "some-fig1", title: "a figure", x: Some(X), y, published, note: "" }
    }

    const TWO: Panel = panel(Quantity::Nodes, &[Published::at("ours", 1, 1.0), Published::at("ours", 2, 2.0)]);

    fn verdicts(panel: &Panel, kind: Kind, points: &[(usize, f64)]) -> Vec<Verdict> {
        let rows = panel.rows(&[Curve::new("ours", kind, points.iter().copied())]);
        compare(panel, &rows, &[]).iter().map(|comparison| comparison.verdict).collect()
    }

    #[test]
    fn a_value_is_exact_within_in_order_or_off() {
        use Verdict::{Exact, Off, OrderOnly, Unavailable, Within};
        for (kind, points, expected) in [
            (Kind::Exact, [(1, 1.0), (2, 2.0)], [Exact, Exact]),
            (Kind::Simulated, [(1, 1.0), (2, 2.0)], [Within, Within]),
            (Kind::Exact, [(1, 1.2), (2, 2.6)], [Exact, OrderOnly]),
            (Kind::Simulated, [(1, 1.25), (2, 1.5)], [Within, Within]),
            (Kind::Simulated, [(1, 1.2), (2, 3.0)], [Within, OrderOnly]),
            (Kind::Simulated, [(1, 1.2), (2, 1.2)], [Off, Off]),
            (Kind::Simulated, [(1, 1.0), (3, 2.0)], [Within, Unavailable]),
        ] {
            assert_eq!(verdicts(&TWO, kind, &points), expected, "{points:?}");
        }
    }

    #[test]
    fn a_lone_value_has_no_order_and_a_ratio_has_one() {
        const LONE: Panel = panel(Quantity::AbortRate, &[Published::at("ours", 1, 0.5)]);
        const RATIO: Panel = panel(Quantity::Ratio, &[Published::at("ours", 6, 5.3)]);
        assert_eq!(verdicts(&LONE, Kind::Simulated, &[(1, 0.9)]), [Verdict::Off]);
        assert_eq!(verdicts(&RATIO, Kind::Simulated, &[(6, 3.9)]), [Verdict::OrderOnly]);
        assert_eq!(verdicts(&RATIO, Kind::Simulated, &[(6, 0.9)]), [Verdict::Off]);
        assert_eq!(verdicts(&RATIO, Kind::Simulated, &[(6, 4.0)]), [Verdict::Within]);
    }

    #[test]
    fn speeds_of_two_machines_are_not_compared() {
        const SPEED: Panel = panel(Quantity::Throughput, &[Published::at("ours", 1, 100.0)]);
        assert_eq!(verdicts(&SPEED, Kind::Measured, &[(1, 100.0)]), [Verdict::Unavailable]);
        assert_eq!(verdicts(&SPEED, Kind::Simulated, &[(1, 100.0)]), [Verdict::Within]);
    }

    fn rows(curves: &[(&'static str, [f64; 2])]) -> Vec<Row> {
        let curve = |(name, [a, b]): &(&'static str, [f64; 2])| Curve::new(name, Kind::Simulated, [(1, *a), (4, *b)]);
        panel(Quantity::Throughput, &[]).rows(&curves.iter().map(curve).collect::<Vec<_>>())
    }

    fn judged(rows: &[Row], claim: Claim) -> (Verdict, Result<String, String>) {
        let comparison = compare(&panel(Quantity::Throughput, &[]), rows, &[claim]).remove(0);
        (comparison.verdict, comparison.ours)
    }

    #[test]
    fn a_ratio_is_judged_at_each_place_or_at_the_peak() {
        let rows = rows(&[("a", [12.0, 15.0]), ("b", [10.0, 10.0])]);
        let claim = |published, at| Claim::Ratio { of: "a", over: "b", at, published };
        let each = |low, high| judged(&rows, claim(Span::between(low, high), At::Each)).0;
        assert_eq!(judged(&rows, claim(Span::between(1.2, 1.5), At::Each)).1, Ok("1.2 to 1.5".to_owned()));
        assert_eq!(
            (each(1.2, 1.5), each(1.0, 1.5), each(1.2, 2.5)),
            (Verdict::Within, Verdict::Off, Verdict::OrderOnly)
        );
        assert_eq!(each(0.8, 1.5), Verdict::Off, "the least is on the other side of one");
        assert_eq!(judged(&rows, claim(Span::up_to(1.6), At::Each)).0, Verdict::Within);
        assert_eq!(judged(&rows, claim(Span::of(1.5), At::Peak)), (Verdict::Within, Ok("1.5".to_owned())));
        assert_eq!(judged(&rows, claim(Span::of(1.5), At::X(10))).0, Verdict::Unavailable);
    }

    #[test]
    fn an_order_holds_between_groups_and_not_within_them() {
        const BEST_FIRST: &[&[&str]] = &[&["c"], &["a", "b"]];
        let claim = Claim::Order { at: At::X(1), best_first: BEST_FIRST };
        let verdict = |a, b, c| judged(&rows(&[("a", [a, 0.0]), ("b", [b, 0.0]), ("c", [c, 0.0])]), claim).0;
        assert_eq!((verdict(1.0, 2.0, 3.0), verdict(2.0, 1.0, 3.0)), (Verdict::Within, Verdict::Within));
        assert_eq!((verdict(3.1, 2.0, 3.0), verdict(3.0, 2.0, 3.01)), (Verdict::Off, Verdict::Off), "no difference");
        assert_eq!(judged(&rows(&[("a", [1.0, 0.0])]), claim).0, Verdict::Unavailable);
    }

    #[test]
    fn a_figure_is_as_good_as_its_worst_value() {
        let of = |verdicts: &[Verdict]| {
            let comparison = |verdict: &Verdict| Comparison {
                what: String::new(),
                published: String::new(),
                ours: Ok(String::new()),
                verdict: *verdict,
                picture: None,
            };
            Verdict::of(&verdicts.iter().map(comparison).collect::<Vec<_>>())
        };
        assert_eq!(of(&[Verdict::Exact, Verdict::OrderOnly, Verdict::Unavailable]), Verdict::OrderOnly);
        assert_eq!((of(&[Verdict::Unavailable]), of(&[])), (Verdict::Unavailable, Verdict::Unpublished));
    }
}
