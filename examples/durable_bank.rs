//! A bank that survives `kill -9`. It moves money until it is stopped or killed. After a restart it
//! checks that nothing is missing.
//!
//! ```text
//! cargo run --release --example durable_bank -- DIRECTORY [SECONDS]
//! ```

use std::{
    env,
    error::Error,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use drtm::{Db, Pod, TableDef};

const ACCOUNTS: TableDef<u32, Pod<i64>> = TableDef::hash("accounts");
/// The number of transfers of each thread.
const TRANSFERS: TableDef<u32, Pod<u64>> = TableDef::hash("transfers");

const BANK: u32 = 1_000;
const OPENING: i64 = 1_000;
const THREADS: u32 = 4;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let directory = arguments.next().ok_or("usage: durable_bank DIRECTORY [SECONDS]")?;
    let seconds = arguments.next().map_or(Ok(u64::MAX), |seconds| seconds.parse())?;
    run(&directory, seconds)
}

/// Opens the bank of a directory, checks it, and moves money for this many seconds.
pub(crate) fn run(directory: &str, seconds: u64) -> Result<(), Box<dyn Error>> {
    let db = Db::create(directory)?;
    let (accounts, transfers) = (db.table(ACCOUNTS)?, db.table(TRANSFERS)?);
    db.transact(|tx| {
        // All accounts are created, or none if this is interrupted.
        if tx.contains(accounts, 0)? {
            return Ok(());
        }
        (0..BANK).try_for_each(|account| tx.insert(accounts, account, &OPENING))
    })?;
    let keys: Vec<u32> = (0..BANK).collect();
    let sum = || db.read(|tx| Ok(tx.get_many(accounts, &keys)?.into_iter().flatten().sum::<i64>()));
    let made = || {
        let threads: Vec<u32> = (0..THREADS).collect();
        db.read(|tx| Ok(tx.get_many(transfers, &threads)?.into_iter().flatten().sum::<u64>()))
    };
    let before = made()?;
    println!("{directory} holds {} after {before} transfers", sum()?);
    if sum()? != i64::from(BANK) * OPENING {
        return Err("money is missing".into());
    }

    let (began, acknowledged) = (Instant::now(), &AtomicU64::new(before));
    thread::scope(|scope| {
        let work = |thread: u32| {
            let mut random = fastrand::Rng::new();
            while began.elapsed() < Duration::from_secs(seconds) {
                let (from, to, amount) = (random.u32(0..BANK), random.u32(0..BANK), random.i64(1..100));
                // The transfer is durable when this returns.
                db.transact(|tx| {
                    tx.update(accounts, from, |balance| *balance -= amount)?;
                    tx.update(accounts, to, |balance| *balance += amount)?;
                    let made = tx.get(transfers, thread)?.unwrap_or(0);
                    tx.put(transfers, thread, &(made + 1))
                })?;
                // A reported transfer is still present after the bank is reopened, whatever happens
                // next.
                let all = acknowledged.fetch_add(1, Relaxed) + 1;
                if all.is_multiple_of(100) {
                    println!("{all} transfers are safe");
                }
            }
            Ok::<_, drtm::Error>(())
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })?;
    println!("{} transfers", made()?);
    Ok(db.close()?)
}
