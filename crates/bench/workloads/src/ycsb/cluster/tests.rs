//! Records of small clusters: of sound clients, and of clients that lose writes.

use drtm_drive::{
    Plain,
    cluster::{
        Gathered,
        trial::{Careless, Carelessly, FABRICS, NODES, everywhere, run_on},
    },
    expect_row,
};
use drtm_txn::{Transaction as _, cluster::Protocol};

use super::*;

/// Clients that read in one transaction, and write in another.
impl Carelessly for Distributed<Hash, 10> {
    async fn run_carelessly<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Runner<'_, '_, F, S>,
        records: Self::Tables,
        client: &mut Client,
    ) -> Result<Done, Error> {
        let read = worker.transact(async |tx| expect_row(tx.get(records, key(1)).await?, RECORD)).await;
        let mut row = read?;
        row.write(1, 0);
        worker.transact(async |tx| tx.put(records, key(1), &row).await).await?;
        client.written.fields += 1;
        Ok(Done { kind: 1, is_committed: true })
    }
}

/// Runs a workload in every protocol, and asserts that no write is lost or torn. Returns how many
/// operations of each kind there were.
fn run_all<O: Layout, const FIELDS: usize>(mix: MixName, transactions: u64) -> Vec<u64>
where
    Distributed<O, FIELDS>: ClusterWorkload<Count = Written>,
{
    let load = Load::of(mix, Dist::Zipf, FIELDS as u8);
    let records = Distributed::<O, FIELDS>::new(100, load, Vec::new(), 5).expect("enough records");
    let mut kinds = vec![0; KINDS.len()];
    for (fabric, protocol) in everywhere() {
        let Gathered { tally, violations, .. } = run_on::<Plain, _>(&records, fabric, transactions, 5, protocol);
        let all = (vec![], u64::from(NODES) * transactions);
        assert_eq!((violations, tally.committed), all, "{mix:?} on {fabric}, {protocol:?}");
        kinds.iter_mut().zip(tally.counts()).for_each(|(all, one)| *all += one);
    }
    kinds
}

#[test]
fn no_write_is_lost_or_torn() {
    let [reads, updates, ..] = run_all::<Hash, 10>(MixName::A, 120)[..] else { unreachable!("kinds") };
    assert!(reads > 100 && updates > 100);
    let kinds = run_all::<Hash, 1>(MixName::D, 100);
    assert!(kinds[2] > 20, "insertions: {kinds:?}");
    let kinds = run_all::<Ordered, 10>(MixName::E, 40);
    assert!(kinds[2] > 20 && kinds[3] > 500, "insertions and scans: {kinds:?}");
    let kinds = run_all::<Hash, 1>(MixName::X, 60);
    assert_eq!(kinds.iter().sum::<u64>(), kinds[SEVERAL]);
}

#[test]
fn lost_writes_are_found() {
    let load = Load::of(MixName::A, Dist::Uniform, 10);
    let records = Distributed::<Hash, 10>::new(100, load, Vec::new(), 5).expect("enough records");
    for fabric in FABRICS {
        let careless = Careless(records.clone());
        let Gathered { violations, .. } = run_on::<Plain, _>(&careless, fabric, 60, 5, Protocol::FASST);
        assert!(violations.iter().any(|found| found.contains("were written")), "{fabric}: {violations:?}");
    }
}
