//! Squashes on their way to the nodes of the transactions.
//!
//! A NIC that squashes a transaction of another node marks its filters at once, so that it cannot
//! commit. The message only says so early: its node discards what it has written, and its program
//! need not come to the end. So it does not matter if a message is lost.

mod send;

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::{Future, poll_fn},
    task::{Poll, Waker},
};

use super::smart_nic::Squashed;

/// Squashes of a worker that are not sent yet.
#[derive(Default)]
pub(super) struct Squashes {
    queue: RefCell<VecDeque<Squashed>>,
    sender: Cell<Option<Waker>>,
}

impl Squashes {
    fn push(&self, squashed: impl IntoIterator<Item = Squashed>) {
        self.queue.borrow_mut().extend(squashed);
        if let Some(waker) = self.sender.take() {
            waker.wake();
        }
    }

    fn next(&self) -> impl Future<Output = Squashed> + '_ {
        poll_fn(|context| match self.queue.borrow_mut().pop_front() {
            Some(squashed) => Poll::Ready(squashed),
            None => {
                self.sender.set(Some(context.waker().clone()));
                Poll::Pending
            }
        })
    }
}
