//! How a node meets another one.

use std::rc::Rc;

use drtm_rdma::{Fabric, NodeId, Phase, rpc};

use super::{
    ClusterError,
    coordinator::{Coordinator, Met},
    peers::Peer,
    requests::node::{Hello, Introduce},
    shared::{Shared, VERSION},
};
use crate::{Config, Error, memory::storage::KeyRef};

impl<F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'_, F, S> {
    /// Introduces this node to another one, unless it has done so.
    pub(super) async fn greet(&self, node: NodeId) -> Result<(), Error> {
        let here = self.endpoint().presence(node).here();
        let index = usize::from(node.0);
        let known = self.met.borrow().get(index).and_then(|met| met.as_ref()?.incarnation);
        let has_ended = self.endpoint().needs_reconnect(node);
        if known.is_some() && known == here && !has_ended {
            return Ok(());
        }
        let unreachable = |source: rpc::RpcError| Error::from(ClusterError::Unreachable { node, source });
        if here.is_some() && (known.is_some() || has_ended) {
            // It has come back with another memory, or the connection to it has broken. It may also
            // have been suspected, and be the same as before.
            self.endpoint().reconnect(node).map_err(|error| unreachable(error.into()))?;
        }
        let Shared { described, protocol, home, cache, by_loopback, .. } = &*self.node;
        let hello =
            Hello { version: VERSION, engine: self.node.engine_name(), protocol: protocol.name, tables: described };
        let welcome = self.call::<Introduce, _>(node, hello, |welcome| welcome).await?;
        let are_words = |table: usize| home.tables.get(table).is_some_and(|table| table.storage.takes(KeyRef::Word(0)));
        let verbs = self.endpoint().during(Phase::Other);
        let peer = Peer::open(verbs, node, &welcome, are_words, (cache.as_ref(), *by_loopback)).await?;
        let mut met = self.met.borrow_mut();
        let length = met.len().max(index + 1);
        met.resize(length, None);
        met[index] = Some(Met { incarnation: here.or(known), peer: Rc::new(peer) });
        Ok(())
    }
}
