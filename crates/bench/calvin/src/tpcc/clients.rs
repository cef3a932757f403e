//! The terminals of a node: they draw inputs, and find out what a transaction will lock.

use std::{sync::Arc, time::Duration};

use drtm_drive::{Random, spread};
use drtm_tpcc::{
    Chances, Constants, CustomerChoice, DISTRICTS, Deck, DistrictKey, Inputs, Kind, Mix, Order, ScaleError,
    WarehouseKey,
};
use zerocopy::FromBytes;

use super::{
    Tpcc,
    input::{Expected, Input, Line},
    keys::Table,
};
use crate::Store;

/// The terminal of a warehouse.
struct Terminal {
    warehouse: WarehouseKey,
    inputs: Inputs,
    deck: Deck,
    payments: u32,
    /// The next order to deliver of each district.
    oldest: [u32; DISTRICTS as usize],
}

/// The terminals of a node, which take turns.
pub(super) struct Clients {
    tpcc: Arc<Tpcc>,
    terminals: Vec<Terminal>,
    next: usize,
}

impl Clients {
    pub(super) fn new(tpcc: Arc<Tpcc>, node: u16) -> Result<Self, ScaleError> {
        let (scale, nodes) = (tpcc.scale(), tpcc.nodes);
        let run = Constants::for_run(tpcc.loader.constants(), &mut Random::seeded(spread(tpcc.seed, 0)));
        let terminal = |warehouse: WarehouseKey| {
            let random = Random::seeded(spread(tpcc.seed, usize::from(warehouse)));
            let district = (usize::from(warehouse) % usize::from(DISTRICTS)) as u8 + 1;
            Ok(Terminal {
                warehouse,
                inputs: Inputs::new(scale, run, Chances::STANDARD, (warehouse, district), random)?,
                deck: Deck::new(Mix::STANDARD),
                payments: 0,
                oldest: [scale.customers() - scale.undelivered() + 1; DISTRICTS as usize],
            })
        };
        let warehouses = (node + 1..=scale.warehouses()).step_by(nodes.into());
        Ok(Self { terminals: warehouses.map(terminal).collect::<Result<_, _>>()?, tpcc, next: 0 })
    }

    /// Draws the next transaction. It looks for orders to deliver in the node's rows.
    pub(super) fn draw(&mut self, store: &Store, since: Duration) -> Input {
        let Self { tpcc, terminals, next } = self;
        *next = (*next + 1) % terminals.len();
        let terminal = &mut terminals[*next];
        let date = since.as_micros() as u64;
        let inputs = &mut terminal.inputs;
        match terminal.deck.draw(inputs.random()) {
            Kind::NewOrder => {
                let order = inputs.new_order();
                let line = |line: &drtm_tpcc::NewOrderLine| Line {
                    item: line.item,
                    supply: line.supply_warehouse,
                    quantity: line.quantity,
                };
                Input::NewOrder { customer: order.customer, lines: order.lines().iter().map(line).collect(), date }
            }
            Kind::Payment => {
                let payment = inputs.payment();
                terminal.payments += 1;
                let customer = customer(tpcc, payment.customer_district, payment.customer);
                let (district, amount, count) = (payment.district, payment.amount, terminal.payments);
                Input::Payment { district, customer, amount, count, date }
            }
            Kind::OrderStatus => {
                let status = inputs.order_status();
                Input::OrderStatus { customer: customer(tpcc, status.district, status.customer) }
            }
            Kind::Delivery => {
                let delivery = inputs.delivery();
                let orders = expected(store, terminal.warehouse, &mut terminal.oldest);
                Input::Delivery { warehouse: delivery.warehouse, carrier: delivery.carrier, orders, date }
            }
            Kind::StockLevel => {
                let level = inputs.stock_level();
                Input::StockLevel { district: level.district, threshold: level.threshold }
            }
        }
    }
}

/// Returns a customer. The index of names never changes, and all nodes have it.
fn customer(tpcc: &Tpcc, district: DistrictKey, choice: CustomerChoice) -> (u16, u8, u32) {
    let number = match choice {
        CustomerChoice::Number(number) => number,
        CustomerChoice::LastName(last) => tpcc.customer_by_name(district, &last).unwrap_or(1),
    };
    (district.0, district.1, number)
}

/// Returns the order that will be the oldest one of each district, after the deliveries that were
/// sequenced before. A district that has none yet is skipped.
fn expected(store: &Store, warehouse: WarehouseKey, oldest: &mut [u32; DISTRICTS as usize]) -> Vec<Expected> {
    let mut orders = Vec::new();
    for (district, number) in (1..).zip(oldest) {
        let row = store.get(Table::Order.of(warehouse, district, *number, 0));
        let Some(order) = row.and_then(|row| Order::read_from_bytes(&row).ok()) else { continue };
        orders.push(Expected { district, number: *number, customer: order.customer.get() });
        *number += 1;
    }
    orders
}
