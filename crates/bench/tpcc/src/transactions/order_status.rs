//! ORDER-STATUS (2.6): reads only.

use std::iter;

use drtm_drive::Error;
use drtm_txn::{Config, Mode, Part, Tx, part};
use zerocopy::little_endian::I64;

use super::{OF_CUSTOMER, Scratch, middle_of};
use crate::{
    Customer, CustomerByName, CustomerChoice, CustomerKey, OrderByCustomer, OrderStatus,
    reading::ReadBody,
    tables::{CUSTOMER, Layout, ORDER, ORDER_BY_CUSTOMER, Tables, expect_row},
};

const BALANCE: Part<Customer, I64> = part!(Customer, account.balance);

/// The terminal's output for a customer's last order, with its lines summed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Status {
    pub(crate) customer: CustomerKey,
    pub(crate) balance: i64,
    pub(crate) order: u32,
    pub(crate) carrier: u8,
    pub(crate) entry_date: u64,
    pub(crate) lines: u8,
    pub(crate) amount: i64,
}

/// The lookup of a customer's last order.
#[derive(Debug)]
pub(crate) struct LastOrder<'t, O: Layout> {
    pub(crate) tables: &'t Tables<O>,
    pub(crate) input: OrderStatus,
    pub(crate) scratch: &'t mut Scratch,
}

impl<O: Layout> ReadBody for LastOrder<'_, O> {
    type Output = Status;

    fn run<S: Config, M: Mode>(&mut self, tx: &Tx<'_, S, M>) -> Result<Status, Error> {
        let Self { tables, input, scratch } = self;
        let (warehouse, district) = input.district;
        let number = match &input.customer {
            CustomerChoice::Number(number) => *number,
            CustomerChoice::LastName(last) => {
                let rows = tx.range(tables.customers_by_name, CustomerByName::range(input.district, last)?)?;
                middle_of(rows, last, &mut scratch.named)?
            }
        };
        let customer = (warehouse, district, number);
        // The last order is looked up while the customer is being fetched, and the customer is read
        // while the order is being fetched.
        if tables.prefetches {
            tx.prefetch(tables.customers.columns(&OF_CUSTOMER), iter::once(customer))?;
        }
        let last = tx.range(tables.orders_by_customer, OrderByCustomer::range(customer)?)?.last()?;
        let order = expect_row(last, ORDER_BY_CUSTOMER)?.0.order();
        let key = (warehouse, district, order);
        if tables.prefetches {
            tx.prefetch(tables.orders, iter::once(key))?;
        }
        let balance = expect_row(tx.get(tables.customers.column(BALANCE), &customer)?, CUSTOMER)?.get();
        let found = tx.view(tables.orders, &key, |row| (row.carrier, row.entry_date.get()))?;
        let (carrier, entry_date) = expect_row(found, ORDER)?;
        let mut status = Status { customer, balance, order, carrier, entry_date, lines: 0, amount: 0 };
        let lines = (warehouse, district, order, 0)..=(warehouse, district, order, u8::MAX);
        let mut rows = tx.range(tables.order_lines, lines)?;
        rows.view_each(|_, row| {
            status.lines += 1;
            status.amount += row.amount.get();
        })?;
        Ok(status)
    }
}
