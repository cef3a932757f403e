//! An operator's order, to any node or to the view's leader: see
//! [`orders`](crate::cluster::orders).

use drtm_rdma::{Cost, Fabric};

use super::{Answer, Binds, On, Request, Serving};
use crate::cluster::{Refusal, orders::Order, shared::VERSION, wire::messages};

messages! {
    /// An order, and what it is about.
    OrderIs<'a> { version: u32, kind: u8, subject: u16, address: &'a str, }
}

impl<'a> OrderIs<'a> {
    pub(in crate::cluster) fn new(kind: u8, subject: u16, address: &'a str) -> Self {
        Self { version: VERSION, kind, subject, address }
    }
}

/// Takes an order. It is carried out later: the view shows when.
pub(in crate::cluster) enum TakeOrder {}

impl Request for TakeOrder {
    const NUMBER: u16 = 37;
    const COST: Option<Cost> = None;
    const BINDS: Binds = Binds::Nothing;
    const FOR_VISITORS: bool = true;
    type Body<'a> = OrderIs<'a>;
    type Reply<'a> = ();

    fn serve<'p, F: Fabric, S: On<F>>(body: OrderIs<'_>, at: Serving<'p, '_, F, S>) -> Answer<'p, Self> {
        let node = &at.worker.node;
        if body.version != VERSION {
            return Err(Refusal::Other);
        }
        if at.worker.is_out() {
            return Err(Refusal::Revoked);
        }
        if node.membership.is_none() {
            return Err(Refusal::NoMembership);
        }
        let order = Order::of_parts(body.kind, body.subject, body.address).ok_or(Refusal::Other)?;
        at.worker.check_order(order, &node.view.view())?;
        node.orders.take(order)
    }
}
