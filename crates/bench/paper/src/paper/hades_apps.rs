//! HADES' eleven workloads, alone or several at a time on the cores of each node.
//!
//! They are one type, so that everything below it is compiled once.

use std::ops::AddAssign;

use drtm_drive::{
    Done, Error as DriveError, Runner,
    cluster::{ClusterWorkload, Place},
};
use drtm_htm::NoHtm;
use drtm_rdma::Fabric;
use drtm_tpcc::{Distributed, Supply};
use drtm_txn::{
    Config,
    cluster::{Node, NodeBuilder, Worker},
};
use drtm_workloads::{
    smallbank::SmallBank,
    tatp::Tatp,
    ycsb::{SmallOrderedRecords, SmallRecords},
};
use serde::{Deserialize, Serialize};

/// One workload, with its size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Part {
    Hashed(SmallRecords),
    Ordered(SmallOrderedRecords),
    Bank(SmallBank),
    Network(Tatp),
    Orders(Distributed<Supply>),
}

/// The most workloads at a time.
const MOST: usize = 4;

/// Workloads that share the cores of each node equally.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Apps {
    parts: Vec<Part>,
    /// Cores of a node, and transactions at a time on each.
    cores: usize,
    multiplexed: usize,
}

impl Apps {
    /// Creates one to four workloads.
    pub(super) fn new(parts: Vec<Part>, (cores, multiplexed): (u16, u16)) -> Self {
        assert!((1..=MOST).contains(&parts.len()), "{} workloads", parts.len());
        Self { parts, cores: cores.into(), multiplexed: multiplexed.into() }
    }

    /// Returns the number of the workload that a client runs.
    fn part_of(&self, place: Place, client: usize) -> usize {
        let core = client % place.clients / self.multiplexed;
        core * self.parts.len() / self.cores
    }
}

/// What each kind of workload has of something.
#[derive(Clone, Copy, Debug)]
pub(super) enum Each<H, O, B, N, D> {
    Hashed(H),
    Ordered(O),
    Bank(B),
    Network(N),
    Orders(D),
}

type Tables = Each<
    <SmallRecords as ClusterWorkload>::Tables,
    <SmallOrderedRecords as ClusterWorkload>::Tables,
    <SmallBank as ClusterWorkload>::Tables,
    <Tatp as ClusterWorkload>::Tables,
    <Distributed<Supply> as ClusterWorkload>::Tables,
>;

type Clients = Each<
    <SmallRecords as ClusterWorkload>::Client,
    <SmallOrderedRecords as ClusterWorkload>::Client,
    <SmallBank as ClusterWorkload>::Client,
    <Tatp as ClusterWorkload>::Client,
    <Distributed<Supply> as ClusterWorkload>::Client,
>;

/// A client, and the number of its workload.
pub(super) struct Client {
    part: usize,
    client: Clients,
}

/// What clients of one workload have counted: the others' counters stay empty.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct CountOfPart {
    hashed: <SmallRecords as ClusterWorkload>::Count,
    ordered: <SmallOrderedRecords as ClusterWorkload>::Count,
    bank: <SmallBank as ClusterWorkload>::Count,
    network: <Tatp as ClusterWorkload>::Count,
    orders: <Distributed<Supply> as ClusterWorkload>::Count,
}

/// What clients have counted, by workload.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Count([CountOfPart; MOST]);

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        for (all, one) in self.0.iter_mut().zip(other.0) {
            all.hashed += one.hashed;
            all.ordered += one.ordered;
            all.bank += one.bank;
            all.network += one.network;
            all.orders += one.orders;
        }
    }
}

/// Calls a method of a part with what it has of something else. Both are of one kind.
macro_rules! each {
    ($part:expr, $other:expr, |$workload:ident, $own:ident, $count:ident| $body:expr) => {
        match ($part, $other) {
            (Part::Hashed($workload), Each::Hashed($own)) => each!(@ $count, hashed, $body),
            (Part::Ordered($workload), Each::Ordered($own)) => each!(@ $count, ordered, $body),
            (Part::Bank($workload), Each::Bank($own)) => each!(@ $count, bank, $body),
            (Part::Network($workload), Each::Network($own)) => each!(@ $count, network, $body),
            (Part::Orders($workload), Each::Orders($own)) => each!(@ $count, orders, $body),
            _ => unreachable!("tables and clients are in the order of workloads"),
        }
    };
    (@ $count:ident, $field:ident, $body:expr) => {{
        let $count = |of: &mut CountOfPart| std::mem::take(&mut of.$field);
        let _ = &$count;
        $body
    }};
}

impl ClusterWorkload for Apps {
    const NAME: &'static str = "hades";
    /// By the number of the workload.
    const KINDS: &'static [&'static str] = &["first", "second", "third", "fourth"];
    type Tables = [Option<Tables>; MOST];
    type Client = Client;
    type Count = Count;

    fn size(&self) -> Vec<(&'static str, serde_json::Value)> {
        Vec::new()
    }

    fn open<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        node: &mut NodeBuilder<F, S>,
    ) -> Result<Self::Tables, DriveError> {
        let mut tables = [None; MOST];
        for (tables, part) in tables.iter_mut().zip(&self.parts) {
            *tables = Some(match part {
                Part::Hashed(of) => Each::Hashed(of.open(node)?),
                Part::Ordered(of) => Each::Ordered(of.open(node)?),
                Part::Bank(of) => Each::Bank(of.open(node)?),
                Part::Network(of) => Each::Network(of.open(node)?),
                Part::Orders(of) => Each::Orders(of.open(node)?),
            });
        }
        Ok(tables)
    }

    fn load<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        node: &Node<F, S>,
        place: Place,
    ) -> Result<(), DriveError> {
        self.parts.iter().try_for_each(|part| match part {
            Part::Hashed(of) => of.load(node, place),
            Part::Ordered(of) => of.load(node, place),
            Part::Bank(of) => of.load(node, place),
            Part::Network(of) => of.load(node, place),
            Part::Orders(of) => of.load(node, place),
        })
    }

    fn client(&self, place: Place, number: usize) -> Result<Client, DriveError> {
        let part = self.part_of(place, number);
        let client = match &self.parts[part] {
            Part::Hashed(of) => Each::Hashed(of.client(place, number)?),
            Part::Ordered(of) => Each::Ordered(of.client(place, number)?),
            Part::Bank(of) => Each::Bank(of.client(place, number)?),
            Part::Network(of) => Each::Network(of.client(place, number)?),
            Part::Orders(of) => Each::Orders(of.client(place, number)?),
        };
        Ok(Client { part, client })
    }

    async fn warm<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Worker<'_, F, S>,
        tables: Self::Tables,
        place: Place,
        numbers: (usize, usize),
    ) -> Result<(), DriveError> {
        for (part, tables) in self.parts.iter().zip(tables.into_iter().flatten()) {
            each!(part, tables, |of, own, _count| of.warm(worker, own, place, numbers).await?);
        }
        Ok(())
    }

    async fn run_next<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Runner<'_, '_, F, S>,
        tables: Self::Tables,
        client: &mut Client,
    ) -> Result<Done, DriveError> {
        let Client { part, client } = client;
        let Some(tables) = tables[*part] else { unreachable!("each workload has tables") };
        let done = match (&self.parts[*part], tables, client) {
            (Part::Hashed(of), Each::Hashed(own), Each::Hashed(client)) => of.run_next(worker, own, client).await?,
            (Part::Ordered(of), Each::Ordered(own), Each::Ordered(client)) => of.run_next(worker, own, client).await?,
            (Part::Bank(of), Each::Bank(own), Each::Bank(client)) => of.run_next(worker, own, client).await?,
            (Part::Network(of), Each::Network(own), Each::Network(client)) => of.run_next(worker, own, client).await?,
            (Part::Orders(of), Each::Orders(own), Each::Orders(client)) => of.run_next(worker, own, client).await?,
            _ => unreachable!("tables and clients are in the order of workloads"),
        };
        Ok(Done { kind: *part, ..done })
    }

    fn count(Client { part, client }: Client) -> Count {
        let mut count = Count::default();
        let of_part = &mut count.0[part];
        match client {
            Each::Hashed(client) => of_part.hashed = SmallRecords::count(client),
            Each::Ordered(client) => of_part.ordered = SmallOrderedRecords::count(client),
            Each::Bank(client) => of_part.bank = SmallBank::count(client),
            Each::Network(client) => of_part.network = Tatp::count(client),
            Each::Orders(client) => of_part.orders = Distributed::<Supply>::count(client),
        }
        count
    }

    async fn check<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Worker<'_, F, S>,
        tables: Self::Tables,
        count: &mut Count,
    ) -> Result<Vec<String>, DriveError> {
        let mut violations = Vec::new();
        for ((part, tables), count) in self.parts.iter().zip(tables.into_iter().flatten()).zip(&mut count.0) {
            let found = each!(part, tables, |of, own, take| of.check(worker, own, &mut take(count)).await?);
            violations.extend(found);
        }
        Ok(violations)
    }

    async fn check_node<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Worker<'_, F, S>,
        tables: Self::Tables,
        node: &Node<F, S>,
        place: Place,
        count: &Count,
    ) -> Result<Vec<String>, DriveError> {
        let mut violations = Vec::new();
        for ((part, tables), count) in self.parts.iter().zip(tables.into_iter().flatten()).zip(count.0.clone()) {
            let mut count = count;
            let found =
                each!(part, tables, |of, own, take| of.check_node(worker, own, node, place, &take(&mut count)).await?);
            violations.extend(found);
        }
        Ok(violations)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_share_the_cores_of_each_node() {
        let part = || Part::Bank(SmallBank::new(100, drtm_workloads::smallbank::Hot::None, 1).expect("some customers"));
        for (parts, cores, least, most) in [(1, 5, 5, 5), (2, 10, 5, 5), (4, 25, 6, 7)] {
            let apps = Apps::new((0..parts).map(|_| part()).collect(), (cores, 2));
            let place = Place { node: 1, nodes: 3, clients: 2 * usize::from(cores) };
            let mut clients = [0; MOST];
            (place.clients..2 * place.clients).for_each(|client| clients[apps.part_of(place, client)] += 1);
            for of_part in &clients[..parts] {
                assert!((2 * least..=2 * most).contains(of_part), "{clients:?}");
            }
            assert_eq!(clients.iter().sum::<usize>(), place.clients);
        }
    }
}
