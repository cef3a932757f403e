//! TATP on several nodes. A subscriber and all that belongs to it is on one node; the entry of its
//! number, in a table that the workload keeps itself, is on any. No client prefers a node.

#[cfg(test)]
mod tests;

use std::hint::black_box;

use drtm_drive::{
    Done, Error,
    cluster::{Access, Body, ClusterWorkload, Place, Runner, read, transact},
    miscounted,
    scatter::scatter,
};
use drtm_htm::NoHtm;
use drtm_rdma::Fabric;
use drtm_txn::{
    Config, Error as DbError, Pod,
    cluster::{ClusterTable, Node, NodeBuilder, Partition, Sets, Worker},
};
use zerocopy::little_endian::U32;

use super::{
    AccessInfo, AccessInfoKey, CallForwarding, CallForwardingKey, Inputs, Population, SpecialFacility,
    SpecialFacilityKey, Subscriber, SubscriberKey, SubscriberNumber, Transaction, check,
    command::{Rows, Tatp},
    network::{self, Defs, KINDS},
    subscriber_number,
};

#[derive(Clone, Copy, Debug)]
pub struct Tables {
    subscribers: ClusterTable<SubscriberKey, Pod<Subscriber>>,
    numbers: ClusterTable<SubscriberNumber, Pod<U32>>,
    access_infos: ClusterTable<AccessInfoKey, Pod<AccessInfo>>,
    special_facilities: ClusterTable<SpecialFacilityKey, Pod<SpecialFacility>>,
    call_forwardings: ClusterTable<CallForwardingKey, Pod<CallForwarding>>,
}

/// Where the entry of a number is: anywhere, as far as its subscriber is concerned.
fn of_number(number: &SubscriberNumber) -> u64 {
    number.iter().fold(0, |hash, digit| scatter(hash ^ u64::from(*digit)))
}

/// A coroutine that asks.
#[derive(Debug)]
pub struct Client {
    inputs: Inputs,
    /// Forwardings, less those that it has deleted.
    inserted: i64,
}

/// A transaction on these tables.
struct Ask<'t>(Tables, &'t Transaction);

impl Body for Ask<'_> {
    /// Whether it found what it needs.
    type Output = bool;

    /// What a transaction uses that begins with a number is found out.
    fn declare<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        sets: &mut Sets<'_, '_, F, S>,
    ) -> Result<(), DbError> {
        let Self(tables, transaction) = *self;
        match transaction {
            Transaction::GetSubscriberData { subscriber } => sets.read(tables.subscribers, subscriber),
            Transaction::GetNewDestination { facility, start_time, .. } => {
                sets.read(tables.special_facilities, facility)?;
                let mut forwardings = Transaction::forwardings(*facility, *start_time);
                forwardings.try_for_each(|forwarding| sets.read(tables.call_forwardings, forwarding))
            }
            Transaction::GetAccessData { key } => sets.read(tables.access_infos, key),
            Transaction::UpdateSubscriberData { facility, .. } => {
                sets.write(tables.special_facilities, facility)?;
                sets.write(tables.subscribers, facility.0)
            }
            Transaction::UpdateLocation { .. }
            | Transaction::InsertCallForwarding { .. }
            | Transaction::DeleteCallForwarding { .. } => Ok(()),
        }
    }

    async fn run(&self, tx: &mut impl Access) -> Result<bool, DbError> {
        let Self(tables, transaction) = *self;
        match transaction {
            Transaction::GetSubscriberData { subscriber } => {
                Ok(black_box(tx.get(tables.subscribers, subscriber).await?).is_some())
            }
            Transaction::GetNewDestination { facility, start_time, end_time } => {
                let row = tx.get(tables.special_facilities, facility).await?;
                if row.is_none_or(|row| row.is_active != 1) {
                    return Ok(false);
                }
                let forwardings = Transaction::forwardings(*facility, *start_time);
                let rows = tx.get_many(tables.call_forwardings, forwardings).await?;
                let found = rows.iter().flatten().filter(|row| row.end_time > *end_time);
                Ok(black_box(found.map(|row| row.number).next_back()).is_some())
            }
            Transaction::GetAccessData { key } => Ok(black_box(tx.get(tables.access_infos, key).await?).is_some()),
            Transaction::UpdateSubscriberData { facility, bit, data_a } => {
                if tx.update(tables.special_facilities, facility, |row| row.data_a = *data_a).await?.is_none() {
                    return Ok(false);
                }
                Ok(tx.update(tables.subscribers, facility.0, |row| row.bits[0] = *bit).await?.is_some())
            }
            Transaction::UpdateLocation { number, vlr_location } => {
                let Some(subscriber) = tables.find(tx, number).await? else { return Ok(false) };
                let moved = tx.update(tables.subscribers, subscriber, |row| row.vlr_location.set(*vlr_location));
                Ok(moved.await?.is_some())
            }
            Transaction::InsertCallForwarding { number, facility, start_time, row } => {
                let Some(subscriber) = tables.find(tx, number).await? else { return Ok(false) };
                let facilities = tx.get_many(tables.special_facilities, (1..=4).map(|kind| (subscriber, kind))).await?;
                if !(1..).zip(facilities).any(|(kind, row)| kind == *facility && row.is_some()) {
                    return Ok(false);
                }
                match tx.insert(tables.call_forwardings, (subscriber, *facility, *start_time), row).await {
                    Ok(()) => Ok(true),
                    Err(DbError::Exists { .. }) => Ok(false),
                    Err(error) => Err(error),
                }
            }
            Transaction::DeleteCallForwarding { number, facility, start_time } => {
                let Some(subscriber) = tables.find(tx, number).await? else { return Ok(false) };
                Ok(tx.remove(tables.call_forwardings, (subscriber, *facility, *start_time)).await?.is_some())
            }
        }
    }
}

impl Tables {
    async fn find(self, tx: &mut impl Access, number: &SubscriberNumber) -> Result<Option<SubscriberKey>, DbError> {
        Ok(tx.get(self.numbers, number).await?.map(U32::get))
    }
}

impl Tatp {
    /// The subscribers of a node, counted from one.
    fn own(&self, place: Place) -> impl Iterator<Item = SubscriberKey> + use<> {
        (1..=self.register.subscribers()).filter(move |subscriber| place.owns((*subscriber).into()))
    }
}

impl ClusterWorkload for Tatp {
    const NAME: &'static str = "tatp";
    const KINDS: &'static [&'static str] = KINDS;
    type Tables = Tables;
    type Client = Client;
    type Count = i64;

    fn size(&self) -> Vec<(&'static str, serde_json::Value)> {
        drtm_drive::Workload::size(self)
    }

    fn open<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        node: &mut NodeBuilder<F, S>,
    ) -> Result<Tables, Error> {
        let defs = Defs::new(&self.register);
        let by_type = Partition::by("subscriber", |key: &AccessInfoKey| key.0.into());
        Ok(Tables {
            subscribers: node.table(defs.subscribers, Partition::by("subscriber", |key| (*key).into()))?,
            numbers: node.table(defs.numbers, Partition::by("number", of_number))?,
            access_infos: node.table(defs.access_infos, by_type)?,
            special_facilities: node.table(defs.special_facilities, by_type)?,
            call_forwardings: node
                .table(defs.call_forwardings, Partition::by("subscriber", |key: &CallForwardingKey| key.0.into()))?,
        })
    }

    fn load<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        node: &Node<F, S>,
        place: Place,
    ) -> Result<(), Error> {
        let db = node.local();
        let tables = Defs::new(&self.register).open(db)?;
        for subscriber in self.own(place) {
            for profile in self.register.profiles(subscriber..=subscriber) {
                db.transact(|tx| tables.insert(tx, &profile))?;
            }
        }
        for subscriber in 1..=self.register.subscribers() {
            let number = subscriber_number(subscriber);
            if place.owns(of_number(&number)) {
                db.transact(|tx| tx.insert(tables.numbers, number, &U32::new(subscriber)))?;
            }
        }
        Ok(())
    }

    fn client(&self, _place: Place, number: usize) -> Result<Client, Error> {
        Ok(Client { inputs: self.inputs(number), inserted: 0 })
    }

    async fn run_next<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Runner<'_, '_, F, S>,
        tables: Tables,
        client: &mut Client,
    ) -> Result<Done, Error> {
        let transaction = client.inputs.draw();
        let has_found = transact(worker, &Ask(tables, &transaction)).await?;
        let kind = transaction.kind();
        client.inserted += network::inserted(kind, has_found);
        Ok(Done { kind: kind as usize, is_committed: true })
    }

    fn count(client: Client) -> i64 {
        client.inserted
    }

    async fn check<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Worker<'_, F, S>,
        tables: Tables,
        inserted: &mut i64,
    ) -> Result<Vec<String>, Error> {
        let keys = 1..=self.register.subscribers();
        let typed = keys.clone().flat_map(|key| (1..=4).map(move |kind| (key, kind)));
        let starts = typed.clone().flat_map(|(key, kind)| [0, 8, 16].map(|start| (key, kind, start)));
        let numbers = read(worker, tables.numbers, keys.clone().map(subscriber_number)).await?;
        let rows = Population {
            subscribers: read(worker, tables.subscribers, keys).await?.into_iter().collect(),
            numbers: numbers.into_iter().map(|(number, key)| (number, key.get())).collect(),
            access_infos: read(worker, tables.access_infos, typed.clone()).await?.into_iter().collect(),
            special_facilities: read(worker, tables.special_facilities, typed).await?.into_iter().collect(),
            call_forwardings: read(worker, tables.call_forwardings, starts).await?.into_iter().collect(),
        };
        let Ok(violations) = check(&rows, &self.register, *inserted);
        Ok(violations.iter().map(ToString::to_string).collect())
    }

    /// That the node has no rows of others, or of subscribers that there are not.
    async fn check_node<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        _worker: &Worker<'_, F, S>,
        _tables: Tables,
        node: &Node<F, S>,
        place: Place,
        _inserted: &i64,
    ) -> Result<Vec<String>, Error> {
        let db = node.local();
        let rows = Rows { db, tables: Defs::new(&self.register).open(db)?, subscribers: self.own(place).collect() };
        let mut counts = rows.counts()?;
        let numbers = (1..=self.register.subscribers()).map(subscriber_number);
        let own = numbers.filter(|number| place.owns(of_number(number))).count() as u64;
        counts.push((network::NUMBER, own));
        counts.push((network::SUBSCRIBER, rows.subscribers.len() as u64));
        miscounted(db, &counts)
    }
}
