//! The seven transactions on one node, and the client that runs them. Each row is looked up once,
//! and a transaction finds all its rows before it writes.

use std::hint::black_box;

use drtm_drive::{Client, Done, Error};
use drtm_txn::{Config, Db, Error as DbError, Pod, Table, TableDef, Tx};
use zerocopy::little_endian::U32;

use super::{
    AccessInfo, AccessInfoKey, CallForwarding, CallForwardingKey, Inputs, Kind, Profile, Register, SpecialFacility,
    SpecialFacilityKey, Subscriber, SubscriberKey, SubscriberNumber, Transaction,
};

pub(super) const SUBSCRIBER: &str = "subscriber";
pub(super) const NUMBER: &str = "subscriber by number";
pub(super) const ACCESS_INFO: &str = "access-info";
pub(super) const SPECIAL_FACILITY: &str = "special-facility";
pub(super) const CALL_FORWARDING: &str = "call-forwarding";

/// The four tables and the index. A facility has at most three forwardings, whose keys are known,
/// so no table need be ordered.
#[derive(Clone, Copy, Debug)]
pub struct Tables {
    pub(super) subscribers: Table<SubscriberKey, Pod<Subscriber>>,
    pub(super) numbers: Table<SubscriberNumber, Pod<U32>>,
    pub(super) access_infos: Table<AccessInfoKey, Pod<AccessInfo>>,
    pub(super) special_facilities: Table<SpecialFacilityKey, Pod<SpecialFacility>>,
    pub(super) call_forwardings: Table<CallForwardingKey, Pod<CallForwarding>>,
}

/// The definitions of a register's tables.
pub(super) struct Defs {
    pub(super) subscribers: TableDef<SubscriberKey, Pod<Subscriber>>,
    pub(super) numbers: TableDef<SubscriberNumber, Pod<U32>>,
    pub(super) access_infos: TableDef<AccessInfoKey, Pod<AccessInfo>>,
    pub(super) special_facilities: TableDef<SpecialFacilityKey, Pod<SpecialFacility>>,
    pub(super) call_forwardings: TableDef<CallForwardingKey, Pod<CallForwarding>>,
}

impl Defs {
    pub(super) fn new(register: &Register) -> Self {
        let subscribers = u64::from(register.subscribers());
        Self {
            subscribers: TableDef::hash(SUBSCRIBER).with_room_for(subscribers),
            numbers: TableDef::hash(NUMBER).with_room_for(subscribers),
            access_infos: TableDef::hash(ACCESS_INFO).with_room_for(3 * subscribers),
            special_facilities: TableDef::hash(SPECIAL_FACILITY).with_room_for(3 * subscribers),
            call_forwardings: TableDef::hash(CALL_FORWARDING).with_room_for(4 * subscribers),
        }
    }

    pub(super) fn open<S: Config>(&self, db: &Db<S>) -> Result<Tables, DbError> {
        Ok(Tables {
            subscribers: db.table(self.subscribers)?,
            numbers: db.table(self.numbers)?,
            access_infos: db.table(self.access_infos)?,
            special_facilities: db.table(self.special_facilities)?,
            call_forwardings: db.table(self.call_forwardings)?,
        })
    }
}

impl Tables {
    /// Inserts all rows of a subscriber, except the index entry of its number.
    pub(super) fn insert<S: Config>(&self, tx: &mut Tx<'_, S>, profile: &Profile) -> Result<(), DbError> {
        tx.insert(self.subscribers, profile.key, &profile.subscriber)?;
        profile.access_infos().try_for_each(|(key, row)| tx.insert(self.access_infos, key, &row))?;
        profile.special_facilities().try_for_each(|(key, row)| tx.insert(self.special_facilities, key, &row))?;
        profile.call_forwardings().try_for_each(|(key, row)| tx.insert(self.call_forwardings, key, &row))
    }
}

/// The transactions' names, indexed by [`Kind`].
pub(super) const KINDS: &[&str] = &[
    "get-subscriber-data",
    "get-new-destination",
    "get-access-data",
    "update-subscriber-data",
    "update-location",
    "insert-call-forwarding",
    "delete-call-forwarding",
];

/// Returns the change in the number of forwardings by a transaction that succeeded or failed.
pub(super) fn inserted(kind: Kind, has_found: bool) -> i64 {
    match kind {
        Kind::InsertCallForwarding => has_found.into(),
        Kind::DeleteCallForwarding => -i64::from(has_found),
        _ => 0,
    }
}

/// A client thread.
#[derive(Debug)]
#[repr(align(128))]
pub struct Network<'db, S: Config> {
    db: &'db Db<S>,
    tables: Tables,
    inputs: Inputs,
    inserted: i64,
}

impl<'db, S: Config> Network<'db, S> {
    pub(super) fn new(db: &'db Db<S>, tables: Tables, inputs: Inputs) -> Self {
        Self { db, tables, inputs, inserted: 0 }
    }

    /// Returns the forwardings that it inserted, less those that it deleted.
    pub(super) fn inserted(&self) -> i64 {
        self.inserted
    }
}

/// Runs a transaction. Returns whether it found its rows. As a [body](super::body), which runs on
/// one node, too, it would execute an eighth more instructions.
fn run<S: Config>(tx: &mut Tx<'_, S>, tables: &Tables, transaction: &Transaction) -> Result<bool, DbError> {
    match transaction {
        Transaction::GetSubscriberData { subscriber } => {
            Ok(black_box(tx.get(tables.subscribers, subscriber)?).is_some())
        }
        Transaction::GetNewDestination { facility, start_time, end_time } => {
            if tx.view(tables.special_facilities, facility, |row| row.is_active == 1)? != Some(true) {
                return Ok(false);
            }
            let mut is_found = false;
            for key in Transaction::forwardings(*facility, *start_time) {
                let number =
                    tx.view(tables.call_forwardings, key, |row| (row.end_time > *end_time).then_some(row.number));
                is_found |= black_box(number?.flatten()).is_some();
            }
            Ok(is_found)
        }
        Transaction::GetAccessData { key } => Ok(black_box(tx.get(tables.access_infos, key)?).is_some()),
        Transaction::UpdateSubscriberData { facility, bit, data_a } => {
            if tx.update(tables.special_facilities, facility, |row| row.data_a = *data_a)?.is_none() {
                return Ok(false);
            }
            Ok(tx.update(tables.subscribers, facility.0, |row| row.bits[0] = *bit)?.is_some())
        }
        Transaction::UpdateLocation { number, vlr_location } => {
            let Some(subscriber) = find(tx, tables, number)? else { return Ok(false) };
            Ok(tx.update(tables.subscribers, subscriber, |row| row.vlr_location.set(*vlr_location))?.is_some())
        }
        Transaction::InsertCallForwarding { number, facility, start_time, row } => {
            let Some(subscriber) = find(tx, tables, number)? else { return Ok(false) };
            let mut has_it = false;
            for kind in 1..=4 {
                has_it |= tx.contains(tables.special_facilities, (subscriber, kind))? && kind == *facility;
            }
            if !has_it {
                return Ok(false);
            }
            match tx.insert(tables.call_forwardings, (subscriber, *facility, *start_time), row) {
                Ok(()) => Ok(true),
                Err(DbError::Exists { .. }) => Ok(false),
                Err(error) => Err(error),
            }
        }
        Transaction::DeleteCallForwarding { number, facility, start_time } => {
            let Some(subscriber) = find(tx, tables, number)? else { return Ok(false) };
            Ok(tx.remove(tables.call_forwardings, (subscriber, *facility, *start_time))?.is_some())
        }
    }
}

fn find<S: Config>(
    tx: &mut Tx<'_, S>,
    tables: &Tables,
    number: &SubscriberNumber,
) -> Result<Option<SubscriberKey>, DbError> {
    tx.view(tables.numbers, number, |key| key.get())
}

impl<S: Config> Client for Network<'_, S> {
    fn kinds() -> &'static [&'static str] {
        KINDS
    }

    fn run_next(&mut self, _date: u64) -> Result<Done, Error> {
        let Self { db, tables, inputs, inserted } = self;
        let transaction = inputs.draw();
        let has_found = db.transact(|tx| run(tx, tables, &transaction))?;
        let kind = transaction.kind();
        *inserted += self::inserted(kind, has_found);
        Ok(Done { kind: kind as usize, is_committed: true })
    }
}
