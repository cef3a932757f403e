//! How transactions that only read are run, and how often they have to be run again.

use clap::ValueEnum;
use drtm_txn::{Config, Db, Mode, Tx};
use serde::Serialize;

use crate::Error;

/// How transactions that only read are run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Reading {
    /// As the database does it: in the present as long as little is read, and then in a snapshot
    #[default]
    Auto,
    /// In a snapshot from the beginning: never refused
    Snapshot,
    /// As transactions that write are: in the present, validated in the end, and run again if that
    /// fails
    Validated,
}

/// What such a transaction does, in whichever kind of transaction.
pub(super) trait Look {
    type Seen;

    fn look<S: Config, M: Mode>(&mut self, tx: &mut Tx<'_, S, M>) -> Result<Self::Seen, Error>;
}

impl Reading {
    /// Runs a transaction to its end, and adds to `reruns` how often it had to be run again.
    #[inline]
    pub(super) fn run<S: Config, L: Look>(self, db: &Db<S>, mut look: L, reruns: &mut u64) -> Result<L::Seen, Error> {
        let mut runs = 0;
        let seen = match self {
            Self::Auto => db.try_read(|tx| {
                runs += 1;
                look.look(tx)
            }),
            Self::Validated => db.try_transact(|tx| {
                runs += 1;
                look.look(tx)
            }),
            Self::Snapshot => loop {
                runs += 1;
                let mut tx = db.snapshot()?;
                match look.look(&mut tx) {
                    Ok(seen) => break tx.commit().map(|()| seen).map_err(Error::from),
                    // Never, says the database. It is for who counts to find out.
                    Err(Error::Database(drtm_txn::Error::Conflict(_))) => {}
                    Err(error) => break Err(error),
                }
            },
        };
        *reruns += runs - 1;
        seen
    }
}
