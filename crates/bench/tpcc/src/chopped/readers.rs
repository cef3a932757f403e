//! ORDER-STATUS and STOCK-LEVEL, which are read by two rounds.

use std::collections::BTreeSet;

use drtm_drive::Text;
use drtm_txn::{
    Config, Key,
    chopped::{PieceTx, Stop},
};

use super::{
    Found,
    seen::{Of, Seen},
};
use crate::{
    CustomerByName, CustomerChoice, DistrictKey, OrderByCustomer, OrderLine, OrderStatus, StockLevel,
    tables::Tables,
    transactions::{ACCOUNT, RECENT, middle},
};

/// Returns the number of the middle customer with a last name.
pub(super) fn number_of<S: Config>(
    tx: &mut PieceTx<'_, '_, S>,
    tables: Tables,
    district: DistrictKey,
    last: &Text<16>,
) -> Result<u32, Stop> {
    let mut named = Vec::new();
    let range = CustomerByName::range(district, last).expect("a few customers");
    tx.for_each(tables.customers_by_name, range, |key, names| {
        if names.last == *last {
            named.push((*names.first.padded(), key.customer().2));
        }
    })?;
    Ok(middle(&mut named).expect("each name is one of the population's"))
}

/// How often a line has been written.
fn version(line: &OrderLine) -> u64 {
    if line.delivery_date.get() == 0 { 1 } else { 2 }
}

pub(super) fn last_order<S: Config>(tx: &mut PieceTx<'_, '_, S>, tables: Tables, input: &OrderStatus) -> Found {
    let (warehouse, district) = input.district;
    let number = match &input.customer {
        CustomerChoice::Number(number) => *number,
        CustomerChoice::LastName(last) => number_of(tx, tables, input.district, last)?,
    };
    let customer = (warehouse, district, number);
    let account = tx.get(tables.customers.column(ACCOUNT), customer)?.expect("the population has it");
    let mut seen: Vec<Seen> = Seen::of_account(customer, &account).into();
    let range = OrderByCustomer::range(customer).expect("a few customers");
    let to = range.end().word();
    let (last, ()) = tx.last(tables.orders_by_customer, range)?.expect("each customer has an order");
    seen.push(Seen::Scan(Of::ByCustomer, last.word(), to, vec![(last.word(), 1)]));
    let key = (warehouse, district, last.order());
    let lines = (warehouse, district, last.order(), 0)..=(warehouse, district, last.order(), u8::MAX);
    let (from, to) = (lines.start().word(), lines.end().word());
    let row = tx.get(tables.orders, key)?;
    if let Some(row) = row {
        seen.push(Seen::Read(Of::Order, key.word(), if row.carrier == 0 { 1 } else { 2 }));
    } else {
        seen.push(Seen::Absent(Of::Order, key.word()));
    }
    let mut found = Vec::new();
    tx.for_each(tables.order_lines, lines, |key, line| found.push((key.word(), version(&line))))?;
    seen.push(Seen::Scan(Of::Line, from, to, found));
    Ok(seen)
}

pub(super) fn low_stock<S: Config>(tx: &mut PieceTx<'_, '_, S>, tables: Tables, input: &StockLevel) -> Found {
    let (warehouse, district) = input.district;
    let next = tx.get(tables.districts, input.district)?.expect("the population has it").next_order.get();
    let mut seen = vec![Seen::Read(Of::NextOrder, input.district.word(), next.into())];
    let lines = (warehouse, district, next.saturating_sub(RECENT), 0)..=(warehouse, district, next - 1, u8::MAX);
    let (from, to) = (lines.start().word(), lines.end().word());
    let (mut found, mut items) = (Vec::new(), BTreeSet::new());
    tx.for_each(tables.order_lines, lines, |key, line| {
        found.push((key.word(), version(&line)));
        items.insert(line.item.get());
    })?;
    seen.push(Seen::Scan(Of::Line, from, to, found));
    for item in items {
        let supply = tx.get(tables.stocks, (warehouse, item))?.expect("the population has it").supply;
        seen.push(Seen::Read(Of::Stock, (warehouse, item).word(), u64::from(supply.order_count.get()) + 1));
    }
    Ok(seen)
}
