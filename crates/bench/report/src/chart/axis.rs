//! Axes: where a value is, and what stands beside the ticks.

use crate::{chart::pen::text_width, units::Quantity};

/// An axis of a chart.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// Its title, without the unit.
    pub title: &'static str,
    /// The quantity of its values.
    pub quantity: Quantity,
    /// How values become places.
    pub scale: Scale,
}

/// How values become places on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Linear. A vertical axis begins at zero.
    Linear,
    /// Logarithmic: ticks are at powers of two. Points at zero are left out.
    Doubling,
    /// Logarithmic: ticks are at powers of ten. Points at zero are left out.
    Decades,
    /// One place for each name; the values are indices.
    Named(&'static [&'static str]),
}

/// An axis that lies on a chart.
#[derive(Debug)]
pub(super) struct Laid {
    axis: Axis,
    /// Places of the ends.
    places: (f64, f64),
    /// Coordinates of the ends.
    ends: (f64, f64),
}

/// The distance of labels on a horizontal axis.
const BETWEEN: f64 = 6.0;

impl Axis {
    /// Returns the title, with the unit unless title or ticks have it.
    pub(super) fn heading(self) -> String {
        let (title, unit) = (self.title, self.quantity.unit());
        if self.quantity.shows_unit() || title.contains(unit) { title.to_owned() } else { format!("{title}, {unit}") }
    }

    /// Returns a value's place; `None` if it has none.
    fn place(self, value: f64) -> Option<f64> {
        let place = match self.scale {
            Scale::Linear | Scale::Named(_) => value,
            Scale::Doubling => value.log2(),
            Scale::Decades => value.log10(),
        };
        place.is_finite().then_some(place)
    }

    /// Lays a horizontal axis. It is as long as its values need.
    pub(super) fn across(self, values: impl Iterator<Item = f64>, ends: (f64, f64)) -> Laid {
        let places = match (self.scale, self.extremes(values)) {
            (Scale::Named(names), _) => (-0.4, names.len() as f64 - 0.6),
            (_, None) => (0.0, 1.0),
            (_, Some((low, high))) => {
                let room = if low < high { (high - low) * 0.03 } else { 1.0 };
                (low - room, high + room)
            }
        };
        Laid { axis: self, places, ends }
    }

    /// Lays an axis of values whose lengths are compared.
    pub(super) fn along(self, values: impl Iterator<Item = f64>, ends: (f64, f64)) -> Laid {
        let places = match (self.scale, self.extremes(values)) {
            (Scale::Named(names), _) => (-0.4, names.len() as f64 - 0.6),
            (_, None) => (0.0, 1.0),
            (Scale::Linear, Some((low, high))) => {
                let high = if high > 0.0 { high * 1.04 } else { 1.0 };
                (low.min(0.0), high)
            }
            (_, Some((low, high))) => (low.floor(), high.ceil().max(low.floor() + 1.0)),
        };
        Laid { axis: self, places, ends }
    }

    fn extremes(self, values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
        values
            .filter_map(|value| self.place(value))
            .map(|place| (place, place))
            .reduce(|all, place| (all.0.min(place.0), all.1.max(place.1)))
    }

    fn label(self, place: f64) -> String {
        match self.scale {
            Scale::Linear => self.quantity.briefly(place),
            Scale::Doubling => self.quantity.briefly(place.exp2()),
            Scale::Decades => self.quantity.briefly(10_f64.powf(place)),
            Scale::Named(names) => names.get(place as usize).map_or("", |name| name).to_owned(),
        }
    }
}

impl Laid {
    /// Returns a value's coordinate; `None` if the axis has no place for it.
    pub(super) fn at(&self, value: f64) -> Option<f64> {
        self.axis.place(value).map(|place| self.coordinate(place))
    }

    fn coordinate(&self, place: f64) -> f64 {
        let ((low, high), (from, to)) = (self.places, self.ends);
        from + (place - low) / (high - low) * (to - from)
    }

    /// Returns the coordinates and the labels of about `most` ticks.
    pub(super) fn ticks(&self, most: usize) -> Vec<(f64, String)> {
        let (low, high) = self.places;
        let step = match self.axis.scale {
            Scale::Linear => nice((high - low) / most as f64),
            Scale::Doubling | Scale::Decades => ((high - low) / most as f64).ceil().max(1.0),
            Scale::Named(_) => 1.0,
        };
        let first = (low / step).ceil() as i64;
        let places = (first..).map(|count| count as f64 * step).take_while(|place| *place <= high + step * 1e-9);
        places.map(|place| (self.coordinate(place), self.axis.label(place))).collect()
    }

    /// Returns ticks of a horizontal axis: at the values themselves if these are few.
    pub(super) fn ticks_at(&self, values: impl Iterator<Item = f64>) -> Vec<(f64, String)> {
        const FEW: usize = 8;
        let mut values: Vec<f64> = values.filter(|value| self.at(*value).is_some()).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        let are_few = self.axis.scale == Scale::Linear && (1..=FEW).contains(&values.len());
        let ticks = if are_few {
            values.iter().map(|value| (self.coordinate(*value), self.axis.label(*value))).collect()
        } else {
            self.ticks(6)
        };
        spaced(ticks)
    }
}

/// Leaves out labels that would touch others. The first and the last one stay, if they can.
fn spaced(mut ticks: Vec<(f64, String)>) -> Vec<(f64, String)> {
    let touch = |left: &(f64, String), right: &(f64, String)| {
        left.0 + (text_width(&left.1) + text_width(&right.1)) / 2.0 + BETWEEN > right.0
    };
    let Some(last) = ticks.pop() else { return ticks };
    let mut kept: Vec<(f64, String)> = Vec::new();
    for tick in ticks {
        if kept.last().is_none_or(|before| !touch(before, &tick)) && !touch(&tick, &last) {
            kept.push(tick);
        }
    }
    kept.push(last);
    kept
}

/// Returns one, two or five of a power of ten: at least this.
fn nice(step: f64) -> f64 {
    let power = 10_f64.powf(step.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|times| times * power).into_iter().find(|nice| *nice >= step * 0.999).unwrap_or(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(ticks: Vec<(f64, String)>) -> Vec<String> {
        ticks.into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn a_doubling_axis_has_ticks_at_powers_of_two_and_no_zero() {
        let axis = Axis { title: "", quantity: Quantity::Bytes, scale: Scale::Doubling };
        let laid = axis.across([0.0, 1024.0, 8192.0].into_iter(), (0.0, 400.0));
        assert_eq!(laid.at(0.0), None);
        assert_eq!(labels(laid.ticks_at([1024.0].into_iter())), ["1 KB", "2 KB", "4 KB", "8 KB"]);
    }

    #[test]
    fn decades_have_a_tick_each() {
        let axis = Axis { title: "", quantity: Quantity::FalsePositives, scale: Scale::Decades };
        let laid = axis.along([0.003, 0.4].into_iter(), (200.0, 0.0));
        assert_eq!(labels(laid.ticks(5)), ["0.001 %", "0.01 %", "0.1 %", "1 %"]);
        assert_eq!((laid.at(0.001), laid.at(1.0)), (Some(200.0), Some(0.0)));
    }

    #[test]
    fn a_linear_axis_begins_at_zero_where_lengths_are_compared() {
        let axis = Axis { title: "", quantity: Quantity::Throughput, scale: Scale::Linear };
        let laid = axis.along([3e6, 2e6].into_iter(), (200.0, 0.0));
        assert_eq!(laid.at(0.0), Some(200.0));
        assert_eq!(labels(laid.ticks(4)), ["0", "1M", "2M", "3M"]);
        assert_eq!(labels(axis.along([0.0].into_iter(), (0.0, 1.0)).ticks(2)), ["0", "0.5", "1"]);
        assert_eq!(labels(axis.along(std::iter::empty(), (0.0, 1.0)).ticks(2)), ["0", "0.5", "1"]);
    }

    #[test]
    fn few_values_have_the_ticks_and_labels_never_touch() {
        let axis = Axis { title: "", quantity: Quantity::Percent, scale: Scale::Linear };
        let values = || [0.0, 1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 100.0].into_iter();
        let laid = axis.across(values(), (0.0, 250.0));
        assert_eq!(labels(laid.ticks_at(values())), ["0 %", "25 %", "50 %", "75 %", "100 %"]);
    }

    #[test]
    fn a_named_axis_has_a_tick_for_each_name() {
        let axis = Axis { title: "", quantity: Quantity::Ratio, scale: Scale::Named(&["one", "two"]) };
        let laid = axis.across([0.0, 1.0].into_iter(), (0.0, 400.0));
        assert_eq!(labels(laid.ticks_at([0.0, 1.0].into_iter())), ["one", "two"]);
    }

    #[test]
    fn a_unit_is_said_once() {
        let heading = |title, quantity| Axis { title, quantity, scale: Scale::Linear }.heading();
        assert_eq!(heading("threads", Quantity::Threads), "threads");
        assert_eq!(heading("storage", Quantity::Kilobytes), "storage, KB");
        assert_eq!(heading("false positives", Quantity::FalsePositives), "false positives");
    }
}
