//! The twelve conditions that hold whenever no transaction is in progress (3.3.2).
//!
//! All rows are read once, and summed by the conditions' terms. A missing row counts as zeros. This
//! detects rows without a parent row, and missing warehouses and districts.

mod sums;

use std::fmt;

use super::{
    Customer, CustomerKey, District, DistrictKey, History, HistoryKey, Order, OrderKey, OrderLine, OrderLineKey, Scale,
    Warehouse, WarehouseKey,
};
use sums::{Delivery, Sums};

/// The rows, in any order, all as of one time.
///
/// # Example
///
/// See [`check`].
#[allow(missing_docs, reason = "one for each table that the conditions speak of")]
pub trait View {
    /// The error of reading a row.
    type Error;

    fn warehouses(&self) -> impl Iterator<Item = Result<(WarehouseKey, Warehouse), Self::Error>>;
    fn districts(&self) -> impl Iterator<Item = Result<(DistrictKey, District), Self::Error>>;
    fn customers(&self) -> impl Iterator<Item = Result<(CustomerKey, Customer), Self::Error>>;
    fn histories(&self) -> impl Iterator<Item = Result<(HistoryKey, History), Self::Error>>;
    fn new_orders(&self) -> impl Iterator<Item = Result<OrderKey, Self::Error>>;
    fn orders(&self) -> impl Iterator<Item = Result<(OrderKey, Order), Self::Error>>;
    fn order_lines(&self) -> impl Iterator<Item = Result<(OrderLineKey, OrderLine), Self::Error>>;
}

/// One of the twelve conditions, numbered by its clause's last number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Condition {
    /// W_YTD is the sum of D_YTD.
    WarehouseIsSumOfDistricts = 1,
    /// D_NEXT_O_ID - 1 is the greatest O_ID, and the greatest NO_O_ID if there is one.
    NextOrderFollowsLast = 2,
    /// NO_O_ID has no gaps.
    NewOrdersHaveNoGaps = 3,
    /// A district has as many order lines as the sum of O_OL_CNT.
    DistrictHasItsLines = 4,
    /// An order has no carrier if and only if it is in NEW-ORDER.
    NewOrderHasNoCarrier = 5,
    /// An order has O_OL_CNT lines.
    OrderHasItsLines = 6,
    /// A line has no delivery date if and only if its order has no carrier.
    LineIsDeliveredWithOrder = 7,
    /// W_YTD is the sum of H_AMOUNT.
    WarehouseIsSumOfHistory = 8,
    /// D_YTD is the sum of H_AMOUNT.
    DistrictIsSumOfHistory = 9,
    /// C_BALANCE is the sum of OL_AMOUNT of delivered lines, less the sum of H_AMOUNT.
    BalanceIsDeliveriesLessHistory = 10,
    /// A district has 2100 orders that are not in NEW-ORDER: the initially delivered ones. Since
    /// then each delivery, counted in C_DELIVERY_CNT, has added one. The clause itself is about the
    /// initial state.
    DeliveredOrdersAreCounted = 11,
    /// C_BALANCE + C_YTD_PAYMENT is the sum of OL_AMOUNT of delivered lines.
    PaidAndOwedIsDelivered = 12,
}

impl Condition {
    /// Returns its number in clause 3.3.2.
    pub fn number(self) -> u8 {
        self as u8
    }
}

/// Where a condition does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the rows that keys are of")]
pub enum Place {
    Warehouse(WarehouseKey),
    District(DistrictKey),
    Customer(CustomerKey),
    Order(OrderKey),
    OrderLine(OrderLineKey),
}

impl Place {
    /// Returns its warehouse.
    pub fn warehouse(self) -> WarehouseKey {
        match self {
            Self::Warehouse(warehouse) => warehouse,
            Self::District((warehouse, _)) => warehouse,
            Self::Customer((warehouse, ..)) | Self::Order((warehouse, ..)) => warehouse,
            Self::OrderLine((warehouse, ..)) => warehouse,
        }
    }
}

/// A violation of a condition at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The condition.
    pub condition: Condition,
    /// The place.
    pub place: Place,
    /// The condition's left side: cents, a count, a number; 1 or 0 for a thing that exists or not.
    pub left: i128,
    /// Its right side, which should be equal.
    pub right: i128,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { condition, place, left, right } = self;
        write!(f, "condition {} ({condition:?}) does not hold at {place:?}: {left} is not {right}", condition.number())
    }
}

/// Checks all conditions, and returns the violations in the order of their numbers.
///
/// # Example
///
/// ```
/// use std::num::NonZeroU64;
///
/// use drtm_tpcc::{Condition, Loader, Place, Population, Scale, check};
///
/// let scale = Scale::new(1)?.with_customers(10)?.with_items(100)?;
/// let mut rows = Population::of(&Loader::new(scale, 42, NonZeroU64::MIN));
/// assert_eq!(check(&rows, &scale)?, []);
///
/// rows.order_lines.remove(&(1, 2, 3, 1));
/// let violations = check(&rows, &scale)?;
/// assert_eq!(violations[0].condition, Condition::DistrictHasItsLines);
/// assert_eq!(violations[1].place, Place::Order((1, 2, 3)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// Returns an error if a row cannot be read.
pub fn check<V: View>(view: &V, scale: &Scale) -> Result<Vec<Violation>, V::Error> {
    let sums = Sums::of(view, scale)?;
    let mut violations = Vec::new();
    let mut equal = |condition, place, left: i128, right: i128| {
        if left != right {
            violations.push(Violation { condition, place, left, right });
        }
    };
    for (key, warehouse) in &sums.warehouses {
        let place = Place::Warehouse(*key);
        equal(Condition::WarehouseIsSumOfDistricts, place, warehouse.ytd, warehouse.districts);
        equal(Condition::WarehouseIsSumOfHistory, place, warehouse.ytd, warehouse.history);
    }
    for (key, district) in &sums.districts {
        let place = Place::District(*key);
        equal(Condition::NextOrderFollowsLast, place, district.next_order - 1, district.last_order.into());
        if let Some((first, last)) = district.new_order_range {
            equal(Condition::NextOrderFollowsLast, place, district.next_order - 1, last.into());
            let range = i128::from(last) - i128::from(first) + 1;
            equal(Condition::NewOrdersHaveNoGaps, place, range, district.new_orders);
        }
        equal(Condition::DistrictHasItsLines, place, district.line_counts, district.lines);
        equal(Condition::DistrictIsSumOfHistory, place, district.ytd, district.history);
        let delivered = i128::from(scale.customers() - scale.undelivered()) + district.deliveries;
        equal(Condition::DeliveredOrdersAreCounted, place, district.orders - district.new_orders, delivered);
    }
    for (key, order) in &sums.orders {
        let place = Place::Order(*key);
        // The fifth condition ignores rows of NEW-ORDER without an order. The second and third
        // cover them.
        if let Some(delivery) = order.delivery {
            let no_carrier = delivery == Delivery::Pending;
            equal(Condition::NewOrderHasNoCarrier, place, no_carrier.into(), order.is_new.into());
        }
        equal(Condition::OrderHasItsLines, place, order.line_count, order.lines);
        for (line, delivery) in &order.deliveries {
            let (warehouse, district, number) = *key;
            let place = Place::OrderLine((warehouse, district, number, *line));
            let pending = |delivery| i128::from(delivery == Some(Delivery::Pending));
            // Without an order, either state is wrong.
            let right = if order.delivery.is_some() { pending(order.delivery) } else { -1 };
            equal(Condition::LineIsDeliveredWithOrder, place, pending(Some(*delivery)), right);
        }
    }
    for (key, customer) in &sums.customers {
        let place = Place::Customer(*key);
        let left = customer.delivered - customer.history;
        equal(Condition::BalanceIsDeliveriesLessHistory, place, customer.balance, left);
        let owed = customer.balance + customer.ytd_payment;
        equal(Condition::PaidAndOwedIsDelivered, place, owed, customer.delivered);
    }
    violations.sort_by_key(|violation| (violation.condition, violation.place));
    Ok(violations)
}

#[cfg(test)]
mod tests;
