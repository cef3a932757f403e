//! The five transactions (2.4 to 2.8), on any database.
//!
//! Each computes the terminal's output, so that every engine does the full work; nothing is shown.
//! Rows that are not kept are read in place.

mod delivery;
mod new_order;
mod order_status;
mod payment;
mod stock_level;

pub(super) use delivery::{deliver, delivered_to};
pub(super) use new_order::{Receipt, Refused, is_original, line_row, order, order_row, take, total};
#[cfg(any(test, feature = "chopping"))]
pub(super) use new_order::{SUPPLY, info_of};
pub(super) use order_status::{LastOrder, Status};
pub(super) use payment::{Paid, history_row, paid_by, pay, remember};
pub(super) use stock_level::{LowStock, RECENT};

use drtm_drive::Error;
use drtm_txn::{Config, Lend, Ordered, Part, PodRef, PrefetchMask, Range, Table, part};
use fixedbitset::FixedBitSet;

use super::{
    Account, Customer, CustomerByName, CustomerNames, Text,
    tables::{CUSTOMER, expect_row},
};

/// The part of a customer that most transactions use.
pub(super) const ACCOUNT: Part<Customer, Account> = part!(Customer, account);

/// The bytes of a customer to prefetch.
pub(super) const OF_CUSTOMER: PrefetchMask = PrefetchMask::of(&[ACCOUNT.bytes()]);

/// Lists that transactions reuse.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// First names and numbers of the customers with a last name.
    named: Vec<([u8; 16], u32)>,
    /// Distinct items of the last orders.
    items: Vec<u32>,
    /// The set of items met so far.
    met: FixedBitSet,
}

/// Customers by their last name, in a district.
type Names<'db, L, S> = Range<'db, Table<CustomerByName, PodRef<CustomerNames>, Ordered>, L, S>;

/// Finds the [middle] one of the customers with a last name.
fn middle_of<'db, S: Config, L: Lend<'db, S>>(
    mut rows: Names<'db, L, S>,
    last: &Text<16>,
    named: &mut Vec<([u8; 16], u32)>,
) -> Result<u32, Error> {
    named.clear();
    rows.view_each(|key, names| {
        if names.last == *last {
            named.push((*names.first.padded(), key.customer().2));
        }
    })?;
    Ok(expect_row(middle(named), CUSTOMER)?)
}

/// Returns the middle customer with a last name, by first names, rounded up (2.5.2.2).
pub(super) fn middle(named: &mut [([u8; 16], u32)]) -> Option<u32> {
    named.sort_unstable();
    named.get(named.len().div_ceil(2).checked_sub(1)?).map(|(_, customer)| *customer)
}
