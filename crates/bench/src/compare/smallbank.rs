//! SmallBank on other stores: two rows for each customer.

use drtm_drive::{pieces, rows_of_piece};
use drtm_workloads::smallbank::{
    Accounts, BankClient, Checking, CustomerKey, Ledger, Refused, Savings, Served, SmallBank, Transaction, View, check,
    rules::Refusal, serve,
};
use zerocopy::little_endian::I64;

use super::peer::{OnPeers, Peer, Rows};
use drtm_drive::Error;

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

/// A store with two rows for each customer.
pub(crate) struct OnPeer<'p, P>(&'p P);

impl<P: Peer> Served for OnPeer<'_, P> {
    type Error = Error;

    fn serve(&self, transaction: &Transaction) -> Result<i64, Refused<Error>> {
        let writes = !matches!(transaction, Transaction::Balance { .. });
        self.0.transact(writes, |rows| serve(&mut InRows(rows), transaction))
    }
}

/// The rows, in a transaction.
struct InRows<'t>(&'t mut dyn Rows);

impl Accounts for InRows<'_> {
    type Error = Error;

    /// Does nothing: other stores have no prefetch.
    fn prefetch(&mut self, _: &[CustomerKey], _: &[CustomerKey]) -> Result<(), Error> {
        Ok(())
    }

    fn savings(&mut self, customer: CustomerKey) -> Result<i64, Error> {
        balance(self.0, savings(customer))
    }

    fn checking(&mut self, customer: CustomerKey) -> Result<i64, Error> {
        balance(self.0, checking(customer))
    }

    fn change_savings(
        &mut self,
        customer: CustomerKey,
        rule: impl FnOnce(i64) -> Result<i64, Refusal>,
    ) -> Result<i64, Refused<Error>> {
        change(self.0, savings(customer), rule)
    }

    fn change_checking(
        &mut self,
        customer: CustomerKey,
        rule: impl FnOnce(i64) -> Result<i64, Refusal>,
    ) -> Result<i64, Refused<Error>> {
        change(self.0, checking(customer), rule)
    }
}

/// Changes a balance by a rule, and returns the old balance.
fn change(
    rows: &mut dyn Rows,
    key: u64,
    rule: impl FnOnce(i64) -> Result<i64, Refusal>,
) -> Result<i64, Refused<Error>> {
    let before = balance(rows, key)?;
    set(rows, key, Refused::unless(rule(before))?)?;
    Ok(before)
}

impl OnPeers for SmallBank {
    type Worker<'w, P: Peer + 'w> = BankClient<OnPeer<'w, P>>;

    fn fill<P: Peer>(&self, peer: &P) -> Result<(), Error> {
        let customers = self.bank().customers();
        (0..pieces(customers)).try_for_each(|piece| {
            peer.transact(true, |rows| {
                let balances = self.bank().balances(rows_of_piece(piece, customers));
                for (customer, saved, checked) in balances {
                    set(rows, savings(customer), saved.balance.get())?;
                    set(rows, checking(customer), checked.balance.get())?;
                }
                Ok(())
            })
        })
    }

    fn workers<'w, P: Peer>(&'w self, peer: &'w P, threads: usize) -> Result<Vec<BankClient<OnPeer<'w, P>>>, Error> {
        let client = |thread| Ok(BankClient::new(OnPeer(peer), self.inputs(thread)?));
        (0..threads).map(client).collect()
    }

    fn verify<P: Peer>(&self, peer: &P, workers: &[BankClient<OnPeer<'_, P>>]) -> Result<Vec<String>, Error> {
        let mut ledger = Ledger::default();
        workers.iter().for_each(|client| ledger.add(client.ledger()));
        let accounts = Balances { peer, customers: self.bank().customers() };
        Ok(check(&accounts, self.bank(), &ledger)?.iter().map(ToString::to_string).collect())
    }
}

struct Balances<'p, P> {
    peer: &'p P,
    customers: u64,
}

impl<P: Peer> Balances<'_, P> {
    fn balances(&self, key: fn(CustomerKey) -> u64) -> impl Iterator<Item = Result<(CustomerKey, I64), Error>> {
        (0..self.customers).map(move |customer| {
            let found = self.peer.transact(false, |rows| balance(rows, key(customer)))?;
            Ok((customer, I64::new(found)))
        })
    }
}

impl<P: Peer> View for Balances<'_, P> {
    type Error = Error;

    fn savings(&self) -> impl Iterator<Item = Result<(CustomerKey, Savings), Error>> {
        self.balances(savings).map(|row| row.map(|(customer, balance)| (customer, Savings { balance })))
    }

    fn checkings(&self) -> impl Iterator<Item = Result<(CustomerKey, Checking), Error>> {
        self.balances(checking).map(|row| row.map(|(customer, balance)| (customer, Checking { balance })))
    }
}
