//! A report: a snapshot sums all orders by region, while clerks enter, amend and cancel orders.
//!
//! ```text
//! cargo run --release --example report
//! ```

use std::{
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use drtm::{Db, Error, Ordered, Pod, TableDef, TableOf};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Region, clerk, and the clerk's own number: seven bytes, so the key is packed into a word.
/// Regions come first, so that a region's orders are a range.
type Number = (u16, u8, u32);

#[derive(Clone, Copy, Debug, Default, PartialEq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Total {
    orders: i64,
    value: i64,
}

type Orders = TableDef<Number, Pod<i64>, Ordered>;
const ORDERS: Orders = Orders::ordered("orders");

/// The sum of a region's orders, updated together with them.
type Totals = TableDef<u16, Pod<Total>>;
const TOTALS: Totals = Totals::hash("totals");

const REGIONS: u16 = 4;
const CLERKS: u8 = 2;
const OPENING_TIME: Duration = Duration::from_millis(800);

#[derive(Clone)]
struct Shop {
    db: Db,
    orders: TableOf<Orders>,
    totals: TableOf<Totals>,
}

impl Shop {
    fn open() -> Result<Self, Error> {
        let db = Db::new()?;
        let (orders, totals) = (db.table(ORDERS)?, db.table(TOTALS)?);
        db.transact(|tx| (0..REGIONS).try_for_each(|region| tx.insert(totals, region, &Total::default())))?;
        Ok(Self { db, orders, totals })
    }

    /// Enters, amends or cancels an order, and updates its region's total.
    fn set(&self, number: Number, value: Option<i64>) -> Result<(), Error> {
        self.db.transact(|tx| {
            let before = tx.get(self.orders, number)?;
            match value {
                Some(value) => tx.put(self.orders, number, &value)?,
                None => drop(tx.remove(self.orders, number)?),
            }
            let updated = tx.update(self.totals, number.0, |total| {
                total.orders += i64::from(value.is_some()) - i64::from(before.is_some());
                total.value += value.unwrap_or(0) - before.unwrap_or(0);
            })?;
            updated.ok_or_else(|| Error::aborted(format!("there is no region {}", number.0)))
        })
    }

    /// Sums all orders. This takes long, and totals change all the time. In the snapshot they are
    /// unchanged since it was opened.
    fn report(&self) -> Result<Vec<Total>, Error> {
        let moment = self.db.snapshot()?;
        let mut report = vec![Total::default(); usize::from(REGIONS)];
        let mut orders = moment.range(self.orders, ..)?;
        while let Some(((region, ..), value)) = orders.next()? {
            let total = &mut report[usize::from(region)];
            total.orders += 1;
            total.value += value;
        }
        for (region, counted) in (0..REGIONS).zip(&report) {
            assert_eq!(moment.get(self.totals, region)?, Some(*counted), "region {region} was not seen at one moment");
        }
        Ok(report)
    }
}

/// Runs a clerk until the shop closes. Returns the number of writes, and the final value of each
/// order.
fn work(shop: &Shop, clerk: u8, closes: Instant) -> Result<(u64, Vec<Option<i64>>), Error> {
    let mut chance = fastrand::Rng::with_seed(clerk.into());
    let (mut writes, mut own) = (0, Vec::new());
    while Instant::now() < closes {
        let value = Some(chance.i64(1..1_000));
        // Of four steps, two enter an order, one amends and one cancels.
        let (order, value) = match writes % 4 {
            0 | 1 => (own.len(), value),
            2 => (chance.usize(..own.len()), value),
            _ => (chance.usize(..own.len()), None),
        };
        shop.set(((order % usize::from(REGIONS)) as u16, clerk, order as u32), value)?;
        writes += 1;
        if order == own.len() {
            own.push(value);
        } else {
            own[order] = value;
        }
    }
    Ok((writes, own))
}

fn run() -> Result<(), Error> {
    let shop = &Shop::open()?;
    let closes = Instant::now() + OPENING_TIME;
    let (clerks, reports) = thread::scope(|scope| {
        let clerks: Vec<_> = (0..CLERKS).map(|clerk| scope.spawn(move || work(shop, clerk, closes))).collect();
        let mut reports = Vec::new();
        while Instant::now() < closes {
            let begun = Instant::now();
            reports.push(shop.report().map(|report| (begun.elapsed(), report)));
            thread::sleep(Duration::from_millis(50));
        }
        let clerks: Vec<_> = clerks.into_iter().map(|clerk| clerk.join().expect("no clerk panics")).collect();
        (clerks, reports)
    });
    for report in reports {
        let (took, totals) = report?;
        let (orders, value) = totals.iter().fold((0, 0), |sum, total| (sum.0 + total.orders, sum.1 + total.value));
        println!("{orders:>8} orders worth {value:>10}, counted in {took:.1?} while they changed");
    }

    // The clerks' memory is independent of the database.
    let (mut writes, mut remembered) = (0, vec![Total::default(); usize::from(REGIONS)]);
    for clerk in clerks {
        let (written, own) = clerk?;
        writes += written;
        for (order, value) in own.into_iter().enumerate() {
            let total = &mut remembered[order % usize::from(REGIONS)];
            total.orders += i64::from(value.is_some());
            total.value += value.unwrap_or(0);
        }
    }
    assert_eq!(shop.report()?, remembered, "clerks remember something else");
    println!(
        "{writes} writes meanwhile; every report agreed with the totals of its moment, and the last with the clerks"
    );
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
