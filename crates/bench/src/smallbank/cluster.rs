//! SmallBank on several nodes: accounts are where their customer is, and customers are divided by
//! their numbers, so that the hot ones are everywhere. No customer prefers a node, as in FaSST and
//! DrTM+H.

#[cfg(test)]
mod tests;

use drtm_htm::NoHtm;
use drtm_rdma::Fabric;
use drtm_txn::{
    Config, Error as DbError, Pod, TableDef,
    cluster::{ClusterTable, ClusterTx, Node, NodeBuilder, Partition, Worker},
};

use super::{
    Checking, CustomerKey, Inputs, Ledger, Savings, SmallBank, Transaction, View, check,
    ours::{CHECKING, SAVINGS},
    rules::{self, Refusal},
};
use crate::{
    Error,
    drive::{
        Done,
        cluster::{ClusterWorkload, Place, read},
        miscounted, there,
    },
};

/// The reason of a transaction that a rule does not allow.
const RULE: &str = "a rule does not allow it";

const BY_CUSTOMER: Partition<CustomerKey> = Partition::by("customer", |customer| *customer);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Tables {
    savings: ClusterTable<CustomerKey, Pod<Savings>>,
    checking: ClusterTable<CustomerKey, Pod<Checking>>,
}

/// A coroutine that serves customers.
#[derive(Debug)]
pub(crate) struct Client {
    inputs: Inputs,
    ledger: Ledger,
}

fn allowed<T>(ruled: Result<T, Refusal>) -> Result<T, DbError> {
    ruled.map_err(|_| DbError::aborted(RULE))
}

impl Tables {
    /// Looks accounts up, in one round trip for each table.
    async fn fetch<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        self,
        tx: &mut ClusterTx<'_, F, S>,
        savings: &[CustomerKey],
        checking: &[CustomerKey],
    ) -> Result<(), DbError> {
        if !savings.is_empty() {
            tx.prefetch(self.savings, savings).await?;
        }
        tx.prefetch(self.checking, checking).await
    }

    async fn savings<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        self,
        tx: &mut ClusterTx<'_, F, S>,
        customer: CustomerKey,
    ) -> Result<i64, DbError> {
        Ok(there(tx.get(self.savings, customer).await?, SAVINGS)?.balance.get())
    }

    async fn checking<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        self,
        tx: &mut ClusterTx<'_, F, S>,
        customer: CustomerKey,
    ) -> Result<i64, DbError> {
        Ok(there(tx.get(self.checking, customer).await?, CHECKING)?.balance.get())
    }

    async fn set_savings<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        self,
        tx: &mut ClusterTx<'_, F, S>,
        customer: CustomerKey,
        balance: i64,
    ) -> Result<(), DbError> {
        tx.put(self.savings, customer, &Savings { balance: balance.into() }).await
    }

    async fn set_checking<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        self,
        tx: &mut ClusterTx<'_, F, S>,
        customer: CustomerKey,
        balance: i64,
    ) -> Result<(), DbError> {
        tx.put(self.checking, customer, &Checking { balance: balance.into() }).await
    }

    /// Runs a transaction once, and returns what it puts into the bank: negative if it takes.
    async fn run<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        self,
        tx: &mut ClusterTx<'_, F, S>,
        transaction: &Transaction,
    ) -> Result<i64, DbError> {
        match *transaction {
            Transaction::Balance { customer } => {
                self.fetch(tx, &[customer], &[customer]).await?;
                let savings = self.savings(tx, customer).await?;
                std::hint::black_box(rules::balance(savings, self.checking(tx, customer).await?));
                Ok(0)
            }
            Transaction::DepositChecking { customer, amount } => {
                let balance = allowed(rules::deposit_checking(self.checking(tx, customer).await?, amount))?;
                self.set_checking(tx, customer, balance).await?;
                Ok(amount)
            }
            Transaction::TransactSavings { customer, amount } => {
                let balance = allowed(rules::transact_savings(self.savings(tx, customer).await?, amount))?;
                self.set_savings(tx, customer, balance).await?;
                Ok(amount)
            }
            Transaction::Amalgamate { from, to } => {
                self.fetch(tx, &[from], &[from, to]).await?;
                let (savings, checking) = (self.savings(tx, from).await?, self.checking(tx, from).await?);
                let balance = allowed(rules::amalgamate(savings, checking, self.checking(tx, to).await?))?;
                self.set_savings(tx, from, 0).await?;
                self.set_checking(tx, from, 0).await?;
                self.set_checking(tx, to, balance).await?;
                Ok(0)
            }
            Transaction::WriteCheck { customer, amount } => {
                self.fetch(tx, &[customer], &[customer]).await?;
                let (savings, checking) = (self.savings(tx, customer).await?, self.checking(tx, customer).await?);
                let check = allowed(rules::write_check(savings, checking, amount))?;
                self.set_checking(tx, customer, check.checking).await?;
                Ok(-check.taken)
            }
            Transaction::SendPayment { from, to, amount } => {
                self.fetch(tx, &[], &[from, to]).await?;
                let (left, right) = (self.checking(tx, from).await?, self.checking(tx, to).await?);
                let (left, right) = allowed(rules::send_payment(left, right, amount))?;
                self.set_checking(tx, from, left).await?;
                self.set_checking(tx, to, right).await?;
                Ok(0)
            }
        }
    }
}

impl ClusterWorkload for SmallBank {
    const NAME: &'static str = "smallbank";
    const KINDS: &'static [&'static str] = super::bank_client::KINDS;
    type Tables = Tables;
    type Client = Client;
    type Count = Ledger;

    fn size(&self) -> Vec<(&'static str, serde_json::Value)> {
        crate::drive::Workload::size(self)
    }

    fn open<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        node: &mut NodeBuilder<F, S>,
    ) -> Result<Tables, Error> {
        let customers = self.bank.customers();
        Ok(Tables {
            savings: node.table(TableDef::hash(SAVINGS).with_room_for(customers), BY_CUSTOMER)?,
            checking: node.table(TableDef::hash(CHECKING).with_room_for(customers), BY_CUSTOMER)?,
        })
    }

    fn load<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        node: &Node<F, S>,
        place: Place,
    ) -> Result<(), Error> {
        let (db, customers) = (node.local(), self.bank.customers());
        let savings = db.table::<CustomerKey, Pod<Savings>, _>(TableDef::hash(SAVINGS).with_room_for(customers))?;
        let checking = db.table::<CustomerKey, Pod<Checking>, _>(TableDef::hash(CHECKING).with_room_for(customers))?;
        for (customer, of_savings, of_checking) in self.bank.balances(0..customers) {
            if place.owns(customer) {
                db.transact(|tx| {
                    tx.insert(savings, customer, &of_savings)?;
                    tx.insert(checking, customer, &of_checking)
                })?;
            }
        }
        Ok(())
    }

    fn client(&self, _place: Place, number: usize) -> Result<Client, Error> {
        Ok(Client { inputs: self.inputs(number)?, ledger: Ledger::default() })
    }

    async fn run_next<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Worker<'_, F, S>,
        tables: Tables,
        client: &mut Client,
    ) -> Result<Done, Error> {
        let transaction = client.inputs.draw();
        let kind = transaction.kind() as usize;
        match worker.transact(async |tx| tables.run(tx, &transaction).await).await {
            Ok(put) => {
                client.ledger.put(put);
                Ok(Done { kind, is_committed: true })
            }
            Err(DbError::Aborted { reason }) if reason == RULE => Ok(Done { kind, is_committed: false }),
            Err(error) => Err(error.into()),
        }
    }

    fn count(client: Client) -> Ledger {
        client.ledger
    }

    async fn check<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Worker<'_, F, S>,
        tables: Tables,
        ledger: &mut Ledger,
    ) -> Result<Vec<String>, Error> {
        let customers = self.bank.customers();
        let rows = Rows {
            savings: read(worker, tables.savings, 0..customers).await?,
            checking: read(worker, tables.checking, 0..customers).await?,
        };
        Ok(check(&rows, &self.bank, ledger)?.iter().map(ToString::to_string).collect())
    }

    async fn check_node<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        _worker: &Worker<'_, F, S>,
        _tables: Tables,
        node: &Node<F, S>,
        place: Place,
        _count: &Ledger,
    ) -> Result<Vec<String>, Error> {
        // Those that are missing are found by the check of all; others there may not be.
        let own = (0..self.bank.customers()).filter(|customer| place.owns(*customer)).count() as u64;
        miscounted(node.local(), &[(SAVINGS, own), (CHECKING, own)])
    }
}

/// What the check has read.
struct Rows {
    savings: Vec<(CustomerKey, Savings)>,
    checking: Vec<(CustomerKey, Checking)>,
}

impl View for Rows {
    type Error = Error;

    fn savings(&self) -> impl Iterator<Item = Result<(CustomerKey, Savings), Error>> {
        self.savings.iter().copied().map(Ok)
    }

    fn checkings(&self) -> impl Iterator<Item = Result<(CustomerKey, Checking), Error>> {
        self.checking.iter().copied().map(Ok)
    }
}
