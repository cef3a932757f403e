//! PAYMENT (2.5).

use std::{io::Write, iter};

use drtm_drive::{Error, Text};
use drtm_txn::{Config, Db, Tx};
use zerocopy::little_endian::{I64, U16, U32, U64};

use super::{ACCOUNT, OF_CUSTOMER, Scratch, middle_of};
use crate::{
    Account, Customer, CustomerByName, CustomerChoice, CustomerKey, History, HistoryKey, Payment,
    tables::{CUSTOMER, DISTRICT, Layout, Tables, WAREHOUSE, expect_row},
};

/// The terminal's output, except its inputs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Paid {
    pub(crate) customer: CustomerKey,
    pub(crate) balance: i64,
}

/// Makes a payment. It is recorded under a key that no other writer uses.
pub(crate) fn pay<S: Config, O: Layout>(
    db: &Db<S>,
    tables: &Tables<O>,
    input: &Payment,
    key: HistoryKey,
    date: u64,
    scratch: &mut Scratch,
) -> Result<Paid, Error> {
    let Payment { district, customer_district, customer, amount } = input;
    db.try_transact(|tx| {
        // The steps are separate, so that later rows can be prefetched in the meantime.
        let prefetch_customer =
            |tx: &mut Tx<'_, S>, key| tx.prefetch(tables.customers.columns(&OF_CUSTOMER), iter::once(key));
        if tables.prefetches {
            match customer {
                CustomerChoice::Number(number) => {
                    prefetch_customer(tx, (customer_district.0, customer_district.1, *number))?;
                }
                CustomerChoice::LastName(last) => {
                    let first = CustomerByName::new((customer_district.0, customer_district.1, 0), last)?;
                    tx.prefetch(tables.customers_by_name, [first].iter())?;
                }
            }
            tx.prefetch(tables.histories, [key].iter())?;
        }
        let warehouse_name = tx.update(tables.warehouses, &district.0, |row| {
            row.ytd += I64::new(*amount);
            row.name
        })?;
        let (in_warehouse, in_district) = *customer_district;
        let customer = match customer {
            CustomerChoice::Number(number) => (in_warehouse, in_district, *number),
            CustomerChoice::LastName(last) => {
                let range = CustomerByName::range(*customer_district, last)?;
                // The transaction has written, so `range` would copy rows before it shows them.
                let rows = tx.range_mut(tables.customers_by_name, range)?;
                let customer = (in_warehouse, in_district, middle_of(rows, last, &mut scratch.named)?);
                if tables.prefetches {
                    prefetch_customer(tx, customer)?;
                }
                customer
            }
        };
        let district_name = tx.update(tables.districts, district, |row| {
            row.ytd += I64::new(*amount);
            row.name
        })?;
        let (warehouse_name, district_name) =
            (expect_row(warehouse_name, WAREHOUSE)?, expect_row(district_name, DISTRICT)?);
        let changed = tx.update(tables.customers.column(ACCOUNT), &customer, |account| paid_by(account, *amount))?;
        let (balance, is_bad) = expect_row(changed, CUSTOMER)?;
        if is_bad {
            tx.update(tables.customers, &customer, |row| remember(row, customer, input))?;
        }
        tx.insert(tables.histories, key, &history_row(input, customer, date, (&warehouse_name, &district_name)))?;
        Ok(Paid { customer, balance })
    })
}

/// Applies a payment of this many cents to the customer's account. Returns the balance, and whether
/// the credit is bad.
#[inline(always)]
pub(crate) fn paid_by(account: &mut Account, amount: i64) -> (i64, bool) {
    account.balance -= I64::new(amount);
    account.ytd_payment += I64::new(amount);
    account.payment_count += U32::new(1);
    (account.balance.get(), account.credit == *b"BC")
}

/// Returns the row of a payment.
#[inline(always)]
pub(crate) fn history_row(
    input: &Payment,
    customer: CustomerKey,
    date: u64,
    (warehouse_name, district_name): (&Text<10>, &Text<10>),
) -> History {
    History {
        customer: U32::new(customer.2),
        customer_district: customer.1,
        customer_warehouse: U16::new(customer.0),
        district: input.district.1,
        warehouse: U16::new(input.district.0),
        date: U64::new(date),
        amount: I64::new(input.amount),
        data: names(warehouse_name, district_name),
    }
}

/// Returns H_DATA: both names, with four spaces between them.
fn names(warehouse: &Text<10>, district: &Text<10>) -> Text<24> {
    let front: Text<24> = Text::joined(warehouse.as_bytes(), b"    ");
    Text::joined(front.as_bytes(), district.as_bytes())
}

/// Prepends a payment to C_DATA of a customer with bad credit, and truncates the end.
#[cold]
pub(crate) fn remember(row: &mut Customer, (warehouse, district, customer): CustomerKey, input: &Payment) {
    let ((paid_at, paid_in), amount) = (input.district, input.amount);
    let (whole, cents) = (amount / 100, (amount % 100) as u8);
    // The buffer fits the longest numbers. Formatting would take several times as long.
    let mut line = [0; 64];
    let mut rest = &mut line[..];
    let mut add = |text: &[u8]| {
        let _fits = rest.write_all(text);
    };
    for number in [customer, district.into(), warehouse.into(), paid_in.into(), paid_at.into()] {
        add(itoa::Buffer::new().format(number).as_bytes());
        add(b" ");
    }
    add(itoa::Buffer::new().format(whole).as_bytes());
    add(&[b'.', b'0' + cents / 10, b'0' + cents % 10]);
    add(b" | ");
    let left = rest.len();
    let written = line.len() - left;
    row.data = Text::joined(&line[..written], row.data.as_bytes());
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;

    #[test]
    fn a_payment_of_bad_credit_goes_before_the_others() {
        let mut row = Customer::new_zeroed();
        row.data = Text::new(&[b'x'; 500]);
        let input = Payment {
            district: (65_535, 255),
            customer_district: (2, 3),
            customer: CustomerChoice::Number(4),
            amount: 500_000,
        };
        remember(&mut row, (2, 3, 4), &input);
        remember(&mut row, (2, 3, u32::MAX), &Payment { amount: 105, ..input });
        let text = String::from_utf8_lossy(row.data.as_bytes());
        assert!(text.starts_with("4294967295 3 2 255 65535 1.05 | 4 3 2 255 65535 5000.00 | xxx"), "{text}");
        assert_eq!(text.len(), 500);
    }

    #[test]
    fn names_are_four_spaces_apart() {
        assert_eq!(names(&Text::new(b"north"), &Text::new(b"east")).as_bytes(), b"north    east");
        assert_eq!(names(&Text::new(&[b'a'; 10]), &Text::new(&[b'b'; 10])).as_bytes().len(), 24);
    }
}
