//! TATP on several nodes. A subscriber and all that belongs to it is on one node; the entry of its
//! number, in a table that the workload keeps itself, is on any. No client prefers a node.

#[cfg(test)]
mod tests;

use drtm_drive::{
    Done, Error, Runner,
    cluster::{ClusterWorkload, Nearby, Place, read},
    miscounted,
    scatter::scatter,
    transact,
};
use drtm_htm::NoHtm;
use drtm_rdma::Fabric;
use drtm_txn::{
    Config,
    cluster::{Node, NodeBuilder, Partition, Worker},
};
use zerocopy::little_endian::U32;

use super::{
    AccessInfoKey, CallForwardingKey, Inputs, Population, SubscriberKey, SubscriberNumber,
    body::Ask,
    check,
    command::{Rows, Tatp},
    network::{self, Defs, KINDS, Tables},
    subscriber_number,
};

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

    fn client(&self, place: Place, number: usize) -> Result<Client, Error> {
        // As far from those of inputs as there are clients.
        let seed = (number + place.all_clients()) as u64;
        let nearby = self.local.map(|local| Nearby::new(local, place, seed));
        Ok(Client { inputs: self.inputs(number).near(nearby), inserted: 0 })
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
