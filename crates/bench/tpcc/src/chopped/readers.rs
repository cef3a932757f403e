//! ORDER-STATUS and STOCK-LEVEL, which are read by two rounds.

use std::hint::black_box;

use drtm_drive::Text;
use drtm_txn::{
    Config, Key,
    chopped::{PieceTx, Stop},
};

use super::{
    LOADED,
    notes::Notes,
    seen::{Of, Seen},
};
use crate::{
    CustomerByName, CustomerChoice, DistrictKey, OrderByCustomer, OrderLine, OrderStatus, StockLevel,
    tables::Tables,
    transactions::{ACCOUNT, RECENT, SUPPLY, middle},
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

pub(super) fn last_order<S: Config, N: Notes>(
    tx: &mut PieceTx<'_, '_, S>,
    tables: Tables,
    input: &OrderStatus,
) -> Result<N, Stop> {
    let (warehouse, district) = input.district;
    let number = match &input.customer {
        CustomerChoice::Number(number) => *number,
        CustomerChoice::LastName(last) => number_of(tx, tables, input.district, last)?,
    };
    let customer = (warehouse, district, number);
    let account = tx.get(tables.customers.column(ACCOUNT), customer)?.expect(LOADED);
    let mut seen = N::default();
    Seen::of_account(customer, &account).into_iter().for_each(|one| seen.note(|| one));
    let range = OrderByCustomer::range(customer).expect("a few customers");
    let to = range.end().word();
    let (last, ()) = tx.last(tables.orders_by_customer, range)?.expect("each customer has an order");
    seen.note(|| Seen::Scan(Of::ByCustomer, last.word(), to, vec![(last.word(), 1)]));
    let key = (warehouse, district, last.order());
    let lines = (warehouse, district, last.order(), 0)..=(warehouse, district, last.order(), u8::MAX);
    let (from, to) = (lines.start().word(), lines.end().word());
    let carrier = tx.view(tables.orders, key, |row| row.carrier)?;
    seen.note(|| match carrier {
        Some(carrier) => Seen::Read(Of::Order, key.word(), if carrier == 0 { 1 } else { 2 }),
        None => Seen::Absent(Of::Order, key.word()),
    });
    let (mut found, mut amount) = (Vec::new(), 0);
    tx.for_each(tables.order_lines, lines, |key, line| {
        amount += line.amount.get();
        found.push((key.word(), version(&line)));
    })?;
    seen.note(|| Seen::Scan(Of::Line, from, to, found));
    black_box((account.balance, carrier, amount));
    Ok(seen)
}

pub(super) fn low_stock<S: Config, N: Notes>(
    tx: &mut PieceTx<'_, '_, S>,
    tables: Tables,
    input: &StockLevel,
) -> Result<N, Stop> {
    let (warehouse, district) = input.district;
    let next = tx.view(tables.districts, input.district, |row| row.next_order.get())?.expect(LOADED);
    let mut seen = N::default();
    seen.note(|| Seen::Read(Of::NextOrder, input.district.word(), next.into()));
    let lines = (warehouse, district, next.saturating_sub(RECENT), 0)..=(warehouse, district, next - 1, u8::MAX);
    let (from, to) = (lines.start().word(), lines.end().word());
    let (mut found, mut items) = (Vec::new(), Vec::new());
    tx.for_each(tables.order_lines, lines, |key, line| {
        found.push((key.word(), version(&line)));
        items.push(line.item.get());
    })?;
    items.sort_unstable();
    items.dedup();
    seen.note(|| Seen::Scan(Of::Line, from, to, found));
    let mut low = 0;
    for item in items {
        let key = (warehouse, item);
        let supply = tx.get(tables.stocks.column(SUPPLY), key)?.expect(LOADED);
        low += u32::from(supply.quantity.get() < input.threshold);
        seen.note(|| Seen::Read(Of::Stock, key.word(), u64::from(supply.order_count.get()) + 1));
    }
    black_box(low);
    Ok(seen)
}
