//! NEW-ORDER, PAYMENT and DELIVERY, piece by piece. Each does the work of its whole form.

use std::{iter, ops::ControlFlow};

use drtm_drive::Text;
use drtm_txn::{
    Config, Key,
    chopped::{Abort, Code, Procedure},
};
use serde::{Deserialize, Serialize};
use zerocopy::little_endian::{I64, U32, U64};

use super::{
    LOADED, Sums,
    notes::Notes,
    readers::number_of,
    seen::{Of, Seen},
};
use crate::{
    Account, CustomerChoice, CustomerKey, DISTRICTS, Delivery, DistrictKey, HistoryKey, NewOrder, NewOrderInput,
    NewOrderLine, Order, OrderByCustomer, OrderKey, Payment,
    inputs::MOST_LINES,
    tables::Tables,
    transactions::{
        ACCOUNT, OF_CUSTOMER, Receipt, SUPPLY, history_row, info_of, is_original, line_row, paid_by, remember, take,
        total,
    },
};

/// A line of an order.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Line {
    item: u32,
    warehouse: u16,
    quantity: u8,
    is_original: bool,
    /// In cents.
    amount: i64,
    district_info: [u8; 24],
}

impl Line {
    fn input(&self) -> NewOrderLine {
        NewOrderLine { item: self.item, supply_warehouse: self.warehouse, quantity: self.quantity }
    }
}

/// A NEW-ORDER under way.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Ordering<N> {
    customer: CustomerKey,
    lines: [Line; MOST_LINES],
    count: u8,
    date: u64,
    number: u32,
    tax: u16,
    discount: u16,
    last: [u8; 16],
    credit: [u8; 2],
    brands: u8,
    pub(super) seen: N,
}

impl<N: Notes> Ordering<N> {
    pub(super) fn new(input: &NewOrderInput, date: u64) -> Self {
        let mut order = Self { customer: input.customer, count: input.lines().len() as u8, date, ..Self::default() };
        for (line, input) in order.lines.iter_mut().zip(input.lines()) {
            let NewOrderLine { item, supply_warehouse, quantity } = *input;
            *line = Line { item, warehouse: supply_warehouse, quantity, ..Line::default() };
        }
        order
    }

    fn lines(&self) -> &[Line] {
        &self.lines[..self.count.into()]
    }

    fn key(&self) -> OrderKey {
        (self.customer.0, self.customer.1, self.number)
    }

    /// Returns the terminal's output.
    pub(super) fn receipt(&self) -> Receipt {
        let sum = self.lines().iter().map(|line| line.amount).sum();
        Receipt {
            number: self.number,
            total: total(sum, self.discount, self.tax),
            last: text(&self.last),
            credit: self.credit,
            brands: self.brands,
        }
    }
}

/// Returns a text that was padded with zeros.
fn text<const N: usize>(padded: &[u8; N]) -> Text<N> {
    Text::new(padded.split(|byte| *byte == 0).next().unwrap_or_default())
}

pub(super) fn order<S: Config, N: Notes>(
    procedure: Procedure<S, Ordering<N>>,
    tables: Tables,
) -> Procedure<S, Ordering<N>, impl Code<S, Ordering<N>> + use<S, N>> {
    procedure
        .piece("warehouse", move |tx, order| {
            order.tax += tx.view(tables.warehouses, order.customer.0, |row| row.tax.get())?.expect(LOADED);
            Ok(())
        })
        .piece("district", move |tx, order| {
            let info = info_of(order.customer.1).1;
            let stocks = order.lines().iter().map(|line| (line.warehouse, line.item));
            tx.prefetch(tables.stocks.columns(info), stocks)?;
            let key = (order.customer.0, order.customer.1);
            let taken = tx.update(tables.districts, key, |row| {
                let number = row.next_order.get();
                row.next_order.set(number + 1);
                (number, row.tax.get())
            })?;
            let (number, tax) = taken.expect(LOADED);
            order.number = number;
            order.tax += tax;
            order.seen.note(|| Seen::Read(Of::NextOrder, key.word(), number.into()));
            order.seen.note(|| Seen::Write(Of::NextOrder, key.word(), u64::from(number) + 1));
            Ok(())
        })
        .piece("customer", move |tx, order| {
            let account = tx.get(tables.customers.column(ACCOUNT), order.customer)?.expect(LOADED);
            let Account { discount, last, credit, .. } = account;
            (order.discount, order.last, order.credit) = (discount.get(), *last.padded(), credit);
            Ok(())
        })
        .piece("order", move |tx, order| {
            let is_local = order.lines().iter().all(|line| line.warehouse == order.customer.0);
            let row = Order {
                customer: U32::new(order.customer.2),
                entry_date: U64::new(order.date),
                carrier: 0,
                line_count: order.count,
                all_local: is_local.into(),
            };
            let (key, by_customer) = (order.key(), OrderByCustomer::new(order.customer, order.number));
            let by_customer = by_customer.expect("few orders");
            tx.insert(tables.orders, key, &row)?;
            tx.insert(tables.orders_by_customer, by_customer, &())?;
            order.seen.note(|| Seen::Write(Of::Order, key.word(), 1));
            order.seen.note(|| Seen::Write(Of::ByCustomer, by_customer.word(), 1));
            Ok(())
        })
        .piece("queue", move |tx, order| {
            let key = order.key();
            order.seen.note(|| Seen::Write(Of::Queue, key.word(), 1));
            tx.insert(tables.new_orders, key, &NewOrder)
        })
        .may_abort("item", move |tx, order| {
            tx.prefetch(tables.items, order.lines().iter().map(|line| line.item))?;
            let count = usize::from(order.count);
            for line in &mut order.lines[..count] {
                let item = tx.view(tables.items, line.item, |row| (row.price.get(), is_original(&row.data)))?;
                let (price, is_original) = item.ok_or_else(|| Abort::because("there is no such item"))?;
                (line.amount, line.is_original) = (price * i64::from(line.quantity), is_original);
            }
            Ok(())
        })
        .piece("stock", move |tx, order| {
            let (warehouse, district, _) = order.customer;
            let (info, _) = info_of(district);
            let Ordering { lines, count, brands, seen, .. } = order;
            for line in &mut lines[..usize::from(*count)] {
                let key = (line.warehouse, line.item);
                line.district_info = tx.get(tables.stocks.column(info), key)?.expect(LOADED);
                let taken = tx.update(tables.stocks.column(SUPPLY), key, |supply| {
                    take(supply, line.quantity, line.warehouse != warehouse);
                    (supply.order_count.get(), is_original(&supply.data))
                })?;
                let (sold, is_original) = taken.expect(LOADED);
                *brands += u8::from(line.is_original && is_original);
                seen.note(|| Seen::Read(Of::Stock, key.word(), sold.into()));
                seen.note(|| Seen::Write(Of::Stock, key.word(), u64::from(sold) + 1));
            }
            Ok(())
        })
        .piece("order-line", move |tx, order| {
            let (warehouse, district, number) = order.key();
            let rows = order.lines.map(|line| line_row(&line.input(), line.amount, line.district_info));
            let keys = (1..=order.count).map(|place| (warehouse, district, number, place));
            tx.insert_many(tables.order_lines, keys.clone().zip(&rows))?;
            keys.for_each(|key| order.seen.note(|| Seen::Write(Of::Line, key.word(), 1)));
            Ok(())
        })
}

/// How a customer is given: by its number, or by its name.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Chosen {
    Number(u32),
    Name([u8; 16]),
}

/// A PAYMENT under way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Paying<N> {
    district: DistrictKey,
    of: DistrictKey,
    chosen: Chosen,
    amount: i64,
    key: HistoryKey,
    date: u64,
    warehouse_name: [u8; 10],
    district_name: [u8; 10],
    pub(super) balance: i64,
    pub(super) seen: N,
}

impl<N: Notes> Paying<N> {
    pub(super) fn new(input: &Payment, key: HistoryKey, date: u64) -> Self {
        let chosen = match input.customer {
            CustomerChoice::Number(number) => Chosen::Number(number),
            CustomerChoice::LastName(last) => Chosen::Name(*last.padded()),
        };
        Self {
            district: input.district,
            of: input.customer_district,
            chosen,
            amount: input.amount,
            key,
            date,
            warehouse_name: [0; 10],
            district_name: [0; 10],
            balance: 0,
            seen: N::default(),
        }
    }

    /// Returns the customer, which must have been found.
    fn customer(&self) -> CustomerKey {
        match self.chosen {
            Chosen::Number(number) => (self.of.0, self.of.1, number),
            Chosen::Name(_) => unreachable!("an earlier piece has found it"),
        }
    }

    fn input(&self) -> Payment {
        let customer = CustomerChoice::Number(self.customer().2);
        Payment { district: self.district, customer_district: self.of, customer, amount: self.amount }
    }
}

pub(super) fn pay<S: Config, N: Notes>(
    procedure: Procedure<S, Paying<N>>,
    tables: Tables,
    sums: Sums,
) -> Procedure<S, Paying<N>, impl Code<S, Paying<N>> + use<S, N>> {
    procedure
        .piece("warehouse", move |tx, payment| {
            let name = tx.view(tables.warehouses, payment.district.0, |row| *row.name.padded())?;
            payment.warehouse_name = name.expect(LOADED);
            tx.add(sums.warehouse, payment.district.0, I64::new(payment.amount))
        })
        .piece("district", move |tx, payment| {
            let name = tx.view(tables.districts, payment.district, |row| *row.name.padded())?;
            payment.district_name = name.expect(LOADED);
            tx.add(sums.district, payment.district, I64::new(payment.amount))
        })
        .piece("customer-idx", move |tx, payment| {
            if let Chosen::Name(last) = &payment.chosen {
                payment.chosen = Chosen::Number(number_of(tx, tables, payment.of, &text(last))?);
            }
            Ok(())
        })
        .piece("customer", move |tx, payment| {
            let (key, input) = (payment.customer(), payment.input());
            let paid = tx.update(tables.customers.column(ACCOUNT), key, |account| {
                let before = Seen::of_account(key, account);
                let (balance, is_bad) = paid_by(account, payment.amount);
                (before, account.payment_count.get(), balance, is_bad)
            })?;
            let (before, count, balance, is_bad) = paid.expect(LOADED);
            payment.balance = balance;
            before.into_iter().for_each(|seen| payment.seen.note(|| seen));
            payment.seen.note(|| Seen::Write(Of::Payments, key.word(), count.into()));
            if is_bad {
                tx.update(tables.customers, key, |row| remember(row, key, &input))?;
            }
            Ok(())
        })
        .piece("history", move |tx, payment| {
            let names = (&text(&payment.warehouse_name), &text(&payment.district_name));
            let row = history_row(&payment.input(), payment.customer(), payment.date, names);
            tx.insert(tables.histories, payment.key, &row)
        })
}

/// An order in delivery.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Carried {
    order: OrderKey,
    customer: CustomerKey,
    lines: u8,
    /// In cents.
    amount: i64,
}

/// A DELIVERY under way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Delivering<N> {
    warehouse: u16,
    carrier: u8,
    date: u64,
    carried: [Option<Carried>; DISTRICTS as usize],
    pub(super) seen: N,
}

impl<N: Notes> Delivering<N> {
    pub(super) fn new(input: &Delivery, date: u64) -> Self {
        let Delivery { warehouse, carrier } = *input;
        Self { warehouse, carrier, date, carried: [None; DISTRICTS as usize], seen: N::default() }
    }

    /// Returns how many orders are delivered.
    pub(super) fn count(&self) -> usize {
        self.carried.iter().flatten().count()
    }
}

pub(super) fn deliver<S: Config, N: Notes>(
    procedure: Procedure<S, Delivering<N>>,
    tables: Tables,
    sums: Sums,
) -> Procedure<S, Delivering<N>, impl Code<S, Delivering<N>> + use<S, N>> {
    procedure
        .piece("queue", move |tx, delivery| {
            let warehouse = delivery.warehouse;
            tx.prefetch(tables.new_orders, (1..=DISTRICTS).map(|district| (warehouse, district, 0)))?;
            for (carried, district) in delivery.carried.iter_mut().zip(1..) {
                let all = (warehouse, district, 0)..=(warehouse, district, u32::MAX);
                let (from, to) = (all.start().word(), all.end().word());
                let Some((order, _)) = tx.pop_first(tables.new_orders, all)? else {
                    delivery.seen.note(|| Seen::Scan(Of::Queue, from, to, Vec::new()));
                    continue;
                };
                let word = order.word();
                delivery.seen.note(|| Seen::Scan(Of::Queue, from, word, vec![(word, 1)]));
                delivery.seen.note(|| Seen::Remove(Of::Queue, word, 2));
                *carried = Some(Carried { order, customer: (order.0, order.1, 0), lines: 0, amount: 0 });
            }
            Ok(())
        })
        .piece("order", move |tx, delivery| {
            tx.prefetch(tables.orders, delivery.carried.iter().flatten().map(|carried| carried.order))?;
            for carried in delivery.carried.iter_mut().flatten() {
                let found = tx.update(tables.orders, carried.order, |row| {
                    let was = row.carrier;
                    row.carrier = delivery.carrier;
                    (was, row.customer.get(), row.line_count)
                })?;
                let (was, customer, lines) = found.expect("it was in the queue");
                (carried.customer.2, carried.lines) = (customer, lines);
                let key = carried.order.word();
                delivery.seen.note(|| Seen::Read(Of::Order, key, if was == 0 { 1 } else { 2 }));
                delivery.seen.note(|| Seen::Write(Of::Order, key, 2));
            }
            Ok(())
        })
        .piece("order-line", move |tx, delivery| {
            let first = |carried: &Carried| (carried.order.0, carried.order.1, carried.order.2, 1);
            tx.prefetch(tables.order_lines, delivery.carried.iter().flatten().map(first))?;
            let Delivering { carried, seen, date, .. } = delivery;
            for Carried { order: (warehouse, district, number), lines, amount, .. } in carried.iter_mut().flatten() {
                let all = (*warehouse, *district, *number, 1)..=(*warehouse, *district, *number, *lines);
                let mut delivered = 0;
                tx.update_each(tables.order_lines, all, |key, row| {
                    let was = row.delivery_date.get();
                    row.delivery_date = U64::new(*date);
                    *amount += row.amount.get();
                    seen.note(|| Seen::Read(Of::Line, key.word(), if was == 0 { 1 } else { 2 }));
                    seen.note(|| Seen::Write(Of::Line, key.word(), 2));
                    delivered += 1;
                    if delivered < *lines { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                })?;
                assert_eq!(delivered, *lines, "the order has them");
            }
            Ok(())
        })
        .piece("customer", move |tx, delivery| {
            let Delivering { carried, seen, .. } = delivery;
            for Carried { order, customer, amount, .. } in carried.iter().flatten() {
                tx.prefetch(tables.customers.columns(&OF_CUSTOMER), iter::once(*customer))?;
                tx.add(sums.balance, *customer, I64::new(*amount))?;
                tx.add(sums.deliveries, *customer, U32::new(1))?;
                seen.note(|| Seen::Delivered(customer.word(), order.word(), *amount));
            }
            Ok(())
        })
}
