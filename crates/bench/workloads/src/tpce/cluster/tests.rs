//! Positions on small clusters, beside sound changes of prices, and careless ones.

use drtm_drive::{
    Plain,
    cluster::{
        Gathered,
        trial::{Careless, Carelessly, FABRICS, NODES, everywhere, run_on},
    },
};
use drtm_txn::cluster::Protocol;

use super::*;

/// Clients that look at a price in one transaction, and change it in another.
impl Carelessly for CustomerPosition {
    async fn run_carelessly<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Runner<'_, '_, F, S>,
        tables: Tables,
        client: &mut Client,
    ) -> Result<Done, Error> {
        let seen = worker.transact(async |tx| expect_row(tx.get(tables.last_trades, 0).await?, LAST_TRADE)).await;
        let mut row = seen?;
        transact(worker, &Feed { tables, securities: [0, 1], part: 1 }).await?;
        client.fed += 1;
        row.price += -1;
        row.volume += 1;
        worker.transact(async |tx| tx.put(tables.last_trades, 0, &row).await).await?;
        Ok(Done { kind: 1, is_committed: true })
    }
}

#[test]
fn prices_are_lost_only_by_careless_clients() {
    // With fewer securities, positions would read all that change all the time.
    let position = CustomerPosition::new(300, 20, 7).expect("enough customers");
    for (fabric, protocol) in everywhere() {
        let Gathered { tally, violations, .. } = run_on::<Plain, _>(&position, fabric, 40, 7, protocol);
        assert_eq!((violations, tally.committed), (vec![], u64::from(NODES) * 40), "{fabric}, {protocol:?}");
        assert!(tally.counts().all(|count| count > 5), "{fabric}, {protocol:?}: {tally:?}");
    }
    for fabric in FABRICS {
        let Gathered { violations, .. } = run_on::<Plain, _>(&Careless(position), fabric, 20, 7, Protocol::FASST);
        assert!(violations.iter().any(|found| found.starts_with("prices")), "{fabric}: {violations:?}");
    }
}
