//! The population, divided among nodes.

use std::{collections::HashMap, convert::Infallible};

use drtm_tpcc::{
    Customer, CustomerKey, District, DistrictKey, History, HistoryKey, Item, ItemKey, NewOrder, Order, OrderKey,
    OrderLine, OrderLineKey, Scale, Sink, Stock, StockKey, Warehouse, WarehouseKey,
};
use zerocopy::IntoBytes;

use super::{
    by_first_name,
    keys::{Table, of_warehouse, warehouse_of},
};
use crate::{Key, Store};

/// What all nodes know of the customers with a last name: first names and numbers, and later the
/// middle one.
type Names = HashMap<(DistrictKey, [u8; 16]), Vec<([u8; 16], u32)>>;

pub(super) struct Loading {
    scale: Scale,
    stores: Vec<Store>,
    items: Vec<Item>,
    names: Names,
}

impl Loading {
    pub(super) fn new(scale: Scale, nodes: u16) -> Self {
        let stores = (0..nodes).map(|_| Store::default()).collect();
        Self { scale, stores, items: Vec::new(), names: Names::new() }
    }

    #[expect(clippy::type_complexity, reason = "the parts of what it makes")]
    pub(super) fn finish(self) -> (Vec<Store>, Vec<Item>, HashMap<(DistrictKey, [u8; 16]), u32>) {
        let middle = |mut named: Vec<([u8; 16], u32)>| {
            named.sort_unstable();
            named.get(named.len().div_ceil(2).saturating_sub(1)).map_or(0, |(_, customer)| *customer)
        };
        let by_name = self.names.into_iter().map(|(name, named)| (name, middle(named))).collect();
        (self.stores, self.items, by_name)
    }

    fn put(&mut self, key: Key, row: &[u8]) -> Result<(), Infallible> {
        let node = of_warehouse(warehouse_of(key), self.stores.len() as u16);
        self.stores[usize::from(node.0)].put(key, row.into());
        Ok(())
    }
}

impl Sink for Loading {
    type Error = Infallible;

    fn warehouse(&mut self, key: WarehouseKey, row: &Warehouse) -> Result<(), Infallible> {
        self.put(Table::Warehouse.of(key, 0, 0, 0), row.as_bytes())
    }

    fn district(&mut self, key: DistrictKey, row: &District) -> Result<(), Infallible> {
        let oldest = self.scale.customers() - self.scale.undelivered() + 1;
        self.put(Table::Oldest.of(key.0, key.1, 0, 0), &oldest.to_le_bytes())?;
        self.put(Table::District.of(key.0, key.1, 0, 0), row.as_bytes())
    }

    fn customer(&mut self, key: CustomerKey, row: &Customer) -> Result<(), Infallible> {
        let name = ((key.0, key.1), *row.account.last.padded());
        self.names.entry(name).or_default().push((by_first_name(row), key.2));
        self.put(Table::Customer.customer(key), row.as_bytes())
    }

    fn history(&mut self, (warehouse, writer, count): HistoryKey, row: &History) -> Result<(), Infallible> {
        self.put(Table::History.of(warehouse, writer as u8, count, 0), row.as_bytes())
    }

    fn new_order(&mut self, key: OrderKey, row: &NewOrder) -> Result<(), Infallible> {
        self.put(Table::NewOrder.customer(key), row.as_bytes())
    }

    fn order(&mut self, key: OrderKey, row: &Order) -> Result<(), Infallible> {
        let last = Table::LastOrder.of(key.0, key.1, row.customer.get(), 0);
        self.put(last, &key.2.to_le_bytes())?;
        self.put(Table::Order.customer(key), row.as_bytes())
    }

    fn order_line(&mut self, key: OrderLineKey, row: &OrderLine) -> Result<(), Infallible> {
        self.put(Table::OrderLine.of(key.0, key.1, key.2, key.3), row.as_bytes())
    }

    fn item(&mut self, _key: ItemKey, row: &Item) -> Result<(), Infallible> {
        self.items.push(*row);
        Ok(())
    }

    /// Without the S_DIST columns, as in the simulated figures of DrTM.
    fn stock(&mut self, key: StockKey, row: &Stock) -> Result<(), Infallible> {
        self.put(Table::Stock.of(key.0, 0, key.1, 0), row.supply.as_bytes())
    }
}
