//! Whether a transaction keeps what it has seen.

use std::fmt;

use serde::{Serialize, de::DeserializeOwned};

use super::seen::Seen;

/// What a transaction keeps of what it has seen: all of it for a checker of histories, or nothing.
pub(super) trait Notes:
    Clone + Default + fmt::Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// Notes what `seen` returns.
    fn note(&mut self, seen: impl FnOnce() -> Seen);
}

impl Notes for () {
    #[inline(always)]
    fn note(&mut self, _: impl FnOnce() -> Seen) {}
}

#[cfg(test)]
impl Notes for Vec<Seen> {
    fn note(&mut self, seen: impl FnOnce() -> Seen) {
        self.push(seen());
    }
}
