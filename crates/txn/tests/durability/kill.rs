//! A process is killed while it commits to a directory, which is then reopened.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    sync::mpsc::channel,
    thread,
    time::Duration,
};

use drtm_testing::rounds;
use drtm_txn::{Db, Durability, Error, LogError, Pod, TableDef};

const ACCOUNTS: TableDef<u32, Pod<i64>> = TableDef::hash("accounts");
const COUNTS: TableDef<u32, Pod<u64>> = TableDef::hash("counts");

const DIRECTORY: &str = "DRTM_TEST_KILL_DIRECTORY";
const THREADS: u32 = 2;
const BANK: u32 = 16;
const OPENING: i64 = 1_000;

fn bank(directory: &str) -> Result<Db, Error> {
    Db::builder().memory(64 << 20).path(directory).create(true).durability(Durability::Sync).build()
}

/// Moves money forever, and reports acknowledged transfers. Runs only if the other test started it.
#[test]
fn a_process_that_is_going_to_be_killed() -> Result<(), Error> {
    let Ok(directory) = env::var(DIRECTORY) else { return Ok(()) };
    let db = bank(&directory)?;
    let (accounts, counts) = (db.table(ACCOUNTS)?, db.table(COUNTS)?);
    db.transact(|tx| {
        (0..BANK).try_for_each(|account| {
            if tx.get(accounts, account)?.is_none() { tx.put(accounts, account, &OPENING) } else { Ok(()) }
        })
    })?;
    thread::scope(|scope| {
        for number in 0..THREADS {
            let db = &db;
            scope.spawn(move || {
                let mut random = fastrand::Rng::new();
                loop {
                    let (from, to) = (random.u32(0..BANK), random.u32(0..BANK));
                    let amount = random.i64(1..100);
                    let counted = db.transact(|tx| {
                        tx.update(accounts, from, |balance| *balance -= amount)?;
                        tx.update(accounts, to, |balance| *balance += amount)?;
                        let count = tx.get(counts, number)?.unwrap_or(0) + 1;
                        tx.put(counts, number, &count)?;
                        Ok(count)
                    });
                    let counted = counted.expect("the disk is sound");
                    let mut out = std::io::stderr().lock();
                    writeln!(out, "acknowledged {number} {counted}").expect("its parent reads");
                }
            });
        }
    });
    Ok(())
}

/// Starts this program to move money in a directory.
fn start(path: &str) -> Child {
    Command::new(env::current_exe().expect("this program"))
        .args(["--exact", "kill::a_process_that_is_going_to_be_killed", "--nocapture"])
        .env(DIRECTORY, path)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a process")
}

#[test]
fn a_directory_can_be_opened_as_soon_as_its_holder_was_killed() {
    // An opening waits a fifth of a second for the lock. On a busy machine, the process may die
    // later.
    const PATIENCE: u32 = 100;
    let directory = env::temp_dir().join(format!("drtm-kill-open-{}", std::process::id()));
    let path = directory.to_str().expect("a name in Unicode");
    for round in 0..rounds(3) {
        let mut child = start(path);
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        let is_running = lines.any(|line| line.is_ok_and(|line| line.contains("acknowledged")));
        assert!(is_running, "the process has acknowledged nothing");
        if round == 0 {
            match bank(path).map(drop) {
                Err(Error::Log(LogError::InUse { holder, .. })) => {
                    assert_eq!(holder, format!("process {}", child.id()));
                }
                other => panic!("{other:?}"),
            }
        }
        child.kill().expect("it runs");
        // It may not be dead yet.
        let mut refused = 0;
        let db = loop {
            match bank(path) {
                Ok(db) => break db,
                Err(Error::Log(LogError::InUse { .. })) if refused < PATIENCE => refused += 1,
                Err(error) => panic!("round {round}: {error}"),
            }
        };
        let accounts = db.table(ACCOUNTS).expect("a table");
        let keys: Vec<u32> = (0..BANK).collect();
        let balances = db.read(|tx| tx.get_many(accounts, &keys)).expect("memory");
        assert_eq!(balances.into_iter().flatten().sum::<i64>(), OPENING * i64::from(BANK), "money is conserved");
        drop(db);
        child.wait().expect("it was killed");
    }
    std::fs::remove_dir_all(&directory).expect("it is there");
}

#[test]
fn a_process_that_is_killed_loses_nothing_that_was_acknowledged() {
    let directory = env::temp_dir().join(format!("drtm-kill-{}", std::process::id()));
    let path = directory.to_str().expect("a name in Unicode");
    let mut random = fastrand::Rng::with_seed(7);
    let mut last = [0; THREADS as usize];
    for _ in 0..rounds(4) {
        let mut child = start(path);
        let lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        let (began, begins) = channel();
        let reading = thread::spawn(move || {
            let mut last = [0_u64; THREADS as usize];
            for line in lines.map_while(Result::ok) {
                let mut words = line.split(' ').skip_while(|word| *word != "acknowledged").skip(1);
                // The last line may be cut off.
                if let (Some(Ok(thread)), Some(Ok(count))) =
                    (words.next().map(str::parse::<usize>), words.next().map(str::parse::<u64>))
                {
                    last[thread] = last[thread].max(count);
                    // The parent may have stopped waiting.
                    let _ = began.send(());
                }
            }
            last
        });
        let is_running = begins.recv_timeout(Duration::from_secs(60)).is_ok();
        thread::sleep(Duration::from_millis(random.u64(5..150)));
        child.kill().expect("it runs");
        child.wait().expect("it was killed");
        assert!(is_running, "the process has acknowledged nothing");
        let acknowledged = reading.join().expect("no panic");
        let db = bank(path).expect("it can be opened");
        let (accounts, counts) = (db.table(ACCOUNTS).expect("a table"), db.table(COUNTS).expect("a table"));
        let keys: Vec<u32> = (0..BANK).collect();
        let balances = db.read(|tx| tx.get_many(accounts, &keys)).expect("memory");
        assert_eq!(balances.into_iter().flatten().sum::<i64>(), OPENING * i64::from(BANK), "money is conserved");
        for (number, last) in (0..THREADS).zip(&mut last) {
            let found = db.read(|tx| tx.get(counts, number)).expect("memory").unwrap_or(0);
            // A line that is cut off within its number shows a smaller one.
            assert!(found >= acknowledged[number as usize] && found >= *last, "{found} of {acknowledged:?}, {last}");
            *last = found;
        }
    }
    std::fs::remove_dir_all(&directory).expect("it is there");
}
