//! DELIVERY (2.7): one transaction for all districts of a warehouse. The specification also allows
//! one for each (2.7.2.2).

use std::ops::ControlFlow;

use drtm_drive::Error;
use drtm_txn::{Config, Db, Tx};
use zerocopy::little_endian::{I64, U32, U64};

use super::{ACCOUNT, OF_CUSTOMER};
use crate::{
    Account, CustomerKey, DISTRICTS, Delivery, DistrictKey, OrderKey,
    tables::{CUSTOMER, Layout, ORDER, ORDER_LINE, Tables, expect_row},
};

/// Delivers the oldest order of each district. Returns the number delivered: a district without a
/// new order is skipped.
pub(crate) fn deliver<S: Config, O: Layout>(
    db: &Db<S>,
    tables: &Tables<O>,
    input: &Delivery,
    date: u64,
) -> Result<u8, Error> {
    db.try_transact(|tx| {
        // Each step runs for all districts before the next, so that the next step's rows can be
        // prefetched.
        let districts = 1..=DISTRICTS;
        if tables.prefetches {
            tx.prefetch(tables.new_orders, districts.clone().map(|district| (input.warehouse, district, 0)))?;
        }
        let mut orders = [None; DISTRICTS as usize];
        for (order, district) in orders.iter_mut().zip(districts) {
            *order = take_oldest(tx, tables, (input.warehouse, district))?;
        }
        let keys = || orders.iter().flatten();
        if tables.prefetches {
            tx.prefetch(tables.orders, keys())?;
            let first_line = |&(warehouse, district, number)| (warehouse, district, number, 1);
            tx.prefetch(tables.order_lines, keys().map(first_line))?;
        }
        let mut delivered = [const { None }; DISTRICTS as usize];
        for (delivered, key) in delivered.iter_mut().zip(keys()) {
            *delivered = Some(carry(tx, tables, *key, input.carrier)?);
        }
        let delivered = || delivered.iter().flatten();
        if tables.prefetches {
            tx.prefetch(tables.customers.columns(&OF_CUSTOMER), delivered().map(|order| order.customer))?;
        }
        for Carried { customer, order, lines } in delivered() {
            let amount = arrive(tx, tables, *order, *lines, date)?;
            let paid =
                tx.update(tables.customers.column(ACCOUNT), customer, |account| delivered_to(account, amount))?;
            expect_row(paid, CUSTOMER)?;
        }
        Ok(delivered().count() as u8)
    })
}

/// Adds a delivery of this many cents to its customer's account.
#[inline(always)]
pub(crate) fn delivered_to(account: &mut Account, amount: i64) {
    account.balance += I64::new(amount);
    account.delivery_count += U32::new(1);
}

/// An order in delivery.
#[derive(Clone, Copy, Debug)]
struct Carried {
    order: OrderKey,
    customer: CustomerKey,
    lines: u8,
}

fn take_oldest<S: Config, O: Layout>(
    tx: &mut Tx<'_, S>,
    tables: &Tables<O>,
    (warehouse, district): DistrictKey,
) -> Result<Option<OrderKey>, Error> {
    let first =
        tx.range_mut(tables.new_orders, (warehouse, district, 0)..=(warehouse, district, u32::MAX))?.pop_first()?;
    Ok(first.map(|(key, _)| key))
}

/// Assigns an order to its carrier.
fn carry<S: Config, O: Layout>(
    tx: &mut Tx<'_, S>,
    tables: &Tables<O>,
    order: OrderKey,
    carrier: u8,
) -> Result<Carried, Error> {
    let (warehouse, district, _) = order;
    let carried = tx.update(tables.orders, &order, |row| {
        row.carrier = carrier;
        Carried { order, customer: (warehouse, district, row.customer.get()), lines: row.line_count }
    })?;
    Ok(expect_row(carried, ORDER)?)
}

/// Marks an order's lines as delivered. Returns their total.
fn arrive<S: Config, O: Layout>(
    tx: &mut Tx<'_, S>,
    tables: &Tables<O>,
    (warehouse, district, number): OrderKey,
    lines: u8,
    date: u64,
) -> Result<i64, Error> {
    let (mut delivered, mut amount) = (0, 0);
    tx.range_mut(tables.order_lines, (warehouse, district, number, 1)..=(warehouse, district, number, lines))?
        .update_each(|_, row| {
            row.delivery_date = U64::new(date);
            amount += row.amount.get();
            delivered += 1;
            if delivered < lines { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
    Ok(expect_row((delivered == lines).then_some(amount), ORDER_LINE)?)
}
