//! The nine tables and the two indexes of a database, and how they are loaded.
//!
//! A table is ordered if a transaction scans ranges of it. The other tables are hashed, or also
//! ordered, to measure that cost.

use drtm_drive::Error as BenchError;
use drtm_txn::{Codec, Config, Db, Error, Hash, Key, Kind, Ordered, PodRef, Table, TableDef};

use super::{
    Customer, CustomerByName, CustomerKey, CustomerNames, DISTRICTS, District, DistrictKey, History, HistoryKey, Item,
    ItemKey, NewOrder, Order, OrderByCustomer, OrderKey, OrderLine, OrderLineKey, Scale, Sink, Stock, StockKey,
    Warehouse, WarehouseKey,
    stock::{Infos, StockRow},
};

/// Kinds of tables for rows that are never scanned.
pub trait Layout: Kind {
    /// Defines a table with room for this many rows, if it takes the hint.
    fn def<K: Key, C: Codec>(name: &'static str, rows: u64) -> TableDef<K, C, Self>
    where
        Self: Sized;
}

impl Layout for Hash {
    fn def<K: Key, C: Codec>(name: &'static str, rows: u64) -> TableDef<K, C, Self> {
        TableDef::hash(name).with_room_for(rows)
    }
}

impl Layout for Ordered {
    fn def<K: Key, C: Codec>(name: &'static str, _rows: u64) -> TableDef<K, C, Self> {
        TableDef::ordered(name)
    }
}

/// The tables of a database, whose stocks have rows like this.
#[derive(Clone, Copy, Debug)]
pub struct Tables<O: Layout = Hash, R: StockRow = Stock> {
    pub(super) warehouses: Table<WarehouseKey, PodRef<Warehouse>, O>,
    pub(super) districts: Table<DistrictKey, PodRef<District>, O>,
    pub(super) customers: Table<CustomerKey, PodRef<Customer>, O>,
    pub(super) histories: Table<HistoryKey, PodRef<History>, O>,
    /// The oldest order of a district is the first of a range.
    pub(super) new_orders: Table<OrderKey, PodRef<NewOrder>, Ordered>,
    pub(super) orders: Table<OrderKey, PodRef<Order>, O>,
    /// The lines of the last twenty orders are a range.
    pub(super) order_lines: Table<OrderLineKey, PodRef<OrderLine>, Ordered>,
    pub(super) items: Table<ItemKey, PodRef<Item>, O>,
    pub(super) stocks: Table<StockKey, PodRef<R>, O>,
    /// The other columns of stocks, if their rows are narrow.
    pub(super) stock_infos: Option<Table<StockKey, PodRef<Infos>, O>>,
    /// The customers with one name are a range.
    pub(super) customers_by_name: Table<CustomerByName, PodRef<CustomerNames>, Ordered>,
    /// A customer's last order is the last of a range.
    pub(super) orders_by_customer: Table<OrderByCustomer, PodRef<()>, Ordered>,
    /// Whether transactions prefetch rows. If not, they are in their plain form.
    pub(super) prefetches: bool,
}

pub(super) const WAREHOUSE: &str = "warehouse";
pub(super) const DISTRICT: &str = "district";
pub(super) const CUSTOMER: &str = "customer";
pub(super) const HISTORY: &str = "history";
pub(super) const NEW_ORDER: &str = "new-order";
pub(super) const ORDER: &str = "order";
pub(super) const ORDER_LINE: &str = "order-line";
pub(super) const ITEM: &str = "item";
pub(super) const STOCK: &str = "stock";
pub(super) const STOCK_INFO: &str = "stock info";
pub(super) const CUSTOMER_BY_NAME: &str = "customer by name";
pub(super) const ORDER_BY_CUSTOMER: &str = "order by customer";

impl<O: Layout, R: StockRow> Tables<O, R> {
    pub(super) fn open<S: Config>(db: &Db<S>, scale: &Scale) -> Result<Self, Error> {
        let warehouses = u64::from(scale.warehouses());
        let stocks = warehouses * u64::from(scale.items());
        let customers = warehouses * u64::from(DISTRICTS) * u64::from(scale.customers());
        Ok(Self {
            warehouses: db.table(O::def(WAREHOUSE, warehouses))?,
            districts: db.table(O::def(DISTRICT, warehouses * u64::from(DISTRICTS)))?,
            customers: db.table(O::def(CUSTOMER, customers))?,
            histories: db.table(O::def(HISTORY, customers))?,
            new_orders: db.table(TableDef::ordered(NEW_ORDER))?,
            orders: db.table(O::def(ORDER, customers))?,
            order_lines: db.table(TableDef::ordered(ORDER_LINE))?,
            items: db.table(O::def(ITEM, scale.items().into()))?,
            stocks: db.table(O::def(STOCK, stocks))?,
            stock_infos: R::IS_NARROW.then(|| db.table(O::def(STOCK_INFO, stocks))).transpose()?,
            customers_by_name: db.table(TableDef::ordered(CUSTOMER_BY_NAME))?,
            orders_by_customer: db.table(TableDef::ordered(ORDER_BY_CUSTOMER))?,
            prefetches: true,
        })
    }

    /// Sets whether transactions prefetch rows.
    pub(super) fn prefetching(self, prefetches: bool) -> Self {
        Self { prefetches, ..self }
    }
}

/// A database as the sink of a [`Loader`](super::Loader): each row in a transaction of its own,
/// together with its index entry.
pub(super) struct Loading<'db, S: Config, O: Layout, R: StockRow = Stock> {
    pub(super) db: &'db Db<S>,
    pub(super) tables: Tables<O, R>,
}

macro_rules! plainly {
    ($($table:ident, $row:ident: $key:ty => $value:ty;)+) => {
        $(fn $row(&mut self, key: $key, row: &$value) -> Result<(), BenchError> {
            Ok(self.db.transact(|tx| tx.insert(self.tables.$table, &key, row))?)
        })+
    };
}

impl<S: Config, O: Layout, R: StockRow> Sink for Loading<'_, S, O, R> {
    type Error = BenchError;

    plainly! {
        warehouses, warehouse: WarehouseKey => Warehouse;
        districts, district: DistrictKey => District;
        histories, history: HistoryKey => History;
        new_orders, new_order: OrderKey => NewOrder;
        order_lines, order_line: OrderLineKey => OrderLine;
        items, item: ItemKey => Item;
    }

    fn stock(&mut self, key: StockKey, row: &Stock) -> Result<(), BenchError> {
        let Self { db, tables } = self;
        Ok(db.transact(|tx| {
            tx.insert(tables.stocks, key, &R::of(row))?;
            tables.stock_infos.map_or(Ok(()), |infos| tx.insert(infos, key, &row.districts))
        })?)
    }

    fn customer(&mut self, key: CustomerKey, row: &Customer) -> Result<(), BenchError> {
        let Self { db, tables } = self;
        let by_name = CustomerByName::new(key, &row.account.last)?;
        Ok(db.transact(|tx| {
            tx.insert(tables.customers, key, row)?;
            tx.insert(tables.customers_by_name, by_name, &CustomerNames { last: row.account.last, first: row.first })
        })?)
    }

    fn order(&mut self, key: OrderKey, row: &Order) -> Result<(), BenchError> {
        let Self { db, tables } = self;
        let (warehouse, district, number) = key;
        let by_customer = OrderByCustomer::new((warehouse, district, row.customer.get()), number)?;
        Ok(db.transact(|tx| {
            tx.insert(tables.orders, key, row)?;
            tx.insert(tables.orders_by_customer, by_customer, &())
        })?)
    }
}

/// Returns a row that must exist.
#[inline(always)]
pub(super) fn expect_row<T>(row: Option<T>, table: &'static str) -> Result<T, Error> {
    match row {
        Some(row) => Ok(row),
        None => Err(missing(table)),
    }
}

/// Makes the error. Not inlined: one made ahead would have to be dropped, too.
#[cold]
fn missing(table: &'static str) -> Error {
    Error::Missing { table }
}
