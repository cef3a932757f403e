//! Additions that are deferred beyond the end of the process.

use std::sync::Arc;

use drtm::{
    Builder, ChoppedError, Db, Error, IndexDef, Multi, Pod, Table, TableDef,
    chopped::{Procedures, Registered},
    chopping::{Piece, Table as Described, Transaction},
};
use drtm_htm::NoHtm;
use drtm_txn::durability::storage::Image;

use crate::Chosen;

const LEFT: Described<'static> = Described::new("left", &[]);
const RIGHT: Described<'static> = Described::new("right", &[]);
const LEFTS: TableDef<u64, Pod<u64>> = TableDef::hash("left");
const RIGHTS: TableDef<u64, Pod<u64>> = TableDef::hash("right");
const BY_DIGIT: IndexDef<u64, Pod<u64>, u64, Multi> = IndexDef::multi("by digit", |_, value| Some(value % 10));

/// Its pieces add to two tables that another transaction reads and writes.
const PUBLISH: Transaction<'static> =
    Transaction::new("publish", &[Piece::new("left", &[LEFT.add("*")]), Piece::new("right", &[RIGHT.add("*")])]);
const SUBSCRIBE: Transaction<'static> =
    Transaction::new("subscribe", &[Piece::new("both", &[LEFT.update("*"), RIGHT.update("*")])]);

type Rows = Table<u64, Pod<u64>>;

fn open(disk: &Image) -> Result<(Db<Chosen>, Rows, Rows), Error> {
    let db = Builder::new().memory(16 << 20).storage(Arc::new(disk.clone()), 1 << 10).build_with(NoHtm)?;
    let (left, right) = (db.table(LEFTS)?, db.table(RIGHTS)?);
    Ok((db, left, right))
}

/// Registers the program, whose sums are added in this order, and runs `publish` with these
/// additions to the left and to the right.
fn register(
    db: &Db<Chosen>,
    (left, right): (Rows, Rows),
    is_left_first: bool,
    runs: &[(u64, u64)],
) -> Result<Registered<Chosen>, Error> {
    let mut program = Procedures::new(db, "sums");
    let early = is_left_first.then(|| program.sum(LEFT.add("*"), left)).transpose()?;
    let right_sum = program.sum(RIGHT.add("*"), right)?;
    let left_sum = early.map_or_else(|| program.sum(LEFT.add("*"), left), Ok)?;
    let publish = program
        .procedure::<(u64, u64)>(PUBLISH)
        .piece("left", move |tx, (by, _)| tx.add(left_sum, 1, *by))
        .piece("right", move |tx, (_, by)| tx.add(right_sum, 1, *by));
    let publish = program.add(publish);
    let subscribe = program.procedure::<()>(SUBSCRIBE).piece("both", |_, ()| Ok(()));
    program.add(subscribe);
    let program = program.register()?;
    assert_eq!(program.chopping().deferrals().len(), 2);
    runs.iter().try_for_each(|run| publish.run(*run).map(drop))?;
    Ok(program)
}

fn values(db: &Db<Chosen>, (left, right): (Rows, Rows)) -> Result<(Option<u64>, Option<u64>), Error> {
    db.read(|tx| Ok((tx.get(left, 1)?, tx.get(right, 1)?)))
}

/// Leaves a disk with an addition of 5 to the left, and of 7 to the right, that are not published.
fn left_behind() -> Result<Image, Error> {
    let disk = Image::default();
    let (db, left, right) = open(&disk)?;
    db.transact(|tx| {
        tx.put(left, 1, &10)?;
        tx.put(right, 1, &20)
    })?;
    // It would publish what earlier ones have deferred.
    register(&db, (left, right), true, &[(5, 7)])?;
    assert_eq!(values(&db, (left, right))?, (Some(10), Some(20)), "nothing is published");
    Ok(disk)
}

#[test]
fn what_is_deferred_when_the_database_ends_is_published_when_it_is_opened() -> Result<(), Error> {
    for is_left_first in [true, false] {
        let disk = left_behind()?;
        let (db, left, right) = open(&disk)?;
        match values(&db, (left, right)) {
            Err(Error::Chopped(why)) => assert!(matches!(*why, ChoppedError::Unfinished { .. }), "{why}"),
            served => panic!("it serves before it has published: {served:?}"),
        }
        // The other version has its sums in another order.
        register(&db, (left, right), is_left_first, &[])?;
        assert_eq!(values(&db, (left, right))?, (Some(15), Some(27)));
    }
    Ok(())
}

#[test]
fn a_version_without_the_sum_is_refused_and_loses_nothing() -> Result<(), Error> {
    let disk = left_behind()?;
    let (db, left, right) = open(&disk)?;
    let mut program = Procedures::new(&db, "sums");
    program.sum(LEFT.add("*"), left)?;
    match program.register() {
        Err(Error::Chopped(why)) => assert!(matches!(*why, ChoppedError::OtherSums { .. }), "{why}"),
        other => panic!("{other:?}"),
    }
    register(&db, (left, right), true, &[])?;
    assert_eq!(values(&db, (left, right))?, (Some(15), Some(27)));
    Ok(())
}

#[test]
fn an_index_opens_before_what_was_left_is_finished() -> Result<(), Error> {
    let disk = left_behind()?;
    let (db, left, right) = open(&disk)?;
    let by_digit = db.index(left, BY_DIGIT)?;
    register(&db, (left, right), true, &[])?;
    let mut found = Vec::new();
    db.read(|tx| {
        found.clear();
        let mut rows = tx.range(by_digit, 0..=9)?;
        while let Some(row) = rows.next()? {
            found.push(row);
        }
        Ok(())
    })?;
    assert_eq!(found, [(5, (1, 15))]);
    Ok(())
}
