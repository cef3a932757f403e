//! The view of a database's rows for the checks, and the check of the indexes.
//!
//! No transaction may run meanwhile, so warehouses can be read one after the other. In a hash
//! table, the rows of all expected keys are read; the number of rows shows that there are no
//! others.

use std::{cell::RefCell, collections::BTreeMap, ops::RangeInclusive};

use drtm_drive::{Error, miscounted, row_with_key};
use drtm_txn::{Codec, Config, Db, Key, Kind, Ordered, Table};
use serde::{Deserialize, Serialize};

use super::{
    Customer, CustomerByName, CustomerKey, DISTRICTS, District, DistrictKey, History, HistoryKey, LOADER, Order,
    OrderByCustomer, OrderKey, OrderLine, OrderLineKey, Scale, Stock, View, Warehouse, WarehouseKey, check,
    stock::StockRow,
    tables::{self, Layout, Tables, expect_row},
};

/// The number of payments that a writer recorded, counted from zero.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Payments {
    /// Where they were paid; `None` for any warehouse.
    pub(super) warehouse: Option<WarehouseKey>,
    pub(super) writer: u16,
    pub(super) count: u32,
}

/// A database in which no transaction is in progress.
pub(super) struct Audit<'db, S: Config, O: Layout, R: StockRow = Stock> {
    db: &'db Db<S>,
    tables: Tables<O, R>,
    scale: Scale,
    /// The first warehouse on this node, and the distance to its next one.
    here: (WarehouseKey, u16),
    /// Recorded payments, except the loader's.
    payments: Vec<Payments>,
    /// Payments recorded on other nodes, by customers that may be on this one.
    elsewhere: Vec<(HistoryKey, History)>,
    /// The number of rows read of each table.
    seen: RefCell<BTreeMap<&'static str, u64>>,
}

impl<'db, S: Config, Shelved: Layout, R: StockRow> Audit<'db, S, Shelved, R> {
    /// Creates an audit, with the recorded payments except the loader's.
    pub(super) fn new(
        db: &'db Db<S>,
        tables: Tables<Shelved, R>,
        scale: Scale,
        payments: impl IntoIterator<Item = Payments>,
    ) -> Self {
        let (payments, elsewhere) = (payments.into_iter().collect(), Vec::new());
        Self { db, tables, scale, here: (1, 1), payments, elsewhere, seen: RefCell::default() }
    }

    /// Restricts the audit to the warehouses of one of several nodes: every `step`th, starting at
    /// `first`. Adds payments that other nodes recorded.
    pub(super) fn of(self, first: WarehouseKey, step: u16, elsewhere: Vec<(HistoryKey, History)>) -> Self {
        Self { here: (first, step), elsewhere, ..self }
    }

    /// Returns the violations, in words.
    pub(super) fn violations(&self) -> Result<Vec<String>, Error> {
        let found = check(self, &self.scale)?;
        let here = found.iter().filter(|violation| self.has(violation.place.warehouse()));
        let mut violations: Vec<String> = here.map(ToString::to_string).collect();
        self.check_names(&mut violations)?;
        self.check_orders(&mut violations)?;
        let stocks = self.warehouse_keys().count() as u64 * u64::from(self.scale.items());
        self.seen.borrow_mut().extend([(tables::ITEM, self.scale.items().into()), (tables::STOCK, stocks)]);
        if self.tables.stock_infos.is_some() {
            self.seen.borrow_mut().insert(tables::STOCK_INFO, stocks);
        }
        let seen: Vec<(&str, u64)> = self.seen.borrow().iter().map(|(table, rows)| (*table, *rows)).collect();
        violations.extend(miscounted(self.db, &seen)?);
        Ok(violations)
    }

    /// Checks that the index finds each customer by its name. The number of entries shows that
    /// there are no others.
    fn check_names(&self, violations: &mut Vec<String>) -> Result<(), Error> {
        for customer in self.customers() {
            let (key, row) = customer?;
            let by_name = CustomerByName::new(key, &row.account.last)?;
            let names = self.db.transact(|tx| tx.get(self.tables.customers_by_name, by_name))?;
            if names.is_none_or(|names| names.last != row.account.last || names.first != row.first) {
                violations.push(format!("customer {key:?} is not found by its name"));
            }
            self.count(tables::CUSTOMER_BY_NAME, 1);
        }
        Ok(())
    }

    /// Checks that the index finds each order by its customer, and has no other entry.
    fn check_orders(&self, violations: &mut Vec<String>) -> Result<(), Error> {
        for order in self.orders() {
            let (key, row) = order?;
            let (warehouse, district, number) = key;
            let by_customer = OrderByCustomer::new((warehouse, district, row.customer.get()), number)?;
            if !self.db.transact(|tx| tx.contains(self.tables.orders_by_customer, by_customer))? {
                violations.push(format!("order {key:?} is not found by its customer"));
            }
            self.count(tables::ORDER_BY_CUSTOMER, 1);
        }
        Ok(())
    }

    fn count(&self, table: &'static str, rows: u64) {
        *self.seen.borrow_mut().entry(table).or_default() += rows;
    }

    fn warehouse_keys(&self) -> impl Iterator<Item = WarehouseKey> + use<S, Shelved, R> {
        let (first, step) = self.here;
        (first..=self.scale.warehouses()).step_by(step.into())
    }

    fn has(&self, warehouse: WarehouseKey) -> bool {
        let (first, step) = self.here;
        warehouse % step == first % step
    }

    fn district_keys(&self) -> impl Iterator<Item = DistrictKey> + use<S, Shelved, R> {
        self.warehouse_keys().flat_map(|warehouse| (1..=DISTRICTS).map(move |district| (warehouse, district)))
    }

    /// Returns the existing rows of these keys.
    fn rows<K: Key, C: Codec, O: Kind>(
        &self,
        name: &'static str,
        table: Table<K, C, O>,
        keys: impl Iterator<Item = K>,
    ) -> impl Iterator<Item = Result<(K, C::Value), Error>> {
        self.seen.borrow_mut().insert(name, 0);
        keys.filter_map(move |key| {
            let row = self.db.transact(|tx| tx.get(table, &key));
            row_with_key(key, row).inspect(|_| self.count(name, 1))
        })
    }

    /// Returns the rows of each warehouse.
    fn ranges<K: Key, C: Codec>(
        &self,
        name: &'static str,
        table: Table<K, C, Ordered>,
        range: impl Fn(WarehouseKey) -> RangeInclusive<K>,
    ) -> impl Iterator<Item = Result<(K, C::Value), Error>> {
        self.seen.borrow_mut().insert(name, 0);
        self.warehouse_keys().flat_map(move |warehouse| {
            let (start, end) = range(warehouse).into_inner();
            let read: Result<Vec<_>, _> = self.db.transact(|tx| tx.range(table, &start..=&end)?.rows().collect());
            let (rows, error) = read.map_or_else(|error| (Vec::new(), Some(error)), |rows| (rows, None));
            self.count(name, rows.len() as u64);
            rows.into_iter().map(Ok).chain(error.map(|error| Err(error.into())))
        })
    }
}

impl<S: Config, O: Layout, R: StockRow> View for Audit<'_, S, O, R> {
    type Error = Error;

    fn warehouses(&self) -> impl Iterator<Item = Result<(WarehouseKey, Warehouse), Error>> {
        self.rows(tables::WAREHOUSE, self.tables.warehouses, self.warehouse_keys())
    }

    fn districts(&self) -> impl Iterator<Item = Result<(DistrictKey, District), Error>> {
        self.rows(tables::DISTRICT, self.tables.districts, self.district_keys())
    }

    fn customers(&self) -> impl Iterator<Item = Result<(CustomerKey, Customer), Error>> {
        let customers = self.scale.customers();
        let keys = self.district_keys().flat_map(move |(warehouse, district)| {
            (1..=customers).map(move |customer| (warehouse, district, customer))
        });
        self.rows(tables::CUSTOMER, self.tables.customers, keys)
    }

    fn histories(&self) -> impl Iterator<Item = Result<(HistoryKey, History), Error>> {
        let loaded = u32::from(DISTRICTS) * self.scale.customers();
        let keys = self.warehouse_keys().flat_map(move |warehouse| {
            let loaded = (1..=loaded).map(move |count| (warehouse, LOADER, count));
            let may_be_here = move |paid: &&Payments| paid.warehouse.is_none_or(|paid_at| paid_at == warehouse);
            let paid = self.payments.iter().filter(may_be_here);
            let paid = paid.flat_map(move |paid| (0..paid.count).map(move |count| (warehouse, paid.writer, count)));
            loaded.chain(paid)
        });
        let here = self.rows(tables::HISTORY, self.tables.histories, keys);
        here.chain(self.elsewhere.iter().copied().map(Ok))
    }

    fn new_orders(&self) -> impl Iterator<Item = Result<OrderKey, Error>> {
        let all = |warehouse| (warehouse, 0, 0)..=(warehouse, u8::MAX, u32::MAX);
        self.ranges(tables::NEW_ORDER, self.tables.new_orders, all).map(|row| row.map(|(key, _)| key))
    }

    fn orders(&self) -> impl Iterator<Item = Result<(OrderKey, Order), Error>> {
        let keys = self.district_keys().flat_map(|key| {
            // An unreadable district is reported where districts are read.
            let row = self.db.transact(|tx| expect_row(tx.get(self.tables.districts, &key)?, tables::DISTRICT));
            (1..row.map_or(1, |row| row.next_order.get())).map(move |order| (key.0, key.1, order))
        });
        self.rows(tables::ORDER, self.tables.orders, keys)
    }

    fn order_lines(&self) -> impl Iterator<Item = Result<(OrderLineKey, OrderLine), Error>> {
        let all = |warehouse| (warehouse, 0, 0, 0)..=(warehouse, u8::MAX, u32::MAX, u8::MAX);
        self.ranges(tables::ORDER_LINE, self.tables.order_lines, all)
    }
}
