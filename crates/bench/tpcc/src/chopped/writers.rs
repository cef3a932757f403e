//! NEW-ORDER, PAYMENT and DELIVERY, piece by piece.

use drtm_drive::Text;
use drtm_txn::{
    Config, Key,
    chopped::{Abort, Code, Procedure},
};
use serde::{Deserialize, Serialize};
use zerocopy::little_endian::{I64, U16, U32, U64};

use super::{
    Sums,
    readers::number_of,
    seen::{Of, Seen},
};
use crate::{
    CustomerChoice, CustomerKey, DISTRICTS, Delivery, DistrictKey, HistoryKey, NewOrder, NewOrderInput, Order,
    OrderByCustomer, OrderKey, OrderLine, Payment,
    tables::Tables,
    transactions::{ACCOUNT, history_row, paid_by, remember, take},
};

const LOADED: &str = "the population has it";

/// A line of an order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Line {
    item: u32,
    warehouse: u16,
    quantity: u8,
    /// In cents.
    price: i64,
    district_info: [u8; 24],
}

/// A NEW-ORDER under way.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Ordering {
    customer: CustomerKey,
    lines: Vec<Line>,
    date: u64,
    number: u32,
    tax: u16,
    discount: u16,
    pub(super) seen: Vec<Seen>,
}

impl Ordering {
    pub(super) fn new(input: &NewOrderInput, date: u64) -> Self {
        let line = |line: &crate::NewOrderLine| Line {
            item: line.item,
            warehouse: line.supply_warehouse,
            quantity: line.quantity,
            ..Line::default()
        };
        Self { customer: input.customer, lines: input.lines().iter().map(line).collect(), date, ..Self::default() }
    }

    fn key(&self) -> OrderKey {
        (self.customer.0, self.customer.1, self.number)
    }
}

pub(super) fn order<S: Config>(
    procedure: Procedure<S, Ordering>,
    tables: Tables,
) -> Procedure<S, Ordering, impl Code<S, Ordering> + use<S>> {
    procedure
        .piece("warehouse", move |tx, order| {
            order.tax += tx.get(tables.warehouses, order.customer.0)?.expect(LOADED).tax.get();
            Ok(())
        })
        .piece("district", move |tx, order| {
            let key = (order.customer.0, order.customer.1);
            let taken = tx.update(tables.districts, key, |row| {
                let number = row.next_order.get();
                row.next_order.set(number + 1);
                (number, row.tax.get())
            })?;
            let (number, tax) = taken.expect(LOADED);
            order.number = number;
            order.tax += tax;
            order.seen.push(Seen::Read(Of::NextOrder, key.word(), number.into()));
            order.seen.push(Seen::Write(Of::NextOrder, key.word(), u64::from(number) + 1));
            Ok(())
        })
        .piece("customer", move |tx, order| {
            order.discount = tx.get(tables.customers.column(ACCOUNT), order.customer)?.expect(LOADED).discount.get();
            Ok(())
        })
        .piece("order", move |tx, order| {
            let is_local = order.lines.iter().all(|line| line.warehouse == order.customer.0);
            let row = Order {
                customer: U32::new(order.customer.2),
                entry_date: U64::new(order.date),
                carrier: 0,
                line_count: order.lines.len() as u8,
                all_local: is_local.into(),
            };
            tx.insert(tables.orders, order.key(), &row)?;
            let by_customer = OrderByCustomer::new(order.customer, order.number).expect("few orders");
            tx.insert(tables.orders_by_customer, by_customer, &())?;
            order.seen.push(Seen::Write(Of::Order, order.key().word(), 1));
            order.seen.push(Seen::Write(Of::ByCustomer, by_customer.word(), 1));
            Ok(())
        })
        .piece("queue", move |tx, order| {
            order.seen.push(Seen::Write(Of::Queue, order.key().word(), 1));
            tx.insert(tables.new_orders, order.key(), &NewOrder)
        })
        .may_abort("item", move |tx, order| {
            for line in &mut order.lines {
                let item = tx.get(tables.items, line.item)?.ok_or_else(|| Abort::because("there is no such item"))?;
                line.price = item.price.get();
            }
            Ok(())
        })
        .piece("stock", move |tx, order| {
            let (warehouse, district, _) = order.customer;
            for line in &mut order.lines {
                let key = (line.warehouse, line.item);
                let taken = tx.update(tables.stocks, key, |row| {
                    take(&mut row.supply, line.quantity, line.warehouse != warehouse);
                    (row.supply.order_count.get(), row.districts[usize::from(district) - 1])
                })?;
                let (count, info) = taken.expect(LOADED);
                line.district_info = info;
                order.seen.push(Seen::Read(Of::Stock, key.word(), count.into()));
                order.seen.push(Seen::Write(Of::Stock, key.word(), u64::from(count) + 1));
            }
            Ok(())
        })
        .piece("order-line", move |tx, order| {
            let (warehouse, district, number) = order.key();
            for (line, place) in order.lines.iter().zip(1..) {
                let row = OrderLine {
                    item: U32::new(line.item),
                    supply_warehouse: U16::new(line.warehouse),
                    delivery_date: U64::new(0),
                    quantity: line.quantity,
                    amount: I64::new(line.price * i64::from(line.quantity)),
                    district_info: line.district_info,
                };
                let key = (warehouse, district, number, place);
                tx.insert(tables.order_lines, key, &row)?;
                order.seen.push(Seen::Write(Of::Line, key.word(), 1));
            }
            Ok(())
        })
}

/// How a customer is given: by its number, or by its name.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Chosen {
    Number(u32),
    Name(Vec<u8>),
}

/// A PAYMENT under way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Paying {
    district: DistrictKey,
    of: DistrictKey,
    chosen: Chosen,
    amount: i64,
    key: HistoryKey,
    date: u64,
    warehouse_name: Vec<u8>,
    district_name: Vec<u8>,
    pub(super) seen: Vec<Seen>,
}

impl Paying {
    pub(super) fn new(input: &Payment, key: HistoryKey, date: u64) -> Self {
        let chosen = match input.customer {
            CustomerChoice::Number(number) => Chosen::Number(number),
            CustomerChoice::LastName(last) => Chosen::Name(last.as_bytes().to_vec()),
        };
        Self {
            district: input.district,
            of: input.customer_district,
            chosen,
            amount: input.amount,
            key,
            date,
            warehouse_name: Vec::new(),
            district_name: Vec::new(),
            seen: Vec::new(),
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

pub(super) fn pay<S: Config>(
    procedure: Procedure<S, Paying>,
    tables: Tables,
    sums: Sums,
) -> Procedure<S, Paying, impl Code<S, Paying> + use<S>> {
    procedure
        .piece("warehouse", move |tx, payment| {
            payment.warehouse_name =
                tx.get(tables.warehouses, payment.district.0)?.expect(LOADED).name.as_bytes().to_vec();
            tx.add(sums.warehouse, payment.district.0, I64::new(payment.amount))
        })
        .piece("district", move |tx, payment| {
            payment.district_name = tx.get(tables.districts, payment.district)?.expect(LOADED).name.as_bytes().to_vec();
            tx.add(sums.district, payment.district, I64::new(payment.amount))
        })
        .piece("customer-idx", move |tx, payment| {
            if let Chosen::Name(last) = &payment.chosen {
                payment.chosen = Chosen::Number(number_of(tx, tables, payment.of, &Text::new(last))?);
            }
            Ok(())
        })
        .piece("customer", move |tx, payment| {
            let (key, input) = (payment.customer(), payment.input());
            let paid = tx.update(tables.customers.column(ACCOUNT), key, |account| {
                let before = Seen::of_account(key, account);
                let (_, is_bad) = paid_by(account, payment.amount);
                (before, account.payment_count.get(), is_bad)
            })?;
            let (before, count, is_bad) = paid.expect(LOADED);
            payment.seen.extend(before);
            payment.seen.push(Seen::Write(Of::Payments, key.word(), count.into()));
            if is_bad {
                tx.update(tables.customers, key, |row| remember(row, key, &input))?;
            }
            Ok(())
        })
        .piece("history", move |tx, payment| {
            let names = (&Text::new(&payment.warehouse_name), &Text::new(&payment.district_name));
            let row = history_row(&payment.input(), payment.customer(), payment.date, names);
            tx.insert(tables.histories, payment.key, &row)
        })
}

/// An order in delivery.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Carried {
    order: OrderKey,
    customer: CustomerKey,
    lines: u8,
    /// In cents.
    amount: i64,
}

/// A DELIVERY under way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Delivering {
    warehouse: u16,
    carrier: u8,
    date: u64,
    carried: Vec<Carried>,
    pub(super) seen: Vec<Seen>,
}

impl Delivering {
    pub(super) fn new(input: &Delivery, date: u64) -> Self {
        let Delivery { warehouse, carrier } = *input;
        Self { warehouse, carrier, date, carried: Vec::new(), seen: Vec::new() }
    }
}

pub(super) fn deliver<S: Config>(
    procedure: Procedure<S, Delivering>,
    tables: Tables,
    sums: Sums,
) -> Procedure<S, Delivering, impl Code<S, Delivering> + use<S>> {
    procedure
        .piece("queue", move |tx, delivery| {
            for district in 1..=DISTRICTS {
                let all = (delivery.warehouse, district, 0)..=(delivery.warehouse, district, u32::MAX);
                let (from, to) = (all.start().word(), all.end().word());
                let Some((order, _)) = tx.first(tables.new_orders, all)? else {
                    delivery.seen.push(Seen::Scan(Of::Queue, from, to, Vec::new()));
                    continue;
                };
                tx.remove(tables.new_orders, order)?;
                delivery.seen.push(Seen::Scan(Of::Queue, from, order.word(), vec![(order.word(), 1)]));
                delivery.seen.push(Seen::Remove(Of::Queue, order.word(), 2));
                delivery.carried.push(Carried { order, customer: (order.0, order.1, 0), lines: 0, amount: 0 });
            }
            Ok(())
        })
        .piece("order", move |tx, delivery| {
            for carried in &mut delivery.carried {
                let found = tx.update(tables.orders, carried.order, |row| {
                    let was = row.carrier;
                    row.carrier = delivery.carrier;
                    (was, row.customer.get(), row.line_count)
                })?;
                let (was, customer, lines) = found.expect("it was in the queue");
                (carried.customer.2, carried.lines) = (customer, lines);
                let key = carried.order.word();
                delivery.seen.push(Seen::Read(Of::Order, key, if was == 0 { 1 } else { 2 }));
                delivery.seen.push(Seen::Write(Of::Order, key, 2));
            }
            Ok(())
        })
        .piece("order-line", move |tx, delivery| {
            for carried in &mut delivery.carried {
                let (warehouse, district, number) = carried.order;
                for place in 1..=carried.lines {
                    let key = (warehouse, district, number, place);
                    let found = tx.update(tables.order_lines, key, |row| {
                        let was = row.delivery_date.get();
                        row.delivery_date = U64::new(delivery.date);
                        carried.amount += row.amount.get();
                        was
                    })?;
                    let was = found.expect("the order has it");
                    delivery.seen.push(Seen::Read(Of::Line, key.word(), if was == 0 { 1 } else { 2 }));
                    delivery.seen.push(Seen::Write(Of::Line, key.word(), 2));
                }
            }
            Ok(())
        })
        .piece("customer", move |tx, delivery| {
            for Carried { order, customer, amount, .. } in &delivery.carried {
                tx.add(sums.balance, *customer, I64::new(*amount))?;
                tx.add(sums.deliveries, *customer, U32::new(1))?;
                delivery.seen.push(Seen::Delivered(customer.word(), order.word(), *amount));
            }
            Ok(())
        })
}
