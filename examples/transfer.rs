//! Money moves between accounts under one elided lock, on this machine's engine or the one that
//! `DRTM_HTM` names.
//!
//! ```text
//! cargo run --release --example transfer
//! DRTM_HTM=emulated cargo run --release --example transfer
//! ```

use std::{process::ExitCode, thread};

use drtm_htm::{Access, Cause, Engine, EngineVisitor, FallbackLock, Htm, Line, Policy, Request, Stats, select};

const ACCOUNTS: usize = 64;
const OPENING_BALANCE: u64 = 1_000;
const THREADS: usize = 4;
const TRANSFERS: usize = 50_000;

/// The abort code of the body.
const INSUFFICIENT: u8 = 1;

fn transfer<'m, A: Access<'m>>(tx: &mut A, from: &'m Line, to: &'m Line, amount: u64) -> Result<(), A::Abort> {
    let balance = tx.load(&from[0])?;
    if balance < amount {
        return Err(tx.abort::<INSUFFICIENT>());
    }
    tx.store(&from[0], balance - amount)?;
    let balance = tx.load(&to[0])?;
    tx.store(&to[0], balance + amount)
}

struct Bank;

impl EngineVisitor for Bank {
    type Output = (u64, u64, Stats);

    fn visit<E: Engine>(self, htm: Htm<E>) -> Self::Output {
        let lock = FallbackLock::new();
        let accounts: Vec<Line> = (0..ACCOUNTS).map(|_| Line::default()).collect();
        for account in &accounts {
            htm.engine().store(&account[0], OPENING_BALANCE);
        }
        let refused = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let (htm, lock, accounts) = (&htm, &lock, &accounts);
                    scope.spawn(move || {
                        let mut worker = htm.worker();
                        let mut refused = 0;
                        for turn in 0..TRANSFERS {
                            let from = &accounts[(turn * 7 + thread * 13) % ACCOUNTS];
                            let to = &accounts[(turn * 11 + thread * 5 + 1) % ACCOUNTS];
                            let amount = (turn % 90) as u64;
                            let moved = worker.elide(
                                lock,
                                Policy::DBX,
                                |tx| transfer(tx, from, to, amount),
                                |held| transfer(held, from, to, amount),
                            );
                            refused += u64::from(moved == Err(Cause::Explicit(INSUFFICIENT)));
                        }
                        refused
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no transfer panics")).sum()
        });
        let total = accounts.iter().map(|account| htm.engine().load(&account[0])).sum();
        (total, refused, htm.stats())
    }
}

fn main() -> ExitCode {
    let engine = match select(Request::Auto) {
        Ok(engine) => engine,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    println!("engine: {} ({})", engine.kind(), engine.reason());
    let (total, refused, stats) = engine.dispatch(Bank);
    println!("{} transfers, {refused} refused", THREADS * TRANSFERS);
    println!("{stats:?}");
    assert_eq!(total, ACCOUNTS as u64 * OPENING_BALANCE, "money was made or lost");
    println!("no money was made or lost");
    ExitCode::SUCCESS
}
