//! The size of a population.

/// Districts of a warehouse (1.2.1).
pub const DISTRICTS: u8 = 10;

/// Customers of a district, and its initial orders, one of each customer (4.3.3.1).
pub const CUSTOMERS: u32 = 3_000;

/// Items (4.3.3.1).
pub const ITEMS: u32 = 100_000;

/// The size of a population. It is the specification's only with all customers and items.
///
/// # Example
///
/// ```
/// use drtm_tpcc::Scale;
///
/// let full = Scale::new(2)?;
/// assert_eq!((full.customers(), full.undelivered(), full.items()), (3_000, 900, 100_000));
/// let small = full.with_customers(30)?.with_items(100)?;
/// assert_eq!((small.warehouses(), small.undelivered(), small.last_names()), (2, 9, 30));
/// # Ok::<(), drtm_tpcc::ScaleError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    warehouses: u16,
    customers: u32,
    items: u32,
}

/// An invalid size.
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
    /// A terminal in a district that does not exist.
    #[error("warehouse {0}, district {1}: the population has no such district; both are numbered from 1")]
    District(u16, u8),
}

impl From<ScaleError> for drtm_drive::Error {
    fn from(error: ScaleError) -> Self {
        Self::size(error)
    }
}

impl Scale {
    /// Creates the specification's population of this many warehouses.
    ///
    /// # Errors
    ///
    /// Returns an error if there are none.
    pub fn new(warehouses: u16) -> Result<Self, ScaleError> {
        if warehouses == 0 {
            return Err(ScaleError::NoWarehouses);
        }
        Ok(Self { warehouses, customers: CUSTOMERS, items: ITEMS })
    }

    /// Creates a size of this many warehouses; `is_tiny` leaves them almost empty.
    pub fn sized(warehouses: usize, is_tiny: bool) -> Result<Self, ScaleError> {
        let scale = Self::new(u16::try_from(warehouses).unwrap_or(u16::MAX))?;
        if is_tiny { scale.with_customers(30)?.with_items(200) } else { Ok(scale) }
    }

    /// Reduces the customers of a district, for tests.
    ///
    /// # Errors
    ///
    /// Returns an error if there are none, or more than the specification's.
    pub fn with_customers(self, customers: u32) -> Result<Self, ScaleError> {
        match customers {
            1..=CUSTOMERS => Ok(Self { customers, ..self }),
            _ => Err(ScaleError::Customers(customers)),
        }
    }

    /// Reduces the items, for tests.
    ///
    /// # Errors
    ///
    /// Returns an error if there are none, or more than the specification's.
    pub fn with_items(self, items: u32) -> Result<Self, ScaleError> {
        match items {
            1..=ITEMS => Ok(Self { items, ..self }),
            _ => Err(ScaleError::Items(items)),
        }
    }

    /// Returns the number of warehouses. They are numbered from one.
    pub fn warehouses(&self) -> u16 {
        self.warehouses
    }

    /// Returns the customers of each district, which is also its number of initial orders.
    pub fn customers(&self) -> u32 {
        self.customers
    }

    /// Returns the number of items, which is also the number of stock rows in each warehouse.
    pub fn items(&self) -> u32 {
        self.items
    }

    /// Returns whether there are fewer customers or items than the specification's.
    pub(crate) fn is_scaled_down(&self) -> bool {
        self.customers < CUSTOMERS || self.items < ITEMS
    }

    /// Returns the initially undelivered orders of each district: the last 900 of 3000.
    pub fn undelivered(&self) -> u32 {
        self.customers * 3 / 10
    }

    /// Returns the number of last names: 1000, or fewer with fewer customers, because each name
    /// must occur.
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
