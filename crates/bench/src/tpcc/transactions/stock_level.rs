//! STOCK-LEVEL (2.8): reads only. At the highest level of isolation, where the specification asks for less.

use std::ops::ControlFlow;

use drtm_txn::{Lines, Mode, Part, Setting, Tx, part};
use zerocopy::little_endian::I16;

use super::Scratch;
use crate::{
    Error,
    tpcc::{
        Stock, StockKey, StockLevel,
        reading::Look,
        tables::{DISTRICT, STOCK, Shelf, Tables, there},
    },
};

const QUANTITY: Part<Stock, I16> = part!(Stock, supply.quantity);

const OF_STOCK: Lines = Lines::of(&[QUANTITY.bytes()]);

/// Orders whose items are looked at.
const RECENT: u32 = 20;

/// Items whose stock is asked for at once.
const AT_ONCE: usize = 16;

/// How many items of the last orders there are few of in stock.
#[derive(Debug)]
pub(in crate::tpcc) struct LowStock<'t, O: Shelf> {
    pub(in crate::tpcc) tables: &'t Tables<O>,
    pub(in crate::tpcc) input: StockLevel,
    pub(in crate::tpcc) scratch: &'t mut Scratch,
}

impl<O: Shelf> Look for LowStock<'_, O> {
    type Seen = u32;

    fn look<S: Setting, M: Mode>(&mut self, tx: &mut Tx<'_, S, M>) -> Result<u32, Error> {
        let Self { tables, input, scratch } = self;
        let (warehouse, district) = input.district;
        let Scratch { items, met, .. } = &mut **scratch;
        let next = there(tx.view(tables.districts, &input.district, |row| row.next_order.get())?, DISTRICT)?;
        let first = next.saturating_sub(RECENT);
        let mut rows = tx.range(tables.order_lines, (warehouse, district, first, 0)..(warehouse, district, next, 0))?;
        items.drain(..).for_each(|item| met.remove(item as usize));
        rows.view_each(|_, row| {
            let item = row.item.get();
            met.grow(item as usize + 1);
            if !met.put(item as usize) {
                items.push(item);
            }
            ControlFlow::Continue(())
        })?;
        let mut low = 0;
        // Some are on their way while those before them are looked at.
        let mut next = items.chunks(AT_ONCE);
        let mut ask_for_more = |tx: &mut Tx<'_, S, M>| match next.next() {
            Some(items) => tx.prefetch_parts(tables.stocks, stocks(warehouse, items), &OF_STOCK),
            None => Ok(()),
        };
        ask_for_more(tx)?;
        for items in items.chunks(AT_ONCE) {
            ask_for_more(tx)?;
            for stock in stocks(warehouse, items) {
                let quantity = there(tx.get_part(tables.stocks, &stock, QUANTITY)?, STOCK)?;
                low += u32::from(quantity.get() < input.threshold);
            }
        }
        Ok(low)
    }
}

fn stocks(warehouse: u16, items: &[u32]) -> impl Iterator<Item = StockKey> {
    items.iter().map(move |item| (warehouse, *item))
}
