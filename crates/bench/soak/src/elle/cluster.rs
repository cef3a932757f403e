//! Random transactions of clients on several nodes: the workload that [`Args`](super::Args) runs on
//! a cluster. Clients note moments by the clock that all processes of the machine share, in a
//! simulation, too: what happens first in virtual time is carried out first.

use std::ops::AddAssign;

use drtm_drive::{
    Done, Reads, Runner,
    cluster::{ClusterWorkload, Place},
    spread,
};
use drtm_history::{Epoch, Outcome};
use drtm_htm::NoHtm;
use drtm_rdma::Fabric;
use drtm_txn::{
    Config, Error as DbError, Options, Transaction,
    cluster::{Node, NodeBuilder, Worker},
};
use serde::{Deserialize, Serialize};

use super::{
    draw::{Draw, Workload},
    journal::{GIVEN_UP, Journal, ON_PURPOSE},
    record::{Observed, Operation},
    store::Store,
};
use drtm_drive::Error;

/// How often a closure is run at most. Insertions into ranges that others scan make these fail, and
/// each other, also where they fail themselves. So few transactions are run again hundreds of
/// times, with pauses of up to 131 ms, and a history of all of them does not end soon.
const ATTEMPTS: u32 = 12;

/// Random transactions, on a cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Histories {
    pub(super) workload: Workload,
    pub(super) seed: u64,
    /// Of all workers.
    pub(super) clients: usize,
    pub(super) epoch: Epoch,
}

/// What clients have recorded.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Records(pub(super) Vec<Observed>);

impl AddAssign for Records {
    fn add_assign(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}

/// A client, which runs one transaction at a time.
#[derive(Debug)]
pub(crate) struct Client {
    draw: Draw,
    journal: Journal,
    /// Transactions that it has begun.
    begun: u64,
}

impl Client {
    /// Runs a transaction until it commits, or is given up; or once, by hand.
    async fn run<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &mut self,
        worker: &Runner<'_, '_, F, S>,
        tables: Store,
        operations: Vec<Operation>,
        is_last: bool,
    ) -> Result<bool, Error> {
        let is_fetched = worker.protocol().leases && !is_last && self.draw.random.u8(0..4) > 0;
        let mut open = self.journal.open(operations);
        let ended = if is_fetched {
            let declared = open.operations.clone();
            let ended = worker.transact_on(
                |sets| tables.declare(sets, &declared),
                async |tx| {
                    self.journal.retry(&mut open, |operations| self.draw.again(operations));
                    let ended = self.steps(tx, worker.reads, tables, &mut open.operations, is_last).await;
                    self.journal.returns(&mut open);
                    ended
                },
            );
            ended.await
        } else if !is_last && self.draw.random.u8(0..3) == 0 {
            let mut tx = worker.begin().await;
            match self.steps(&mut tx, worker.reads, tables, &mut open.operations, is_last).await {
                Ok(()) => tx.commit().await,
                Err(error) => {
                    tx.abort().await;
                    Err(error)
                }
            }
        } else {
            // The last one reads alone.
            let options = if is_last { Options::new() } else { Options::new().attempts(ATTEMPTS) };
            let ended = worker.transact_with(options, async |tx| {
                self.journal.retry(&mut open, |operations| self.draw.again(operations));
                let ended = self.steps(tx, worker.reads, tables, &mut open.operations, is_last).await;
                self.journal.returns(&mut open);
                ended
            });
            ended.await
        };
        Ok(self.journal.complete(open, ended)? == Outcome::Committed)
    }

    async fn steps(
        &mut self,
        tx: &mut impl Transaction,
        reads: Reads,
        tables: Store,
        operations: &mut [Operation],
        is_last: bool,
    ) -> Result<(), DbError> {
        let Self { draw, journal, .. } = self;
        if draw.random.u8(0..4) == 0 {
            tables.prefetch(tx, reads, operations).await?;
        }
        let mut done = 0;
        while done < operations.len() {
            done += tables.perform(tx, &mut operations[done..], &mut draw.random, &mut journal.clock).await?;
        }
        if !is_last && draw.random.u8(0..GIVEN_UP) == 0 { Err(DbError::aborted(ON_PURPOSE)) } else { Ok(()) }
    }
}

impl Histories {
    fn client_of(&self, number: usize) -> Result<Client, Error> {
        // The last client reads what is left.
        let draw = Draw::new(self.workload, spread(self.seed, number), number, self.clients + 1);
        let clock = self.epoch.clock(number as u64).map_err(Error::size)?;
        Ok(Client { draw, journal: Journal::new(clock, number), begun: 0 })
    }
}

impl ClusterWorkload for Histories {
    const NAME: &'static str = "history";
    const KINDS: &'static [&'static str] = &["random"];
    type Tables = Store;
    type Client = Client;
    type Count = Records;

    fn size(&self) -> Vec<(&'static str, serde_json::Value)> {
        Vec::new()
    }

    fn open<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        node: &mut NodeBuilder<F, S>,
    ) -> Result<Store, Error> {
        Ok(Store::open_at(node, self.workload == Workload::Predicate)?)
    }

    fn load<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        _node: &Node<F, S>,
        _place: Place,
    ) -> Result<(), Error> {
        Ok(())
    }

    fn client(&self, _place: Place, number: usize) -> Result<Client, Error> {
        self.client_of(number)
    }

    async fn run_next<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Runner<'_, '_, F, S>,
        tables: Store,
        client: &mut Client,
    ) -> Result<Done, Error> {
        // About as many as all clients have begun.
        let operations = client.draw.transaction(client.begun * self.clients as u64);
        client.begun += 1;
        let is_committed = client.run(worker, tables, operations, false).await?;
        Ok(Done { kind: 0, is_committed })
    }

    fn count(client: Client) -> Records {
        Records(client.journal.record)
    }

    /// Reads what is left. The command judges, and tells.
    async fn check<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Worker<'_, F, S>,
        tables: Store,
        records: &mut Records,
    ) -> Result<Vec<String>, Error> {
        let mut last = self.client_of(self.clients)?;
        for operations in self.workload.last_reads_of(records.0.iter().flat_map(|observed| &observed.operations)) {
            last.run(&Runner::new(worker, false), tables, operations, true).await?;
        }
        records.0.append(&mut last.journal.record);
        records.0.sort_by_key(|observed| (observed.invoked, observed.process));
        Ok(Vec::new())
    }

    async fn check_node<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        _worker: &Worker<'_, F, S>,
        _tables: Store,
        _node: &Node<F, S>,
        _place: Place,
        _count: &Records,
    ) -> Result<Vec<String>, Error> {
        Ok(Vec::new())
    }
}
