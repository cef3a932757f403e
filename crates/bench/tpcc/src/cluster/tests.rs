//! Small clusters: of sound terminals, and of terminals that write carelessly.

use drtm_drive::{
    Plain,
    cluster::{
        Gathered, ProtocolOf,
        trial::{Careless, Carelessly, FABRICS, NODES, run_on},
    },
};
use drtm_txn::cluster::Protocol;

use super::*;

/// Terminals that put rows back which they have read in another transaction: what was done to them
/// meanwhile is lost.
impl<R: StockRow> Carelessly for Distributed<R> {
    async fn run_carelessly<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Runner<'_, '_, F, S>,
        tables: Tables<R>,
        client: &mut Client,
    ) -> Result<Done, Error> {
        let stock = client.inputs.new_order().stocks()[0];
        let (warehouse, district) = client.inputs.payment().customer_district;
        let customer = (warehouse, district, 1);
        let looked = worker.transact(async |tx| {
            Ok((tx.get(tables.stocks, &stock).await?, tx.get(tables.customers, &customer).await?))
        });
        let (of_stock, of_customer) = looked.await?;
        let done = self.run_next(worker, tables, client).await?;
        let put_back = worker.transact(async |tx| {
            if let Some(row) = &of_stock {
                tx.put(tables.stocks, &stock, row).await?;
            }
            if let Some(row) = &of_customer {
                tx.put(tables.customers, &customer, row).await?;
            }
            Ok(())
        });
        put_back.await?;
        Ok(done)
    }
}

fn small<R: StockRow>(warehouses: u16, mix: MixName, chances: Chances) -> Distributed<R> {
    let scale = Scale::new(warehouses).and_then(|scale| scale.with_customers(10)?.with_items(40)).expect("small");
    Distributed::new(scale, mix, chances, 3, NonZeroU64::MIN)
}

/// Runs so many transactions on each node, in every protocol, of which all conditions must hold.
/// Returns how many of each kind there were.
fn is_consistent<R: StockRow>(transactions: u64, of: impl Fn(u16) -> Distributed<R>) -> Vec<u64> {
    let mut kinds = vec![0; KINDS.len()];
    for fabric in FABRICS {
        for (warehouses, protocol) in (3..).zip(ProtocolOf::with_names()) {
            let Gathered { tally, violations, .. } =
                run_on::<Plain, _>(&of(warehouses), fabric, transactions, 3, protocol);
            let all = (Vec::new(), u64::from(NODES) * transactions);
            assert_eq!((violations, tally.committed + tally.given_up), all, "{fabric}, {protocol:?}");
            kinds.iter_mut().zip(tally.counts()).for_each(|(all, one)| *all += one);
        }
    }
    kinds
}

#[test]
fn all_conditions_hold_of_the_whole_cluster() {
    let kinds = is_consistent::<Stock>(100, |warehouses| small(warehouses, MixName::Standard, Chances::STANDARD));
    assert!(kinds.iter().all(|count| *count > 10), "{kinds:?}");
}

#[test]
fn all_conditions_hold_when_all_is_remote() {
    let all = Chances { remote_item: 100, remote_payment: 100, ..Chances::STANDARD };
    is_consistent::<Stock>(60, |warehouses| small(warehouses, MixName::Standard, all));
}

#[test]
fn all_conditions_hold_when_rows_of_stock_are_narrow() {
    let some = Chances { remote_item: 50, ..Chances::STANDARD };
    is_consistent::<Supply>(60, |warehouses| small(warehouses, MixName::Standard, some));
}

#[test]
fn districts_of_which_all_is_delivered_are_skipped() {
    // Ten customers have ordered, of which three are not delivered.
    let kinds = is_consistent::<Stock>(20, |warehouses| small(warehouses, MixName::Delivery, Chances::STANDARD));
    assert_eq!(kinds.iter().sum::<u64>(), kinds[Kind::Delivery as usize]);
}

#[test]
fn what_careless_terminals_lose_is_found() {
    loses::<Stock>();
}

#[test]
fn what_careless_terminals_lose_of_narrow_rows_is_found() {
    loses::<Supply>();
}

fn loses<R: StockRow>() {
    for fabric in FABRICS {
        let careless = |mix| {
            let chances = Chances { remote_item: 50, remote_payment: 50, ..Chances::STANDARD };
            run_on::<Plain, _>(&Careless(small::<R>(3, mix, chances)), fabric, 60, 3, Protocol::FASST).violations
        };
        let violations = careless(MixName::NewOrder);
        assert!(violations.iter().any(|found| found.starts_with("stock")), "{fabric}: {violations:?}");
        let violations = careless(MixName::Payment);
        let is_of_balance = |found: &String| found.contains("BalanceIsDeliveriesLessHistory");
        assert!(violations.iter().any(is_of_balance), "{fabric}: {violations:?}");
    }
}
