//! A bank: money moves between accounts while an auditor sums all of them, and a ledger records
//! every transfer.
//!
//! ```text
//! cargo run --release --example bank
//! ```

use std::{
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use drtm::{Conflict, Db, Error, Ordered, Pod, TableDef, TableOf};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Plain data: its memory is its encoding.
#[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Movement {
    to: u64,
    amount: i64,
}

type Accounts = TableDef<u64, Pod<i64>>;
const ACCOUNTS: Accounts = Accounts::hash("accounts");

/// Keyed by the paying account, then by number. An account's movements are a range, and different
/// accounts do not conflict.
type Ledger = TableDef<(u32, u32), Pod<Movement>, Ordered>;
const LEDGER: Ledger = Ledger::ordered("ledger");

const COUNT: u64 = 64;
const OPENING_BALANCE: i64 = 1_000;
const THREADS: u64 = 2;
const TRANSFERS: u64 = 50_000;

/// Why a transfer is refused. A closure may return an error type of its own that database errors
/// convert into.
#[derive(Debug)]
enum Refused {
    Insufficient { short_of: i64 },
    Unknown { account: u64 },
    Database(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Database(error)
    }
}

#[derive(Clone)]
struct Bank {
    db: Db,
    accounts: TableOf<Accounts>,
    ledger: TableOf<Ledger>,
}

impl Bank {
    fn open() -> Result<Self, Error> {
        let db = Db::new()?;
        let (accounts, ledger) = (db.table(ACCOUNTS)?, db.table(LEDGER)?);
        db.transact(|tx| (0..COUNT).try_for_each(|account| tx.insert(accounts, account, &OPENING_BALANCE)))?;
        Ok(Self { db, accounts, ledger })
    }

    /// Moves money and records it in the ledger, atomically.
    fn transfer(&self, from: u64, to: u64, amount: i64) -> Result<(), Refused> {
        self.db.try_transact(|tx| {
            let left = tx.update(self.accounts, from, |balance| {
                *balance -= amount;
                *balance
            })?;
            match left {
                None => return Err(Refused::Unknown { account: from }),
                Some(left) if left < 0 => return Err(Refused::Insufficient { short_of: -left }),
                Some(_) => {}
            }
            if tx.update(self.accounts, to, |balance| *balance += amount)?.is_none() {
                return Err(Refused::Unknown { account: to });
            }
            let payer = from as u32;
            let last = tx.range(self.ledger, (payer, 0)..=(payer, u32::MAX))?.last()?;
            let number = last.map_or(1, |((_, number), _)| number + 1);
            Ok(tx.insert(self.ledger, (payer, number), &Movement { to, amount })?)
        })
    }

    /// Returns the total of all accounts.
    fn total(&self) -> Result<i64, Error> {
        let accounts: Vec<u64> = (0..COUNT).collect();
        let balances = self.db.transact(|tx| tx.get_many(self.accounts, &accounts))?;
        Ok(balances.into_iter().flatten().sum())
    }

    /// Returns the balances according to the ledger.
    fn by_ledger(&self) -> Result<Vec<i64>, Error> {
        self.db.transact(|tx| {
            let mut balances = vec![OPENING_BALANCE; COUNT as usize];
            let mut rows = tx.range(self.ledger, ..)?;
            while let Some(((from, _), movement)) = rows.next()? {
                balances[from as usize] -= movement.amount;
                balances[movement.to as usize] += movement.amount;
            }
            Ok(balances)
        })
    }
}

/// Runs the transfers of one thread. Returns the number of refused ones.
fn work(bank: &Bank, thread: u64) -> Result<u64, Error> {
    let mut refused = 0;
    for turn in 0..TRANSFERS {
        let (from, to) = ((turn * 7 + thread * 13) % COUNT, (turn * 11 + thread * 5 + 1) % COUNT);
        match bank.transfer(from, to, (turn % 90) as i64) {
            Ok(()) => {}
            Err(Refused::Insufficient { short_of }) => refused += u64::from(short_of > 0),
            Err(Refused::Unknown { account }) => return Err(Error::aborted(format!("there is no account {account}"))),
            Err(Refused::Database(error)) => return Err(error),
        }
    }
    Ok(refused)
}

fn run() -> Result<(), Error> {
    let bank = Bank::open()?;
    let is_over = AtomicBool::new(false);
    let (refused, audits) = thread::scope(|scope| {
        let auditor = scope.spawn(|| -> Result<u64, Error> {
            let mut audits = 0;
            while !is_over.load(Relaxed) {
                assert_eq!(bank.total()?, COUNT as i64 * OPENING_BALANCE, "money was made or lost");
                audits += 1;
            }
            Ok(audits)
        });
        let bank = &bank;
        let tellers: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(bank, thread))).collect();
        let refused =
            tellers.into_iter().map(|teller| teller.join().expect("no teller panics")).sum::<Result<u64, _>>();
        is_over.store(true, Relaxed);
        (refused, auditor.join().expect("the auditor found nothing"))
    });
    println!("{} transfers, {} refused; {} audits meanwhile", THREADS * TRANSFERS, refused?, audits?);

    let accounts: Vec<u64> = (0..COUNT).collect();
    let balances = bank.db.transact(|tx| tx.get_many(bank.accounts, &accounts))?;
    let balances: Vec<i64> = balances.into_iter().flatten().collect();
    assert_eq!(balances, bank.by_ledger()?, "the ledger tells something else");
    println!("no money was made or lost, and the ledger agrees");
    let stats = bank.db.stats();
    for cause in Conflict::ALL {
        println!("{:>8} runs were repeated: {cause}", stats.conflicts(cause));
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
