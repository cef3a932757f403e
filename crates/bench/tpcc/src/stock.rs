//! The row of a stock on a cluster: whole, or narrow.
//!
//! Narrow is a vertical partition: a table of their own has the columns S_DIST_01 to S_DIST_10, and
//! no transaction touches it. So OL_DIST_INFO, which is copied from there, is left empty. The
//! TPC-C of DrTM and of DrTM+H is of this kind, as it follows Silo's.

use std::fmt::Debug;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{DISTRICTS, Stock, Supply};

/// The S_DIST columns of a stock whose row is narrow.
pub(super) type Infos = [[u8; 24]; DISTRICTS as usize];

/// What a stock's row has.
pub trait StockRow:
    Copy + Debug + Send + Sync + FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned + 'static
{
    /// Whether the S_DIST columns are in a table of their own.
    const IS_NARROW: bool;

    fn of(stock: &Stock) -> Self;

    fn supply(&self) -> &Supply;

    fn supply_mut(&mut self) -> &mut Supply;

    /// Returns S_DIST_xx of a district: empty if it is elsewhere.
    fn info(&self, district: u8) -> [u8; 24];
}

impl StockRow for Stock {
    const IS_NARROW: bool = false;

    fn of(stock: &Stock) -> Self {
        *stock
    }

    fn supply(&self) -> &Supply {
        &self.supply
    }

    fn supply_mut(&mut self) -> &mut Supply {
        &mut self.supply
    }

    fn info(&self, district: u8) -> [u8; 24] {
        self.districts[usize::from(district.wrapping_sub(1) % DISTRICTS)]
    }
}

impl StockRow for Supply {
    const IS_NARROW: bool = true;

    fn of(stock: &Stock) -> Self {
        stock.supply
    }

    fn supply(&self) -> &Supply {
        self
    }

    fn supply_mut(&mut self) -> &mut Supply {
        self
    }

    fn info(&self, _district: u8) -> [u8; 24] {
        [0; 24]
    }
}
