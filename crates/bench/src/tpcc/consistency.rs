//! The twelve conditions that hold whenever no transaction is under way (3.3.2).
//!
//! All rows are seen once, and added up by what the conditions speak of. A row that is missing
//! counts as zeros, so that rows without the one that they belong to are found as well, and so are
//! warehouses and districts of which there is nothing at all.

mod sums;

use std::fmt;

use super::{
    Customer, CustomerKey, District, DistrictKey, History, HistoryKey, Order, OrderKey, OrderLine, OrderLineKey, Scale,
    Warehouse, WarehouseKey,
};
use sums::{Delivery, Sums};

/// Rows that can be read, in any order, all as of one time.
///
/// # Example
///
/// See [`check`].
#[allow(missing_docs, reason = "one for each table that the conditions speak of")]
pub trait View {
    /// Why a row could not be read.
    type Error;

    fn warehouses(&self) -> impl Iterator<Item = Result<(WarehouseKey, Warehouse), Self::Error>>;
    fn districts(&self) -> impl Iterator<Item = Result<(DistrictKey, District), Self::Error>>;
    fn customers(&self) -> impl Iterator<Item = Result<(CustomerKey, Customer), Self::Error>>;
    fn histories(&self) -> impl Iterator<Item = Result<(HistoryKey, History), Self::Error>>;
    fn new_orders(&self) -> impl Iterator<Item = Result<OrderKey, Self::Error>>;
    fn orders(&self) -> impl Iterator<Item = Result<(OrderKey, Order), Self::Error>>;
    fn order_lines(&self) -> impl Iterator<Item = Result<(OrderLineKey, OrderLine), Self::Error>>;
}

/// One of the twelve, by its clause's last number.
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
    /// Of a district's orders, 2100 are not in NEW-ORDER: those that it began with as delivered.
    /// Since then each delivery, counted in C_DELIVERY_CNT, has added one; at the beginning, where
    /// the clause is meant, there are none.
    DeliveredOrdersAreCounted = 11,
    /// C_BALANCE + C_YTD_PAYMENT is the sum of OL_AMOUNT of delivered lines.
    PaidAndOwedIsDelivered = 12,
}

impl Condition {
    /// Its number in clause 3.3.2.
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
    /// The warehouse that it is in.
    pub fn warehouse(self) -> WarehouseKey {
        match self {
            Self::Warehouse(warehouse) => warehouse,
            Self::District((warehouse, _)) => warehouse,
            Self::Customer((warehouse, ..)) | Self::Order((warehouse, ..)) => warehouse,
            Self::OrderLine((warehouse, ..)) => warehouse,
        }
    }
}

/// A condition that does not hold somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub condition: Condition,
    /// Where.
    pub place: Place,
    /// The condition's left side: cents, a count, a number; of a thing that is or is not, 1 or 0.
    pub left: i128,
    /// Its right side, which should be the same.
    pub right: i128,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { condition, place, left, right } = self;
        write!(f, "condition {} ({condition:?}) does not hold at {place:?}: {left} is not {right}", condition.number())
    }
}

/// Checks all conditions, and tells where they do not hold, in the order of their numbers.
///
/// # Example
///
/// ```
/// use std::num::NonZeroU64;
///
/// use drtm_bench::tpcc::{Condition, Loader, Place, Population, Scale, check};
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
/// When a row cannot be read.
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
        // Rows of NEW-ORDER without an order are no matter of the fifth condition. The second and
        // third see to them.
        if let Some(delivery) = order.delivery {
            let no_carrier = delivery == Delivery::Pending;
            equal(Condition::NewOrderHasNoCarrier, place, no_carrier.into(), order.is_new.into());
        }
        equal(Condition::OrderHasItsLines, place, order.line_count, order.lines);
        for (line, delivery) in &order.deliveries {
            let (warehouse, district, number) = *key;
            let place = Place::OrderLine((warehouse, district, number, *line));
            let pending = |delivery| i128::from(delivery == Some(Delivery::Pending));
            // Without an order, whether it is delivered or not is wrong.
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
