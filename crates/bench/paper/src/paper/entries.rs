//! Series of a figure whose horizontal axis is the number of threads.

use drtm_drive::{EngineName, Pace, Workload, run_in};
use drtm_htm::{Native, Rtm};
use drtm_report::{
    chart::{Axis, Scale},
    units::Quantity,
};
use drtm_txn::{Config, DefaultConfig};

use super::{
    effort::{Effort, Subject, Sum},
    panel::{Curve, Kind},
};
use crate::{Error, whole::Whole};

pub(super) const THREADS: Axis = Axis { title: "threads", quantity: Quantity::Threads, scale: Scale::Linear };
pub(super) const PER_SECOND: Axis =
    Axis { title: "transactions/s", quantity: Quantity::Throughput, scale: Scale::Linear };
pub(super) const ABORT_RATE: Axis = Axis { title: "abort rate", quantity: Quantity::AbortRate, scale: Scale::Linear };

/// The reason why a series that needs RTM is absent.
pub(super) const NO_RTM: &str = "this machine has no usable RTM";

/// A series, and what is measured for it with each number of threads, if anything.
pub(super) struct Entry<'e> {
    pub(super) series: &'static str,
    kind: Kind,
    way: Way<'e>,
}

enum Way<'e> {
    Here(Box<dyn Fn(usize) -> Result<Option<Subject<'e>>, Error> + 'e>),
    Absent { why: &'static str },
}

/// Sums of all entries, by threads.
pub(super) struct Grid {
    entries: Vec<(&'static str, Kind, Result<(), &'static str>)>,
    /// The sums of each entry, for each number of threads.
    pub(super) sums: Vec<(usize, Vec<Option<Sum>>)>,
}

impl<'e> Entry<'e> {
    pub(super) fn absent(series: &'static str, why: &'static str) -> Self {
        Self { series, kind: Kind::Unavailable, way: Way::Absent { why } }
    }

    /// Returns an entry for any subject.
    pub(super) fn of(
        series: &'static str,
        kind: Kind,
        subject: impl Fn(usize) -> Result<Option<Subject<'e>>, Error> + 'e,
    ) -> Self {
        Self { series, kind, way: Way::Here(Box::new(subject)) }
    }

    /// Returns an entry for a workload on an engine. It is absent if it needs RTM and there is
    /// none.
    pub(super) fn on<W: Workload + 'e>(
        series: &'static str,
        effort: &'e Effort,
        engine: EngineName,
        workload: impl Fn(usize) -> Result<W, Error> + 'e,
    ) -> Self {
        if engine == EngineName::Rtm && Rtm::detect().is_err() {
            return Self::absent(series, NO_RTM);
        }
        let kind = if engine == EngineName::Emulated { Kind::Simulated } else { Kind::Measured };
        Self::of(series, kind, move |threads| {
            Ok(Some(effort.subject(workload(threads)?, engine, effort.pace(threads))))
        })
    }

    /// Returns an entry for a workload in one configuration, on an engine of it.
    pub(super) fn within<S: Config, W: Workload + 'e>(
        series: &'static str,
        engine: S::Engine,
        pace: impl Fn(usize) -> Pace + 'e,
        workload: impl Fn(usize) -> Result<W, Error> + 'e,
    ) -> Self {
        Self::of(series, Kind::Measured, move |threads| {
            let (workload, pace, engine) = (workload(threads)?, pace(threads), engine.clone());
            Ok(Some(Box::new(move || Ok(run_in::<S, _>(&workload, engine.clone(), pace)?))))
        })
    }

    /// Returns an entry for a workload whose transactions are critical sections: each runs as a
    /// whole in one region, or under one lock.
    pub(super) fn whole<W: Workload + 'e>(
        series: &'static str,
        effort: &'e Effort,
        has_htm: bool,
        workload: impl Fn(usize) -> Result<W, Error> + 'e,
    ) -> Self {
        let engine = match (has_htm, Rtm::detect()) {
            (true, Ok(rtm)) => rtm.into(),
            (true, Err(_)) => return Self::absent(series, NO_RTM),
            (false, _) => Native::without_htm(),
        };
        let whole = move |threads| Ok(Whole::new(workload(threads)?, engine));
        Self::within::<DefaultConfig, _>(series, Native::without_htm(), |threads| effort.pace(threads), whole)
    }
}

impl Grid {
    /// Measures all entries by each number of threads.
    pub(super) fn measure(effort: &Effort, entries: &[Entry<'_>], threads: &[usize]) -> Result<Self, Error> {
        let mut sums = Vec::new();
        for &threads in threads {
            let mut subjects = Vec::new();
            let mut is_here = Vec::new();
            for entry in entries {
                let subject = match &entry.way {
                    Way::Here(subject) => subject(threads)?,
                    Way::Absent { .. } => None,
                };
                is_here.push(subject.is_some());
                subjects.extend(subject);
            }
            let mut measured = effort.in_turns(&subjects)?.into_iter();
            let of_entries = is_here.into_iter().map(|is_here| if is_here { measured.next() } else { None });
            sums.push((threads, of_entries.collect()));
        }
        let entries = entries.iter().map(|entry| match entry.way {
            Way::Here(_) => (entry.series, entry.kind, Ok(())),
            Way::Absent { why } => (entry.series, entry.kind, Err(why)),
        });
        Ok(Self { entries: entries.collect(), sums })
    }

    /// Returns a curve of each entry. A point may depend on the other entries with the same number
    /// of threads.
    pub(super) fn curves(&self, y: impl Fn(&Sum, &[Option<Sum>]) -> Option<f64>) -> Vec<Curve> {
        let curve = |(place, (series, kind, is_here)): (usize, &(&'static str, Kind, Result<(), &'static str>))| {
            match is_here {
                Err(why) => Curve::absent(series, why),
                Ok(()) => {
                    let point = |(threads, sums): &(usize, Vec<Option<Sum>>)| {
                        Some((*threads, y(sums.get(place)?.as_ref()?, sums)?))
                    };
                    Curve::new(series, *kind, self.sums.iter().filter_map(point))
                }
            }
        };
        self.entries.iter().enumerate().map(curve).collect()
    }

    /// Returns the transactions per second.
    pub(super) fn throughput(&self) -> Vec<Curve> {
        self.curves(|sum, _| Some(sum.rates.median))
    }
}
