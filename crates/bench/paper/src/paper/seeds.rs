//! Simulated figures by several seeds: the median of each point, and what the seeds lie between.

use super::{
    effort::Effort,
    panel::{Curve, Found, Kind, Measured, Seeded},
};
use crate::Error;

/// Makes a study once for each seed, and returns the medians.
///
/// What is computed from several points, such as a ratio, is computed for each seed, and the median
/// is of that.
pub(super) fn medians(
    effort: &Effort,
    measure: impl Fn(&Effort) -> Result<Measured, Error>,
) -> Result<Measured, Error> {
    let of_seed = |nth: u64| measure(&effort.with_seed(effort.seed.wrapping_add(nth)));
    let mut first = of_seed(0)?;
    let mut others = Vec::new();
    for nth in 1..u64::from(effort.seeds) {
        let other = of_seed(nth)?;
        first.failure = first.failure.or(other.failure);
        others.push(other.curves);
    }
    if others.is_empty() {
        return Ok(first);
    }
    first.source += &format!("; medians of {} seeds", effort.seeds);
    for (panel, curves) in first.curves.iter_mut().enumerate() {
        for (place, curve) in curves.iter_mut().enumerate() {
            merge(curve, others.iter().map(|curves| &curves[panel][place]));
        }
    }
    Ok(first)
}

/// Makes a study of which one seed is enough, unless more are chosen.
pub(super) fn of_one_seed(
    effort: &Effort,
    measure: impl Fn(&Effort) -> Result<Measured, Error>,
) -> Result<Measured, Error> {
    medians(&effort.of_usual_seeds(1), measure)
}

/// Makes a curve that of all seeds. A series that is absent stays absent, and what is not simulated
/// does not depend on a seed.
fn merge<'c>(curve: &mut Curve, others: impl Iterator<Item = &'c Curve> + Clone) {
    let Found::Points { kind: Kind::Simulated, points } = &curve.found else { return };
    let merged = points.iter().enumerate().map(|(place, &(x, y))| {
        let of_seed = |other: &Curve| match &other.found {
            Found::Points { points, .. } => points.get(place).map(|(_, y)| *y),
            Found::Seeds { .. } | Found::Absent { .. } => None,
        };
        (x, Seeded::of([y].into_iter().chain(others.clone().filter_map(of_seed))))
    });
    curve.found = Found::Seeds { points: merged.collect() };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(usize, f64)]) -> Curve {
        Curve::new("ours", Kind::Simulated, points.iter().copied())
    }

    fn merged(curves: &[&[(usize, f64)]]) -> Vec<(Option<usize>, Seeded)> {
        let others: Vec<Curve> = curves[1..].iter().map(|points| curve(points)).collect();
        let mut first = curve(curves[0]);
        merge(&mut first, others.iter());
        match first.found {
            Found::Seeds { points } => points,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_point_is_a_median_between_the_least_and_the_most() {
        let points = merged(&[&[(1, 5.0), (4, 1.0)], &[(1, 3.0), (4, 9.0)], &[(1, 4.0), (4, 2.0)]]);
        let expected = [
            (Some(1), Seeded { median: 4.0, least: 3.0, most: 5.0 }),
            (Some(4), Seeded { median: 2.0, least: 1.0, most: 9.0 }),
        ];
        assert_eq!(points, expected);
        assert_eq!(merged(&[&[(1, 1.0)], &[(1, 2.0)]])[0].1.median, 1.5, "of an even number, the middle");
    }

    #[test]
    fn what_is_computed_or_absent_stays_as_it_is() {
        let mut exact = Curve::new("ours", Kind::Exact, [(1, 1.0)]);
        merge(&mut exact, [curve(&[(1, 2.0)])].iter());
        assert!(matches!(&exact.found, Found::Points { kind: Kind::Exact, points } if points == &[(Some(1), 1.0)]));
        let mut absent = Curve::absent("ours", "no");
        merge(&mut absent, [curve(&[(1, 2.0)])].iter());
        assert!(matches!(absent.found, Found::Absent { .. }));
    }
}
