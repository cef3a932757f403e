//! Stores that are filled once and then take turns: each with a thread of its own, which keeps what
//! borrows from what and does nothing until it is asked.

use std::{
    sync::mpsc::{Receiver, Sender, channel},
    thread::{Builder, Scope},
};

use crate::{
    Error,
    drive::{Client, Tally, Until, run_clients},
};

/// What a store is to do.
#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    /// Run the workload.
    Run(Until),
    /// See whether everything is as it must be.
    Check,
}

/// What has come of it.
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
    /// Says that the store is filled, and does what is asked for as long as anybody asks.
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

/// Whoever asks a store. When this is dropped, the store's thread ends.
#[derive(Debug)]
pub(super) struct Seat {
    name: String,
    orders: Sender<Order>,
    answers: Receiver<Result<Answer, Error>>,
}

impl Seat {
    /// Lets a thread host a store, and waits until it is filled.
    pub(super) fn taken<'s>(
        scope: &'s Scope<'s, '_>,
        name: String,
        host: impl FnOnce(&OrderQueue) -> Result<(), Error> + Send + 's,
    ) -> Result<Self, Error> {
        let ((orders, to_do), (done, answers)) = (channel(), channel());
        let body = move || {
            let orders = OrderQueue { orders: to_do, answers: done };
            if let Err(error) = host(&orders) {
                // If nobody hears it, somebody else has failed before.
                let _ = orders.answers.send(Err(error));
            }
        };
        Builder::new().spawn_scoped(scope, body).map_err(Error::Thread)?;
        let seat = Self { name, orders, answers };
        seat.answer()?;
        Ok(seat)
    }

    /// Has the store do something.
    pub(super) fn ask(&self, order: Order) -> Result<Answer, Error> {
        // If the store is gone, there is its last word, or none.
        let _ = self.orders.send(order);
        self.answer()
    }

    fn answer(&self) -> Result<Answer, Error> {
        let gone = || Error::Misbehaved { engine: self.name.clone(), did: "has ended before it was asked to" };
        self.answers.recv().map_err(|_| gone())?
    }
}
