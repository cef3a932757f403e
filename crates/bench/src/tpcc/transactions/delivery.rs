//! DELIVERY (2.7): one transaction for all districts of a warehouse, where the specification allows one for each (2.7.2.2), too.

use drtm_txn::{Db, Setting, Tx};
use zerocopy::little_endian::{I64, U32, U64};

use crate::{
    Error,
    tpcc::{
        DISTRICTS, Delivery, DistrictKey, OrderKey,
        tables::{CUSTOMER, ORDER, ORDER_LINE, Shelf, Tables, there},
    },
};

/// Delivers the oldest order of each district. Gives how many there were: a district without one is skipped.
pub(in crate::tpcc) fn deliver<S: Setting, O: Shelf>(
    db: &Db<S>,
    tables: &Tables<O>,
    input: &Delivery,
    date: u64,
) -> Result<u8, Error> {
    db.try_transact(|tx| {
        let mut delivered = 0;
        for district in 1..=DISTRICTS {
            if let Some(oldest) = take_oldest(tx, tables, (input.warehouse, district))? {
                deliver_one(tx, tables, oldest, input.carrier, date)?;
                delivered += 1;
            }
        }
        Ok(delivered)
    })
}

fn take_oldest<S: Setting, O: Shelf>(
    tx: &mut Tx<'_, S>,
    tables: &Tables<O>,
    (warehouse, district): DistrictKey,
) -> Result<Option<OrderKey>, Error> {
    let first = tx.pop_first(tables.new_orders, (warehouse, district, 0)..=(warehouse, district, u32::MAX))?;
    Ok(first.map(|(key, _)| key))
}

fn deliver_one<S: Setting, O: Shelf>(
    tx: &mut Tx<'_, S>,
    tables: &Tables<O>,
    key: OrderKey,
    carrier: u8,
    date: u64,
) -> Result<(), Error> {
    let order = tx.update(tables.orders, &key, |row| {
        row.carrier = carrier;
        (row.customer.get(), row.line_count)
    })?;
    let (customer, lines) = there(order, ORDER)?;
    let (warehouse, district, number) = key;
    let mut amount = 0;
    let mut rows =
        tx.range(tables.order_lines, (warehouse, district, number, 1)..=(warehouse, district, number, lines))?;
    for _ in 0..lines {
        let delivered = rows.update_next(|_, row| {
            row.delivery_date = U64::new(date);
            row.amount.get()
        })?;
        amount += there(delivered, ORDER_LINE)?.1;
    }
    let paid = tx.update(tables.customers, &(warehouse, district, customer), |row| {
        row.balance += I64::new(amount);
        row.delivery_count += U32::new(1);
    })?;
    Ok(there(paid, CUSTOMER)?)
}
