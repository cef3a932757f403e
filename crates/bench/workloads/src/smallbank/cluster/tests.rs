//! Money on small clusters: of sound clients, and of clients that lose some.

use drtm_drive::{
    Plain,
    cluster::{
        Gathered,
        trial::{Careless, Carelessly, FABRICS, NODES, everywhere, run_on},
    },
};
use drtm_txn::cluster::Protocol;

use super::*;
use crate::smallbank::Hot;

/// A bank whose clients read in one transaction, and write in another.
impl Carelessly for SmallBank {
    async fn run_carelessly<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Runner<'_, '_, F, S>,
        tables: Tables,
        client: &mut Client,
    ) -> Result<Done, Error> {
        let customer = client.ledger.put as u64 % self.bank.customers();
        let seen = worker.transact(async |tx| tx.get(tables.checking, customer).await).await?;
        let mut row = seen.expect("it is there");
        row.balance += 1;
        worker.transact(async |tx| tx.put(tables.checking, customer, row).await).await?;
        client.ledger.put(1);
        Ok(Done { kind: 1, is_committed: true })
    }
}

#[test]
fn money_is_lost_only_by_careless_clients() {
    // Few customers, so that transactions meet all the time.
    let smallbank = SmallBank::new(12, Hot::None, 7).expect("some customers");
    for (fabric, protocol) in everywhere() {
        let Gathered { tally, violations, .. } = run_on::<Plain, _>(&smallbank, fabric, 300, 7, protocol);
        assert_eq!(
            (violations, tally.committed + tally.given_up),
            (vec![], u64::from(NODES) * 300),
            "{fabric}, {protocol:?}"
        );
        assert!(tally.conflicts.iter().sum::<u64>() > 50, "{fabric}, {protocol:?}: {tally:?}");
    }
    for fabric in FABRICS {
        let Gathered { violations, .. } =
            run_on::<Plain, _>(&Careless(smallbank.clone()), fabric, 200, 7, Protocol::FASST);
        assert!(violations.iter().any(|found| found.contains("MoneyIsConserved")), "{fabric}: {violations:?}");
    }
}

#[test]
fn customers_can_be_those_of_a_clients_node() {
    let place = Place { node: 1, nodes: 4, clients: 2 };
    let bank = SmallBank::new(100, Hot::None, 7).expect("some customers").with_local(Some(100));
    let mut client = bank.client(place, 2).expect("a client");
    for _ in 0..1_000 {
        if let Transaction::SendPayment { from, to, .. } = client.inputs.draw() {
            assert!(from != to && [from, to].iter().all(|of| *of < 100 && place.owns(*of)), "{from} to {to}");
        }
    }
}
