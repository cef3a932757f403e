//! Programs of chopped transactions that are registered, or have left something.
//!
//! A database with rows of a program's own [`tables`] serves nothing before they are finished,
//! which is when the program is registered. A program is registered once: if it were registered
//! again, the rows of transactions that are under way would be taken for rows that a crash has
//! left.

#[cfg(all(feature = "chopping", not(feature = "model")))]
mod register;
pub(crate) mod tables;

use drtm_htm::Waiter;

use crate::{ChoppedError, Error, model::sync::Mutex};

/// The programs of chopped transactions of an open database.
#[derive(Debug, Default)]
pub(super) struct Programs(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    known: Vec<Known>,
    /// The thread that registers one of them, or builds an index, and is admitted meanwhile.
    admitted: Option<u64>,
}

/// A program that is registered, or that has left something.
#[derive(Debug)]
struct Known {
    name: String,
    is_registered: bool,
}

impl Programs {
    /// Begins with these programs unfinished.
    pub(super) fn begin(&self, unfinished: Vec<String>) {
        self.0.lock().known = unfinished.into_iter().map(|name| Known { name, is_registered: false }).collect();
    }

    /// Admits the thread that is [admitted](Admitted).
    ///
    /// # Errors
    ///
    /// [`ChoppedError::Unfinished`] for any other thread.
    pub(super) fn admit(&self, thread: u64) -> Result<(), Error> {
        let state = self.0.lock();
        if state.admitted == Some(thread) {
            return Ok(());
        }
        let unfinished = state.known.iter().find(|known| !known.is_registered);
        let program = unfinished.map_or_else(String::new, |known| known.name.clone());
        Err(ChoppedError::Unfinished { program }.into())
    }
}

/// A thread that is admitted to an unfinished database, until this is dropped: also when a piece
/// panics.
pub(crate) struct Admitted<'p>(&'p Programs);

impl<'p> Admitted<'p> {
    /// Waits until no other thread is admitted.
    ///
    /// # Errors
    ///
    /// [`Error::Nested`] if this thread is admitted already.
    pub(super) fn begin(programs: &'p Programs, thread: u64) -> Result<Self, Error> {
        let waiter = Waiter::new();
        loop {
            let mut state = programs.0.lock();
            match state.admitted {
                None => {
                    state.admitted = Some(thread);
                    return Ok(Self(programs));
                }
                Some(other) if other == thread => return Err(Error::Nested),
                Some(_) => {}
            }
            drop(state);
            waiter.pause();
        }
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.0.0.lock().admitted = None;
    }
}
