//! The seven transactions, on several nodes. Each row is looked up once, and a transaction finds
//! all its rows before it writes.

use std::hint::black_box;

use drtm_drive::{Body, Reads};
use drtm_htm::NoHtm;
use drtm_rdma::Fabric;
use drtm_txn::{Config, Error as DbError, Transaction as Tx, cluster::Sets};

use super::{SubscriberKey, SubscriberNumber, Transaction, network::Tables};

/// A transaction on these tables.
pub(super) struct Ask<'t>(pub(super) Tables, pub(super) &'t Transaction);

impl Body for Ask<'_> {
    /// Whether it found its rows.
    type Output = bool;

    /// The rows of a transaction that begins with a number are found out.
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

    #[inline(always)]
    async fn run(&self, tx: &mut impl Tx, reads: Reads) -> Result<bool, DbError> {
        let Self(tables, transaction) = *self;
        match transaction {
            Transaction::GetSubscriberData { subscriber } => {
                Ok(black_box(tx.get(tables.subscribers, subscriber).await?).is_some())
            }
            Transaction::GetNewDestination { facility, start_time, end_time } => {
                if tx.view(tables.special_facilities, facility, |row| row.is_active == 1).await? != Some(true) {
                    return Ok(false);
                }
                let forwardings = Transaction::forwardings(*facility, *start_time);
                reads.prefetch(tx, tables.call_forwardings, forwardings.clone()).await?;
                let mut is_found = false;
                for key in forwardings {
                    let number =
                        tx.view(tables.call_forwardings, key, |row| (row.end_time > *end_time).then_some(row.number));
                    is_found |= black_box(number.await?.flatten()).is_some();
                }
                Ok(is_found)
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
                reads.prefetch(tx, tables.special_facilities, (1..=4).map(|kind| (subscriber, kind))).await?;
                let mut has_it = false;
                for kind in 1..=4 {
                    has_it |= tx.contains(tables.special_facilities, (subscriber, kind)).await? && kind == *facility;
                }
                if !has_it {
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
    #[inline(always)]
    async fn find(self, tx: &mut impl Tx, number: &SubscriberNumber) -> Result<Option<SubscriberKey>, DbError> {
        tx.view(self.numbers, number, |key| key.get()).await
    }
}
