//! The receiver of a node: it takes all messages, and hands them to the scheduler or to workers.

use std::sync::Arc;

use drtm_rdma::{Endpoint, Phase, Port};

use crate::{
    costs::{message, spend},
    error::Error,
    node::{Event, Node},
    program::Program,
    wire::{Message, decode},
};

/// Receives until it is dropped, or until a message is none.
pub(crate) async fn receive<P: Port, A: Program>(node: Arc<Node<A>>, endpoint: &Endpoint<P>) {
    let verbs = endpoint.during(Phase::Other);
    loop {
        let received = verbs.recv().await;
        let (from, bytes, decoded) = (received.from(), received.len(), decode(&received));
        drop(received);
        spend(endpoint, message(node.plan.tcp, bytes)).await;
        match decoded {
            Some(Message::Share(share)) => node.events.push(Event::Share { from, share }),
            Some(Message::Reads { of, rows }) => {
                if let Some(task) = node.receive(of, rows) {
                    node.tasks.push(task);
                }
            }
            None => return node.fail(Error::Malformed { from }),
        }
    }
}
