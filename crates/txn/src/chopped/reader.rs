//! Transactions that only read, as a whole, by two rounds.
//!
//! The first round reads, while no transaction is under way that it conflicts with. The second
//! checks that nothing of it has changed: that is the validation of any commit. If one of those
//! transactions has begun meanwhile, the reader starts over; after some attempts, it lets none
//! begin.

use std::{fmt, sync::Arc};

use drtm_htm::Waiter;

use super::{
    access::PieceTx,
    plan::two_rounds,
    room::{Room, Shared},
    stop::Stop,
};
use crate::{Config, Error, mutation::Mutation};

/// How often a reader tries to see a moment before it brings one about.
const ATTEMPTS: u32 = 16;

/// A transaction of a program that only reads.
///
/// # Example
///
/// ```
/// use drtm::{
///     Db, Error, Ordered, Pod, TableDef,
///     chopped::Procedures,
///     chopping::{Piece, Table, Transaction},
/// };
///
/// const ACCOUNT: Table = Table::new("account", &[]);
/// const AUDIT: Transaction =
///     Transaction::new("audit", &[Piece::new("sum", &[ACCOUNT.read("*")])]);
/// const OPEN: Transaction = Transaction::new("open", &[Piece::new("open", &[ACCOUNT.insert()])]);
/// const ACCOUNTS: TableDef<u64, Pod<i64>, Ordered> = TableDef::ordered("account");
///
/// let db = Db::new()?;
/// let accounts = db.table(ACCOUNTS)?;
/// let mut bank = Procedures::new(&db, "bank");
/// let open = bank.procedure::<u64>(OPEN);
/// let open = open.piece("open", move |tx, key| tx.insert(accounts, *key, &50));
/// let open = bank.add(open);
/// let audit = bank.reader(AUDIT, move |tx, _: &()| {
///     let mut sum = 0;
///     tx.for_each(accounts, .., |_, balance| sum += balance)?;
///     Ok(sum)
/// });
/// bank.register()?;
/// open.run(1)?;
/// open.run(2)?;
/// assert_eq!(audit.read(&())?, 100);
/// # Ok::<(), Error>(())
/// ```
pub struct Reader<S: Config, F> {
    room: Arc<Room<S>>,
    code: Arc<F>,
    number: usize,
}

impl<S: Config, F> Clone for Reader<S, F> {
    fn clone(&self) -> Self {
        Self { room: Arc::clone(&self.room), code: Arc::clone(&self.code), number: self.number }
    }
}

impl<S: Config, F> fmt::Debug for Reader<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("number", &self.number).finish_non_exhaustive()
    }
}

impl<S: Config, F> Reader<S, F> {
    pub(super) fn of(room: Arc<Room<S>>, code: F, number: usize) -> Self {
        Self { room, code: Arc::new(code), number }
    }

    /// Reads at a moment when no transaction is under way that it conflicts with. The code may run
    /// several times.
    ///
    /// # Errors
    ///
    /// The error of the code; [`ChoppedError::HaltedOthers`](crate::ChoppedError::HaltedOthers);
    /// [`Error::Nested`] within the closure of a transaction.
    ///
    /// # Example
    ///
    /// See [`Reader`].
    pub fn read<I, T>(&self, input: &I) -> Result<T, Error>
    where
        F: Fn(&mut PieceTx<'_, '_, S>, &I) -> Result<T, Stop>,
    {
        let shared = self.room.shared()?;
        // A transaction that this thread is running would be waited for in vain.
        if shared.db.is_in_closure() {
            return Err(Error::Nested);
        }
        let chopped = &shared.chopping.transactions()[self.number];
        let waits_for = chopped.waits_for();
        if S::has(Mutation::MomentNotAwaited) {
            return self.once(shared, input);
        }
        if two_rounds(chopped) == Some(true) {
            return shared.publish_and(waits_for, || self.once(shared, input));
        }
        let waiter = Waiter::new();
        for _ in 0..ATTEMPTS {
            if let Some(before) = shared.moments.observe(waits_for) {
                // After the counts: a transaction that halts is one before it is not under way.
                shared.check_halted()?;
                let read = self.once(shared, input);
                if shared.moments.observe(waits_for) == Some(before) {
                    return read;
                }
            }
            waiter.pause();
        }
        let _closed = shared.moments.close(waits_for);
        shared.check_halted()?;
        self.once(shared, input)
    }

    fn once<I, T>(&self, shared: &Shared<S>, input: &I) -> Result<T, Error>
    where
        F: Fn(&mut PieceTx<'_, '_, S>, &I) -> Result<T, Stop>,
    {
        let [permits] = &shared.permits[self.number][..] else {
            unreachable!("a reader has the permits of all pieces")
        };
        shared.db.transact(|tx| {
            (self.code)(&mut PieceTx::new(tx, permits, &mut Vec::new()), input).map_err(|Stop(error)| error)
        })
    }
}
