//! TPC-C: tables, initial population, inputs, consistency checks, and its transactions on our
//! database: `drtm-bench tpcc`.
//!
//! Numbers in brackets are clauses of the specification, revision 5.11. Terminals have no think
//! time and nothing is priced, so no result here is, or may be called, a result of the benchmark.
//!
//! - Rows as plain data ([`Warehouse`], ...), and keys that fit words.
//! - [`Random`] and [`Constants`]: the specification's random values, determined by a seed.
//! - [`Loader`]: the initial population of a [`Scale`], row by row into a [`Sink`].
//! - [`Inputs`]: inputs of terminals; [`Deck`]: the order of their transactions.
//! - [`check`]: the twelve conditions, over a [`View`] of the rows.
//! - [`Population`]: rows in ordinary maps.
//!
//! # Example
//!
//! ```
//! use std::num::NonZeroU64;
//!
//! use drtm_tpcc::{Loader, Population, Scale, check};
//!
//! let scale = Scale::new(1)?.with_customers(30)?.with_items(100)?;
//! let rows = Population::of(&Loader::new(scale, 42, NonZeroU64::MIN));
//! assert_eq!(rows.districts[&(1, 10)].next_order.get(), 31);
//! assert!(check(&rows, &scale)?.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod audit;
#[cfg(any(test, feature = "chopping"))]
mod chopped;
mod cluster;
mod command;
mod consistency;
mod constants;
mod inputs;
mod keys;
mod load;
mod mix;
mod population;
mod reading;
mod scale;
mod schema;
mod stock;
#[cfg(test)]
mod stored;
mod tables;
mod terminals;
#[cfg(test)]
mod tests;
mod transactions;

use drtm_drive::{Random, Text};

#[cfg(any(test, feature = "chopping"))]
pub use chopped::{ChoppedTerminals, ChoppedTpcc, Section};
pub use cluster::Distributed;
pub use command::{Args, READ_RERUNS, Tpcc, run, run_member};
pub use mix::MixName;
pub use reading::Reading;
pub use tables::Layout;

pub use consistency::{Condition, Place, View, Violation, check};
pub use constants::{Constants, last_name};
pub use inputs::{
    Chances, CustomerChoice, Delivery, Inputs, NewOrder as NewOrderInput, NewOrderLine, OrderStatus, Payment,
    StockLevel,
};
pub use keys::{
    CustomerByName, CustomerKey, DistrictKey, HistoryKey, ItemKey, KeyError, LOADER, OrderByCustomer, OrderKey,
    OrderLineKey, StockKey, WarehouseKey,
};
pub use load::{Loader, Sink};
pub use mix::{Deck, Kind, Mix, MixError};
pub use population::Population;
pub use scale::{CUSTOMERS, DISTRICTS, ITEMS, Scale, ScaleError};
pub use schema::{
    Account, Address, Customer, CustomerNames, District, History, Item, NewOrder, Order, OrderLine, Stock, Supply,
    Warehouse,
};
