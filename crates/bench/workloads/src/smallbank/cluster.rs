//! SmallBank on several nodes: accounts are where their customer is, and customers are divided by
//! their numbers, so that the hot ones are everywhere. No customer prefers a node, as in FaSST and
//! DrTM+H.

#[cfg(test)]
mod tests;

use std::convert::Infallible;

use drtm_drive::{
    Body, Done, Error, Reads, Runner,
    cluster::{ClusterWorkload, Nearby, Place, look_up, read},
    expect_row, miscounted, transact,
};
use drtm_htm::NoHtm;
use drtm_rdma::Fabric;
use drtm_txn::{
    Config, Error as DbError, Pod, TableDef, Transaction as Tx,
    cluster::{Node, NodeBuilder, Partition, Sets, Worker},
};

use super::{
    Checking, CustomerKey, Inputs, Ledger, Savings, SmallBank, Transaction, View,
    bank_client::{Accounts, Refused, serve},
    check,
    ours::{CHECKING, SAVINGS, Tables},
    outline::Touched,
    rules::Refusal,
};

/// The reason why a rule refuses a transaction.
const RULE: &str = "a rule does not allow it";

const BY_CUSTOMER: Partition<CustomerKey> = Partition::by("customer", |customer| *customer);

/// A coroutine that serves customers.
#[derive(Debug)]
pub struct Client {
    inputs: Inputs,
    ledger: Ledger,
}

/// A transaction on these tables.
struct Serve<'t>(Tables, &'t Transaction);

impl Body for Serve<'_> {
    /// What it puts into the bank: negative if it takes.
    type Output = i64;

    fn declare<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        sets: &mut Sets<'_, '_, F, S>,
    ) -> Result<(), DbError> {
        let Self(Tables { savings, checking }, transaction) = self;
        let touched = transaction.touched();
        if let Some(customer) = touched.savings {
            match touched.writes_savings {
                true => sets.write(*savings, customer)?,
                false => sets.read(*savings, customer)?,
            }
        }
        touched.checking.into_iter().flatten().try_for_each(|customer| match touched.writes_checking {
            true => sets.write(*checking, customer),
            false => sets.read(*checking, customer),
        })
    }

    async fn run(&self, tx: &mut impl Tx, reads: Reads) -> Result<i64, DbError> {
        let Self(tables, transaction) = *self;
        let mut balances = Balances::read(tx, tables, transaction.touched(), reads).await?;
        match serve(&mut balances, transaction) {
            Ok(put) => balances.write(tx, tables).await.map(|()| put),
            Err(Refused::Rule) => Err(DbError::aborted(RULE)),
            Err(Refused::Failed(never)) => match never {},
        }
    }
}

/// The balances of the accounts that a transaction touches. So the transaction itself waits for
/// nothing, as on one node.
struct Balances {
    touched: Touched,
    savings: i64,
    checking: [i64; 2],
}

impl Balances {
    /// Reads them, in one round trip for each table.
    async fn read(tx: &mut impl Tx, tables: Tables, touched: Touched, reads: Reads) -> Result<Self, DbError> {
        reads.prefetch(tx, tables.savings, touched.savings).await?;
        reads.prefetch(tx, tables.checking, touched.checking.into_iter().flatten()).await?;
        let mut balances = Self { touched, savings: 0, checking: [0; 2] };
        if let Some(customer) = touched.savings {
            balances.savings = expect_row(tx.get(tables.savings, customer).await?, SAVINGS)?.balance.get();
        }
        for (balance, customer) in balances.checking.iter_mut().zip(touched.checking) {
            if let Some(customer) = customer {
                *balance = expect_row(tx.get(tables.checking, customer).await?, CHECKING)?.balance.get();
            }
        }
        Ok(balances)
    }

    /// Writes those that the transaction may have changed.
    async fn write(&self, tx: &mut impl Tx, tables: Tables) -> Result<(), DbError> {
        let Self { touched, savings, checking } = *self;
        if let Some(customer) = touched.savings.filter(|_| touched.writes_savings) {
            tx.put(tables.savings, customer, Savings { balance: savings.into() }).await?;
        }
        for (balance, customer) in checking.into_iter().zip(touched.checking) {
            if let Some(customer) = customer.filter(|_| touched.writes_checking) {
                tx.put(tables.checking, customer, Checking { balance: balance.into() }).await?;
            }
        }
        Ok(())
    }

    fn checking_of(&mut self, customer: CustomerKey) -> &mut i64 {
        let [first, second] = &mut self.checking;
        if self.touched.checking[0] == Some(customer) { first } else { second }
    }
}

impl Accounts for Balances {
    type Error = Infallible;

    /// Does nothing: all balances are here.
    fn prefetch(&mut self, _: &[CustomerKey], _: &[CustomerKey]) -> Result<(), Infallible> {
        Ok(())
    }

    fn savings(&mut self, _customer: CustomerKey) -> Result<i64, Infallible> {
        Ok(self.savings)
    }

    fn checking(&mut self, customer: CustomerKey) -> Result<i64, Infallible> {
        Ok(*self.checking_of(customer))
    }

    fn change_savings(
        &mut self,
        _customer: CustomerKey,
        rule: impl FnOnce(i64) -> Result<i64, Refusal>,
    ) -> Result<i64, Refused<Infallible>> {
        change(&mut self.savings, rule)
    }

    fn change_checking(
        &mut self,
        customer: CustomerKey,
        rule: impl FnOnce(i64) -> Result<i64, Refusal>,
    ) -> Result<i64, Refused<Infallible>> {
        change(self.checking_of(customer), rule)
    }
}

/// Changes a balance by a rule, and returns the old balance.
fn change(balance: &mut i64, rule: impl FnOnce(i64) -> Result<i64, Refusal>) -> Result<i64, Refused<Infallible>> {
    let before = *balance;
    *balance = Refused::unless(rule(before))?;
    Ok(before)
}

impl ClusterWorkload for SmallBank {
    const NAME: &'static str = "smallbank";
    const KINDS: &'static [&'static str] = super::bank_client::KINDS;
    type Tables = Tables;
    type Client = Client;
    type Count = Ledger;

    fn size(&self) -> Vec<(&'static str, serde_json::Value)> {
        drtm_drive::Workload::size(self)
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

    fn client(&self, place: Place, number: usize) -> Result<Client, Error> {
        // As far from those of inputs as there are clients.
        let seed = (number + place.all_clients()) as u64;
        let nearby = self.local.map(|local| Nearby::new(local, place, seed));
        Ok(Client { inputs: self.inputs(number)?.near(nearby), ledger: Ledger::default() })
    }

    /// The accounts of hot customers.
    async fn warm<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Worker<'_, F, S>,
        tables: Tables,
        place: Place,
        (number, workers): (usize, usize),
    ) -> Result<(), Error> {
        // Where no customer is hot, all are.
        let hot = Some(self.inputs(0)?.hot_customers()).filter(|hot| *hot > 0);
        let others = (0..hot.unwrap_or(self.bank.customers())).filter(|customer| !place.owns(*customer));
        let own = others.skip(number).step_by(workers);
        look_up(worker, tables.savings, own.clone()).await?;
        look_up(worker, tables.checking, own).await
    }

    async fn run_next<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Runner<'_, '_, F, S>,
        tables: Tables,
        client: &mut Client,
    ) -> Result<Done, Error> {
        let transaction = client.inputs.draw();
        let kind = transaction.kind() as usize;
        let ended = transact(worker, &Serve(tables, &transaction)).await;
        match ended {
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
        let rows = AllRows {
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
        // The check of the whole cluster finds missing accounts; this one finds further ones.
        let own = (0..self.bank.customers()).filter(|customer| place.owns(*customer)).count() as u64;
        miscounted(node.local(), &[(SAVINGS, own), (CHECKING, own)])
    }
}

/// The rows that the check has read.
struct AllRows {
    savings: Vec<(CustomerKey, Savings)>,
    checking: Vec<(CustomerKey, Checking)>,
}

impl View for AllRows {
    type Error = Error;

    fn savings(&self) -> impl Iterator<Item = Result<(CustomerKey, Savings), Error>> {
        self.savings.iter().copied().map(Ok)
    }

    fn checkings(&self) -> impl Iterator<Item = Result<(CustomerKey, Checking), Error>> {
        self.checking.iter().copied().map(Ok)
    }
}
