//! NEW-ORDER (2.4).

use drtm_drive::{Error, Text};
use drtm_txn::{Config, Db, Part, PrefetchMask, Tx, part};
use zerocopy::little_endian::{I64, U16, U32, U64};

use super::{ACCOUNT, OF_CUSTOMER};
use crate::{
    Account, DISTRICTS, KeyError, NewOrder, NewOrderInput, NewOrderLine, Order, OrderByCustomer, OrderLine, Stock,
    Supply,
    inputs::MOST_LINES,
    tables::{CUSTOMER, DISTRICT, Layout, STOCK, Tables, WAREHOUSE, expect_row},
};

/// Why a new order failed.
#[derive(Debug)]
pub(crate) enum Refused {
    /// An item that does not exist: the one order of a hundred that is to be rolled back (2.4.1.4).
    UnusedItem,
    Failed(Error),
}

impl From<drtm_txn::Error> for Refused {
    fn from(error: drtm_txn::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<KeyError> for Refused {
    fn from(error: KeyError) -> Self {
        Self::Failed(error.into())
    }
}

/// The terminal's output.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Receipt {
    pub(crate) number: u32,
    /// In cents, with taxes and less the discount.
    pub(crate) total: i64,
    pub(crate) last: Text<16>,
    pub(crate) credit: [u8; 2],
    /// Lines whose item and stock are both original brands.
    pub(crate) brands: u8,
}

/// Inserts an order completely, or not at all.
pub(crate) fn order<S: Config, O: Layout>(
    db: &Db<S>,
    tables: &Tables<O>,
    input: &NewOrderInput,
    date: u64,
) -> Result<Receipt, Refused> {
    db.try_transact(|tx| {
        let (warehouse, district, _) = input.customer;
        let (info, wanted) = info_of(district);
        if tables.prefetches {
            // The rows are all over memory.
            tx.prefetch(tables.customers.columns(&OF_CUSTOMER), [input.customer].iter())?;
            tx.prefetch(tables.items, input.lines().iter().map(|line| &line.item))?;
            tx.prefetch(tables.stocks.columns(wanted), input.stocks().iter())?;
        }
        let tax = expect_row(tx.view(tables.warehouses, &warehouse, |row| row.tax.get())?, WAREHOUSE)?;
        let taken = tx.update(tables.districts, &(warehouse, district), |row| {
            let number = row.next_order.get();
            row.next_order.set(number + 1);
            (number, row.tax.get())
        })?;
        let (number, district_tax) = expect_row(taken, DISTRICT)?;
        let key = (warehouse, district, number);
        let by_customer = OrderByCustomer::new(input.customer, number)?;
        if tables.prefetches {
            // The order's place is prefetched before its lines are processed, and written after
            // them.
            tx.prefetch(tables.orders, [key].iter())?;
            tx.prefetch(tables.orders_by_customer, [by_customer].iter())?;
        }
        let Account { discount, last, credit, .. } =
            expect_row(tx.get(tables.customers.column(ACCOUNT), &input.customer)?, CUSTOMER)?;
        let (mut sum, mut brands) = (0, 0);
        let mut sold = [const { None }; MOST_LINES];
        for (sold, line) in sold.iter_mut().zip(input.lines()) {
            let Sold { amount, is_original } = sell(tx, tables, line, warehouse, info, sold)?;
            sum += amount;
            brands += u8::from(is_original);
        }
        let places = (1..).map(|place| (warehouse, district, number, place));
        tx.insert_many(tables.order_lines, places.zip(sold.iter().flatten()))?;
        tx.insert(tables.orders, key, &order_row(input, date))?;
        tx.insert(tables.orders_by_customer, by_customer, &())?;
        tx.insert(tables.new_orders, key, &NewOrder)?;
        Ok(Receipt { number, total: total(sum, discount.get(), tax + district_tax), last, credit, brands })
    })
}

/// Returns the row of an undelivered order.
#[inline(always)]
pub(crate) fn order_row(input: &NewOrderInput, date: u64) -> Order {
    Order {
        customer: U32::new(input.customer.2),
        entry_date: U64::new(date),
        carrier: 0,
        line_count: input.lines().len() as u8,
        all_local: input.is_all_local().into(),
    }
}

/// Returns the row of such an order's line, which costs `amount` cents.
#[inline(always)]
pub(crate) fn line_row(line: &NewOrderLine, amount: i64, district_info: [u8; 24]) -> OrderLine {
    OrderLine {
        item: U32::new(line.item),
        supply_warehouse: U16::new(line.supply_warehouse),
        delivery_date: U64::new(0),
        quantity: line.quantity,
        amount: I64::new(amount),
        district_info,
    }
}

pub(crate) const SUPPLY: Part<Stock, Supply> = part!(Stock, supply);
const INFOS: Part<Stock, [[u8; 24]; 10]> = part!(Stock, districts);

/// The bytes of a stock that a line of an order in each district uses.
static OF_STOCKS: [PrefetchMask; DISTRICTS as usize] = {
    let mut wanted = [PrefetchMask::of(&[SUPPLY.bytes()]); DISTRICTS as usize];
    let mut district = 0;
    while let Some(info) = INFOS.item(district) {
        wanted[district] = PrefetchMask::of(&[SUPPLY.bytes(), info.bytes()]);
        district += 1;
    }
    wanted
};

/// Returns the district's column of a stock, S_DIST_xx, and the bytes to prefetch.
pub(crate) fn info_of(district: u8) -> (Part<Stock, [u8; 24]>, &'static PrefetchMask) {
    let district = usize::from(district.wrapping_sub(1) % DISTRICTS);
    let Some(info) = INFOS.item(district) else { unreachable!("there is one for each district") };
    (info, &OF_STOCKS[district])
}

struct Sold {
    /// In cents.
    amount: i64,
    is_original: bool,
}

/// Takes a line's item from stock, and returns the line.
#[inline(always)]
fn sell<S: Config, O: Layout>(
    tx: &mut Tx<'_, S>,
    tables: &Tables<O>,
    line: &NewOrderLine,
    warehouse: u16,
    info: Part<Stock, [u8; 24]>,
    sold: &mut Option<OrderLine>,
) -> Result<Sold, Refused> {
    let item = tx.view(tables.items, &line.item, |row| (row.price.get(), is_original(&row.data)))?;
    let (price, is_original_item) = item.ok_or(Refused::UnusedItem)?;
    let is_remote = line.supply_warehouse != warehouse;
    let stock = (line.supply_warehouse, line.item);
    let amount = price * i64::from(line.quantity);
    let info = expect_row(tx.get(tables.stocks.column(info), &stock)?, STOCK)?;
    let taken = tx.update(tables.stocks.column(SUPPLY), &stock, |supply| {
        take(supply, line.quantity, is_remote);
        *sold = Some(line_row(line, amount, info));
        Sold { amount, is_original: is_original_item && is_original(&supply.data) }
    })?;
    Ok(expect_row(taken, STOCK)?)
}

/// Takes a quantity from a stock. The stock is refilled by 91 if it would fall below ten (2.4.2.2).
#[inline(always)]
pub(crate) fn take(stock: &mut Supply, quantity: u8, is_remote: bool) {
    let left = stock.quantity.get() - i16::from(quantity);
    stock.quantity.set(if left >= 10 { left } else { left + 91 });
    stock.ytd += U32::new(quantity.into());
    stock.order_count += U32::new(1);
    stock.remote_count += U32::new(is_remote.into());
}

/// Returns cents, from the sum of amounts and a discount and taxes in units of 1/10000.
pub(crate) fn total(sum: i64, discount: u16, tax: u16) -> i64 {
    const WHOLE: i64 = 10_000;
    sum * (WHOLE - i64::from(discount)) * (WHOLE + i64::from(tax)) / (WHOLE * WHOLE)
}

/// Returns whether the text contains ORIGINAL. Searches for its first and last letter at all places
/// at once, without a branch that depends on the text.
#[inline(always)]
pub(crate) fn is_original(data: &Text<50>) -> bool {
    // The text is padded with zeros.
    let data = data.padded();
    let word = |at: usize| data[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let mut found = 0;
    // The last places overlap those before them, so that every step has the same width.
    for at in [0, 8, 16, 24, 32, 35] {
        // A byte is zero where both letters match.
        let differs = (word(at) ^ (EACH * u64::from(b'O'))) | (word(at + 7) ^ (EACH * u64::from(b'L')));
        // Then its highest bit is set by the borrow. Only the first such byte is exact.
        found |= differs.wrapping_sub(EACH) & !differs;
    }
    found & (EACH << 7) != 0 && is_somewhere(data)
}

/// One in each byte.
const EACH: u64 = u64::MAX / 255;

const ORIGINAL: [u8; 8] = *b"ORIGINAL";

#[cold]
fn is_somewhere(text: &[u8]) -> bool {
    text.windows(ORIGINAL.len()).any(|window| window == ORIGINAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn original_is_found_wherever_it_is_and_nowhere_else() {
        for before in 0..=42 {
            let text =
                [&b"ORIGINALORIGINAL"[16 - before % 8..], &[b'x'; 50][..before - before % 8], b"ORIGINAL"].concat();
            assert!(is_original(&Text::new(&text)), "{:?}", Text::<50>::new(&text));
            assert!(!is_original(&Text::new(&text[..text.len() - 1])), "{before}");
        }
        for text in [&b""[..], b"ORIGINA", b"RIGINAL", b"ORIGINALL"[1..].as_ref(), b"ORIGINORIGINNAL", b"LLLLLLLLLLLL"]
        {
            assert!(!is_original(&Text::new(text)), "{text:?}");
        }
        assert!(is_original(&Text::new(b"ORIGIORIGINALNAL")) && is_original(&Text::new(b"ORIGINAORIGINAL")));
    }

    #[test]
    fn totals_are_in_cents() {
        assert_eq!(total(10_000, 0, 0), 10_000);
        assert_eq!(total(10_000, 5_000, 4_000), 7_000);
        assert_eq!(total(15 * 10 * 10_000, 0, 4_000), 2_100_000, "the greatest that there is");
    }
}
