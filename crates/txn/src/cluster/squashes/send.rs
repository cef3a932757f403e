//! How a worker tells other nodes of squashes.

use std::convert::Infallible;

use drtm_rdma::{Fabric, Sender};

use crate::{
    Config,
    cluster::{
        coordinator::Coordinator,
        requests::lines::{Squash, SquashTx},
        smart_nic::Squashed,
    },
};

impl<F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'_, F, S> {
    /// Has transactions of other nodes told that they were squashed.
    pub(in crate::cluster) fn squash(&self, squashed: impl IntoIterator<Item = Squashed>) {
        // A worker that does not serve sends nothing.
        if self.serves.get() {
            self.squashes.push(squashed);
        }
    }

    /// Sends squashes, for ever.
    pub(in crate::cluster) async fn send_squashes(&self) -> Infallible {
        loop {
            let Squashed { tx, why } = self.squashes.next().await;
            // A node that does not hear it finds it out when the transaction asks for its commit.
            let _ = self.call_by::<Squash, _>(Sender::Nic, tx.node, SquashTx { tx, why }, |()| ()).await;
        }
    }
}
