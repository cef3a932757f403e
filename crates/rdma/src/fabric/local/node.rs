//! A node, by its present incarnation.

use std::sync::Arc;

use drtm_htm::Engine;
use parking_lot::RwLock;

use crate::{FabricError, Incarnation, NodeId, Presence, fabric::lifetime::Life as _};

use super::{LocalConfig, life::Life};

#[derive(Debug)]
pub(super) struct Node<E: Engine> {
    /// The incarnation that is here, or was last.
    life: RwLock<Arc<Life<E>>>,
}

impl<E: Engine> Node<E> {
    pub(super) fn new(node: NodeId, config: &LocalConfig) -> Self {
        Self { life: RwLock::new(Arc::new(Life::new(node, Incarnation(1), config))) }
    }

    pub(super) fn life(&self) -> Arc<Life<E>> {
        Arc::clone(&self.life.read())
    }

    pub(super) fn presence(&self) -> Presence {
        self.life.read().presence()
    }

    /// Comes back as a new incarnation without memory.
    pub(super) fn revive(&self, node: NodeId, config: &LocalConfig) -> Result<Incarnation, FabricError> {
        let mut life = self.life.write();
        if !life.is_over() {
            return Err(FabricError::Present { node });
        }
        let incarnation = Incarnation(life.incarnation().0 + 1);
        *life = Arc::new(Life::new(node, incarnation, config));
        Ok(incarnation)
    }
}
