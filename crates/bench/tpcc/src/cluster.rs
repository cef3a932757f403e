//! TPC-C on several nodes. A warehouse and all that belongs to it is on one node, and so are its
//! terminals. Lines that another warehouse supplies, and payments by customers of another one, make
//! a transaction distributed.
//!
//! Items never change: each node has a copy of them, as a table by node and item. Customers by name
//! and orders by customer are ordered tables, which the workload keeps itself.
//!
//! - [`tables`]: where rows are. [`transactions`]: the five.

#[cfg(test)]
mod tests;

mod tables;
mod transactions;

use std::{collections::BTreeMap, hint::black_box, marker::PhantomData, num::NonZeroU64, ops::AddAssign};

use drtm_htm::NoHtm;
use drtm_rdma::Fabric;
use drtm_txn::{
    Config, Error as DbError, Hash, PodRef, Transaction as _,
    cluster::{Node, NodeBuilder, Worker},
};
use serde::{Deserialize, Serialize};

use super::{
    Chances, Constants, DISTRICTS, Deck, DistrictKey, HistoryKey, Inputs, Item, Kind, Loader, MixName, OrderLine,
    Random, Scale, Stock, StockKey, Supply, WarehouseKey,
    audit::{Audit, Payments},
    stock::StockRow,
    tables::{DISTRICT, ITEM, Layout, Loading, Tables as LocalTables, expect_row},
    terminals::KINDS,
};
use drtm_drive::{
    Done, Error, Runner,
    cluster::{ClusterWorkload, Place, look_up, read},
    miscounted, spread, transact,
};
use drtm_report::name_of;
use tables::{ITEM_COPY, ItemCopyKey, Tables, of_warehouse};
use transactions::{Deliver, LastOrder, LowStock, Oldest, Order, Pay, UNUSED_ITEM};

/// TPC-C on a cluster, with its size. Rows of stock are like `R`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Distributed<R: StockRow = Stock> {
    warehouses: u16,
    customers: u32,
    items: u32,
    mix: MixName,
    remote_items: u8,
    remote_payments: u8,
    /// Whether all items are equally likely.
    is_uniform: bool,
    seed: u64,
    /// Of the population, in microseconds.
    date: NonZeroU64,
    stocks: PhantomData<R>,
}

impl<R: StockRow> Distributed<R> {
    /// Creates the workload. The date is in microseconds since 1970.
    pub fn new(scale: Scale, mix: MixName, chances: Chances, seed: u64, date: NonZeroU64) -> Self {
        let (warehouses, customers, items) = (scale.warehouses(), scale.customers(), scale.items());
        let (remote_items, remote_payments) = (chances.remote_item, chances.remote_payment);
        let (is_uniform, stocks) = (false, PhantomData);
        Self { warehouses, customers, items, mix, remote_items, remote_payments, is_uniform, seed, date, stocks }
    }

    /// Makes all items equally likely.
    pub fn with_uniform_items(self) -> Self {
        Self { is_uniform: true, ..self }
    }

    fn scale(&self) -> Result<Scale, Error> {
        Ok(Scale::new(self.warehouses)?.with_customers(self.customers)?.with_items(self.items)?)
    }

    fn chances(&self) -> Chances {
        let (remote_item, remote_payment) = (self.remote_items, self.remote_payments);
        Chances { remote_item, remote_payment, ..Chances::STANDARD }
    }

    fn loader(&self) -> Result<Loader, Error> {
        Ok(Loader::new(self.scale()?, self.seed, self.date))
    }

    /// The warehouses of a node.
    fn own(&self, place: Place) -> impl Iterator<Item = WarehouseKey> + use<R> {
        (place.node + 1..=self.warehouses).step_by(place.nodes.into())
    }
}

/// What clients have counted: their payments, which other nodes could not find otherwise.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Paid {
    payments: Vec<Payments>,
    /// Those by customers of other warehouses.
    remote: Vec<HistoryKey>,
}

impl AddAssign for Paid {
    fn add_assign(&mut self, other: Self) {
        self.payments.extend(other.payments);
        self.remote.extend(other.remote);
    }
}

/// A terminal.
#[derive(Debug)]
pub struct Client {
    inputs: Inputs,
    deck: Deck,
    node: u16,
    home: WarehouseKey,
    /// Its number among those of its warehouse that write down payments.
    writer: u16,
    payments: u32,
    remote: Vec<HistoryKey>,
    oldest: Oldest,
}

impl<R: StockRow> ClusterWorkload for Distributed<R> {
    const NAME: &'static str = "tpcc";
    const MEMBER: &'static str = if R::IS_NARROW { "tpcc with narrow stocks" } else { Self::NAME };
    const KINDS: &'static [&'static str] = KINDS;
    type Tables = Tables<R>;
    type Client = Client;
    type Count = Paid;

    fn size(&self) -> Vec<(&'static str, serde_json::Value)> {
        vec![
            ("warehouses", self.warehouses.into()),
            ("customers", self.customers.into()),
            ("items", self.items.into()),
            ("mix", name_of(&self.mix).into()),
            ("remote_items", self.remote_items.into()),
            ("remote_payments", self.remote_payments.into()),
            ("scaled_down", self.scale().is_ok_and(|scale| scale.is_scaled_down()).into()),
        ]
    }

    fn open<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        node: &mut NodeBuilder<F, S>,
    ) -> Result<Tables<R>, Error> {
        Tables::open(node, &self.scale()?)
    }

    fn load<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        node: &Node<F, S>,
        place: Place,
    ) -> Result<(), Error> {
        let (db, loader) = (node.local(), self.loader()?);
        // The tables of one node: those of the cluster, and that of the items.
        let local = LocalTables::<Hash, R>::open(db, &loader.scale())?;
        let copies = db.table::<ItemCopyKey, PodRef<Item>, _>(Hash::def(ITEM_COPY, self.items.into()))?;
        loader.items(&mut Loading { db, tables: local })?;
        for item in 1..=self.items {
            db.transact(|tx| {
                let row = expect_row(tx.get(local.items, item)?, ITEM)?;
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
        let Ok(writer) = u16::try_from(number % place.clients + 1) else {
            let instead = "let a node have less than 65535 clients";
            return Err(Error::Options { option: "--coroutines", with: "so many threads", instead });
        };
        let district = (number / own.len() % usize::from(DISTRICTS)) as u8 + 1;
        let run = Constants::for_run(loader.constants(), &mut Random::seeded(spread(self.seed, 0)));
        let random = Random::seeded(spread(self.seed, number + 1));
        let scale = loader.scale();
        Ok(Client {
            inputs: Inputs::new(scale, run, self.chances(), (*warehouse, district), random)?
                .with_uniform_items(self.is_uniform),
            deck: Deck::new(self.mix.mix()),
            node: place.node,
            home: *warehouse,
            // The first is the loader.
            writer,
            payments: 0,
            remote: Vec::new(),
            oldest: [scale.customers() - scale.undelivered() + 1; DISTRICTS as usize],
        })
    }

    /// The rows of stock.
    async fn warm<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Worker<'_, F, S>,
        tables: Tables<R>,
        place: Place,
        (number, workers): (usize, usize),
    ) -> Result<(), Error> {
        let others = (1..=self.warehouses).filter(|warehouse| !place.owns(of_warehouse(*warehouse)));
        let stocks = others.flat_map(|warehouse| (1..=self.items).map(move |item| (warehouse, item)));
        look_up(worker, tables.stocks, stocks.skip(number).step_by(workers)).await
    }

    async fn run_next<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Runner<'_, '_, F, S>,
        tables: Tables<R>,
        client: &mut Client,
    ) -> Result<Done, Error> {
        let Client { inputs, deck, node, home, writer, payments, remote, oldest } = client;
        let date = self.date.get() + worker.endpoint().now().nanos() / 1_000;
        let kind = deck.draw(inputs.random());
        let mut is_committed = true;
        match kind {
            Kind::NewOrder => {
                let input = inputs.new_order();
                let (warehouse, district, _) = input.customer;
                let number = match worker.protocol().leases {
                    true => Some(next_order(worker, tables, (warehouse, district)).await?),
                    false => None,
                };
                let order = Order { tables, node: *node, input: &input, date, number };
                match transact(worker, &order).await {
                    Ok(receipt) => drop(black_box(receipt)),
                    Err(DbError::Aborted { reason }) if reason == UNUSED_ITEM => is_committed = false,
                    Err(error) => return Err(error.into()),
                }
            }
            Kind::Payment => {
                let (input, key) = (inputs.payment(), (*home, *writer, *payments));
                black_box(transact(worker, &Pay { tables, input: &input, key, date }).await?);
                *payments += 1;
                if input.customer_district.0 != *home {
                    remote.push(key);
                }
            }
            Kind::OrderStatus => {
                let input = inputs.order_status();
                black_box(transact(worker, &LastOrder { tables, input: &input }).await?);
            }
            Kind::Delivery => {
                let input = inputs.delivery();
                *oldest = transact(worker, &Deliver { tables, input: &input, oldest, date }).await?;
            }
            Kind::StockLevel => {
                let input = inputs.stock_level();
                black_box(transact(worker, &LowStock { tables, input: &input }).await?);
            }
        }
        Ok(Done { kind: kind as usize, is_committed })
    }

    fn count(Client { home, writer, payments, remote, .. }: Client) -> Paid {
        Paid { payments: vec![Payments { warehouse: Some(home), writer, count: payments }], remote }
    }

    /// What was taken from each warehouse's stock is what orders of all warehouses say.
    async fn check<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Worker<'_, F, S>,
        tables: Tables<R>,
        _count: &mut Paid,
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
                let (says, taken) = (Taken::of(stock.supply()), taken.remove(&key).unwrap_or_default());
                if says != taken {
                    violations.push(format!("stock {key:?} says that {says:?}, and orders that {taken:?}"));
                }
            }
        }
        violations.extend(taken.keys().map(|key| format!("stock {key:?} was ordered, and is not there")));
        Ok(violations)
    }

    /// The specification's conditions, the indexes, and the number of rows, of the warehouses that
    /// the node has. What its customers have paid elsewhere is read there.
    async fn check_node<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Worker<'_, F, S>,
        tables: Tables<R>,
        node: &Node<F, S>,
        place: Place,
        count: &Paid,
    ) -> Result<Vec<String>, Error> {
        let is_elsewhere = |key: &HistoryKey| !place.owns(of_warehouse(key.0));
        let elsewhere = read(worker, tables.histories, count.remote.iter().copied().filter(is_elsewhere)).await?;
        let (db, scale) = (node.local(), self.scale()?);
        let local = LocalTables::<Hash, R>::open(db, &scale)?;
        let payments = count.payments.iter().copied();
        let audit = Audit::new(db, local, scale, payments).of(place.node + 1, place.nodes, elsewhere);
        let mut violations = audit.violations()?;
        violations.extend(miscounted(db, &[(ITEM_COPY, self.items.into())])?);
        Ok(violations)
    }
}

/// The number of a district's next order, at the moment.
async fn next_order<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>, R: StockRow>(
    worker: &Worker<'_, F, S>,
    tables: Tables<R>,
    district: DistrictKey,
) -> Result<u32, Error> {
    let row = worker.transact(async |tx| expect_row(tx.get(tables.districts, district).await?, DISTRICT)).await?;
    Ok(row.next_order.get())
}

/// What was taken from a stock since it was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Taken {
    quantity: u32,
    orders: u32,
    remote: u32,
}

impl Taken {
    fn of(supply: &Supply) -> Self {
        Self { quantity: supply.ytd.get(), orders: supply.order_count.get(), remote: supply.remote_count.get() }
    }

    fn add(&mut self, line: &OrderLine, is_remote: bool) {
        self.quantity += u32::from(line.quantity);
        self.orders += 1;
        self.remote += u32::from(is_remote);
    }
}
