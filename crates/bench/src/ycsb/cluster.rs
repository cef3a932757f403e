//! Transactions of several operations on several nodes: the core package's operations in one
//! transaction, on records that are divided by their numbers. No client prefers a node.

use std::ops::AddAssign;

use drtm_htm::NoHtm;
use drtm_rdma::Fabric;
use drtm_txn::{
    Hash, PodRef, Setting, TableDef,
    cluster::{ClusterTable, Node, NodeBuilder, Partition, Worker},
};
use serde::{Deserialize, Serialize};

use super::{Row, Shape, Transactions, check, key, number, population, shelf::RECORD};
use crate::{
    Error,
    drive::{
        Done,
        cluster::{ClusterWorkload, Place, read},
        miscounted, spread, there,
    },
};

type Record = PodRef<Row<1>>;

/// Transactions on a cluster, with their size.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Distributed {
    records: u64,
    accesses: u8,
    reads: u8,
    exponent: f64,
    seed: u64,
}

impl Distributed {
    pub(super) fn new(records: u64, shape: Shape, seed: u64) -> Result<Self, Error> {
        let Shape { accesses, reads, exponent } = shape;
        let distributed = Self { records, accesses, reads, exponent, seed };
        // Whether there are enough records, before they are loaded.
        distributed.transactions(0)?;
        Ok(distributed)
    }

    fn transactions(&self, client: usize) -> Result<Transactions, Error> {
        let shape = Shape { accesses: self.accesses, reads: self.reads, exponent: self.exponent };
        Ok(Transactions::new(self.records, shape, spread(self.seed, client))?)
    }

    fn def(&self) -> TableDef<u64, Record, Hash> {
        TableDef::hash(RECORD).with_room_for(self.records)
    }
}

/// How many fields were written.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Written(u64);

impl AddAssign for Written {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

/// A coroutine with its transactions.
#[derive(Debug)]
pub(crate) struct Client {
    transactions: Transactions,
    written: Written,
}

impl ClusterWorkload for Distributed {
    const NAME: &'static str = "ycsb";
    const KINDS: &'static [&'static str] = &["transaction"];
    type Tables = ClusterTable<u64, Record>;
    type Client = Client;
    type Count = Written;

    fn size(&self) -> Vec<(&'static str, serde_json::Value)> {
        vec![
            ("mix", "x".into()),
            ("records", self.records.into()),
            ("dist", if self.exponent == 0.0 { "uniform" } else { "zipf" }.into()),
            ("value_bytes", size_of::<Row<1>>().into()),
            ("table", "hash".into()),
            ("ops", self.accesses.into()),
            ("reads", self.reads.into()),
        ]
    }

    fn open<F: Fabric<Engine = NoHtm>, S: Setting<Engine = NoHtm>>(
        &self,
        node: &mut NodeBuilder<F, S>,
    ) -> Result<Self::Tables, Error> {
        Ok(node.table(self.def(), Partition::by("record", |key| number(*key)))?)
    }

    fn load<F: Fabric<Engine = NoHtm>, S: Setting<Engine = NoHtm>>(
        &self,
        node: &Node<F, S>,
        place: Place,
    ) -> Result<(), Error> {
        let db = node.local();
        let records = db.table(self.def())?;
        for (key, row) in population(0..self.records).filter(|(key, _)| place.owns(number(*key))) {
            db.transact(|tx| tx.insert(records, key, &row))?;
        }
        Ok(())
    }

    fn client(&self, _place: Place, number: usize) -> Result<Client, Error> {
        Ok(Client { transactions: self.transactions(number)?, written: Written::default() })
    }

    async fn run_next<F: Fabric<Engine = NoHtm>, S: Setting<Engine = NoHtm>>(
        &self,
        worker: &Worker<'_, F, S>,
        records: Self::Tables,
        client: &mut Client,
    ) -> Result<Done, Error> {
        let transaction = client.transactions.draw();
        let run = worker.transact(async |tx| {
            tx.prefetch(records, transaction.accesses().iter().map(|access| key(access.number))).await?;
            for access in transaction.accesses() {
                let key = key(access.number);
                if access.writes {
                    there(tx.update(records, key, |row| row.write(access.number, 0)).await?, RECORD)?;
                } else {
                    std::hint::black_box(there(tx.get(records, key).await?, RECORD)?);
                }
            }
            Ok(())
        });
        run.await?;
        client.written.0 += transaction.writes() as u64;
        Ok(Done { kind: 0, is_committed: true })
    }

    fn count(client: Client) -> Written {
        client.written
    }

    async fn check<F: Fabric<Engine = NoHtm>, S: Setting<Engine = NoHtm>>(
        &self,
        worker: &Worker<'_, F, S>,
        records: Self::Tables,
        written: &mut Written,
    ) -> Result<Vec<String>, Error> {
        let rows = read(worker, records, (0..self.records).map(key)).await?;
        Ok(check(rows.into_iter().map(Ok::<_, Error>), self.records, written.0)?
            .iter()
            .map(ToString::to_string)
            .collect())
    }

    fn check_node<F: Fabric<Engine = NoHtm>, S: Setting<Engine = NoHtm>>(
        &self,
        node: &Node<F, S>,
        place: Place,
    ) -> Result<Vec<String>, Error> {
        let own = (0..self.records).filter(|number| place.owns(*number)).count() as u64;
        miscounted(node.local(), &[(RECORD, own)])
    }
}
