//! Queues between the threads of a node. A coroutine waits for an item, and its thread can sleep.

use std::{
    collections::VecDeque,
    future::poll_fn,
    task::{Context, Poll, Waker},
};

use parking_lot::Mutex;

/// A queue of any number of producers and consumers.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<T>,
    /// The consumers that wait, each of them once.
    waiting: Vec<Waker>,
    is_closed: bool,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { state: Mutex::new(State { items: VecDeque::new(), waiting: Vec::new(), is_closed: false }) }
    }
}

impl<T> Queue<T> {
    /// Adds an item, and wakes one consumer.
    pub(crate) fn push(&self, item: T) {
        let mut state = self.state.lock();
        state.items.push_back(item);
        let waiting = (!state.waiting.is_empty()).then(|| state.waiting.remove(0));
        drop(state);
        if let Some(waker) = waiting {
            waker.wake();
        }
    }

    /// Ends the queue: consumers get what is in it, and then nothing.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Returns the next item, if there is one now.
    pub(crate) fn try_pop(&self) -> Option<T> {
        self.state.lock().items.pop_front()
    }

    /// Waits for the next item. Returns `None` when the queue is closed and empty.
    pub(crate) async fn pop(&self) -> Option<T> {
        poll_fn(|context| self.poll_pop(context)).await
    }

    fn poll_pop(&self, context: &Context<'_>) -> Poll<Option<T>> {
        let mut state = self.state.lock();
        // A consumer that is busy must not be woken in place of one that waits.
        state.waiting.retain(|waker| waker.data() != context.waker().data());
        match state.items.pop_front() {
            Some(item) => Poll::Ready(Some(item)),
            None if state.is_closed => Poll::Ready(None),
            None => {
                state.waiting.push(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_in_order_until_the_queue_is_closed() {
        let (queue, context) = (Queue::default(), Context::from_waker(Waker::noop()));
        assert_eq!(queue.poll_pop(&context), Poll::Pending);
        queue.push(1);
        queue.push(2);
        queue.close();
        assert_eq!(queue.try_pop(), Some(1));
        assert_eq!(queue.poll_pop(&context), Poll::Ready(Some(2)));
        assert_eq!(queue.poll_pop(&context), Poll::Ready(None));
    }

    #[test]
    fn a_consumer_waits_once() {
        let (queue, context) = (Queue::<u8>::default(), Context::from_waker(Waker::noop()));
        assert!(queue.poll_pop(&context).is_pending() && queue.poll_pop(&context).is_pending());
        assert_eq!(queue.state.lock().waiting.len(), 1);
        queue.push(1);
        assert!(queue.state.lock().waiting.is_empty());
    }
}
