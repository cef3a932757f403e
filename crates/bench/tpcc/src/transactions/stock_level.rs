//! STOCK-LEVEL (2.8): read-only, at the highest level of isolation. The specification requires
//! less.

use std::ops::ControlFlow;

use drtm_drive::Error;
use drtm_txn::{Config, Mode, Part, Tx, part};
use zerocopy::little_endian::I16;

use super::Scratch;
use crate::{
    Stock, StockLevel,
    reading::ReadBody,
    tables::{DISTRICT, Layout, STOCK, Tables, expect_row},
};

const QUANTITY: Part<Stock, I16> = part!(Stock, supply.quantity);

/// The number of last orders whose items are checked.
pub(crate) const RECENT: u32 = 20;

/// Counts the items of the last orders with a low stock.
#[derive(Debug)]
pub(crate) struct LowStock<'t, O: Layout> {
    pub(crate) tables: &'t Tables<O>,
    pub(crate) input: StockLevel,
    pub(crate) scratch: &'t mut Scratch,
}

impl<O: Layout> ReadBody for LowStock<'_, O> {
    type Output = u32;

    fn run<S: Config, M: Mode>(&mut self, tx: &Tx<'_, S, M>) -> Result<u32, Error> {
        let Self { tables, input, scratch } = self;
        let (warehouse, district) = input.district;
        let Scratch { items, met, .. } = &mut **scratch;
        let next = expect_row(tx.view(tables.districts, &input.district, |row| row.next_order.get())?, DISTRICT)?;
        let first = next.saturating_sub(RECENT);
        let mut rows = tx.range(tables.order_lines, (warehouse, district, first, 0)..(warehouse, district, next, 0))?;
        items.drain(..).for_each(|item| met.remove(item as usize));
        rows.view_each(|_, row| {
            let item = row.item.get();
            met.grow(item as usize + 1);
            if !met.put(item as usize) {
                items.push(item);
            }
        })?;
        let (mut low, mut are_there) = (0, true);
        let stocks = items.iter().map(|item| (warehouse, *item));
        tx.view_many(tables.stocks.column(QUANTITY), stocks, |quantity| match quantity {
            Some(quantity) => {
                low += u32::from(quantity.get() < input.threshold);
                ControlFlow::Continue(())
            }
            None => {
                are_there = false;
                ControlFlow::Break(())
            }
        })?;
        Ok(expect_row(are_there.then_some(low), STOCK)?)
    }
}
