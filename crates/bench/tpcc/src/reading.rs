//! How read-only transactions run, and how often they are retried.

use clap::ValueEnum;
use drtm_drive::Error;
use drtm_txn::{Config, Db, Mode, Tx};
use serde::Serialize;

/// How read-only transactions run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Reading {
    /// The database's choice: in the present while little is read, and then in a snapshot
    #[default]
    Auto,
    /// In a snapshot from the beginning: never aborted
    Snapshot,
    /// Like transactions that write: in the present, validated at the end, and retried if that
    /// fails
    Validated,
}

/// The body of a read-only transaction, in any mode.
pub(super) trait ReadBody {
    type Output;

    fn run<S: Config, M: Mode>(&mut self, tx: &Tx<'_, S, M>) -> Result<Self::Output, Error>;
}

impl Reading {
    /// Runs a transaction until it succeeds, and adds the number of retries to `reruns`.
    #[inline]
    pub(super) fn run<S: Config, L: ReadBody>(
        self,
        db: &Db<S>,
        mut body: L,
        reruns: &mut u64,
    ) -> Result<L::Output, Error> {
        let mut runs = 0;
        let seen = match self {
            Self::Auto => db.try_read(|tx| {
                runs += 1;
                body.run(tx)
            }),
            Self::Validated => db.try_transact(|tx| {
                runs += 1;
                body.run(tx)
            }),
            Self::Snapshot => loop {
                runs += 1;
                let tx = db.snapshot()?;
                match body.run(&tx) {
                    Ok(seen) => break tx.commit().map(|()| seen).map_err(Error::from),
                    // A snapshot should never conflict. The count of retries verifies that.
                    Err(Error::Database(drtm_txn::Error::Conflict(_))) => {}
                    Err(error) => break Err(error),
                }
            },
        };
        *reruns += runs - 1;
        seen
    }
}
