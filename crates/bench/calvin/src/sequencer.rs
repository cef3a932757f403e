//! The sequencer of a node: a batch of its clients' transactions for each epoch.

use std::{sync::Arc, time::Duration};

use drtm_rdma::{Cost, NodeId, Phase, Port, Spawner};

use crate::{
    costs::{message, spend},
    error::Error,
    key::Sets,
    node::{Event, Node},
    program::Program,
    store::Store,
    wire::parts,
};

/// Where a node's transactions come from: its clients. It is called with the node's rows, which it
/// may read without locks to guess what a transaction will need, and with the time.
///
/// # Example
///
/// ```
/// use drtm_calvin::{Source, tpcc::{Input, Tpcc}};
///
/// let mut asked = 0;
/// let three_times: Source<Tpcc> = Box::new(move |_store, _since| {
///     asked += 1;
///     (asked <= 3).then_some(Input::OrderStatus { customer: (1, 1, 1) })
/// });
/// ```
pub type Source<A> = Box<dyn FnMut(&Store, Duration) -> Option<<A as Program>::Txn> + Send>;

/// Sequences transactions for as many epochs as planned.
pub(crate) async fn sequence<'e, P: Port, A: Program>(
    node: Arc<Node<A>>,
    spawner: Spawner<'e, P>,
    mut source: Source<A>,
) -> Result<(), Error> {
    let (endpoint, plan) = (spawner.endpoint(), node.plan);
    let began = node.begins(endpoint.now());
    for epoch in 0..plan.epochs {
        endpoint.sleep_until(began + plan.epoch * u32::try_from(epoch + 1).unwrap_or(u32::MAX)).await;
        let mut shares = vec![Vec::new(); plan.nodes.into()];
        for number in 0..plan.batch {
            if node.open() >= plan.backlog {
                break;
            }
            let Some(txn) = source(&node.store, endpoint.now().since(began)) else { break };
            let (mut bytes, mut sets) = (Vec::new(), Sets::default());
            node.program.encode(&txn, &mut bytes);
            node.program.declare(&txn, &mut sets);
            let (participants, _) = node.participants(&sets);
            spend(endpoint, [Cost::Copy(bytes.len())]).await;
            if participants.contains(&node.id) {
                node.opened();
            }
            for participant in participants {
                shares[usize::from(participant.0)].push((number, bytes.clone()));
            }
        }
        for (to, transactions) in (0..).map(NodeId).zip(shares) {
            for share in parts(epoch, transactions) {
                if to == node.id {
                    node.events.push(Event::Share { from: to, share });
                    continue;
                }
                let bytes = share.encode();
                spend(endpoint, message(plan.tcp, bytes.len())).await;
                post(&node, &spawner, to, bytes)?;
            }
        }
    }
    Ok(())
}

/// Sends a message, for which the caller does not wait.
pub(crate) fn post<'e, P: Port, A: Program>(
    node: &Arc<Node<A>>,
    spawner: &Spawner<'e, P>,
    to: NodeId,
    bytes: Vec<u8>,
) -> Result<(), Error> {
    let (node, verbs) = (Arc::clone(node), spawner.endpoint().during(Phase::Other));
    let send = async move {
        if let Err(error) = verbs.send(to, &bytes).await {
            node.fail(error.into());
        }
    };
    Ok(spawner.spawn(send)?)
}
