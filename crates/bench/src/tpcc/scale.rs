//! How large a population is.

/// Districts of a warehouse (1.2.1).
pub const DISTRICTS: u8 = 10;

/// Customers of a district, and orders that it begins with, one of each customer (4.3.3.1).
pub const CUSTOMERS: u32 = 3_000;

/// Items (4.3.3.1).
pub const ITEMS: u32 = 100_000;

/// The size of a population. Only with all customers and items is it the specification's.
///
/// # Example
///
/// ```
/// use drtm_bench::tpcc::Scale;
///
/// let full = Scale::new(2)?;
/// assert_eq!((full.customers(), full.undelivered(), full.items()), (3_000, 900, 100_000));
/// let small = full.with_customers(30)?.with_items(100)?;
/// assert_eq!((small.warehouses(), small.undelivered(), small.last_names()), (2, 9, 30));
/// # Ok::<(), drtm_bench::tpcc::ScaleError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    warehouses: u16,
    customers: u32,
    items: u32,
}

/// A size that no population can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScaleError {
    /// There must be a warehouse.
    #[error("a population of no warehouses: ask for one at least")]
    NoWarehouses,
    /// Too few or too many customers.
    #[error("{0} customers to a district: ask for 1 to {CUSTOMERS}")]
    Customers(u32),
    /// Too few or too many items.
    #[error("{0} items: ask for 1 to {ITEMS}")]
    Items(u32),
    /// A terminal in a district that there is not.
    #[error("warehouse {0}, district {1}: the population has no such district; both are numbered from 1")]
    District(u16, u8),
}

impl Scale {
    /// The specification's population of so many warehouses.
    ///
    /// # Errors
    ///
    /// When there are none.
    pub fn new(warehouses: u16) -> Result<Self, ScaleError> {
        if warehouses == 0 {
            return Err(ScaleError::NoWarehouses);
        }
        Ok(Self { warehouses, customers: CUSTOMERS, items: ITEMS })
    }

    /// So many warehouses, perhaps with hardly anything in them.
    pub(crate) fn sized(warehouses: usize, is_tiny: bool) -> Result<Self, ScaleError> {
        let scale = Self::new(u16::try_from(warehouses).unwrap_or(u16::MAX))?;
        if is_tiny { scale.with_customers(30)?.with_items(200) } else { Ok(scale) }
    }

    /// The same with fewer customers to a district, for tests.
    ///
    /// # Errors
    ///
    /// When there are none, or more than the specification's.
    pub fn with_customers(self, customers: u32) -> Result<Self, ScaleError> {
        match customers {
            1..=CUSTOMERS => Ok(Self { customers, ..self }),
            _ => Err(ScaleError::Customers(customers)),
        }
    }

    /// The same with fewer items, for tests.
    ///
    /// # Errors
    ///
    /// When there are none, or more than the specification's.
    pub fn with_items(self, items: u32) -> Result<Self, ScaleError> {
        match items {
            1..=ITEMS => Ok(Self { items, ..self }),
            _ => Err(ScaleError::Items(items)),
        }
    }

    /// Warehouses, numbered from one.
    pub fn warehouses(&self) -> u16 {
        self.warehouses
    }

    /// Customers of each district, and orders that it begins with.
    pub fn customers(&self) -> u32 {
        self.customers
    }

    /// Items, and rows of stock in each warehouse.
    pub fn items(&self) -> u32 {
        self.items
    }

    /// Whether there are fewer customers or items than the specification's.
    pub(crate) fn is_scaled_down(&self) -> bool {
        self.customers < CUSTOMERS || self.items < ITEMS
    }

    /// Orders of each district that are not yet delivered at the beginning: the last 900 of 3000.
    pub fn undelivered(&self) -> u32 {
        self.customers * 3 / 10
    }

    /// Last names that are given: 1000, or fewer where there are fewer customers, since each name
    /// is somebody's.
    pub fn last_names(&self) -> u32 {
        self.customers.min(1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_sizes_are_refused() {
        assert_eq!(Scale::new(0), Err(ScaleError::NoWarehouses));
        let one = Scale::new(1).expect("one warehouse");
        for customers in [0, CUSTOMERS + 1] {
            assert_eq!(one.with_customers(customers), Err(ScaleError::Customers(customers)));
        }
        for items in [0, ITEMS + 1] {
            assert_eq!(one.with_items(items), Err(ScaleError::Items(items)));
        }
    }
}
