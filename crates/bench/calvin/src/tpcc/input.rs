//! Transactions: their inputs, with all that must be known before they run, and their bytes.

use drtm_tpcc::{CustomerKey, DistrictKey, WarehouseKey};

use crate::wire::Reader;

/// A line of a NEW-ORDER.
///
/// # Example
///
/// See [`Input`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the specification's inputs")]
pub struct Line {
    pub item: u32,
    pub supply: WarehouseKey,
    pub quantity: u8,
}

/// An order that a DELIVERY expects to be the oldest one of its district.
///
/// # Example
///
/// See [`Input`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the type says it")]
pub struct Expected {
    pub district: u8,
    pub number: u32,
    pub customer: u32,
}

/// A transaction of TPC-C. Dates are in microseconds, amounts in cents.
///
/// # Example
///
/// ```
/// use drtm_calvin::tpcc::{Expected, Input};
///
/// let order = Expected { district: 4, number: 31, customer: 7 };
/// let input = Input::Delivery { warehouse: 1, carrier: 2, orders: vec![order], date: 3 };
/// let mut bytes = Vec::new();
/// input.encode(&mut bytes);
/// assert_eq!(Input::decode(&bytes), Some(input));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the specification's inputs")]
pub enum Input {
    NewOrder { customer: CustomerKey, lines: Vec<Line>, date: u64 },
    Payment { district: DistrictKey, customer: CustomerKey, amount: i64, count: u32, date: u64 },
    OrderStatus { customer: CustomerKey },
    Delivery { warehouse: WarehouseKey, carrier: u8, orders: Vec<Expected>, date: u64 },
    StockLevel { district: DistrictKey, threshold: i16 },
}

impl Input {
    /// Appends the bytes of a transaction.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        let mut put = |more: &[u8]| bytes.extend(more);
        match self {
            Self::NewOrder { customer, lines, date } => {
                put(&[0]);
                put_customer(&mut put, *customer);
                put(&date.to_le_bytes());
                for Line { item, supply, quantity } in lines {
                    put(&item.to_le_bytes());
                    put(&supply.to_le_bytes());
                    put(&[*quantity]);
                }
            }
            Self::Payment { district, customer, amount, count, date } => {
                put(&[1]);
                put_customer(&mut put, *customer);
                put(&district.0.to_le_bytes());
                put(&[district.1]);
                put(&amount.to_le_bytes());
                put(&count.to_le_bytes());
                put(&date.to_le_bytes());
            }
            Self::OrderStatus { customer } => {
                put(&[2]);
                put_customer(&mut put, *customer);
            }
            Self::Delivery { warehouse, carrier, orders, date } => {
                put(&[3]);
                put(&warehouse.to_le_bytes());
                put(&[*carrier]);
                put(&date.to_le_bytes());
                for Expected { district, number, customer } in orders {
                    put(&[*district]);
                    put(&number.to_le_bytes());
                    put(&customer.to_le_bytes());
                }
            }
            Self::StockLevel { district, threshold } => {
                put(&[4]);
                put(&district.0.to_le_bytes());
                put(&[district.1]);
                put(&threshold.to_le_bytes());
            }
        }
    }

    /// Returns the transaction of these bytes. `None` if there is none.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = &mut Reader::new(bytes);
        let input = match bytes.u8()? {
            0 => {
                let (customer, date, mut lines) = (customer(bytes)?, bytes.u64()?, Vec::new());
                while !bytes.is_empty() {
                    lines.push(Line { item: bytes.u32()?, supply: bytes.u16()?, quantity: bytes.u8()? });
                }
                Self::NewOrder { customer, lines, date }
            }
            1 => Self::Payment {
                customer: customer(bytes)?,
                district: (bytes.u16()?, bytes.u8()?),
                amount: bytes.u64()? as i64,
                count: bytes.u32()?,
                date: bytes.u64()?,
            },
            2 => Self::OrderStatus { customer: customer(bytes)? },
            3 => {
                let (warehouse, carrier, date) = (bytes.u16()?, bytes.u8()?, bytes.u64()?);
                let mut orders = Vec::new();
                while !bytes.is_empty() {
                    orders.push(Expected { district: bytes.u8()?, number: bytes.u32()?, customer: bytes.u32()? });
                }
                Self::Delivery { warehouse, carrier, orders, date }
            }
            4 => Self::StockLevel { district: (bytes.u16()?, bytes.u8()?), threshold: bytes.u16()? as i16 },
            _ => return None,
        };
        bytes.is_empty().then_some(input)
    }
}

fn put_customer(put: &mut impl FnMut(&[u8]), (warehouse, district, number): CustomerKey) {
    put(&warehouse.to_le_bytes());
    put(&[district]);
    put(&number.to_le_bytes());
}

fn customer(bytes: &mut Reader<'_>) -> Option<CustomerKey> {
    Some((bytes.u16()?, bytes.u8()?, bytes.u32()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_are_read_as_they_are_written() {
        let line = Line { item: 9, supply: 3, quantity: 10 };
        let order = Expected { district: 4, number: 31, customer: 7 };
        for input in [
            Input::NewOrder { customer: (1, 2, 3), lines: vec![line; 15], date: 5 },
            Input::Payment { district: (6, 10), customer: (2, 1, 9), amount: -5, count: 8, date: 1 },
            Input::OrderStatus { customer: (1, 1, 1) },
            Input::Delivery { warehouse: 3, carrier: 9, orders: vec![order; 10], date: 2 },
            Input::StockLevel { district: (1, 2), threshold: -3 },
        ] {
            let mut bytes = Vec::new();
            input.encode(&mut bytes);
            assert_eq!(Input::decode(&bytes), Some(input));
            assert_eq!(Input::decode(&bytes[..bytes.len() - 1]), None);
        }
    }
}
