//! Money on small clusters: of sound clients, and of clients that lose some.

use drtm_txn::cluster::Protocol;

use super::*;
use crate::{
    drive::cluster::{
        Gathered, Sound,
        trial::{FABRICS, NODES, run_on},
    },
    smallbank::Hot,
};

/// A bank whose clients read in one transaction, and write in another.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
struct Careless(SmallBank);

impl ClusterWorkload for Careless {
    const NAME: &'static str = "careless";
    const KINDS: &'static [&'static str] = SmallBank::KINDS;
    type Tables = Tables;
    type Client = Client;
    type Count = Ledger;

    fn size(&self) -> Vec<(&'static str, serde_json::Value)> {
        Vec::new()
    }

    fn open<F: Fabric<Engine = NoHtm>, S: Setting<Engine = NoHtm>>(
        &self,
        node: &mut NodeBuilder<F, S>,
    ) -> Result<Tables, Error> {
        self.0.open(node)
    }

    fn load<F: Fabric<Engine = NoHtm>, S: Setting<Engine = NoHtm>>(
        &self,
        node: &Node<F, S>,
        place: Place,
    ) -> Result<(), Error> {
        self.0.load(node, place)
    }

    fn client(&self, place: Place, number: usize) -> Result<Client, Error> {
        self.0.client(place, number)
    }

    async fn run_next<F: Fabric<Engine = NoHtm>, S: Setting<Engine = NoHtm>>(
        &self,
        worker: &Worker<'_, F, S>,
        tables: Tables,
        client: &mut Client,
    ) -> Result<Done, Error> {
        let customer = client.ledger.put as u64 % self.0.bank.customers();
        let balance = worker.transact(async |tx| tables.checking(tx, customer).await).await?;
        worker.transact(async |tx| tables.set_checking(tx, customer, balance + 1).await).await?;
        client.ledger.put(1);
        Ok(Done { kind: 1, is_committed: true })
    }

    fn count(client: Client) -> Ledger {
        client.ledger
    }

    async fn check<F: Fabric<Engine = NoHtm>, S: Setting<Engine = NoHtm>>(
        &self,
        worker: &Worker<'_, F, S>,
        tables: Tables,
        ledger: &mut Ledger,
    ) -> Result<Vec<String>, Error> {
        self.0.check(worker, tables, ledger).await
    }

    fn check_node<F: Fabric<Engine = NoHtm>, S: Setting<Engine = NoHtm>>(
        &self,
        node: &Node<F, S>,
        place: Place,
    ) -> Result<Vec<String>, Error> {
        self.0.check_node(node, place)
    }
}

#[test]
fn money_is_lost_only_by_careless_clients() {
    // Few customers, so that transactions meet all the time.
    let smallbank = SmallBank::new(12, Hot::None, 7).expect("some customers");
    for (fabric, protocol) in FABRICS.into_iter().flat_map(|fabric| Protocol::ALL.map(|protocol| (fabric, protocol))) {
        let Gathered { tally, violations, .. } = run_on::<Sound, _>(&smallbank, fabric, 300, 7, protocol);
        assert_eq!(
            (violations, tally.committed + tally.given_up),
            (vec![], u64::from(NODES) * 300),
            "{fabric}, {protocol:?}"
        );
        assert!(tally.conflicts.iter().sum::<u64>() > 50, "{fabric}, {protocol:?}: {tally:?}");
    }
    for fabric in FABRICS {
        let Gathered { violations, .. } =
            run_on::<Sound, _>(&Careless(smallbank.clone()), fabric, 200, 7, Protocol::FASST);
        assert!(violations.iter().any(|found| found.contains("MoneyIsConserved")), "{fabric}: {violations:?}");
    }
}
