//! Transactions of several operations of YCSB on other stores.

use std::hint::black_box;

use drtm_drive::{Client, Done, pieces, rows_of_piece};
use drtm_workloads::ycsb::{SmallRow, SmallTransactions, Transactions, check, key, population};
use zerocopy::{FromZeros, IntoBytes};

use super::peer::{OnPeers, Peer, Rows};
use drtm_drive::Error;

fn read(rows: &mut dyn Rows, number: u64) -> Result<SmallRow, Error> {
    let mut row = SmallRow::new_zeroed();
    rows.get(key(number), row.as_mut_bytes())?;
    Ok(row)
}

/// A thread that runs transactions.
#[repr(align(128))]
pub(crate) struct Worker<'p, P> {
    peer: &'p P,
    transactions: Transactions,
    /// The number of records written.
    written: u64,
}

impl<P: Peer> Client for Worker<'_, P> {
    fn kinds() -> &'static [&'static str] {
        &["transaction"]
    }

    fn run_next(&mut self, _date: u64) -> Result<Done, Error> {
        let transaction = self.transactions.draw();
        let writes = transaction.writes() as u64;
        self.peer.transact(writes > 0, |rows| {
            transaction.accesses().iter().try_for_each(|access| {
                let mut row = read(rows, access.number)?;
                if !access.writes {
                    black_box(&row);
                    return Ok(());
                }
                row.write(access.number, 0);
                rows.put(key(access.number), row.as_bytes())
            })
        })?;
        self.written += writes;
        Ok(Done { kind: 0, is_committed: true })
    }
}

impl OnPeers for SmallTransactions {
    type Worker<'w, P: Peer + 'w> = Worker<'w, P>;

    fn fill<P: Peer>(&self, peer: &P) -> Result<(), Error> {
        (0..pieces(self.records())).try_for_each(|piece| {
            peer.transact(true, |rows| {
                let mut population = population::<1>(rows_of_piece(piece, self.records()));
                population.try_for_each(|(key, row)| rows.put(key, row.as_bytes()))
            })
        })
    }

    fn workers<'w, P: Peer>(&'w self, peer: &'w P, threads: usize) -> Result<Vec<Worker<'w, P>>, Error> {
        let worker = |thread| Ok(Worker { peer, transactions: self.transactions(thread)?, written: 0 });
        (0..threads).map(worker).collect()
    }

    fn verify<P: Peer>(&self, peer: &P, workers: &[Worker<'_, P>]) -> Result<Vec<String>, Error> {
        let written = workers.iter().map(|worker| worker.written).sum();
        let rows = (0..self.records()).map(|number| {
            let row = peer.transact(false, |rows| read(rows, number))?;
            Ok::<_, Error>((key(number), row))
        });
        Ok(check(rows, self.records(), written)?.iter().map(ToString::to_string).collect())
    }
}
