//! The keys of the nine tables and of the two indexes. Each fits a word.
//!
//! Numbers count from one, as in the specification.

use std::ops::RangeInclusive;

use drtm_drive::scatter::scatter;
use drtm_txn::Key;

use super::Text;

/// Warehouse.
pub type WarehouseKey = u16;
/// Warehouse, district.
pub type DistrictKey = (u16, u8);
/// Warehouse, district, customer.
pub type CustomerKey = (u16, u8, u32);
/// Warehouse that was paid, writer, the writer's own count. The specification gives the table no
/// key; with this one, writers need no coordination. The initial population is written by
/// [`LOADER`].
pub type HistoryKey = (u16, u16, u32);
/// Warehouse, district, order.
pub type OrderKey = (u16, u8, u32);
/// Warehouse, district, order, line.
pub type OrderLineKey = (u16, u8, u32, u8);
/// Item.
pub type ItemKey = u32;
/// Warehouse, item.
pub type StockKey = (u16, u32);

/// The writer, in a [`HistoryKey`], of the initial population.
pub const LOADER: u16 = 0;

const _: () = {
    assert!(WarehouseKey::FITS && DistrictKey::FITS && CustomerKey::FITS && HistoryKey::FITS);
    assert!(
        OrderKey::FITS
            && OrderLineKey::FITS
            && ItemKey::FITS
            && StockKey::FITS
            && OrderByCustomer::FITS
            && CustomerByName::FITS
    );
};

/// Warehouse, district, customer, order: a customer's orders, the newest last.
///
/// A tuple would need eleven bytes. Within the numbers that the specification requires (1.3.1: 20
/// districts, 96,000 customers, 10,000,000 orders) this key fits a word:
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
/// use drtm_tpcc::OrderByCustomer;
///
/// let first = OrderByCustomer::new((1, 10, 3_000), 7)?;
/// let next = OrderByCustomer::new((1, 10, 3_000), 3_001)?;
/// assert!(first < next);
/// assert_eq!((next.customer(), next.order()), ((1, 10, 3_000), 3_001));
/// # Ok::<(), drtm_tpcc::KeyError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Key)]
#[key(crate = drtm_txn)]
pub struct OrderByCustomer(u64);

/// Warehouse, district, last name, customer: the customers of a district with one name are
/// adjacent.
///
/// A name is hashed to a number. Two names may have the same number, so the row contains the name.
///
/// ```text
///  63        48 47      41 40                17 16              0
/// +------------+----------+--------------------+-----------------+
/// | warehouse  | district | of the last name   | customer        |
/// +------------+----------+--------------------+-----------------+
/// ```
///
/// # Example
///
/// ```
/// use drtm_tpcc::{CustomerByName, last_name};
///
/// let name = last_name(371);
/// let key = CustomerByName::new((1, 10, 3_000), &name)?;
/// assert!(CustomerByName::range((1, 10), &name)?.contains(&key));
/// assert!(!CustomerByName::range((1, 9), &name)?.contains(&key));
/// assert_eq!(key.customer(), (1, 10, 3_000));
/// # Ok::<(), drtm_tpcc::KeyError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Key)]
#[key(crate = drtm_txn)]
pub struct CustomerByName(u64);

/// A number that is too large for an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The district's number.
    #[error("district {0}: an index has room for numbers below 128")]
    District(u8),
    /// The customer's number.
    #[error("customer {0}: an index has room for numbers below 131072")]
    Customer(u32),
    /// The order's number: the district has too many orders.
    #[error("order {0}: the index of orders by customer has room for numbers below 16777216; load the population anew")]
    Order(u32),
}

impl From<KeyError> for drtm_drive::Error {
    fn from(error: KeyError) -> Self {
        Self::workload(error)
    }
}

const DISTRICT_BITS: u32 = 7;
const CUSTOMER_BITS: u32 = 17;
const ORDER_BITS: u32 = 24;
/// The remaining bits.
const NAME_BITS: u32 = 24;

/// Returns the first bits of both indexes' keys.
fn front(warehouse: u16, district: u8) -> Result<u64, KeyError> {
    if u32::from(district) >> DISTRICT_BITS != 0 {
        return Err(KeyError::District(district));
    }
    Ok(u64::from(warehouse) << DISTRICT_BITS | u64::from(district))
}

fn fits(customer: u32) -> Result<u64, KeyError> {
    if customer >> CUSTOMER_BITS != 0 { Err(KeyError::Customer(customer)) } else { Ok(customer.into()) }
}

fn bits(word: u64, from: u32, count: u32) -> u32 {
    (word >> from & ((1 << count) - 1)) as u32
}

impl OrderByCustomer {
    /// Creates the key of a customer's order.
    ///
    /// # Errors
    ///
    /// Returns an error if a number exceeds the specification's range and does not fit.
    pub fn new((warehouse, district, customer): CustomerKey, order: u32) -> Result<Self, KeyError> {
        let (front, customer) = (front(warehouse, district)?, fits(customer)?);
        if order >> ORDER_BITS != 0 {
            return Err(KeyError::Order(order));
        }
        Ok(Self((front << CUSTOMER_BITS | customer) << ORDER_BITS | u64::from(order)))
    }

    /// Returns the keys of all orders of a customer.
    ///
    /// # Errors
    ///
    /// As for [`new`](Self::new).
    pub fn range(customer: CustomerKey) -> Result<RangeInclusive<Self>, KeyError> {
        Ok(Self::new(customer, 0)?..=Self::new(customer, (1 << ORDER_BITS) - 1)?)
    }

    /// Returns the ordering customer.
    pub fn customer(self) -> CustomerKey {
        let district = bits(self.0, ORDER_BITS + CUSTOMER_BITS, DISTRICT_BITS);
        let warehouse = self.0 >> (ORDER_BITS + CUSTOMER_BITS + DISTRICT_BITS);
        (warehouse as u16, district as u8, bits(self.0, ORDER_BITS, CUSTOMER_BITS))
    }

    /// Returns the order's number.
    pub fn order(self) -> u32 {
        bits(self.0, 0, ORDER_BITS)
    }
}

impl CustomerByName {
    /// Creates the key of a customer with a last name.
    ///
    /// # Errors
    ///
    /// Returns an error if a number exceeds the specification's range and does not fit.
    pub fn new((warehouse, district, customer): CustomerKey, last: &Text<16>) -> Result<Self, KeyError> {
        let named = front(warehouse, district)? << NAME_BITS | number_of(last);
        Ok(Self(named << CUSTOMER_BITS | fits(customer)?))
    }

    /// Returns the keys of all customers of a district with a last name, and maybe of some with
    /// another.
    ///
    /// # Errors
    ///
    /// As for [`new`](Self::new).
    pub fn range((warehouse, district): DistrictKey, last: &Text<16>) -> Result<RangeInclusive<Self>, KeyError> {
        let of = |customer| Self::new((warehouse, district, customer), last);
        Ok(of(0)?..=of((1 << CUSTOMER_BITS) - 1)?)
    }

    /// Returns the customer.
    pub fn customer(self) -> CustomerKey {
        let district = bits(self.0, NAME_BITS + CUSTOMER_BITS, DISTRICT_BITS);
        let warehouse = self.0 >> (NAME_BITS + CUSTOMER_BITS + DISTRICT_BITS);
        (warehouse as u16, district as u8, bits(self.0, 0, CUSTOMER_BITS))
    }
}

/// Hashes a name to a number below two to the [`NAME_BITS`]th.
fn number_of(name: &Text<16>) -> u64 {
    let mut words = [[0; 8]; 2];
    words.as_flattened_mut()[..name.as_bytes().len()].copy_from_slice(name.as_bytes());
    let [front, back] = words.map(u64::from_le_bytes);
    scatter(front ^ scatter(back)) >> (u64::BITS - NAME_BITS)
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
    fn customers_of_a_name_are_together_and_hardly_anybody_else() {
        use crate::last_name;

        let names: Vec<_> = (0..1_000).map(last_name).collect();
        let mut keys: Vec<_> = names
            .iter()
            .zip(1..)
            .map(|(name, customer)| CustomerByName::new((7, 127, customer), name).expect("in range"))
            .collect();
        for (name, (key, customer)) in names.iter().zip(keys.iter().zip(1..)) {
            assert_eq!((key.customer(), CustomerByName::from_word(key.word())), ((7, 127, customer), Some(*key)));
            let range = CustomerByName::range((7, 127), name).expect("in range");
            assert_eq!(keys.iter().filter(|key| range.contains(key)).count(), 1, "{name:?}: names do not collide");
            assert!(!CustomerByName::range((8, 127), name).expect("in range").contains(key));
        }
        keys.sort_unstable();
        assert!(keys.is_sorted_by(|one, two| one.word() < two.word()));
        assert_eq!(CustomerByName::new((1, 128, 1), &names[0]), Err(KeyError::District(128)));
        assert_eq!(CustomerByName::new((1, 1, 1 << 17), &names[0]), Err(KeyError::Customer(1 << 17)));
    }

    #[test]
    fn numbers_that_do_not_fit_are_refused() {
        assert_eq!(OrderByCustomer::new((1, 128, 1), 1), Err(KeyError::District(128)));
        assert_eq!(OrderByCustomer::new((1, 1, 1 << 17), 1), Err(KeyError::Customer(1 << 17)));
        assert_eq!(OrderByCustomer::new((1, 1, 1), 1 << 24), Err(KeyError::Order(1 << 24)));
    }
}
