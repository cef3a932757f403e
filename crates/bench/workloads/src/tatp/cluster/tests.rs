//! A network of small clusters: of sound clients, and of clients that delete in two transactions.

use drtm_drive::{
    Plain,
    cluster::{
        Gathered,
        trial::{Careless, Carelessly, FABRICS, NODES, everywhere, run_on},
    },
};
use drtm_txn::{Transaction as _, cluster::Protocol};

use super::*;
use crate::tatp::{CallForwarding, Kind, Transaction, command::ChoiceName};

/// Clients that count a forwarding as deleted when they have seen it in another transaction.
impl Carelessly for Tatp {
    async fn run_carelessly<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Runner<'_, '_, F, S>,
        tables: Tables,
        client: &mut Client,
    ) -> Result<Done, Error> {
        let key = (1, 1, 0);
        let was_there = worker.transact(async |tx| tx.contains(tables.call_forwardings, key).await).await?;
        worker.transact(async |tx| tx.remove(tables.call_forwardings, key).await).await?;
        client.inserted -= i64::from(was_there);
        let row = CallForwarding { end_time: 1, number: subscriber_number(1) };
        worker.transact(async |tx| tx.put(tables.call_forwardings, key, &row).await).await?;
        client.inserted += 1;
        Ok(Done { kind: Kind::DeleteCallForwarding as usize, is_committed: true })
    }
}

#[test]
fn forwardings_are_miscounted_only_by_careless_clients() {
    // Few subscribers, so that transactions meet.
    let tatp = Tatp { choice: ChoiceName::Uniform, ..Tatp::new(20, 7).expect("some") };
    for (fabric, protocol) in everywhere() {
        let Gathered { tally, violations, .. } = run_on::<Plain, _>(&tatp, fabric, 300, 7, protocol);
        assert_eq!((violations, tally.committed), (vec![], u64::from(NODES) * 300), "{fabric}, {protocol:?}");
        assert!(tally.counts().all(|count| count > 0), "{fabric}, {protocol:?}: {tally:?}");
    }
    for fabric in FABRICS {
        let Gathered { violations, .. } = run_on::<Plain, _>(&Careless(tatp), fabric, 100, 7, Protocol::FASST);
        assert!(violations.iter().any(|found| found.contains("ForwardingsAreCounted")), "{fabric}: {violations:?}");
    }
}

#[test]
fn subscribers_can_be_those_of_a_clients_node() {
    let place = Place { node: 1, nodes: 4, clients: 2 };
    let tatp = Tatp::new(1_000, 7).expect("some").with_local(Some(100));
    let mut client = tatp.client(place, 2).expect("a client");
    for _ in 0..1_000 {
        if let Transaction::GetSubscriberData { subscriber } = client.inputs.draw() {
            assert!(place.owns(subscriber.into()) && (1..=1_000).contains(&subscriber), "{subscriber}");
        }
    }
}
