//! TPC-C on Calvin: the rows, the inputs and the conditions of `drtm-tpcc`.
//!
//! A warehouse and all that belongs to it is on one node, and so are its terminals. All nodes have
//! the items, and the index of customers by name, neither of which ever changes.
//!
//! What a transaction locks is known before it runs. A district stands for its orders, their lines
//! and its undelivered orders, whose keys depend on the district's row. A DELIVERY declares the
//! customers of the orders that its sequencer expects to be the oldest ones, and gives up if they
//! are not (reconnaissance, as Calvin 3.2.1 has it). As all deliveries of a warehouse are sequenced
//! by one node, which counts them, none ever does. STOCK-LEVEL reads stock without locks, which
//! 2.8.2.3 allows: what it finds is only shown.
//!
//! - `keys`: where rows are. `load`: the population. `input`: transactions, and their bytes.
//!   `clients`: terminals. `transactions`: what they do. `check`: the conditions.

mod check;
mod clients;
mod input;
mod keys;
mod load;
mod transactions;

use std::{collections::HashMap, num::NonZeroU64, sync::Arc};

use drtm_drive::Text;
use drtm_rdma::NodeId;
use drtm_tpcc::{Customer, DistrictKey, Item, Loader, Scale};

pub use check::violations;
pub use input::{Expected, Input, Line};

use crate::{
    Aborted, Error, Key, Program, Rows, Sets, Store,
    sequencer::Source,
    tpcc::{
        clients::Clients,
        keys::{Table, of_warehouse, warehouse_of},
        load::Loading,
    },
};

/// The date of the population. Transactions are dated by the time since the run began.
const DATE: NonZeroU64 = NonZeroU64::MIN;

/// TPC-C on so many nodes: what all of them know.
///
/// # Example
///
/// ```
/// use std::sync::Arc;
/// use drtm_calvin::{Plan, simulate, tpcc::{Tpcc, violations}};
/// use drtm_rdma::{NicProfile, SimConfig};
/// use drtm_tpcc::Scale;
///
/// let plan = Plan { nodes: 2, workers: 2, batch: 20, epochs: 3, warm: 1, ..Plan::DEFAULT };
/// let scale = Scale::new(4)?.with_customers(30)?.with_items(100)?;
/// let (tpcc, stores) = Tpcc::load(scale, 1, plan.nodes)?;
/// let tpcc = Arc::new(tpcc);
/// let inputs = Tpcc::inputs(&tpcc, stores)?;
/// let outcome = simulate(Arc::clone(&tpcc), &plan, SimConfig::new(&NicProfile::CONNECTX_3), inputs)?;
/// assert!(outcome.committed > 0);
/// assert!(violations(&tpcc, &outcome.rows)?.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Tpcc {
    loader: Loader,
    seed: u64,
    nodes: u16,
    items: Vec<Item>,
    /// The middle customer of each last name of a district.
    by_name: HashMap<(DistrictKey, [u8; 16]), u32>,
}

impl Tpcc {
    /// Loads a population, and returns the rows of each node.
    ///
    /// # Errors
    ///
    /// Returns an error if a node would have no warehouse.
    pub fn load(scale: Scale, seed: u64, nodes: u16) -> Result<(Self, Vec<Store>), Error> {
        if nodes == 0 || scale.warehouses() < nodes {
            return Err(Error::Scale(drtm_tpcc::ScaleError::NoWarehouses));
        }
        let loader = Loader::new(scale, seed, DATE);
        let mut loading = Loading::new(scale, nodes);
        let Ok(()) = loader.items(&mut loading);
        for warehouse in 1..=scale.warehouses() {
            let Ok(()) = loader.warehouse(warehouse, &mut loading);
        }
        let (stores, items, by_name) = loading.finish();
        Ok((Self { loader, seed, nodes, items, by_name }, stores))
    }

    /// Returns each node's rows with its clients: one terminal for each warehouse, which take
    /// turns.
    ///
    /// # Errors
    ///
    /// Returns an error if the population has no such terminal.
    pub fn inputs(tpcc: &Arc<Self>, stores: Vec<Store>) -> Result<Vec<(Store, Source<Self>)>, Error> {
        let with_clients = |(node, store)| {
            let mut clients = Clients::new(Arc::clone(tpcc), node)?;
            let source: Source<Self> = Box::new(move |store, since| Some(clients.draw(store, since)));
            Ok((store, source))
        };
        (0..tpcc.nodes).zip(stores).map(with_clients).collect()
    }

    fn scale(&self) -> Scale {
        self.loader.scale()
    }

    fn item(&self, number: u32) -> Option<&Item> {
        self.items.get(number.checked_sub(1)? as usize)
    }

    /// Returns the middle customer of a last name. `None` if there is none.
    fn customer_by_name(&self, district: DistrictKey, last: &Text<16>) -> Option<u32> {
        self.by_name.get(&(district, *last.padded())).copied()
    }
}

impl Program for Tpcc {
    type Txn = Input;

    fn encode(&self, txn: &Input, bytes: &mut Vec<u8>) {
        txn.encode(bytes);
    }

    fn decode(&self, bytes: &[u8]) -> Option<Input> {
        Input::decode(bytes)
    }

    fn owner(&self, key: Key) -> NodeId {
        of_warehouse(warehouse_of(key), self.nodes)
    }

    fn declare(&self, txn: &Input, sets: &mut Sets) {
        match txn {
            Input::NewOrder { customer, lines, .. } => {
                sets.read(Table::Warehouse.of(customer.0, 0, 0, 0));
                sets.write(Table::District.of(customer.0, customer.1, 0, 0));
                sets.read(Table::Customer.customer(*customer));
                lines.iter().for_each(|line| sets.write(Table::Stock.of(line.supply, 0, line.item, 0)));
            }
            Input::Payment { district, customer, .. } => {
                sets.write(Table::Warehouse.of(district.0, 0, 0, 0));
                sets.write(Table::District.of(district.0, district.1, 0, 0));
                sets.write(Table::Customer.customer(*customer));
            }
            Input::OrderStatus { customer } => {
                sets.read(Table::District.of(customer.0, customer.1, 0, 0));
                sets.read(Table::Customer.customer(*customer));
            }
            Input::Delivery { warehouse, orders, .. } => {
                for order in orders {
                    sets.write(Table::District.of(*warehouse, order.district, 0, 0));
                    sets.write(Table::Customer.customer((*warehouse, order.district, order.customer)));
                }
                if orders.is_empty() {
                    // It has a participant nevertheless.
                    sets.read(Table::Warehouse.of(*warehouse, 0, 0, 0));
                }
            }
            Input::StockLevel { district, .. } => sets.read(Table::District.of(district.0, district.1, 0, 0)),
        }
    }

    fn run(&self, txn: &Input, rows: &mut Rows<'_>) -> Result<(), Aborted> {
        transactions::run(self, txn, rows)
    }
}

/// Returns the order of customers with one last name, in which the middle one counts.
fn by_first_name(row: &Customer) -> [u8; 16] {
    *row.first.padded()
}

#[cfg(test)]
mod tests;
