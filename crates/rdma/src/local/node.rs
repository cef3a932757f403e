//! A node: its present incarnation, and the last that died.

use std::sync::Arc;

use drtm_htm::Engine;
use parking_lot::RwLock;

use crate::{FabricError, Incarnation, NodeId, Presence, queues::Life as _};

use super::{LocalConfig, life::Life};

#[derive(Debug)]
pub(super) struct Node<E: Engine> {
    lives: RwLock<Lives<E>>,
}

#[derive(Debug)]
struct Lives<E: Engine> {
    /// The incarnation that is here, or was last.
    now: Arc<Life<E>>,
    /// The last incarnation that died before it, whose memory recovery may read.
    dead: Option<Arc<Life<E>>>,
}

impl<E: Engine> Node<E> {
    pub(super) fn new(node: NodeId, config: &LocalConfig) -> Self {
        let now = Arc::new(Life::new(node, Incarnation(1), config));
        Self { lives: RwLock::new(Lives { now, dead: None }) }
    }

    pub(super) fn life(&self) -> Arc<Life<E>> {
        Arc::clone(&self.lives.read().now)
    }

    /// Returns the last incarnation that died.
    pub(super) fn dead(&self) -> Option<Arc<Life<E>>> {
        let lives = self.lives.read();
        if lives.now.is_dead() { Some(Arc::clone(&lives.now)) } else { lives.dead.clone() }
    }

    pub(super) fn presence(&self) -> Presence {
        self.lives.read().now.presence()
    }

    /// Comes back as a new incarnation without memory.
    pub(super) fn revive(&self, node: NodeId, config: &LocalConfig) -> Result<Incarnation, FabricError> {
        let mut lives = self.lives.write();
        if !lives.now.is_over() {
            return Err(FabricError::Present { node });
        }
        let incarnation = Incarnation(lives.now.incarnation.0 + 1);
        let before = std::mem::replace(&mut lives.now, Arc::new(Life::new(node, incarnation, config)));
        if before.is_dead() {
            lives.dead = Some(before);
        }
        Ok(incarnation)
    }
}
