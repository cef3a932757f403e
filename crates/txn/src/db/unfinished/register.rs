//! Registering programs: one after the other, and each once.

use super::{Admitted, Known, Programs};
use crate::{ChoppedError, Error};

impl Programs {
    /// Registers a program, on this thread. Returns what `finish` returns, and whether no program
    /// is unfinished any more.
    ///
    /// # Errors
    ///
    /// [`ChoppedError::Registered`]. [`Error::Nested`] within `finish`. The error of `finish`: then
    /// the program is not registered.
    pub(in crate::db) fn register<R>(
        &self,
        program: &str,
        thread: u64,
        finish: impl FnOnce() -> Result<R, Error>,
    ) -> Result<(R, bool), Error> {
        let admitted = Admitted::begin(self, thread)?;
        if self.0.lock().known.iter().any(|known| known.is_registered && known.name == program) {
            return Err(ChoppedError::Registered { program: program.to_owned() }.into());
        }
        let finished = finish()?;
        let mut state = self.0.lock();
        state.known.retain(|known| known.name != program);
        state.known.push(Known { name: program.to_owned(), is_registered: true });
        let are_all = state.known.iter().all(|known| known.is_registered);
        drop(state);
        drop(admitted);
        Ok((finished, are_all))
    }
}
