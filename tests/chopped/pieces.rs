//! Transactions that run in pieces: what is refused, and what each piece sees.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    thread,
};

use drtm::{
    Builder, ChoppedError, Db, Error, Ordered, Pod, Table, TableDef,
    chopped::{Abort, Procedures},
    chopping::{Options, Piece, Refusal, Table as Described, Transaction},
};
use drtm_htm::NoHtm;
use drtm_txn::Mutation;

use crate::{Chosen as Config, inherit, with_fault};

const LEFT: Described<'static> = Described::new("left", &[]);
const RIGHT: Described<'static> = Described::new("right", &[]);
const LEFTS: TableDef<u64, Pod<u64>, Ordered> = TableDef::ordered("left");
const RIGHTS: TableDef<u64, Pod<u64>, Ordered> = TableDef::ordered("right");

type Rows = Table<u64, Pod<u64>, Ordered>;

fn database() -> (Db<Config>, Rows, Rows) {
    let db: Db<Config> = Builder::new().memory(16 << 20).build_with(NoHtm).expect("memory");
    let (left, right) = (db.table(LEFTS).expect("memory"), db.table(RIGHTS).expect("memory"));
    db.transact(|tx| {
        tx.put(left, 1, &10)?;
        tx.put(right, 1, &10)
    })
    .expect("memory");
    (db, left, right)
}

fn get(db: &Db<Config>, rows: Rows) -> u64 {
    db.read(|tx| tx.get(rows, 1)).expect("sound").expect("it was put")
}

/// Returns the error of a program's registration or a transaction.
fn refused<T>(ended: Result<T, Error>) -> ChoppedError {
    match ended {
        Err(Error::Chopped(why)) => *why,
        Err(why) => panic!("{why}"),
        Ok(_) => panic!("it is not refused"),
    }
}

const ADD: Transaction<'static> =
    Transaction::new("add", &[Piece::new("left", &[LEFT.add("*")]), Piece::new("right", &[RIGHT.add("*")])]);

#[test]
fn a_piece_that_conflicts_is_run_again_alone_with_the_state_as_it_was() {
    let (db, left, right) = database();
    let mut program = Procedures::new(&db, "adds");
    let sums = [program.sum(LEFT.add("*"), left), program.sum(RIGHT.add("*"), right)].map(|sum| sum.expect("few"));
    static RUNS: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];
    let other = db.clone();
    let add = program
        .procedure::<u64>(ADD)
        .piece("left", move |tx, by| {
            RUNS[0].fetch_add(1, SeqCst);
            *by += 1;
            tx.add(sums[0], 1, *by)
        })
        .piece("right", move |tx, by| {
            tx.add(sums[1], 1, *by)?;
            *by += 1;
            if RUNS[1].fetch_add(1, SeqCst) == 0 {
                // Another transaction changes the row meanwhile.
                let meanwhile = inherit(|| other.transact(|tx| tx.update(right, 1, |sum| *sum += 100)));
                thread::scope(|scope| scope.spawn(meanwhile).join()).expect("no panic").expect("no conflict");
            }
            Ok(())
        });
    let add = program.add(add);
    program.register().expect("it is serializable");
    assert_eq!(add.run(1).expect("it runs"), 3, "each piece has added one");
    assert_eq!(RUNS.each_ref().map(|runs| runs.load(SeqCst)), [1, 2]);
    assert_eq!((get(&db, left), get(&db, right)), (12, 112));
}

const MOVE: Transaction<'static> = Transaction::new(
    "move",
    &[
        Piece::new("check", &[LEFT.read("*")]).may_abort(),
        Piece::new("left", &[LEFT.update("*")]).may_abort(),
        Piece::new("right", &[RIGHT.add("*")]),
    ],
);

#[test]
fn an_abort_leaves_nothing() {
    let (db, left, right) = database();
    let mut program = Procedures::new(&db, "moves");
    let sum = program.sum(RIGHT.add("*"), right).expect("few");
    let moved = program
        .procedure::<u64>(MOVE)
        .may_abort("check", move |tx, by| match tx.get(left, 1)?.unwrap_or(0) >= *by {
            true => Ok(()),
            false => Err(Abort::because("too little")),
        })
        .may_abort("left", move |tx, by| {
            tx.update(left, 1, |left| *left -= *by)?;
            if *by == 3 { Err(Abort::because("three")) } else { Ok(()) }
        })
        .piece("right", move |tx, by| tx.add(sum, 1, *by));
    let moved = program.add(moved);
    assert!(matches!(refused(moved.run(1)), ChoppedError::NotRegistered { .. }));
    program.register().expect("it is serializable");
    for by in [3, 11] {
        assert!(matches!(moved.run(by), Err(Error::Aborted { .. })));
    }
    assert_eq!((get(&db, left), get(&db, right)), (10, 10));
    moved.run(4).expect("it runs");
    assert_eq!((get(&db, left), get(&db, right)), (6, 14));
    let nested = db.transact(|_| moved.run(1));
    assert!(matches!(nested, Err(Error::Nested)));
}

const EACH: Transaction<'static> = Transaction::new("each", &[Piece::new("piece", &[LEFT.read("*"), RIGHT.add("*")])]);

/// Which accesses of a piece are refused that may read one table and add to another.
fn undeclared() -> Vec<&'static str> {
    let (db, left, right) = database();
    let mut found = Vec::new();
    for step in 0..8 {
        let mut program = Procedures::new(&db, &format!("each {step}"));
        let [left_sum, sum] =
            [program.sum(LEFT.add("*"), left), program.sum(RIGHT.add("*"), right)].map(|sum| sum.expect("few"));
        let each = program.procedure::<()>(EACH).piece("piece", move |tx, ()| match step {
            0 => tx.get(left, 1).and_then(|_| tx.add(sum, 1, 1)),
            1 => tx.get(right, 1).map(drop),
            2 => tx.update(left, 1, |_| ()).map(drop),
            3 => tx.insert(left, 2, &1),
            4 => tx.remove(left, 1).map(drop),
            5 => tx.add(left_sum, 1, 1),
            6 => tx.first(right, ..).map(drop),
            _ => tx.put(right, 1, &1),
        });
        let each = program.add(each);
        program.register().expect("it is serializable");
        match each.run(()) {
            Err(Error::Chopped(why)) => match *why {
                ChoppedError::Undeclared { piece, access, .. } => {
                    assert_eq!(piece, "each/piece");
                    found.push(access);
                }
                why => panic!("{why}"),
            },
            // With the fault, an earlier step may have removed the row.
            Ok(()) | Err(_) => found.push(""),
        }
    }
    found
}

#[test]
fn what_a_piece_has_not_declared_is_refused() {
    assert_eq!(undeclared(), ["", "read", "update", "insert", "remove", "add", "read", "insert"]);
    assert_ne!(with_fault(Mutation::UndeclaredAllowed, undeclared)[1], "read", "the fault is found");
}

#[test]
fn a_program_that_does_not_fit_its_descriptions_is_refused() {
    let (db, ..) = database();
    let code = |name: &'static str, other: &'static str, aborts: bool| {
        let mut program = Procedures::new(&db, "fits");
        let add = program.procedure::<()>(ADD).piece(name, |_, ()| Ok(()));
        if aborts {
            program.add(add.may_abort(other, |_, ()| Ok(())));
        } else {
            program.add(add.piece(other, |_, ()| Ok(())));
        }
        program.register()
    };
    assert!(code("left", "right", false).is_ok());
    for (name, other, aborts) in
        [("left", "write", false), ("left", "left", false), ("right", "right", false), ("left", "right", true)]
    {
        assert!(matches!(refused(code(name, other, aborts)), ChoppedError::OtherCode { .. }), "{name}, {other}");
    }
    const ELSEWHERE: Transaction<'static> =
        Transaction::new("elsewhere", &[Piece::new("piece", &[Described::new("nowhere", &[]).read("*")])]);
    let mut program = Procedures::new(&db, "elsewhere").options(Options::NONE);
    program.add(program.procedure::<()>(ELSEWHERE).piece("piece", |_, ()| Ok(())));
    assert!(matches!(refused(program.register()), ChoppedError::NoSuchTable { table } if table == "nowhere"));
}

#[test]
fn a_chopping_that_is_not_serializable_is_refused_with_its_cycle() {
    const UPDATES: Transaction<'static> =
        Transaction::new("both", &[Piece::new("left", &[LEFT.update("*")]), Piece::new("right", &[RIGHT.update("*")])]);
    let (db, ..) = database();
    let mut program = Procedures::new(&db, "both").insist("both", &[&["left"], &["right"]]);
    program.add(program.procedure::<()>(UPDATES).piece("left", |_, ()| Ok(())).piece("right", |_, ()| Ok(())));
    let why = refused(program.register());
    assert!(matches!(why, ChoppedError::Refused(Refusal::Cycle(_))), "{why}");
    assert!(why.to_string().contains("both/left") && why.to_string().contains("both/right"), "{why}");
}

#[test]
fn a_transaction_that_panics_between_pieces_has_halted_and_is_resumed() {
    let (db, left, right) = database();
    let mut program = Procedures::new(&db, "halts");
    let sums = [program.sum(LEFT.add("*"), left), program.sum(RIGHT.add("*"), right)].map(|sum| sum.expect("few"));
    static PANICS: AtomicBool = AtomicBool::new(true);
    let add = program.procedure::<u64>(ADD).piece("left", move |tx, by| tx.add(sums[0], 1, *by)).piece(
        "right",
        move |tx, by| {
            tx.add(sums[1], 1, *by)?;
            if PANICS.load(SeqCst) { resume_unwind(Box::new("on purpose")) } else { Ok(()) }
        },
    );
    let add = program.add(add);
    let program = program.register().expect("it is serializable");
    for panicked in [
        catch_unwind(AssertUnwindSafe(|| add.run(5).map(drop))),
        catch_unwind(AssertUnwindSafe(|| program.resume().map(drop))),
    ] {
        assert_eq!(panicked.expect_err("it panics").downcast_ref(), Some(&"on purpose"));
    }
    assert_eq!((get(&db, left), get(&db, right)), (15, 10), "it has halted in between");
    assert!(matches!(refused(program.publish()), ChoppedError::HaltedOthers { transactions: 1 }));
    PANICS.store(false, SeqCst);
    assert_eq!(program.resume().expect("it goes on"), 1);
    assert_eq!((get(&db, left), get(&db, right)), (15, 15));
    assert_eq!(program.resume().expect("nothing is left"), 0);
}

#[test]
fn a_program_is_registered_once() {
    let (db, left, right) = database();
    let program = |is_whole: bool| {
        let mut program = Procedures::new(&db, "once");
        let add = program.procedure::<()>(ADD).piece("left", |_, ()| Ok(()));
        if is_whole {
            program.add(add.piece("right", |_, ()| Ok(())));
        } else {
            program.add(add);
        }
        program.register()
    };
    assert!(matches!(refused(program(false)), ChoppedError::OtherCode { .. }));
    let first = program(true).expect("nothing of that name is registered");
    // The second one would finish what transactions of the first have left so far.
    assert!(matches!(refused(program(true)), ChoppedError::Registered { program } if program == "once"));
    drop(first);
    assert!(matches!(refused(program(true)), ChoppedError::Registered { .. }), "calls may still be in use");
    assert_eq!((get(&db, left), get(&db, right)), (10, 10));
}

#[test]
fn a_piece_does_not_register_a_program() {
    let (db, ..) = database();
    let nested = db.transact(|_| Procedures::new(&db, "nested").register());
    assert!(matches!(nested, Err(Error::Nested)));
    assert!(Procedures::new(&db, "nested").register().is_ok());
}

#[test]
fn sums_of_other_rows_than_described_are_refused() {
    let (db, _, right) = database();
    let mut program = Procedures::new(&db, "sums");
    let sum = program.sum(LEFT.add("*"), right).expect("few");
    let add = program.procedure::<()>(ADD).piece("left", move |tx, ()| tx.add(sum, 1, 1));
    program.add(add.piece("right", |_, ()| Ok(())));
    let why = refused(program.register());
    assert!(matches!(&why, ChoppedError::OtherRows { sum, table: "right" } if sum == "left"), "{why}");
}

#[test]
fn a_transaction_that_runs_alone_waits_until_one_that_has_halted_is_resumed() {
    const SWAP: Transaction<'static> =
        Transaction::new("swap", &[Piece::new("left", &[LEFT.update("*")]), Piece::new("right", &[RIGHT.update("*")])])
            .alone();
    let (db, left, right) = database();
    let mut program = Procedures::new(&db, "alone");
    static FAILS: AtomicBool = AtomicBool::new(true);
    let swap = program
        .procedure::<u64>(SWAP)
        .piece("left", move |tx, by| tx.update(left, 1, |left| *left -= *by).map(drop))
        .piece("right", move |tx, by| {
            // What is not declared fails.
            if FAILS.load(SeqCst) {
                tx.insert(right, 1, by)
            } else {
                tx.update(right, 1, |right| *right += *by).map(drop)
            }
        });
    let swap = program.add(swap);
    let program = program.register().expect("it runs alone");
    assert_eq!(program.chopping().transactions()[0].pieces().len(), 2);
    assert!(matches!(refused(swap.run(1)), ChoppedError::Halted { piece: 2, .. }));
    FAILS.store(false, SeqCst);
    // It would come between the two pieces of the other.
    assert!(matches!(refused(swap.run(2)), ChoppedError::HaltedOthers { transactions: 1 }));
    assert_eq!((get(&db, left), get(&db, right)), (9, 10));
    assert_eq!(program.resume().expect("it goes on"), 1);
    swap.run(2).expect("nothing has halted");
    assert_eq!((get(&db, left), get(&db, right)), (7, 13));
}
