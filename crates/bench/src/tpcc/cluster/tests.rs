//! Orders on small clusters: of sound terminals, and of terminals that take from stock carelessly.

use drtm_txn::cluster::Protocol;

use super::*;
use crate::drive::cluster::{
    Gathered, Sound,
    trial::{Careless, Carelessly, FABRICS, NODES, run_on},
};

/// Terminals that take from stock in a transaction of its own, after they have looked in another.
impl Carelessly for NewOrders {
    async fn run_carelessly<F: Fabric<Engine = NoHtm>, S: Setting<Engine = NoHtm>>(
        &self,
        worker: &Worker<'_, F, S>,
        tables: Tables,
        client: &mut Client,
    ) -> Result<Done, Error> {
        let any = client.inputs.new_order().stocks()[0];
        let before = worker.transact(async |tx| tx.get(tables.stocks, &any).await).await?;
        let done = self.run_next(worker, tables, client).await?;
        if let Some(stock) = before {
            worker.transact(async |tx| tx.put(tables.stocks, &any, &stock).await).await?;
        }
        Ok(done)
    }
}

fn small(warehouses: u16) -> NewOrders {
    let scale = Scale::new(warehouses).and_then(|scale| scale.with_customers(10)?.with_items(40)).expect("small");
    NewOrders::new(scale, Chances { remote_item: 50, ..Chances::STANDARD }, 3, NonZeroU64::MIN)
}

#[test]
fn stock_is_lost_only_by_careless_terminals() {
    for fabric in FABRICS {
        for (warehouses, protocol) in [3, 5, 4, 3].into_iter().zip(Protocol::ALL) {
            let Gathered { tally, violations, .. } = run_on::<Sound, _>(&small(warehouses), fabric, 60, 3, protocol);
            let all = (vec![], u64::from(NODES) * 60);
            assert_eq!((violations, tally.committed + tally.given_up), all, "{fabric}, {protocol:?}");
        }
        let Gathered { violations, .. } = run_on::<Sound, _>(&Careless(small(3)), fabric, 40, 3, Protocol::FASST);
        assert!(violations.iter().any(|found| found.starts_with("stock")), "{fabric}: {violations:?}");
    }
}
