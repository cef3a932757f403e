//! What keeps records in their tables beside their locks: a NIC that locks lines.

use std::fmt;

use drtm_rdma::Offset;

/// See the [module](self).
pub(crate) trait Keeper: fmt::Debug + Send + Sync {
    /// Calls `act` unless this keeps the record that has these bytes. Nothing begins to keep it
    /// meanwhile.
    fn unless_kept(&self, extent: (Offset, usize), act: &mut dyn FnMut());
}
