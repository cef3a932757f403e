//! The tables of a cluster: those of one node, divided by warehouse, and copies of the items.

use drtm_drive::Error;
use drtm_htm::NoHtm;
use drtm_rdma::Fabric;
use drtm_txn::{
    Config, Hash, Ordered, PodRef, Table, TableDef,
    cluster::{NodeBuilder, Partition},
};

use crate::{
    Customer, CustomerByName, CustomerKey, CustomerNames, DISTRICTS, District, DistrictKey, History, HistoryKey, Item,
    NewOrder, Order, OrderByCustomer, OrderKey, OrderLine, OrderLineKey, Scale, StockKey, Warehouse, WarehouseKey,
    stock::StockRow,
    tables::{self, Layout},
};

pub(super) const ITEM_COPY: &str = "item copy";

/// The copy of the items that a node has.
pub(super) type ItemCopyKey = (u16, u32);

#[derive(Clone, Copy, Debug)]
pub struct Tables<R: StockRow> {
    pub(super) warehouses: Table<WarehouseKey, PodRef<Warehouse>>,
    pub(super) districts: Table<DistrictKey, PodRef<District>>,
    pub(super) customers: Table<CustomerKey, PodRef<Customer>>,
    /// Where they were paid.
    pub(super) histories: Table<HistoryKey, PodRef<History>>,
    pub(super) new_orders: Table<OrderKey, PodRef<NewOrder>, Ordered>,
    pub(super) orders: Table<OrderKey, PodRef<Order>>,
    pub(super) order_lines: Table<OrderLineKey, PodRef<OrderLine>, Ordered>,
    pub(super) stocks: Table<StockKey, PodRef<R>>,
    /// The workload keeps these two itself.
    pub(super) customers_by_name: Table<CustomerByName, PodRef<CustomerNames>, Ordered>,
    pub(super) orders_by_customer: Table<OrderByCustomer, PodRef<()>, Ordered>,
    /// By node.
    pub(super) items: Table<ItemCopyKey, PodRef<Item>>,
}

/// Where a warehouse is. They are numbered from one.
pub(super) fn of_warehouse(warehouse: WarehouseKey) -> u64 {
    u64::from(warehouse) - 1
}

/// Where the row of a key is whose warehouse is this.
macro_rules! by_warehouse {
    (|$key:ident: $of:ty| $warehouse:expr) => {
        // A key that is none, such as a bound of a range, is somewhere.
        Partition::by("warehouse", |$key: &$of| u64::from($warehouse).wrapping_sub(1))
    };
}

impl<R: StockRow> Tables<R> {
    pub(super) fn open<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        node: &mut NodeBuilder<F, S>,
        scale: &Scale,
    ) -> Result<Self, Error> {
        let warehouses = u64::from(scale.warehouses());
        let customers = warehouses * u64::from(DISTRICTS) * u64::from(scale.customers());
        let (districts, stocks) = (warehouses * u64::from(DISTRICTS), warehouses * u64::from(scale.items()));
        // Keys of orders are as those of customers.
        let by_order = by_warehouse!(|key: OrderKey| key.0);
        Ok(Self {
            warehouses: node
                .table(Hash::def(tables::WAREHOUSE, warehouses), by_warehouse!(|key: WarehouseKey| *key))?,
            districts: node.table(Hash::def(tables::DISTRICT, districts), by_warehouse!(|key: DistrictKey| key.0))?,
            customers: node.table(Hash::def(tables::CUSTOMER, customers), by_order)?,
            histories: node.table(Hash::def(tables::HISTORY, customers), by_warehouse!(|key: HistoryKey| key.0))?,
            new_orders: node.table(TableDef::ordered(tables::NEW_ORDER), by_order)?,
            orders: node.table(Hash::def(tables::ORDER, customers), by_order)?,
            order_lines: node.table(TableDef::ordered(tables::ORDER_LINE), by_warehouse!(|key: OrderLineKey| key.0))?,
            stocks: node.table(Hash::def(tables::STOCK, stocks), by_warehouse!(|key: StockKey| key.0))?,
            customers_by_name: node.table(
                TableDef::ordered(tables::CUSTOMER_BY_NAME),
                by_warehouse!(|key: CustomerByName| key.customer().0),
            )?,
            orders_by_customer: node.table(
                TableDef::ordered(tables::ORDER_BY_CUSTOMER),
                by_warehouse!(|key: OrderByCustomer| key.customer().0),
            )?,
            items: node.table(
                Hash::def(ITEM_COPY, scale.items().into()),
                Partition::by("node", |key: &ItemCopyKey| key.0.into()),
            )?,
        })
    }
}
