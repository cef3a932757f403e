//! What the five transactions do (2.4 to 2.8). Each depends on its input and on rows alone.

use std::{collections::BTreeSet, hint::black_box};

use drtm_drive::Text;
use drtm_tpcc::{
    Customer, CustomerKey, District, DistrictKey, History, NewOrder, Order, OrderLine, Supply, Warehouse, WarehouseKey,
};
use zerocopy::{
    FromBytes, Immutable, IntoBytes,
    little_endian::{I16, I64, U16, U32, U64},
};

use super::{
    Tpcc,
    input::{Expected, Input, Line},
    keys::Table,
};
use crate::{Aborted, Key, Rows};

const UNUSED_ITEM: Aborted = Aborted("an item that there is not");
const NOT_THE_OLDEST: Aborted = Aborted("the oldest order is another one");
const MISSING: Aborted = Aborted("a row is missing");

/// The writer of payments that are not the loader's.
const WRITER: u8 = 1;

/// Orders that STOCK-LEVEL looks at.
const RECENT: u32 = 20;

pub(super) fn run(tpcc: &Tpcc, input: &Input, rows: &mut Rows<'_>) -> Result<(), Aborted> {
    match input {
        Input::NewOrder { customer, lines, date } => order(tpcc, rows, *customer, lines, *date),
        Input::Payment { district, customer, amount, count, date } => {
            pay(rows, *district, *customer, *amount, (*count, *date))
        }
        Input::OrderStatus { customer } => status(rows, *customer),
        Input::Delivery { warehouse, carrier, orders, date } => {
            orders.iter().try_for_each(|order| deliver(rows, *warehouse, *carrier, order, *date))
        }
        Input::StockLevel { district, threshold } => low_stock(rows, *district, *threshold),
    }
}

fn get<T: FromBytes>(rows: &Rows<'_>, key: Key) -> Result<T, Aborted> {
    rows.get(key).and_then(|row| T::read_from_bytes(&row).ok()).ok_or(MISSING)
}

fn put<T: IntoBytes + Immutable>(rows: &mut Rows<'_>, key: Key, row: &T) {
    rows.put(key, row.as_bytes().into());
}

fn get_number(rows: &Rows<'_>, key: Key) -> Result<u32, Aborted> {
    get::<U32>(rows, key).map(U32::get)
}

/// NEW-ORDER (2.4).
fn order(tpcc: &Tpcc, rows: &mut Rows<'_>, customer: CustomerKey, lines: &[Line], date: u64) -> Result<(), Aborted> {
    let (warehouse, district, number_of_customer) = customer;
    let tax = get::<Warehouse>(rows, Table::Warehouse.of(warehouse, 0, 0, 0))?.tax.get();
    let at = Table::District.of(warehouse, district, 0, 0);
    let mut row: District = get(rows, at)?;
    let number = row.next_order.get();
    row.next_order.set(number + 1);
    put(rows, at, &row);
    let account = get::<Customer>(rows, Table::Customer.customer(customer))?.account;
    let mut sum = 0;
    for (line, place) in lines.iter().zip(1..) {
        rows.look_up();
        let price = tpcc.item(line.item).ok_or(UNUSED_ITEM)?.price.get();
        let at = Table::Stock.of(line.supply, 0, line.item, 0);
        let mut stock: Supply = get(rows, at)?;
        take(&mut stock, line, warehouse);
        put(rows, at, &stock);
        let amount = price * i64::from(line.quantity);
        sum += amount;
        let line = OrderLine {
            item: U32::new(line.item),
            supply_warehouse: U16::new(line.supply),
            delivery_date: U64::new(0),
            quantity: line.quantity,
            amount: I64::new(amount),
            district_info: [0; 24],
        };
        put(rows, Table::OrderLine.of(warehouse, district, number, place), &line);
    }
    let row = Order {
        customer: U32::new(number_of_customer),
        entry_date: U64::new(date),
        carrier: 0,
        line_count: lines.len() as u8,
        all_local: lines.iter().all(|line| line.supply == warehouse).into(),
    };
    put(rows, Table::Order.of(warehouse, district, number, 0), &row);
    put(rows, Table::NewOrder.of(warehouse, district, number, 0), &NewOrder);
    put(rows, Table::LastOrder.customer(customer), &U32::new(number));
    let taxes = i64::from(tax) + i64::from(row_tax(&get::<District>(rows, at)?));
    black_box(sum * (10_000 - i64::from(account.discount.get())) * (10_000 + taxes) / 100_000_000);
    Ok(())
}

fn row_tax(district: &District) -> u16 {
    district.tax.get()
}

/// Takes a line's quantity from a stock, which is refilled by 91 before it falls below ten.
fn take(stock: &mut Supply, line: &Line, warehouse: WarehouseKey) {
    let left = stock.quantity.get() - i16::from(line.quantity);
    stock.quantity = I16::new(if left < 10 { left + 91 } else { left });
    stock.ytd += U32::new(line.quantity.into());
    stock.order_count += U32::new(1);
    stock.remote_count += U32::new((line.supply != warehouse).into());
}

/// PAYMENT (2.5).
fn pay(
    rows: &mut Rows<'_>,
    paid_at: DistrictKey,
    customer: CustomerKey,
    amount: i64,
    (count, date): (u32, u64),
) -> Result<(), Aborted> {
    let at_warehouse = Table::Warehouse.of(paid_at.0, 0, 0, 0);
    let mut warehouse: Warehouse = get(rows, at_warehouse)?;
    warehouse.ytd += I64::new(amount);
    put(rows, at_warehouse, &warehouse);
    let at_district = Table::District.of(paid_at.0, paid_at.1, 0, 0);
    let mut district: District = get(rows, at_district)?;
    district.ytd += I64::new(amount);
    put(rows, at_district, &district);
    let at = Table::Customer.customer(customer);
    let mut row: Customer = get(rows, at)?;
    row.account.balance -= I64::new(amount);
    row.account.ytd_payment += I64::new(amount);
    row.account.payment_count += U32::new(1);
    if row.account.credit == *b"BC" {
        let (of, cents) = ((customer.2, customer.1, customer.0, paid_at.1, paid_at.0), amount % 100);
        let note = format!("{} {} {} {} {} {}.{cents:02} | ", of.0, of.1, of.2, of.3, of.4, amount / 100);
        row.data = Text::joined(note.as_bytes(), row.data.as_bytes());
    }
    put(rows, at, &row);
    let names = [warehouse.name.as_bytes(), b"    ", district.name.as_bytes()].concat();
    let history = History {
        customer: U32::new(customer.2),
        customer_district: customer.1,
        customer_warehouse: U16::new(customer.0),
        district: paid_at.1,
        warehouse: U16::new(paid_at.0),
        date: U64::new(date),
        amount: I64::new(amount),
        data: Text::new(&names),
    };
    put(rows, Table::History.of(paid_at.0, WRITER, count, 0), &history);
    Ok(())
}

/// Returns the lines of an order.
fn lines(rows: &Rows<'_>, warehouse: u16, district: u8, number: u32) -> Result<Vec<(Key, OrderLine)>, Aborted> {
    let order: Order = get(rows, Table::Order.of(warehouse, district, number, 0))?;
    let keys = (1..=order.line_count).map(|line| Table::OrderLine.of(warehouse, district, number, line));
    keys.map(|key| Ok((key, get(rows, key)?))).collect()
}

/// ORDER-STATUS (2.6).
fn status(rows: &Rows<'_>, customer: CustomerKey) -> Result<(), Aborted> {
    let balance = get::<Customer>(rows, Table::Customer.customer(customer))?.account.balance;
    let number = get_number(rows, Table::LastOrder.customer(customer))?;
    let lines = lines(rows, customer.0, customer.1, number)?;
    black_box((balance, lines.iter().map(|(_, line)| line.amount.get()).sum::<i64>()));
    Ok(())
}

/// DELIVERY (2.7), of one district.
fn deliver(
    rows: &mut Rows<'_>,
    warehouse: WarehouseKey,
    carrier: u8,
    &Expected { district, number, customer }: &Expected,
    date: u64,
) -> Result<(), Aborted> {
    let oldest = Table::Oldest.of(warehouse, district, 0, 0);
    let key = Table::Order.of(warehouse, district, number, 0);
    let mut order: Order = get(rows, key)?;
    if get_number(rows, oldest)? != number || order.customer.get() != customer {
        return Err(NOT_THE_OLDEST);
    }
    rows.remove(Table::NewOrder.of(warehouse, district, number, 0));
    order.carrier = carrier;
    put(rows, key, &order);
    let mut amount = 0;
    for (key, mut line) in lines(rows, warehouse, district, number)? {
        line.delivery_date = U64::new(date.max(1));
        amount += line.amount.get();
        put(rows, key, &line);
    }
    let key = Table::Customer.of(warehouse, district, customer, 0);
    let mut row: Customer = get(rows, key)?;
    row.account.balance += I64::new(amount);
    row.account.delivery_count += U32::new(1);
    put(rows, key, &row);
    put(rows, oldest, &U32::new(number + 1));
    Ok(())
}

/// STOCK-LEVEL (2.8).
fn low_stock(rows: &Rows<'_>, (warehouse, district): DistrictKey, threshold: i16) -> Result<(), Aborted> {
    let next = get::<District>(rows, Table::District.of(warehouse, district, 0, 0))?.next_order.get();
    let mut items = BTreeSet::new();
    for number in next.saturating_sub(RECENT).max(1)..next {
        items.extend(lines(rows, warehouse, district, number)?.iter().map(|(_, line)| line.item.get()));
    }
    let mut low = 0;
    for item in items {
        let stock: Supply = get(rows, Table::Stock.of(warehouse, 0, item, 0))?;
        low += u32::from(stock.quantity.get() < threshold);
    }
    black_box(low);
    Ok(())
}
