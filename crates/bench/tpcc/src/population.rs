//! A population in ordinary maps of this process: tests of the checks use it, and stores are
//! compared with it.

use std::{collections::BTreeMap, convert::Infallible};

use super::{
    Customer, CustomerKey, District, DistrictKey, History, HistoryKey, Item, ItemKey, Loader, NewOrder, Order,
    OrderKey, OrderLine, OrderLineKey, Sink, Stock, StockKey, View, Warehouse, WarehouseKey,
};

macro_rules! population {
    ($($table:ident, $row:ident: $key:ty => $value:ty;)+) => {
        /// The rows of all tables.
        ///
        /// # Example
        ///
        /// See [`Loader`] and [`check`](super::check).
        #[derive(Clone, Debug, Default, PartialEq)]
        #[allow(missing_docs, reason = "one for each table")]
        pub struct Population {
            $(pub $table: BTreeMap<$key, $value>,)+
        }

        impl Sink for Population {
            type Error = Infallible;

            $(fn $row(&mut self, key: $key, row: &$value) -> Result<(), Infallible> {
                self.$table.insert(key, *row);
                Ok(())
            })+
        }
    };
}

population! {
    warehouses, warehouse: WarehouseKey => Warehouse;
    districts, district: DistrictKey => District;
    customers, customer: CustomerKey => Customer;
    histories, history: HistoryKey => History;
    new_orders, new_order: OrderKey => NewOrder;
    orders, order: OrderKey => Order;
    order_lines, order_line: OrderLineKey => OrderLine;
    items, item: ItemKey => Item;
    stocks, stock: StockKey => Stock;
}

impl Population {
    /// Returns all rows of a loader.
    pub fn of(loader: &Loader) -> Self {
        let mut rows = Self::default();
        let Ok(()) = loader.items(&mut rows);
        for warehouse in 1..=loader.scale().warehouses() {
            let Ok(()) = loader.warehouse(warehouse, &mut rows);
        }
        rows
    }
}

/// Wraps a lookup that cannot fail as one that can.
fn sure<'p, K: Copy, R: Copy>(
    table: &'p BTreeMap<K, R>,
) -> impl Iterator<Item = Result<(K, R), Infallible>> + use<'p, K, R> {
    table.iter().map(|(key, row)| Ok((*key, *row)))
}

impl View for Population {
    type Error = Infallible;

    fn warehouses(&self) -> impl Iterator<Item = Result<(WarehouseKey, Warehouse), Infallible>> {
        sure(&self.warehouses)
    }
    fn districts(&self) -> impl Iterator<Item = Result<(DistrictKey, District), Infallible>> {
        sure(&self.districts)
    }
    fn customers(&self) -> impl Iterator<Item = Result<(CustomerKey, Customer), Infallible>> {
        sure(&self.customers)
    }
    fn histories(&self) -> impl Iterator<Item = Result<(HistoryKey, History), Infallible>> {
        sure(&self.histories)
    }
    fn new_orders(&self) -> impl Iterator<Item = Result<OrderKey, Infallible>> {
        self.new_orders.keys().map(|key| Ok(*key))
    }
    fn orders(&self) -> impl Iterator<Item = Result<(OrderKey, Order), Infallible>> {
        sure(&self.orders)
    }
    fn order_lines(&self) -> impl Iterator<Item = Result<(OrderLineKey, OrderLine), Infallible>> {
        sure(&self.order_lines)
    }
}
