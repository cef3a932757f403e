//! When commits begin htm transactions.

use drtm_htm::Emulated;
use drtm_txn::{Builder, Config, Db, Error, Hash, Pod, Table, TableDef};

use crate::On;

/// The default configuration.
#[derive(Debug)]
struct Usual;

impl Config for Usual {
    type Engine = Emulated;
}

const COUNTERS: TableDef<u64, Pod<u64>> = TableDef::hash("counters");

/// Returns the total of committed htm transactions after transactions of these numbers of writes.
fn regions<S: Config<Engine = Emulated>>(writes: &[usize]) -> Result<Vec<u64>, Error> {
    let db: Db<S> = Builder::new().memory(32 << 20).build_with(Emulated::default())?;
    let counters = db.table(COUNTERS)?;
    db.transact(|tx| (0..100).try_for_each(|key| tx.insert(counters, key, &0)))?;
    let before = db.htm_stats().commits;
    let count = |writes: &usize| {
        add_to_some(&db, counters, *writes as u64)?;
        Ok(db.htm_stats().commits - before)
    };
    writes.iter().map(count).collect()
}

fn add_to_some<S: Config>(db: &Db<S>, counters: Table<u64, Pod<u64>, Hash>, some: u64) -> Result<(), Error> {
    db.transact(|tx| (0..some).try_for_each(|key| tx.update(counters, key, |count| *count += 1).map(drop)))
}

#[test]
fn few_writes_are_not_worth_a_region() -> Result<(), Error> {
    let least = Usual::HTM_FROM;
    assert_eq!(regions::<Usual>(&[1, least - 1, least, 1, least + 1])?, [0, 0, 1, 1, 2]);
    // A read-only transaction never begins one.
    assert_eq!(regions::<On<Emulated>>(&[0, 1, least, 0])?, [0, 1, 2, 2]);
    Ok(())
}
