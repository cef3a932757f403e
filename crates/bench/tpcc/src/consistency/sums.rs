//! The terms of the conditions, summed in one pass over the rows.
//!
//! Sums have 128 bits, so that no damaged amount can overflow them.

use std::collections::BTreeMap;

use super::{CustomerKey, DistrictKey, OrderKey, Scale, View, WarehouseKey};
use crate::DISTRICTS;

#[derive(Debug, Default)]
pub(super) struct WarehouseSums {
    pub(super) ytd: i128,
    /// The sum of D_YTD.
    pub(super) districts: i128,
    pub(super) history: i128,
}

#[derive(Debug, Default)]
pub(super) struct DistrictSums {
    pub(super) ytd: i128,
    pub(super) next_order: i128,
    pub(super) history: i128,
    pub(super) orders: i128,
    pub(super) last_order: u32,
    pub(super) new_orders: i128,
    /// The least and the greatest number.
    pub(super) new_order_range: Option<(u32, u32)>,
    /// The sum of O_OL_CNT.
    pub(super) line_counts: i128,
    pub(super) lines: i128,
    /// The sum of its customers' C_DELIVERY_CNT.
    pub(super) deliveries: i128,
}

#[derive(Debug, Default)]
pub(super) struct CustomerSums {
    pub(super) balance: i128,
    pub(super) ytd_payment: i128,
    pub(super) history: i128,
    /// The sum of OL_AMOUNT of delivered lines.
    pub(super) delivered: i128,
}

/// Whether an order has a carrier, or a line a date of delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    Pending,
    Done,
}

impl Delivery {
    fn done(is_done: bool) -> Self {
        if is_done { Self::Done } else { Self::Pending }
    }
}

#[derive(Debug, Default)]
pub(super) struct OrderSums {
    customer: Option<CustomerKey>,
    /// `None` if the order does not exist, but rows of it do.
    pub(super) delivery: Option<Delivery>,
    pub(super) is_new: bool,
    pub(super) line_count: i128,
    pub(super) lines: i128,
    /// The state of each line.
    pub(super) deliveries: Vec<(u8, Delivery)>,
}

#[derive(Debug, Default)]
pub(super) struct Sums {
    pub(super) warehouses: BTreeMap<WarehouseKey, WarehouseSums>,
    pub(super) districts: BTreeMap<DistrictKey, DistrictSums>,
    pub(super) customers: BTreeMap<CustomerKey, CustomerSums>,
    pub(super) orders: BTreeMap<OrderKey, OrderSums>,
}

impl Sums {
    pub(super) fn of<V: View>(view: &V, scale: &Scale) -> Result<Self, V::Error> {
        let mut sums = Self::default();
        for warehouse in 1..=scale.warehouses() {
            sums.warehouses.insert(warehouse, WarehouseSums::default());
            sums.districts.extend((1..=DISTRICTS).map(|district| ((warehouse, district), DistrictSums::default())));
        }
        sums.add_places(view)?;
        sums.add_customers(view)?;
        sums.add_orders(view)?;
        sums.add_lines(view)?;
        Ok(sums)
    }

    fn add_places<V: View>(&mut self, view: &V) -> Result<(), V::Error> {
        for row in view.warehouses() {
            let (key, row) = row?;
            self.warehouses.entry(key).or_default().ytd = row.ytd.get().into();
        }
        for row in view.districts() {
            let (key, row) = row?;
            self.warehouses.entry(key.0).or_default().districts += i128::from(row.ytd.get());
            let district = self.districts.entry(key).or_default();
            (district.ytd, district.next_order) = (row.ytd.get().into(), row.next_order.get().into());
        }
        Ok(())
    }

    fn add_customers<V: View>(&mut self, view: &V) -> Result<(), V::Error> {
        for row in view.customers() {
            let (key, row) = row?;
            let deliveries = i128::from(row.account.delivery_count.get());
            self.districts.entry((key.0, key.1)).or_default().deliveries += deliveries;
            let customer = self.customers.entry(key).or_default();
            let account = &row.account;
            (customer.balance, customer.ytd_payment) = (account.balance.get().into(), account.ytd_payment.get().into());
        }
        for row in view.histories() {
            let (_, row) = row?;
            let amount = i128::from(row.amount.get());
            let payer = (row.customer_warehouse.get(), row.customer_district, row.customer.get());
            self.warehouses.entry(row.warehouse.get()).or_default().history += amount;
            self.districts.entry((row.warehouse.get(), row.district)).or_default().history += amount;
            self.customers.entry(payer).or_default().history += amount;
        }
        Ok(())
    }

    fn add_orders<V: View>(&mut self, view: &V) -> Result<(), V::Error> {
        for row in view.orders() {
            let (key, row) = row?;
            let (warehouse, district, number) = key;
            let sums = self.districts.entry((warehouse, district)).or_default();
            sums.orders += 1;
            sums.last_order = sums.last_order.max(number);
            sums.line_counts += i128::from(row.line_count);
            let order = self.orders.entry(key).or_default();
            order.customer = Some((warehouse, district, row.customer.get()));
            order.delivery = Some(Delivery::done(row.carrier != 0));
            order.line_count = row.line_count.into();
        }
        for key in view.new_orders() {
            let key = key?;
            let (warehouse, district, number) = key;
            let sums = self.districts.entry((warehouse, district)).or_default();
            sums.new_orders += 1;
            let (first, last) = sums.new_order_range.unwrap_or((number, number));
            sums.new_order_range = Some((first.min(number), last.max(number)));
            self.orders.entry(key).or_default().is_new = true;
        }
        Ok(())
    }

    fn add_lines<V: View>(&mut self, view: &V) -> Result<(), V::Error> {
        for row in view.order_lines() {
            let ((warehouse, district, number, line), row) = row?;
            self.districts.entry((warehouse, district)).or_default().lines += 1;
            let order = self.orders.entry((warehouse, district, number)).or_default();
            order.lines += 1;
            let delivery = Delivery::done(row.delivery_date.get() != 0);
            order.deliveries.push((line, delivery));
            if let (Some(customer), Delivery::Done) = (order.customer, delivery) {
                self.customers.entry(customer).or_default().delivered += i128::from(row.amount.get());
            }
        }
        Ok(())
    }
}
