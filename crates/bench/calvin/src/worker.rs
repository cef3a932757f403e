//! A worker of a node: it reads, sends what it has read, and executes.
//!
//! It never waits for another node. A transaction whose rows have not all come is set aside, and
//! goes on when they have: with any worker. So the transactions that hold locks cannot keep the
//! workers from one that others wait for.

use std::sync::Arc;

use drtm_rdma::{Endpoint, Port, Spawner};

use crate::{
    costs::{executing, message, reading, spend},
    error::Error,
    key::{Key, Row},
    mutation::Mutation,
    node::{Declared, Job, Node, Task},
    program::{Program, Rows},
    sequencer::post,
    wire::encode_reads,
};

/// Does tasks until there are no more.
pub(crate) async fn work<'e, P: Port, A: Program>(node: Arc<Node<A>>, spawner: Spawner<'e, P>) -> Result<(), Error> {
    let endpoint = spawner.endpoint();
    while let Some(task) = node.tasks.pop().await {
        match task {
            Task::Start(job) => {
                let rows = read(&node, &spawner, &job).await?;
                if !job.active.contains(&node.id) {
                    node.done(&job, None, endpoint.now());
                } else if let Some(rows) = node.start(&job, rows) {
                    execute(&node, endpoint, &job, &rows).await;
                }
            }
            Task::Resume(job, rows) => execute(&node, endpoint, &job, &rows).await,
        }
    }
    Ok(())
}

/// Reads the declared rows of this node, and sends them to the others that execute the transaction.
async fn read<'e, P: Port, A: Program>(
    node: &Arc<Node<A>>,
    spawner: &Spawner<'e, P>,
    job: &Job<A::Txn>,
) -> Result<Declared, Error> {
    let endpoint = spawner.endpoint();
    let rows: Vec<(Key, Option<Row>)> = job.here.iter().map(|(key, _)| (*key, node.store.get(*key))).collect();
    spend(endpoint, reading(rows.len())).await;
    let others = job.active.iter().filter(|to| **to != node.id);
    let mut encoded = None;
    for to in others {
        let bytes = encoded.get_or_insert_with(|| encode_reads(job.place, &rows)).clone();
        spend(endpoint, message(node.plan.tcp, bytes.len())).await;
        post(node, spawner, *to, bytes)?;
    }
    Ok(rows.into_iter().collect())
}

/// Executes a transaction, and keeps what it has written here.
async fn execute<P: Port, A: Program>(
    node: &Arc<Node<A>>,
    endpoint: &Endpoint<P>,
    job: &Job<A::Txn>,
    declared: &Declared,
) {
    let is_here = |key: Key| node.is_here(key);
    let mut rows = Rows::new(&node.store, declared, &is_here);
    let ended = node.program.run(&job.txn, &mut rows);
    spend(endpoint, executing(rows.work())).await;
    if ended.is_ok() || node.has(Mutation::AbortsWrite) {
        rows.apply();
    }
    node.done(job, Some(ended.is_ok()), endpoint.now());
}
