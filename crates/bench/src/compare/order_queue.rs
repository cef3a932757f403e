//! Stores that are filled once and then take turns. Each has a thread of its own, which owns the
//! store and waits for orders.

use std::{
    sync::mpsc::{Receiver, Sender, channel},
    thread::{Builder, Scope},
};

use drtm_drive::{Client, Tally, Until, run_clients};

use crate::StoreError;
use drtm_drive::Error;

/// An order to a store.
#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    /// Run the workload.
    Run(Until),
    /// Check consistency.
    Check,
}

/// The result of an order.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) tally: Tally,
    pub(super) violations: Vec<String>,
}

/// The store's side.
#[derive(Debug)]
pub(super) struct OrderQueue {
    orders: Receiver<Order>,
    answers: Sender<Result<Answer, Error>>,
}

impl OrderQueue {
    /// Reports that the store is filled, and serves orders until the asking side is dropped.
    pub(super) fn serve<C: Client>(
        &self,
        clients: &mut [C],
        check: impl Fn(&[C]) -> Result<Vec<String>, Error>,
    ) -> Result<(), Error> {
        let mut answer = Answer::default();
        loop {
            let is_heard = self.answers.send(Ok(answer)).is_ok();
            let (true, Ok(order)) = (is_heard, self.orders.recv()) else { return Ok(()) };
            answer = match order {
                Order::Run(until) => Answer { tally: run_clients(clients, until, |_| ())?, ..Answer::default() },
                Order::Check => Answer { violations: check(clients)?, ..Answer::default() },
            };
        }
    }
}

/// The asking side. When it is dropped, the store's thread ends.
#[derive(Debug)]
pub(super) struct Seat {
    name: String,
    orders: Sender<Order>,
    answers: Receiver<Result<Answer, Error>>,
}

impl Seat {
    /// Starts a thread that hosts a store, and waits until the store is filled.
    pub(super) fn taken<'s>(
        scope: &'s Scope<'s, '_>,
        name: String,
        host: impl FnOnce(&OrderQueue) -> Result<(), Error> + Send + 's,
    ) -> Result<Self, Error> {
        let ((orders, to_do), (done, answers)) = (channel(), channel());
        let body = move || {
            let orders = OrderQueue { orders: to_do, answers: done };
            if let Err(error) = host(&orders) {
                // If the receiver is gone, another store has failed before.
                let _ = orders.answers.send(Err(error));
            }
        };
        Builder::new().spawn_scoped(scope, body).map_err(Error::Thread)?;
        let seat = Self { name, orders, answers };
        seat.answer()?;
        Ok(seat)
    }

    /// Sends an order to the store and returns its answer.
    pub(super) fn ask(&self, order: Order) -> Result<Answer, Error> {
        // If the store's thread is gone, its last answer says why, if there is one.
        let _ = self.orders.send(order);
        self.answer()
    }

    fn answer(&self) -> Result<Answer, Error> {
        let gone = || StoreError::Misbehaved { engine: self.name.clone(), did: "has ended before it was asked to" };
        self.answers.recv().map_err(|_| gone())?
    }
}
