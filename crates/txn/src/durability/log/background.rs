//! Background threads of a log, started on demand.

use std::{
    io,
    sync::atomic::{
        AtomicBool,
        Ordering::{Acquire, Release},
    },
    thread::{self, JoinHandle},
};

use parking_lot::Mutex;

#[derive(Debug, Default)]
pub(super) struct Background {
    thread: Mutex<Option<JoinHandle<()>>>,
    is_running: AtomicBool,
}

impl Background {
    /// Starts the thread, unless it is running.
    ///
    /// # Errors
    ///
    /// The system's.
    // A boxed body, so that threads are compiled once and not for each body.
    pub(super) fn start(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        if self.is_running() {
            return Ok(());
        }
        let mut running = self.thread.lock();
        if running.is_none() {
            *running = Some(thread::Builder::new().name(name.to_owned()).spawn(body)?);
            self.is_running.store(true, Release);
        }
        Ok(())
    }

    pub(super) fn is_running(&self) -> bool {
        self.is_running.load(Acquire)
    }

    /// Wakes the thread if it is parked.
    pub(super) fn wake(&self) {
        if let Some(running) = &*self.thread.lock() {
            running.thread().unpark();
        }
    }

    /// Waits until the thread has ended, after it was told to.
    pub(super) fn join(&self) {
        let running = self.thread.lock().take();
        if let Some(running) = running {
            running.thread().unpark();
            // It does not panic; if it did, there would be nothing to do about it.
            let _ = running.join();
        }
    }
}
