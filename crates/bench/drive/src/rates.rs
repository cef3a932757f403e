//! Measures several subjects side by side.

use serde::Serialize;

/// Rates of several rounds, in operations per second.
///
/// # Example
///
/// ```
/// use drtm_drive::rates::Rates;
///
/// let rates = Rates::of(vec![4.0, 1.0, 9.0]);
/// assert_eq!((rates.min, rates.median, rates.max), (1.0, 4.0, 9.0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[allow(missing_docs, reason = "what they are called")]
pub struct Rates {
    pub min: f64,
    pub median: f64,
    pub max: f64,
}

impl Rates {
    /// Summarizes all rounds. Without any round, all rates are NaN.
    pub fn of(mut rates: Vec<f64>) -> Self {
        rates.sort_by(f64::total_cmp);
        let at = |place: usize| rates.get(place).copied().unwrap_or(f64::NAN);
        let (below, middle, last) = (rates.len().saturating_sub(1) / 2, rates.len() / 2, rates.len().saturating_sub(1));
        Self { min: at(0), median: (at(below) + at(middle)) / 2.0, max: at(last) }
    }
}

/// Measures subjects in turns. In each round every subject does the same work, so that other load
/// on the machine affects all alike. `prepare` makes a round's work, and `measure` returns the rate
/// at which a subject does it. A first round is not counted: it runs with cold caches and untouched
/// pages.
///
/// # Errors
///
/// Returns the error of the first measurement that fails; later ones are not made.
///
/// # Example
///
/// ```
/// use std::convert::Infallible;
///
/// use drtm_drive::rates::interleave;
///
/// let rates = interleave(3, &[10.0, 20.0], f64::from, |subject, round| Ok::<_, Infallible>(subject + round))?;
/// assert_eq!((rates[0].median, rates[1].median), (12.0, 22.0), "of rounds 1 to 3");
/// # Ok::<(), Infallible>(())
/// ```
pub fn interleave<S, P, E>(
    rounds: u16,
    subjects: &[S],
    mut prepare: impl FnMut(u16) -> P,
    mut measure: impl FnMut(&S, &P) -> Result<f64, E>,
) -> Result<Vec<Rates>, E> {
    let mut rates = vec![Vec::with_capacity(rounds.into()); subjects.len()];
    for round in 0..=rounds {
        let work = prepare(round);
        for (subject, rates) in subjects.iter().zip(&mut rates) {
            let rate = measure(subject, &work)?;
            if round > 0 {
                rates.push(rate);
            }
        }
    }
    Ok(rates.into_iter().map(Rates::of).collect())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn rates_are_ordered_and_the_median_is_in_the_middle() {
        let Rates { min, median, max } = Rates::of(vec![3.0, 1.0, 10.0]);
        assert_eq!((min, median, max), (1.0, 3.0, 10.0));
        assert_eq!(Rates::of(vec![1.0, 2.0]).median, 1.5);
        assert_eq!(Rates::of(vec![4.0]).median, 4.0);
        assert!(Rates::of(Vec::new()).median.is_nan());
    }

    #[test]
    fn subjects_take_turns_at_the_same_work_until_one_fails() {
        let order = RefCell::new(Vec::new());
        let measure = |subject: &char, round: &u16| {
            order.borrow_mut().push((*subject, *round));
            if (*subject, *round) == ('b', 2) { Err("broken") } else { Ok(1.0) }
        };
        assert_eq!(interleave(3, &['a', 'b'], |round| round, measure), Err("broken"));
        assert_eq!(*order.borrow(), [('a', 0), ('b', 0), ('a', 1), ('b', 1), ('a', 2), ('b', 2)]);
    }
}
