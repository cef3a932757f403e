//! NEW-ORDER on several nodes. A warehouse and all that belongs to it is on one node, and so are
//! its terminals. Lines that another warehouse supplies make a transaction distributed.
//!
//! Items never change. Each node has a copy of them, as a table by node and item. Columns do not
//! reach over nodes: whole rows of stock travel.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, num::NonZeroU64, ops::AddAssign};

use drtm_htm::NoHtm;
use drtm_rdma::Fabric;
use drtm_txn::{
    Error as DbError, Hash, Ordered, PodRef, Setting, TableDef,
    cluster::{ClusterTable, ClusterTx, Node, NodeBuilder, Partition, Worker},
};
use serde::{Deserialize, Serialize};
use zerocopy::little_endian::{I64, U16, U32, U64};

use super::{
    Chances, Constants, Customer, CustomerKey, DISTRICTS, District, DistrictKey, Inputs, Item, Loader, NewOrder,
    NewOrderInput, Order, OrderByCustomer, OrderKey, OrderLine, OrderLineKey, Random, Scale, Stock, StockKey,
    Warehouse, WarehouseKey,
    audit::Audit,
    tables::{self, CUSTOMER, DISTRICT, Loading, STOCK, Shelf, WAREHOUSE, there},
    transactions::{Receipt, is_original, take, total},
};
use crate::{
    Error,
    drive::{
        Done,
        cluster::{ClusterWorkload, Place, read},
        miscounted, spread,
    },
};

const ITEM_COPY: &str = "item copy";

/// The reason of the one order of a hundred that is to be rolled back (2.4.1.4).
const UNUSED_ITEM: &str = "an item that there is not";

/// NEW-ORDER on a cluster, with its size.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct NewOrders {
    warehouses: u16,
    customers: u32,
    items: u32,
    remote_items: u8,
    seed: u64,
    /// Of the population, in microseconds.
    date: NonZeroU64,
}

impl NewOrders {
    pub(crate) fn new(scale: Scale, chances: Chances, seed: u64, date: NonZeroU64) -> Self {
        let (warehouses, customers, items) = (scale.warehouses(), scale.customers(), scale.items());
        Self { warehouses, customers, items, remote_items: chances.remote_item, seed, date }
    }

    fn scale(&self) -> Result<Scale, Error> {
        Ok(Scale::new(self.warehouses)?.with_customers(self.customers)?.with_items(self.items)?)
    }

    fn loader(&self) -> Result<Loader, Error> {
        Ok(Loader::new(self.scale()?, self.seed, self.date))
    }

    /// The warehouses of a node.
    fn own(&self, place: Place) -> impl Iterator<Item = WarehouseKey> + use<> {
        (place.node + 1..=self.warehouses).step_by(place.nodes.into())
    }
}

/// Where a warehouse is. They are numbered from one.
fn of_warehouse(warehouse: WarehouseKey) -> u64 {
    u64::from(warehouse) - 1
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Tables {
    warehouses: ClusterTable<WarehouseKey, PodRef<Warehouse>>,
    districts: ClusterTable<DistrictKey, PodRef<District>>,
    customers: ClusterTable<CustomerKey, PodRef<Customer>>,
    new_orders: ClusterTable<OrderKey, PodRef<NewOrder>, Ordered>,
    orders: ClusterTable<OrderKey, PodRef<Order>>,
    orders_by_customer: ClusterTable<OrderByCustomer, PodRef<()>, Ordered>,
    order_lines: ClusterTable<OrderLineKey, PodRef<OrderLine>, Ordered>,
    stocks: ClusterTable<StockKey, PodRef<Stock>>,
    /// By node.
    items: ClusterTable<(u16, u32), PodRef<Item>>,
}

/// What clients have counted: the rows tell everything.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Nothing;

impl AddAssign for Nothing {
    fn add_assign(&mut self, _other: Self) {}
}

/// A terminal.
#[derive(Debug)]
pub(crate) struct Client {
    inputs: Inputs,
    node: u16,
}

impl Tables {
    /// Orders all lines of an input, or none.
    async fn order<F: Fabric<Engine = NoHtm>, S: Setting<Engine = NoHtm>>(
        self,
        tx: &mut ClusterTx<'_, F, S>,
        node: u16,
        input: &NewOrderInput,
        date: u64,
    ) -> Result<Receipt, DbError> {
        let (warehouse, district, customer) = input.customer;
        // The only rows that other nodes may have.
        tx.prefetch(self.stocks, input.stocks()).await?;
        let tax = there(tx.get(self.warehouses, &warehouse).await?, WAREHOUSE)?.tax.get();
        let district_key = (warehouse, district);
        let taken = tx.update(self.districts, &district_key, |row| {
            let number = row.next_order.get();
            row.next_order.set(number + 1);
            (number, row.tax.get())
        });
        let (number, district_tax) = there(taken.await?, DISTRICT)?;
        let account = there(tx.get(self.customers, &input.customer).await?, CUSTOMER)?.account;
        let (mut sum, mut brands) = (0, 0);
        for (line, place) in input.lines().iter().zip(1..) {
            let item = tx.get(self.items, &(node, line.item)).await?.ok_or_else(|| DbError::aborted(UNUSED_ITEM))?;
            let amount = item.price.get() * i64::from(line.quantity);
            let is_remote = line.supply_warehouse != warehouse;
            let stock_key = (line.supply_warehouse, line.item);
            let sold = tx.update(self.stocks, &stock_key, |stock| {
                take(&mut stock.supply, line.quantity, is_remote);
                let info = stock.districts[usize::from(district.wrapping_sub(1) % DISTRICTS)];
                (info, is_original(&stock.supply.data))
            });
            let (district_info, is_original_stock) = there(sold.await?, STOCK)?;
            let row = OrderLine {
                item: U32::new(line.item),
                supply_warehouse: U16::new(line.supply_warehouse),
                delivery_date: U64::new(0),
                quantity: line.quantity,
                amount: I64::new(amount),
                district_info,
            };
            tx.insert(self.order_lines, &(warehouse, district, number, place), &row).await?;
            sum += amount;
            brands += u8::from(is_original_stock && is_original(&item.data));
        }
        let key = (warehouse, district, number);
        let row = Order {
            customer: U32::new(customer),
            entry_date: U64::new(date),
            carrier: 0,
            line_count: input.lines().len() as u8,
            all_local: input.is_all_local().into(),
        };
        tx.insert(self.orders, &key, &row).await?;
        let by_customer =
            OrderByCustomer::new(input.customer, number).map_err(|error| DbError::aborted(error.to_string()))?;
        tx.insert(self.orders_by_customer, by_customer, &()).await?;
        tx.insert(self.new_orders, &key, &NewOrder).await?;
        let total = total(sum, account.discount.get(), tax + district_tax);
        Ok(Receipt { number, total, last: account.last, credit: account.credit, brands })
    }
}

impl ClusterWorkload for NewOrders {
    const NAME: &'static str = "tpcc";
    const KINDS: &'static [&'static str] = &["new-order"];
    type Tables = Tables;
    type Client = Client;
    type Count = Nothing;

    fn size(&self) -> Vec<(&'static str, serde_json::Value)> {
        vec![
            ("warehouses", self.warehouses.into()),
            ("customers", self.customers.into()),
            ("items", self.items.into()),
            ("mix", "new-order".into()),
            ("remote_items", self.remote_items.into()),
        ]
    }

    fn open<F: Fabric<Engine = NoHtm>, S: Setting<Engine = NoHtm>>(
        &self,
        node: &mut NodeBuilder<F, S>,
    ) -> Result<Tables, Error> {
        let scale = self.scale()?;
        let warehouses = u64::from(scale.warehouses());
        let customers = warehouses * u64::from(DISTRICTS) * u64::from(scale.customers());
        let (districts, stocks) = (warehouses * u64::from(DISTRICTS), warehouses * u64::from(scale.items()));
        let by_district = Partition::by("warehouse", |key: &DistrictKey| of_warehouse(key.0));
        let by_order = Partition::by("warehouse", |key: &OrderKey| of_warehouse(key.0));
        let by_customer = Partition::by("warehouse", |key: &OrderByCustomer| of_warehouse(key.customer().0));
        let by_line = Partition::by("warehouse", |key: &OrderLineKey| of_warehouse(key.0));
        let by_stock = Partition::by("warehouse", |key: &StockKey| of_warehouse(key.0));
        Ok(Tables {
            warehouses: node
                .table(Hash::def(WAREHOUSE, warehouses), Partition::by("warehouse", |key| of_warehouse(*key)))?,
            districts: node.table(Hash::def(DISTRICT, districts), by_district)?,
            // As keys of orders are.
            customers: node.table(Hash::def(CUSTOMER, customers), by_order)?,
            new_orders: node.table(TableDef::ordered(tables::NEW_ORDER), by_order)?,
            orders: node.table(Hash::def(tables::ORDER, customers), by_order)?,
            orders_by_customer: node.table(TableDef::ordered(tables::ORDER_BY_CUSTOMER), by_customer)?,
            order_lines: node.table(TableDef::ordered(tables::ORDER_LINE), by_line)?,
            stocks: node.table(Hash::def(STOCK, stocks), by_stock)?,
            items: node.table(
                Hash::def(ITEM_COPY, scale.items().into()),
                Partition::by("node", |key: &(u16, u32)| key.0.into()),
            )?,
        })
    }

    fn load<F: Fabric<Engine = NoHtm>, S: Setting<Engine = NoHtm>>(
        &self,
        node: &Node<F, S>,
        place: Place,
    ) -> Result<(), Error> {
        let (db, loader) = (node.local(), self.loader()?);
        // The tables of one node: those of the cluster, and those that NEW-ORDER does not use.
        let local = tables::Tables::<Hash>::open(db, &loader.scale())?;
        let copies = db.table::<(u16, u32), PodRef<Item>, _>(Hash::def(ITEM_COPY, self.items.into()))?;
        loader.items(&mut Loading { db, tables: local })?;
        for item in 1..=self.items {
            db.transact(|tx| {
                let row = there(tx.get(local.items, item)?, tables::ITEM)?;
                tx.insert(copies, (place.node, item), &row)
            })?;
        }
        self.own(place).try_for_each(|warehouse| loader.warehouse(warehouse, &mut Loading { db, tables: local }))
    }

    fn client(&self, place: Place, number: usize) -> Result<Client, Error> {
        let loader = self.loader()?;
        let own: Vec<WarehouseKey> = self.own(place).collect();
        let Some(warehouse) = own.get(number % own.len().max(1)) else {
            let instead = "give each node one warehouse or more, by --warehouses";
            return Err(Error::Options { option: "--nodes", with: "fewer warehouses", instead });
        };
        let home = (*warehouse, (number / own.len() % usize::from(DISTRICTS)) as u8 + 1);
        let chances = Chances { remote_item: self.remote_items, ..Chances::STANDARD };
        let run = Constants::for_run(loader.constants(), &mut Random::seeded(spread(self.seed, 0)));
        let random = Random::seeded(spread(self.seed, number + 1));
        Ok(Client { inputs: Inputs::new(loader.scale(), run, chances, home, random)?, node: place.node })
    }

    async fn run_next<F: Fabric<Engine = NoHtm>, S: Setting<Engine = NoHtm>>(
        &self,
        worker: &Worker<'_, F, S>,
        tables: Tables,
        client: &mut Client,
    ) -> Result<Done, Error> {
        let input = client.inputs.new_order();
        let date = self.date.get() + worker.endpoint().now().nanos() / 1_000;
        let ordered = worker.transact(async |tx| tables.order(tx, client.node, &input, date).await);
        match ordered.await {
            Ok(receipt) => {
                std::hint::black_box(receipt);
                Ok(Done { kind: 0, is_committed: true })
            }
            Err(DbError::Aborted { reason }) if reason == UNUSED_ITEM => Ok(Done { kind: 0, is_committed: false }),
            Err(error) => Err(error.into()),
        }
    }

    fn count(_client: Client) -> Nothing {
        Nothing
    }

    /// What was taken from each warehouse's stock is what orders of all warehouses say.
    async fn check<F: Fabric<Engine = NoHtm>, S: Setting<Engine = NoHtm>>(
        &self,
        worker: &Worker<'_, F, S>,
        tables: Tables,
        _count: &mut Nothing,
    ) -> Result<Vec<String>, Error> {
        let warehouses = 1..=self.warehouses;
        let districts = warehouses.clone().flat_map(|warehouse| (1..=DISTRICTS).map(move |number| (warehouse, number)));
        let mut taken: BTreeMap<StockKey, Taken> = BTreeMap::new();
        for (key, district) in read(worker, tables.districts, districts).await? {
            let numbers = self.customers + 1..district.next_order.get();
            let orders = read(worker, tables.orders, numbers.map(|number| (key.0, key.1, number))).await?;
            let lines = orders.iter().flat_map(|((warehouse, district, number), order)| {
                (1..=order.line_count).map(|line| (*warehouse, *district, *number, line))
            });
            for (_, line) in read(worker, tables.order_lines, lines).await? {
                let supply = line.supply_warehouse.get();
                taken.entry((supply, line.item.get())).or_default().add(&line, supply != key.0);
            }
        }
        let mut violations = Vec::new();
        for warehouse in warehouses {
            for (key, stock) in read(worker, tables.stocks, (1..=self.items).map(|item| (warehouse, item))).await? {
                let (says, taken) = (Taken::of(&stock), taken.remove(&key).unwrap_or_default());
                if says != taken {
                    violations.push(format!("stock {key:?} says that {says:?}, and orders that {taken:?}"));
                }
            }
        }
        violations.extend(taken.keys().map(|key| format!("stock {key:?} was ordered, and is not there")));
        Ok(violations)
    }

    /// The specification's conditions, the indexes, and the number of rows, of the warehouses that
    /// the node has.
    fn check_node<F: Fabric<Engine = NoHtm>, S: Setting<Engine = NoHtm>>(
        &self,
        node: &Node<F, S>,
        place: Place,
    ) -> Result<Vec<String>, Error> {
        let (db, scale) = (node.local(), self.scale()?);
        let local = tables::Tables::<Hash>::open(db, &scale)?;
        let audit = Audit::new(db, local, scale, []).of(place.node + 1, place.nodes);
        let mut violations = audit.violations()?;
        violations.extend(miscounted(db, &[(ITEM_COPY, self.items.into())])?);
        Ok(violations)
    }
}

/// What was taken from a stock since it was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Taken {
    quantity: u32,
    orders: u32,
    remote: u32,
}

impl Taken {
    fn of(stock: &Stock) -> Self {
        let supply = &stock.supply;
        Self { quantity: supply.ytd.get(), orders: supply.order_count.get(), remote: supply.remote_count.get() }
    }

    fn add(&mut self, line: &OrderLine, is_remote: bool) {
        self.quantity += u32::from(line.quantity);
        self.orders += 1;
        self.remote += u32::from(is_remote);
    }
}
