//! SmallBank on other stores: two rows for each customer.

use std::hint::black_box;

use zerocopy::little_endian::I64;

use super::peer::{OnPeers, Peer, Rows};
use crate::{
    Error,
    drive::{Client, Done, of_piece, pieces},
    smallbank::{
        Checking, CustomerKey, Inputs, KINDS, Ledger, Savings, SmallBank, Transaction, View, check,
        rules::{self, Refusal},
    },
};

fn savings(customer: CustomerKey) -> u64 {
    2 * customer
}

fn checking(customer: CustomerKey) -> u64 {
    2 * customer + 1
}

fn balance(rows: &mut dyn Rows, key: u64) -> Result<i64, Error> {
    let mut bytes = [0; 8];
    rows.get(key, &mut bytes)?;
    Ok(i64::from_le_bytes(bytes))
}

fn set(rows: &mut dyn Rows, key: u64, balance: i64) -> Result<(), Error> {
    rows.put(key, &balance.to_le_bytes())
}

/// A thread that serves customers.
#[repr(align(128))]
pub(crate) struct Teller<'p, P> {
    peer: &'p P,
    inputs: Inputs,
    ledger: Ledger,
}

/// Why a transaction was not committed.
enum Refused {
    Rule,
    Failed(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Refusal> for Refused {
    fn from(_: Refusal) -> Self {
        Self::Rule
    }
}

impl<P: Peer> Teller<'_, P> {
    fn serve(&mut self, transaction: &Transaction) -> Result<(), Refused> {
        let Self { peer, ledger, .. } = self;
        match *transaction {
            Transaction::Balance { customer } => {
                let sum = peer.transact(false, |rows| {
                    Ok::<_, Refused>(rules::balance(
                        balance(rows, savings(customer))?,
                        balance(rows, checking(customer))?,
                    ))
                })?;
                black_box(sum);
            }
            Transaction::DepositChecking { customer, amount } => {
                peer.transact(true, |rows| {
                    let after = rules::deposit_checking(balance(rows, checking(customer))?, amount)?;
                    Ok::<_, Refused>(set(rows, checking(customer), after)?)
                })?;
                ledger.put(amount);
            }
            Transaction::TransactSavings { customer, amount } => {
                peer.transact(true, |rows| {
                    let after = rules::transact_savings(balance(rows, savings(customer))?, amount)?;
                    Ok::<_, Refused>(set(rows, savings(customer), after)?)
                })?;
                ledger.put(amount);
            }
            Transaction::Amalgamate { from, to } => peer.transact(true, |rows| {
                let (saved, checked) = (balance(rows, savings(from))?, balance(rows, checking(from))?);
                let after = rules::amalgamate(saved, checked, balance(rows, checking(to))?)?;
                set(rows, savings(from), 0)?;
                set(rows, checking(from), 0)?;
                Ok::<_, Refused>(set(rows, checking(to), after)?)
            })?,
            Transaction::WriteCheck { customer, amount } => {
                let taken = peer.transact(true, |rows| {
                    let saved = balance(rows, savings(customer))?;
                    let check = rules::write_check(saved, balance(rows, checking(customer))?, amount)?;
                    set(rows, checking(customer), check.checking)?;
                    Ok::<_, Refused>(check.taken)
                })?;
                ledger.take(taken);
            }
            Transaction::SendPayment { from, to, amount } => peer.transact(true, |rows| {
                let before = (balance(rows, checking(from))?, balance(rows, checking(to))?);
                let after = rules::send_payment(before.0, before.1, amount)?;
                set(rows, checking(from), after.0)?;
                Ok::<_, Refused>(set(rows, checking(to), after.1)?)
            })?,
        }
        Ok(())
    }
}

impl<P: Peer> Client for Teller<'_, P> {
    fn kinds() -> &'static [&'static str] {
        KINDS
    }

    fn run_next(&mut self, _date: u64) -> Result<Done, Error> {
        let transaction = self.inputs.draw();
        let is_committed = match self.serve(&transaction) {
            Ok(()) => true,
            Err(Refused::Rule) => false,
            Err(Refused::Failed(error)) => return Err(error),
        };
        Ok(Done { kind: transaction.kind() as usize, is_committed })
    }
}

impl OnPeers for SmallBank {
    type Worker<'w, P: Peer + 'w> = Teller<'w, P>;

    fn fill<P: Peer>(&self, peer: &P) -> Result<(), Error> {
        let customers = self.bank().customers();
        (0..pieces(customers)).try_for_each(|piece| {
            peer.transact(true, |rows| {
                let balances = self.bank().balances(of_piece(piece, customers));
                for (customer, saved, checked) in balances {
                    set(rows, savings(customer), saved.balance.get())?;
                    set(rows, checking(customer), checked.balance.get())?;
                }
                Ok(())
            })
        })
    }

    fn workers<'w, P: Peer>(&'w self, peer: &'w P, threads: usize) -> Result<Vec<Teller<'w, P>>, Error> {
        let teller = |thread| Ok(Teller { peer, inputs: self.inputs(thread)?, ledger: Ledger::default() });
        (0..threads).map(teller).collect()
    }

    fn verify<P: Peer>(&self, peer: &P, workers: &[Teller<'_, P>]) -> Result<Vec<String>, Error> {
        let mut ledger = Ledger::default();
        workers.iter().for_each(|teller| ledger.add(&teller.ledger));
        let accounts = Accounts { peer, customers: self.bank().customers() };
        Ok(check(&accounts, self.bank(), &ledger)?.iter().map(ToString::to_string).collect())
    }
}

struct Accounts<'p, P> {
    peer: &'p P,
    customers: u64,
}

impl<P: Peer> Accounts<'_, P> {
    fn balances(&self, key: fn(CustomerKey) -> u64) -> impl Iterator<Item = Result<(CustomerKey, I64), Error>> {
        (0..self.customers).map(move |customer| {
            let found = self.peer.transact(false, |rows| balance(rows, key(customer)))?;
            Ok((customer, I64::new(found)))
        })
    }
}

impl<P: Peer> View for Accounts<'_, P> {
    type Error = Error;

    fn savings(&self) -> impl Iterator<Item = Result<(CustomerKey, Savings), Error>> {
        self.balances(savings).map(|row| row.map(|(customer, balance)| (customer, Savings { balance })))
    }

    fn checkings(&self) -> impl Iterator<Item = Result<(CustomerKey, Checking), Error>> {
        self.balances(checking).map(|row| row.map(|(customer, balance)| (customer, Checking { balance })))
    }
}
