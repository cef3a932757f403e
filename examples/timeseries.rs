//! Measurements by sensor and time: several threads insert them, range scans read them, and old
//! ones are removed.
//!
//! ```text
//! cargo run --release --example timeseries
//! ```

use std::{ops::Range, process::ExitCode, thread, time::Instant};

use drtm::{Db, Error, Ordered, Pod, TableDef, TableOf};

/// Keyed by sensor, then by time.
type Measurements = TableDef<(String, u64), Pod<f64>, Ordered>;
const MEASUREMENTS: Measurements = Measurements::ordered("measurements");

/// The number of old rows that one transaction removes: large enough to amortize its cost, and
/// small enough to be quick.
const AT_ONCE: usize = 500;

struct Series {
    db: Db,
    measurements: TableOf<Measurements>,
}

impl Series {
    fn open() -> Result<Self, Error> {
        let db = Db::new()?;
        Ok(Self { measurements: db.table(MEASUREMENTS)?, db })
    }

    /// Inserts a sensor's values from a start time on, one for each second.
    fn take(&self, sensor: &str, from: u64, values: &[f64]) -> Result<(), Error> {
        self.db.transact(|tx| {
            (from..).zip(values).try_for_each(|(time, value)| tx.put(self.measurements, (sensor, time), value))
        })
    }

    /// Returns the least, mean and greatest value of a time range; `None` if it has no values.
    fn summary(&self, sensor: &str, times: Range<u64>) -> Result<Option<[f64; 3]>, Error> {
        self.db.read(|tx| {
            let (mut count, mut sum, mut least, mut greatest) = (0_u32, 0.0, f64::INFINITY, f64::NEG_INFINITY);
            tx.range(self.measurements, (sensor, times.start)..(sensor, times.end))?.view_each(|_, value| {
                count += 1;
                sum += value;
                (least, greatest) = (value.min(least), value.max(greatest));
            })?;
            Ok((count > 0).then(|| [least, sum / f64::from(count), greatest]))
        })
    }

    fn last(&self, sensor: &str) -> Result<Option<(u64, f64)>, Error> {
        self.db.read(|tx| {
            let last = tx.range(self.measurements, (sensor, 0)..=(sensor, u64::MAX))?.last()?;
            Ok(last.map(|((_, time), value)| (time, value)))
        })
    }

    /// Removes a sensor's values before a time, a few rows per transaction. Returns their number.
    fn forget(&self, sensor: &str, before: u64) -> Result<usize, Error> {
        let mut forgotten = 0;
        loop {
            let some = self.db.transact(|tx| {
                let mut old = tx.range_mut(self.measurements, (sensor, 0)..(sensor, before))?;
                let mut some = 0;
                while some < AT_ONCE && old.remove_next()?.is_some() {
                    some += 1;
                }
                Ok(some)
            })?;
            forgotten += some;
            if some < AT_ONCE {
                return Ok(forgotten);
            }
        }
    }
}

/// Inserts values of some sensors for this many minutes, and keeps the last hour. Returns the
/// number of values inserted.
pub(crate) fn run(sensors: u64, minutes: u64) -> Result<u64, Error> {
    const KEPT: u64 = 60;
    let series = Series::open()?;
    let measure = |sensor: u64| -> Result<(), Error> {
        let name = format!("sensor {sensor}");
        for minute in 0..minutes {
            let values: Vec<f64> = (0..60).map(|second| (minute * 60 + second + sensor) as f64).collect();
            series.take(&name, minute * 60, &values)?;
            if minute >= KEPT {
                assert_eq!(series.forget(&name, (minute - KEPT) * 60)?, if minute > KEPT { 60 } else { 0 });
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..sensors).map(|sensor| scope.spawn(move || measure(sensor))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    let (end, first) = (minutes * 60, minutes.saturating_sub(KEPT + 1) * 60);
    for sensor in 0..sensors {
        let (name, offset) = (format!("sensor {sensor}"), sensor as f64);
        let all = [first as f64 + offset, (first + end - 1) as f64 / 2.0 + offset, (end - 1) as f64 + offset];
        assert_eq!(series.summary(&name, 0..u64::MAX)?, Some(all));
        assert_eq!(series.last(&name)?, Some((end - 1, all[2])));
    }
    assert_eq!(series.summary("no sensor", 0..u64::MAX)?, None);
    assert_eq!(series.db.read(|tx| tx.len(series.measurements))?, sensors * (end - first));
    Ok(sensors * end)
}

fn main() -> ExitCode {
    let start = Instant::now();
    match run(4, 24 * 60) {
        Ok(values) => {
            println!("{values} values of 4 sensors in {:.2?}; those of the last hour are left", start.elapsed());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("the measurement ends: {error}");
            ExitCode::FAILURE
        }
    }
}
