//! The conditions of TPC-C, over the rows of all nodes.

use std::collections::BTreeMap;

use drtm_rdma::NodeId;
use drtm_tpcc::{
    Customer, District, History, NewOrder, Order, OrderLine, Population, StockKey, Supply, Warehouse, check,
};
use zerocopy::{FromBytes, little_endian::U32};

use super::{
    Tpcc,
    keys::{Table, parts},
};
use crate::{Error, NodeRows, Program};

/// What was taken from a stock: quantity, orders, and those of other warehouses.
type Taken = (u32, u32, u32);

/// Returns what does not hold, in words: the twelve conditions, what was taken from stock beside
/// what orders say, the indexes, and that each row is at its node.
///
/// # Errors
///
/// [`Error::Malformed`] if a row is damaged.
///
/// # Example
///
/// See [`Tpcc`].
pub fn violations(tpcc: &Tpcc, nodes: &[NodeRows]) -> Result<Vec<String>, Error> {
    let mut found = Vec::new();
    let (mut rows, mut stocks) = (Population::default(), BTreeMap::<StockKey, Taken>::new());
    let (mut last, mut oldest) = (BTreeMap::new(), BTreeMap::new());
    for (node, own) in (0..).map(NodeId).zip(nodes) {
        for (key, row) in own {
            if tpcc.owner(*key) != node {
                found.push(format!("{key:?} is at {node:?}"));
            }
            let malformed = || Error::Malformed { from: node };
            let (warehouse, district, number, line) = parts(*key);
            macro_rules! read {
                ($row:ty) => {
                    <$row>::read_from_bytes(row).map_err(|_| malformed())?
                };
            }
            match key {
                key if Table::Warehouse.has(*key) => drop(rows.warehouses.insert(warehouse, read!(Warehouse))),
                key if Table::District.has(*key) => {
                    rows.districts.insert((warehouse, district), read!(District));
                }
                key if Table::Customer.has(*key) => {
                    rows.customers.insert((warehouse, district, number), read!(Customer));
                }
                key if Table::History.has(*key) => {
                    rows.histories.insert((warehouse, district.into(), number), read!(History));
                }
                key if Table::NewOrder.has(*key) => {
                    rows.new_orders.insert((warehouse, district, number), NewOrder);
                }
                key if Table::Order.has(*key) => {
                    rows.orders.insert((warehouse, district, number), read!(Order));
                }
                key if Table::OrderLine.has(*key) => {
                    rows.order_lines.insert((warehouse, district, number, line), read!(OrderLine));
                }
                key if Table::Stock.has(*key) => {
                    let stock = read!(Supply);
                    let taken = (stock.ytd.get(), stock.order_count.get(), stock.remote_count.get());
                    stocks.insert((warehouse, number), taken);
                }
                key if Table::LastOrder.has(*key) => {
                    last.insert((warehouse, district, number), read!(U32).get());
                }
                key if Table::Oldest.has(*key) => {
                    oldest.insert((warehouse, district), read!(U32).get());
                }
                key => found.push(format!("{key:?} is of no table")),
            }
        }
    }
    let scale = tpcc.scale();
    let Ok(violated) = check(&rows, &scale);
    found.extend(violated.iter().map(ToString::to_string));
    found.extend(stock_differs(&rows, &stocks, scale.customers()));
    for ((warehouse, district), number) in oldest {
        let first = rows.new_orders.keys().find(|key| (key.0, key.1) == (warehouse, district));
        let next = rows.districts.get(&(warehouse, district)).map(|row| row.next_order.get());
        if first.map(|key| key.2).or(next) != Some(number) {
            found.push(format!("the oldest order of {:?} is not {number}", (warehouse, district)));
        }
    }
    let mut latest = BTreeMap::new();
    for ((warehouse, district, number), order) in &rows.orders {
        latest.insert((*warehouse, *district, order.customer.get()), *number);
    }
    if latest != last {
        found.push("the index of last orders is not that of orders".to_owned());
    }
    Ok(found)
}

/// Compares what stocks say was taken from them with the lines of orders since the load.
fn stock_differs(rows: &Population, stocks: &BTreeMap<StockKey, Taken>, loaded: u32) -> Vec<String> {
    let mut taken = BTreeMap::<StockKey, Taken>::new();
    for ((warehouse, _, number, _), line) in &rows.order_lines {
        let supply = line.supply_warehouse.get();
        if *number > loaded {
            let sums = taken.entry((supply, line.item.get())).or_default();
            let is_remote = u32::from(supply != *warehouse);
            *sums = (sums.0 + u32::from(line.quantity), sums.1 + 1, sums.2 + is_remote);
        }
    }
    let differs = |(key, says): (&StockKey, &Taken)| {
        let taken = taken.get(key).copied().unwrap_or_default();
        (*says != taken).then(|| format!("stock {key:?} says that {says:?}, and orders that {taken:?}"))
    };
    let missing = taken.keys().filter(|key| !stocks.contains_key(key));
    let missing = missing.map(|key| format!("stock {key:?} was ordered, and is not there"));
    stocks.iter().filter_map(differs).chain(missing).collect()
}
