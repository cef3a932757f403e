//! The keys of the nine tables, and of the two indexes. All but customers' names fit a word.
//!
//! Numbers count from one, as in the specification.

use std::ops::RangeInclusive;

use drtm_txn::{Key, KeyReader};

use super::Text;

/// Warehouse.
pub type WarehouseKey = u16;
/// Warehouse, district.
pub type DistrictKey = (u16, u8);
/// Warehouse, district, customer.
pub type CustomerKey = (u16, u8, u32);
/// Warehouse that was paid, writer, the writer's own count. The table has no key in the specification; so many writers need not agree on
/// one. The initial population is written by [`LOADER`].
pub type HistoryKey = (u16, u16, u32);
/// Warehouse, district, order.
pub type OrderKey = (u16, u8, u32);
/// Warehouse, district, order, line.
pub type OrderLineKey = (u16, u8, u32, u8);
/// Item.
pub type ItemKey = u32;
/// Warehouse, item.
pub type StockKey = (u16, u32);
/// Warehouse, district, last name, first name, customer: those of a last name are in the order that 2.5.2.2 asks for. Names are filled up
/// with zeros, which keeps their order, and needs no memory of its own. See [`customers_named`].
pub type CustomerByName = (u16, u8, [u8; 16], [u8; 16], u32);

/// The keys of all customers of a district who have a last name.
///
/// # Example
///
/// ```
/// use drtm_bench::tpcc::{customers_named, last_name};
///
/// let keys = customers_named((1, 2), &last_name(371));
/// assert!(keys.contains(&(1, 2, last_name(371).padded(), *b"Ada\0\0\0\0\0\0\0\0\0\0\0\0\0", 7)));
/// assert!(!keys.contains(&(1, 2, last_name(372).padded(), *b"Ada\0\0\0\0\0\0\0\0\0\0\0\0\0", 7)));
/// ```
pub fn customers_named((warehouse, district): DistrictKey, last: &Text<16>) -> RangeInclusive<CustomerByName> {
    let key = |first, customer| (warehouse, district, last.padded(), first, customer);
    key([0; 16], 0)..=key([u8::MAX; 16], u32::MAX)
}

/// The writer, in a [`HistoryKey`], of the initial population.
pub const LOADER: u16 = 0;

const _: () = {
    assert!(WarehouseKey::FITS && DistrictKey::FITS && CustomerKey::FITS && HistoryKey::FITS);
    assert!(OrderKey::FITS && OrderLineKey::FITS && ItemKey::FITS && StockKey::FITS && OrderByCustomer::FITS);
    assert!(!CustomerByName::FITS);
};

/// Warehouse, district, customer, order: a customer's orders, the last one last.
///
/// As a tuple it would need eleven bytes. Within the numbers that the specification asks for (1.3.1: 20 districts, 96,000 customers,
/// 10,000,000 orders) it fits a word:
///
/// ```text
///  63        48 47      41 40                24 23              0
/// +------------+----------+--------------------+-----------------+
/// | warehouse  | district | customer           | order           |
/// +------------+----------+--------------------+-----------------+
/// ```
///
/// # Example
///
/// ```
/// use drtm_bench::tpcc::OrderByCustomer;
///
/// let first = OrderByCustomer::new((1, 10, 3_000), 7)?;
/// let next = OrderByCustomer::new((1, 10, 3_000), 3_001)?;
/// assert!(first < next);
/// assert_eq!((next.customer(), next.order()), ((1, 10, 3_000), 3_001));
/// # Ok::<(), drtm_bench::tpcc::KeyError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderByCustomer(u64);

/// A number that is too great for the index of orders by customer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The district's number.
    #[error("district {0}: the index of orders by customer has room for numbers below 128")]
    District(u8),
    /// The customer's number.
    #[error("customer {0}: the index of orders by customer has room for numbers below 131072")]
    Customer(u32),
    /// The order's number: the district has had too many.
    #[error("order {0}: the index of orders by customer has room for numbers below 16777216; load the population anew")]
    Order(u32),
}

const DISTRICT_BITS: u32 = 7;
const CUSTOMER_BITS: u32 = 17;
const ORDER_BITS: u32 = 24;

impl OrderByCustomer {
    /// The key of a customer's order.
    ///
    /// # Errors
    ///
    /// When a number is greater than the specification asks for, and does not fit.
    pub fn new((warehouse, district, customer): CustomerKey, order: u32) -> Result<Self, KeyError> {
        if u32::from(district) >> DISTRICT_BITS != 0 {
            return Err(KeyError::District(district));
        }
        if customer >> CUSTOMER_BITS != 0 {
            return Err(KeyError::Customer(customer));
        }
        if order >> ORDER_BITS != 0 {
            return Err(KeyError::Order(order));
        }
        let word = u64::from(warehouse) << DISTRICT_BITS | u64::from(district);
        let word = word << CUSTOMER_BITS | u64::from(customer);
        Ok(Self(word << ORDER_BITS | u64::from(order)))
    }

    /// Whose order it is.
    pub fn customer(self) -> CustomerKey {
        let district = self.bits(ORDER_BITS + CUSTOMER_BITS, DISTRICT_BITS);
        let warehouse = self.0 >> (ORDER_BITS + CUSTOMER_BITS + DISTRICT_BITS);
        (warehouse as u16, district as u8, self.bits(ORDER_BITS, CUSTOMER_BITS))
    }

    /// The order's number.
    pub fn order(self) -> u32 {
        self.bits(0, ORDER_BITS)
    }

    fn bits(self, from: u32, count: u32) -> u32 {
        (self.0 >> from & ((1 << count) - 1)) as u32
    }
}

impl Key for OrderByCustomer {
    const SIZE: Option<usize> = u64::SIZE;
    #[inline(always)]
    fn pack(&self, word: u64) -> u64 {
        self.0.pack(word)
    }
    fn write(&self, bytes: &mut Vec<u8>, last: bool) {
        self.0.write(bytes, last);
    }
    fn read(reader: &mut KeyReader<'_>, last: bool) -> Option<Self> {
        u64::read(reader, last).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_of_customers_keep_their_order_as_words() {
        let customers = [(1, 1, 1), (1, 1, 2), (1, 2, 1), (1, 127, 131_071), (2, 1, 1), (u16::MAX, 10, 3_000)];
        let keys: Vec<OrderByCustomer> = customers
            .iter()
            .flat_map(|customer| [1, 2, 16_777_215].map(|order| (*customer, order)))
            .map(|(customer, order)| {
                let key = OrderByCustomer::new(customer, order).expect("in range");
                assert_eq!((key.customer(), key.order()), (customer, order));
                assert_eq!(OrderByCustomer::from_word(key.word()), Some(key));
                key
            })
            .collect();
        assert!(keys.is_sorted_by(|one, two| one.word() < two.word()));
    }

    #[test]
    fn numbers_that_do_not_fit_are_refused() {
        assert_eq!(OrderByCustomer::new((1, 128, 1), 1), Err(KeyError::District(128)));
        assert_eq!(OrderByCustomer::new((1, 1, 1 << 17), 1), Err(KeyError::Customer(1 << 17)));
        assert_eq!(OrderByCustomer::new((1, 1, 1), 1 << 24), Err(KeyError::Order(1 << 24)));
    }
}
