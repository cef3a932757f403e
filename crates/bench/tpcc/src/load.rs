//! The initial population (4.3.3.1), handed row by row to a [`Sink`].
//!
//! Each warehouse has its own stream of random values. So its rows are the same whichever thread
//! loads it, and threads can share the work.

use std::num::NonZeroU64;

use zerocopy::little_endian::{I16, I64, U16, U32, U64};

use super::{
    Account, Address, Constants, Customer, CustomerKey, District, DistrictKey, History, HistoryKey, Item, ItemKey,
    NewOrder, Order, OrderKey, OrderLine, OrderLineKey, Random, Scale, Stock, StockKey, Supply, Warehouse,
    WarehouseKey, keys::LOADER, last_name, scale::DISTRICTS,
};

/// The initial payment of each customer, in cents.
const PAID: i64 = 1_000;

/// Stores rows. The indexes' keys are made from the rows:
/// [`CustomerByName`](super::CustomerByName), [`OrderByCustomer`](super::OrderByCustomer).
///
/// # Example
///
/// See [`Loader`].
#[allow(missing_docs, reason = "one for each table")]
pub trait Sink {
    /// The error of storing a row.
    type Error;

    fn warehouse(&mut self, key: WarehouseKey, row: &Warehouse) -> Result<(), Self::Error>;
    fn district(&mut self, key: DistrictKey, row: &District) -> Result<(), Self::Error>;
    fn customer(&mut self, key: CustomerKey, row: &Customer) -> Result<(), Self::Error>;
    fn history(&mut self, key: HistoryKey, row: &History) -> Result<(), Self::Error>;
    fn new_order(&mut self, key: OrderKey, row: &NewOrder) -> Result<(), Self::Error>;
    fn order(&mut self, key: OrderKey, row: &Order) -> Result<(), Self::Error>;
    fn order_line(&mut self, key: OrderLineKey, row: &OrderLine) -> Result<(), Self::Error>;
    fn item(&mut self, key: ItemKey, row: &Item) -> Result<(), Self::Error>;
    fn stock(&mut self, key: StockKey, row: &Stock) -> Result<(), Self::Error>;
}

/// A population that can be loaded, determined by its scale, its seed and the date.
///
/// # Example
///
/// ```
/// use std::num::NonZeroU64;
///
/// use drtm_tpcc::{Loader, Population, Scale};
///
/// let scale = Scale::new(1)?.with_customers(30)?.with_items(100)?;
/// let loader = Loader::new(scale, 42, NonZeroU64::MIN);
/// let mut rows = Population::default();
/// loader.items(&mut rows)?;
/// for warehouse in 1..=scale.warehouses() {
///     loader.warehouse(warehouse, &mut rows)?;
/// }
/// assert_eq!((rows.customers.len(), rows.new_orders.len()), (300, 90));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Loader {
    scale: Scale,
    seed: u64,
    date: NonZeroU64,
    constants: Constants,
}

impl Loader {
    /// Creates the population of a scale and a seed, dated in microseconds after 1970.
    pub fn new(scale: Scale, seed: u64, date: NonZeroU64) -> Self {
        Self { scale, seed, date, constants: Constants::for_load(&mut Random::seeded(seed)) }
    }

    /// Returns the scale.
    pub fn scale(&self) -> Scale {
        self.scale
    }

    /// Returns the constants of the load; those of a run depend on them.
    pub fn constants(&self) -> Constants {
        self.constants
    }

    /// Stores the items, which all warehouses share.
    ///
    /// # Errors
    ///
    /// Returns the sink's error.
    pub fn items<S: Sink>(&self, sink: &mut S) -> Result<(), S::Error> {
        let random = &mut Random::stream(self.seed, 0);
        for item in 1..=self.scale.items() {
            let row = Item {
                image: U32::new(random.within(1, 10_000)),
                price: I64::new(random.within(100, 10_000)),
                name: random.text(14, 24),
                data: random.data(),
            };
            sink.item(item, &row)?;
        }
        Ok(())
    }

    /// Stores a warehouse with all its rows.
    ///
    /// # Errors
    ///
    /// Returns the sink's error.
    pub fn warehouse<S: Sink>(&self, warehouse: WarehouseKey, sink: &mut S) -> Result<(), S::Error> {
        let random = &mut Random::stream(self.seed, warehouse.into());
        let paid = PAID * i64::from(self.scale.customers());
        let row = Warehouse {
            ytd: I64::new(paid * i64::from(DISTRICTS)),
            tax: U16::new(random.within(0, 2_000)),
            name: random.text(6, 10),
            address: address(random),
        };
        sink.warehouse(warehouse, &row)?;
        for item in 1..=self.scale.items() {
            sink.stock((warehouse, item), &stock(random))?;
        }
        for district in 1..=DISTRICTS {
            let row = District {
                ytd: I64::new(paid),
                next_order: U32::new(self.scale.customers() + 1),
                tax: U16::new(random.within(0, 2_000)),
                name: random.text(6, 10),
                address: address(random),
            };
            sink.district((warehouse, district), &row)?;
            for customer in 1..=self.scale.customers() {
                let key = (warehouse, district, customer);
                sink.customer(key, &self.customer(customer, random))?;
                let count = u32::from(district - 1) * self.scale.customers() + customer;
                sink.history((warehouse, LOADER, count), &self.history(key, random))?;
            }
            self.orders((warehouse, district), random, sink)?;
        }
        Ok(())
    }

    fn customer(&self, number: u32, random: &mut Random) -> Customer {
        let account = Account {
            balance: I64::new(-PAID),
            ytd_payment: I64::new(PAID),
            payment_count: U32::new(1),
            delivery_count: U32::new(0),
            discount: U16::new(random.within(0, 5_000)),
            credit: if random.percent(10) { *b"BC" } else { *b"GC" },
            // Each name occurs at least once; the other customers' names are drawn.
            last: if number <= self.scale.last_names() {
                last_name(number - 1)
            } else {
                self.constants.last_name(&self.scale, random)
            },
        };
        Customer {
            account,
            credit_limit: I64::new(5_000_000),
            since: U64::new(self.date.get()),
            first: random.text(8, 16),
            middle: *b"OE",
            address: address(random),
            phone: random.digits(),
            data: random.text(300, 500),
        }
    }

    fn history(&self, (warehouse, district, customer): CustomerKey, random: &mut Random) -> History {
        History {
            customer: U32::new(customer),
            customer_district: district,
            customer_warehouse: U16::new(warehouse),
            district,
            warehouse: U16::new(warehouse),
            date: U64::new(self.date.get()),
            amount: I64::new(PAID),
            data: random.text(12, 24),
        }
    }

    /// Stores one order of each customer. The last ones are not delivered yet.
    fn orders<S: Sink>(
        &self,
        (warehouse, district): DistrictKey,
        random: &mut Random,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let delivered = self.scale.customers() - self.scale.undelivered();
        for (order, customer) in (1..).zip(random.permutation(self.scale.customers())) {
            let is_delivered = order <= delivered;
            let row = Order {
                customer: U32::new(customer),
                entry_date: U64::new(self.date.get()),
                carrier: if is_delivered { random.within(1, 10) } else { 0 },
                line_count: random.within(5, 15),
                all_local: 1,
            };
            sink.order((warehouse, district, order), &row)?;
            for line in 1..=row.line_count {
                let row = OrderLine {
                    item: U32::new(random.within(1, self.scale.items())),
                    supply_warehouse: U16::new(warehouse),
                    delivery_date: U64::new(if is_delivered { self.date.get() } else { 0 }),
                    quantity: 5,
                    amount: I64::new(if is_delivered { 0 } else { random.within(1, 999_999) }),
                    district_info: random.characters(),
                };
                sink.order_line((warehouse, district, order, line), &row)?;
            }
            if !is_delivered {
                sink.new_order((warehouse, district, order), &NewOrder)?;
            }
        }
        Ok(())
    }
}

fn address(random: &mut Random) -> Address {
    Address {
        street_1: random.text(10, 20),
        street_2: random.text(10, 20),
        city: random.text(10, 20),
        state: random.characters(),
        zip: random.zip(),
    }
}

fn stock(random: &mut Random) -> Stock {
    let supply = Supply {
        quantity: I16::new(random.within(10, 100)),
        ytd: U32::new(0),
        order_count: U32::new(0),
        remote_count: U32::new(0),
        data: random.data(),
    };
    Stock { supply, districts: [(); 10].map(|()| random.characters()) }
}

#[cfg(test)]
mod tests;
