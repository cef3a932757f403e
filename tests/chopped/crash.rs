//! Chopped transactions that a crash interrupts between two pieces: the opener finishes them.

use std::{
    env,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    thread,
};

use drtm::{
    Builder, ChoppedError, Config, Db, Durability, Error, Ordered, Pod, Table, TableDef,
    chopped::{Call, Code, PieceTx, Procedures, Registered, Stop, Sum},
    chopping::{Piece, Table as Described, Transaction},
};
use drtm_htm::NoHtm;
use drtm_txn::{Mutation, durability::storage::Image};

use crate::Chosen;

/// Opens the database on a disk, with a fault of its log.
fn open(disk: &Image, fault: Option<Mutation>) -> Result<Db<Chosen>, Error> {
    let builder = Builder::new().memory(16 << 20).storage(Arc::new(disk.clone()), 1 << 10).durability(Durability::Sync);
    let builder = if let Some(fault) = fault { builder.fault(fault) } else { builder };
    builder.build_with(NoHtm)
}

const PARTS: [Described<'static>; 4] = [
    Described::new("first", &[]),
    Described::new("second", &[]),
    Described::new("third", &[]),
    Described::new("fourth", &[]),
];
const NAMES: [&str; 4] = ["first", "second", "third", "fourth"];

/// Four pieces that may run apart, since additions commute. The second also hands on what it has
/// drawn.
const COUNT: Transaction<'static> = Transaction::new(
    "count",
    &[
        Piece::new("one", &[PARTS[0].add("*")]),
        Piece::new("two", &[PARTS[1].add("*")]),
        Piece::new("three", &[PARTS[2].add("*")]),
        Piece::new("four", &[PARTS[3].add("*")]),
    ],
);

/// The same transaction, as another version of the program has it.
const OTHER_COUNT: Transaction<'static> = Transaction::new(
    "count",
    &[
        Piece::new("one", &[PARTS[0].add("*")]),
        Piece::new("two and three", &[PARTS[1].add("*"), PARTS[2].add("*")]),
        Piece::new("four", &[PARTS[3].add("*")]),
    ],
);

const SUMS: TableDef<u64, Pod<u64>, Ordered> = TableDef::ordered("");

type Counted = (u64, u64);

/// What happens where a process may die: the place of a piece about to run.
type Site = Arc<dyn Fn(usize) + Send + Sync>;

struct Program<S: Config, L> {
    count: Call<S, Counted, L>,
    registered: Registered<S>,
}

type Tables = [Table<u64, Pod<u64>, Ordered>; 4];

fn tables<S: Config>(db: &Db<S>) -> Result<Tables, Error> {
    let [first, second, third, fourth] = NAMES.map(|name| db.table(SUMS.named(name)));
    Ok([first?, second?, third?, fourth?])
}

/// A transaction that adds its input to four sums, and one more to each than to the one before.
fn program<S: Config>(db: &Db<S>, site: &Site) -> Result<Program<S, impl Code<S, Counted> + use<S>>, Error> {
    let tables = tables(db)?;
    let mut program = Procedures::new(db, "counting");
    let mut sums = Vec::new();
    for (part, table) in PARTS.into_iter().zip(tables) {
        sums.push(program.sum(part.add("*"), table)?);
    }
    let piece = |place: usize, sum: Sum<Table<u64, Pod<u64>, Ordered>>| {
        let site = Arc::clone(site);
        move |tx: &mut PieceTx<'_, '_, S>, (key, by): &mut Counted| -> Result<(), Stop> {
            site(place);
            tx.add(sum, *key, *by)?;
            *by += 1;
            Ok(())
        }
    };
    let count = program
        .procedure::<Counted>(COUNT)
        .piece("one", piece(0, sums[0]))
        .piece("two", piece(1, sums[1]))
        .piece("three", piece(2, sums[2]))
        .piece("four", piece(3, sums[3]));
    let count = program.add(count);
    Ok(Program { count, registered: program.register()? })
}

fn fill<S: Config>(db: &Db<S>) -> Result<(), Error> {
    let tables = tables(db)?;
    db.transact(|tx| tables.into_iter().try_for_each(|table| (0..2).try_for_each(|key| tx.put(table, key, &0))))
}

fn sums<S: Config>(db: &Db<S>, key: u64) -> Result<[u64; 4], Error> {
    let tables = tables(db)?;
    db.read(|tx| {
        let mut sums = [0; 4];
        for (sum, table) in sums.iter_mut().zip(tables) {
            *sum = tx.get(table, key)?.expect("it was put");
        }
        Ok(sums)
    })
}

fn quiet() -> Site {
    Arc::new(|_| ())
}

/// Runs a transaction that dies before its piece `dies`, and once all before is on the disk. With
/// `checkpoints`, that is in a checkpoint.
fn run_until(disk: &Image, fault: Option<Mutation>, dies: usize, checkpoints: bool) -> Result<(), Error> {
    let db = open(disk, fault)?;
    fill(&db)?;
    let other = db.clone();
    let site: Site = Arc::new(move |place| {
        if place == dies {
            // Another thread's commit is durable only after all earlier ones.
            let sync = || if checkpoints { other.checkpoint().map(drop) } else { mark(&other) };
            thread::scope(|scope| scope.spawn(sync).join()).expect("no panic").expect("the disk is sound");
            resume_unwind(Box::new("dies"));
        }
    });
    let program = program(&db, &site)?;
    let ended = catch_unwind(AssertUnwindSafe(|| program.count.run((1, 5))));
    assert_eq!(ended.is_err(), dies < 4, "it dies before piece {dies}");
    Ok(())
}

fn mark<S: Config>(db: &Db<S>) -> Result<(), Error> {
    let table = db.table(SUMS.named("marks"))?;
    db.transact(|tx| tx.put(table, 0, &1))
}

/// What is found after the transaction has died before each of its pieces, or after the last.
fn found(fault: Option<Mutation>, dies: usize, checkpoints: bool) -> Result<[u64; 4], Error> {
    let disk = Image::default();
    run_until(&disk, fault, dies, checkpoints)?;
    let db = open(&disk, fault)?;
    let refused = sums(&db, 1);
    // With one piece done at least, there is something left.
    if (1..4).contains(&dies) {
        match refused {
            Err(Error::Chopped(why)) => {
                assert!(matches!(&*why, ChoppedError::Unfinished { program } if program == "counting"), "{why}");
            }
            served => panic!("it serves before it has finished: {served:?}"),
        }
        assert!(matches!(db.begin(), Err(Error::Chopped(_))) && matches!(db.snapshot(), Err(Error::Chopped(_))));
        assert!(!db.is_closed());
    }
    let program = program(&db, &quiet())?;
    let found = sums(&db, 1)?;
    // It goes on as if nothing had been.
    program.count.run((0, 1))?;
    assert_eq!(sums(&db, 0)?, [1, 2, 3, 4]);
    assert_eq!(program.registered.resume()?, 0);
    drop((program, db));
    let db = open(&disk, None)?;
    assert_eq!(sums(&db, 1)?, found, "and nothing is left");
    Ok(found)
}

#[test]
fn a_transaction_that_dies_between_its_pieces_is_finished() -> Result<(), Error> {
    for (dies, checkpoints) in (0..=4).flat_map(|dies| [(dies, false), (dies, true)]) {
        let all = if dies == 0 { [0; 4] } else { [5, 6, 7, 8] };
        assert_eq!(found(None, dies, checkpoints)?, all, "before piece {dies}, checkpoints: {checkpoints}");
    }
    Ok(())
}

#[test]
fn a_remainder_that_is_not_logged_is_missed() {
    let found = catch_unwind(|| found(Some(Mutation::RemainderDropped), 2, false));
    assert!(found.is_err(), "nothing is known of the rest");
}

#[test]
fn a_remainder_that_is_not_removed_is_noticed() {
    let found = catch_unwind(|| found(Some(Mutation::RemainderNotRemoved), 4, false));
    assert!(!found.is_ok_and(|found| found.is_ok_and(|found| found == [5, 6, 7, 8])), "the last piece ran twice");
}

#[test]
fn a_database_that_serves_too_early_is_noticed() {
    let found = catch_unwind(|| found(Some(Mutation::UnfinishedServed), 2, false));
    assert!(found.is_err(), "what is half done is served");
}

#[test]
fn another_version_of_a_program_does_not_take_the_rest_for_its_own() -> Result<(), Error> {
    let disk = Image::default();
    run_until(&disk, None, 2, false)?;
    let db = open(&disk, None)?;
    let tables = tables(&db)?;
    let mut other = Procedures::new(&db, "counting");
    let count = other
        .procedure::<Counted>(OTHER_COUNT)
        .piece("one", |_, _| Ok(()))
        .piece("two and three", |_, _| Ok(()))
        .piece("four", |_, _| Ok(()));
    other.add(count);
    match other.register() {
        Err(Error::Chopped(why)) => {
            let is_it = |transaction: &String| transaction == "count";
            assert!(matches!(&*why, ChoppedError::OtherPieces { transaction, .. } if is_it(transaction)), "{why}");
        }
        other => panic!("{other:?}"),
    }
    // Nor is it another program's, and it is still there for the right one.
    Procedures::new(&db, "another").register()?;
    assert!(matches!(db.read(|tx| tx.get(tables[0], 1)), Err(Error::Chopped(_))));
    program(&db, &quiet())?;
    assert_eq!(sums(&db, 1)?, [5, 6, 7, 8]);
    Ok(())
}

const DIRECTORY: &str = "DRTM_TEST_CHOPPED_DIRECTORY";
const DIES: &str = "DRTM_TEST_CHOPPED_DIES";

fn in_directory(path: impl AsRef<Path>) -> Result<Db, Error> {
    Builder::new().memory(16 << 20).path(path.as_ref()).create(true).build()
}

/// Dies before one of its pieces. Runs only if the other test started it.
#[test]
fn a_process_that_dies_between_pieces() -> Result<(), Error> {
    let (Ok(path), Ok(dies)) = (env::var(DIRECTORY), env::var(DIES)) else { return Ok(()) };
    let dies: usize = dies.parse().expect("a number");
    let db = in_directory(path)?;
    fill(&db)?;
    let other = db.clone();
    let site: Site = Arc::new(move |place| {
        if place == dies {
            thread::scope(|scope| scope.spawn(|| mark(&other)).join()).expect("no panic").expect("a sound disk");
            std::process::abort();
        }
    });
    program(&db, &site)?.count.run((1, 5))?;
    std::process::abort();
}

#[test]
fn a_killed_process_loses_no_piece_and_repeats_none() -> Result<(), Error> {
    for dies in 0..=4 {
        let directory = env::temp_dir().join(format!("drtm-chopped-{}-{dies}", std::process::id()));
        let ended = Command::new(env::current_exe().expect("this program"))
            .args(["--exact", "crash::a_process_that_dies_between_pieces"])
            .env(DIRECTORY, &directory)
            .env(DIES, dies.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .expect("a process");
        assert!(!ended.success(), "it was to die");
        let db = in_directory(&directory)?;
        assert_eq!(matches!(sums(&db, 1), Err(Error::Chopped(_))), (1..4).contains(&dies), "before piece {dies}");
        program(&db, &quiet())?;
        assert_eq!(sums(&db, 1)?, if dies == 0 { [0; 4] } else { [5, 6, 7, 8] }, "before piece {dies}");
        drop(db);
        std::fs::remove_dir_all(&directory).expect("it is there");
    }
    Ok(())
}
