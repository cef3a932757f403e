//! What transactions have seen and written, as the checker of histories takes it.
//!
//! Most rows count what happens to them: a district its orders, a stock its sales, a customer its
//! payments. An order and its lines are written twice at most. Which deliveries a balance has is
//! told by their amounts: the balance and the payments are their sum.

#[cfg(test)]
use std::collections::BTreeMap;

#[cfg(test)]
use drtm_history::{History, Transaction};
use drtm_txn::Key;
use serde::{Deserialize, Serialize};

use crate::{Account, CustomerKey};
#[cfg(test)]
use crate::{OrderByCustomer, Population};

/// What a version is of: a table, or a column of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Of {
    NextOrder,
    Stock,
    Order,
    Line,
    Queue,
    ByCustomer,
    Payments,
    /// The delivery of an order, in the balance of its customer.
    Delivery,
}

/// What a transaction has seen or done. Keys are words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Seen {
    Read(Of, u64, u64),
    Absent(Of, u64),
    Write(Of, u64, u64),
    Remove(Of, u64, u64),
    /// From a key to a key, all rows with their versions.
    Scan(Of, u64, u64, Vec<(u64, u64)>),
    /// The sum of a customer's deliveries.
    Balance(u64, i64),
    /// A delivery: to this customer, of this order, for so many cents.
    Delivered(u64, u64, i64),
}

impl Seen {
    /// Returns what an account shows: the number of payments, and the deliveries in the balance.
    pub(super) fn of_account(key: CustomerKey, account: &Account) -> [Self; 2] {
        let deliveries = account.balance.get() + account.ytd_payment.get();
        [
            Self::Read(Of::Payments, key.word(), account.payment_count.get().into()),
            Self::Balance(key.word(), deliveries),
        ]
    }
}

/// A transaction that has committed: when it was invoked, when it responded, and what it has seen.
#[cfg(test)]
pub(super) type Recorded = (u64, u64, Vec<Seen>);

/// Returns the transaction that has written the population.
#[cfg(test)]
pub(super) fn loaded(rows: &Population) -> Vec<Seen> {
    let mut seen = Vec::new();
    let mut write = |of, key, version| seen.push(Seen::Write(of, key, version));
    rows.districts.iter().for_each(|(key, row)| write(Of::NextOrder, key.word(), row.next_order.get().into()));
    rows.stocks.keys().for_each(|key| write(Of::Stock, key.word(), 1));
    rows.customers.iter().for_each(|(key, row)| {
        write(Of::Payments, key.word(), row.account.payment_count.get().into());
    });
    for (key, row) in &rows.orders {
        write(Of::Order, key.word(), if row.carrier == 0 { 1 } else { 2 });
        let customer = (key.0, key.1, row.customer.get());
        write(Of::ByCustomer, OrderByCustomer::new(customer, key.2).expect("few orders").word(), 1);
    }
    for (key, row) in &rows.order_lines {
        write(Of::Line, key.word(), if row.delivery_date.get() == 0 { 1 } else { 2 });
    }
    rows.new_orders.keys().for_each(|key| write(Of::Queue, key.word(), 1));
    seen
}

/// Returns the history of transactions.
#[cfg(test)]
pub(super) fn history(recorded: &[Recorded]) -> History<u64> {
    let mut delivered: BTreeMap<u64, Vec<(u64, i64)>> = BTreeMap::new();
    for seen in recorded.iter().flat_map(|(.., seen)| seen) {
        if let Seen::Delivered(customer, order, amount) = *seen {
            delivered.entry(customer).or_default().push((order, amount));
        }
    }
    let transaction = |(invoked, responded, seen): &Recorded| {
        let mut transaction = Transaction::committed(*invoked, *responded);
        for one in seen {
            transaction = match one {
                Seen::Read(of, key, version) => transaction.reads(*of as u32, *key, *version),
                Seen::Absent(of, key) => transaction.finds_nothing(*of as u32, *key),
                Seen::Write(of, key, version) => transaction.writes(*of as u32, *key, *version),
                Seen::Remove(of, key, version) => transaction.removes(*of as u32, *key, *version),
                Seen::Scan(of, from, to, found) => transaction.scans(*of as u32, *from..=*to, found.iter().copied()),
                Seen::Delivered(_, order, _) => transaction.writes(Of::Delivery as u32, *order, 1),
                Seen::Balance(customer, sum) => {
                    let all = delivered.get(customer).map_or(&[][..], Vec::as_slice);
                    let in_it = those_of(all, *sum);
                    all.iter().enumerate().fold(transaction, |transaction, (place, (order, _))| {
                        let table = Of::Delivery as u32;
                        match in_it >> place & 1 {
                            1 => transaction.reads(table, *order, 1),
                            _ => transaction.finds_nothing(table, *order),
                        }
                    })
                }
            };
        }
        transaction
    };
    recorded.iter().map(transaction).collect()
}

/// Returns which deliveries have this sum, a bit for each.
///
/// # Panics
///
/// Panics if there are none, which is an anomaly, or several, which a run with few deliveries to
/// each customer does not have.
#[cfg(test)]
fn those_of(all: &[(u64, i64)], sum: i64) -> u32 {
    assert!(all.len() < 20, "too many deliveries to one customer");
    let has_sum = |set: &u32| {
        all.iter().zip(0..).filter(|(_, bit)| set >> bit & 1 == 1).map(|(one, _)| one.1).sum::<i64>() == sum
    };
    let found: Vec<u32> = (0..1 << all.len()).filter(has_sum).collect();
    let [set] = found[..] else { panic!("{} sets of {all:?} have the sum {sum}", found.len()) };
    set
}
