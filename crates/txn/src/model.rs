//! What model checking replaces.

pub(crate) mod bounds;
pub(crate) mod sync;
