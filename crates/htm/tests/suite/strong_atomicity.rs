//! DrTM's Table IV: how a local access in an htm transaction and a remote access by one-sided verbs
//! affect each other.
//!
//! A record is a state word and a value word on one line. Local accesses happen inside an htm
//! transaction. Remote ones are plain accesses by another thread, like a NIC's. They follow the
//! lock protocol of the paper's Fig. 10 on the state word (DrTM's bits: lock, 8 of owner, 55 of
//! lease end). The accesses meet at three moments, after the paper's Fig. 8:
//!
//! - *after*: the remote access comes between the local one and the transaction's end;
//! - *within*: it holds its lock or lease during the whole transaction;
//! - *across*: it is in progress at the local access, and over before the transaction's end.
//!
//! "Share" is a transaction that commits with the right value; "conflict" one that does not commit.

use std::thread;

use drtm_htm::{
    Access, Cause, Emulated, EmulatedTransaction, Engine, Htm, Line, Outcome, Policy, TransactionAborted, Word,
};

use crate::support::lines;

const ONCE: Policy = Policy::DBX.divided_by(u32::MAX);

/// A remote transaction had locked or leased the record.
const LOCKED: u8 = 1;
const LEASED: u8 = 2;

const UNLOCKED: u64 = 0;
const WRITE_LOCKED_BY_3: u64 = 3 << 1 | 1;
const NOW: u64 = 1_000;
const LEASE_END: u64 = NOW + 50;

const OLD: u64 = 10;
const LOCAL: u64 = 20;
const REMOTE: u64 = 30;

fn leased_until(end: u64) -> u64 {
    end << 9
}

fn lease_end(state: u64) -> u64 {
    state >> 9
}

fn is_locked(state: u64) -> bool {
    state & 1 != 0
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Read,
    Write,
}

#[derive(Clone, Copy, Debug)]
enum Meeting {
    After,
    Within,
    Across,
}

struct Record(Vec<Line>);

impl Record {
    fn new(engine: &Emulated) -> Self {
        let record = Self(lines(1));
        engine.store(record.value(), OLD);
        record
    }

    fn state(&self) -> &Word {
        &self.0[0][0]
    }

    fn value(&self) -> &Word {
        &self.0[0][1]
    }

    /// The paper's LOCAL_READ and LOCAL_WRITE.
    fn local<'m>(&'m self, tx: &mut EmulatedTransaction<'m>, kind: Kind) -> Result<u64, TransactionAborted> {
        let state = tx.load(self.state())?;
        if is_locked(state) {
            return Err(tx.abort::<LOCKED>());
        }
        match kind {
            Kind::Read => tx.load(self.value()),
            Kind::Write if lease_end(state) > NOW => Err(tx.abort::<LEASED>()),
            Kind::Write => {
                tx.store(self.value(), LOCAL)?;
                Ok(LOCAL)
            }
        }
    }

    /// The first half of REMOTE_READ or REMOTE_WRITE: lease or lock, then READ.
    fn remote_start(&self, engine: &Emulated, kind: Kind) {
        let taken = match kind {
            Kind::Read => leased_until(LEASE_END),
            Kind::Write => WRITE_LOCKED_BY_3,
        };
        assert_eq!(engine.compare_exchange(self.state(), UNLOCKED, taken), Ok(UNLOCKED));
        engine.load(self.value());
    }

    /// The second half: REMOTE_WRITE_BACK. A lease is not released; it expires.
    fn remote_finish(&self, engine: &Emulated, kind: Kind) {
        if kind == Kind::Write {
            engine.store(self.value(), REMOTE);
            assert_eq!(engine.compare_exchange(self.state(), WRITE_LOCKED_BY_3, UNLOCKED), Ok(WRITE_LOCKED_BY_3));
        }
    }
}

/// Runs an htm transaction with a `local` access that meets a `remote` one; returns the outcome.
fn meet(local: Kind, remote: Kind, meeting: Meeting) -> Outcome<u64> {
    let htm = Htm::new(Emulated::default());
    let engine = htm.engine();
    let record = Record::new(engine);
    let elsewhere = |act: &(dyn Fn() + Sync)| thread::scope(|scope| scope.spawn(act).join().expect("no panic"));
    let start = || record.remote_start(engine, remote);
    let finish = || record.remote_finish(engine, remote);

    let outcome = htm.worker().attempt(ONCE, |tx| {
        // The transaction begins before either access, so that its beginning plays no part.
        tx.spin(1)?;
        if !matches!(meeting, Meeting::After) {
            elsewhere(&start);
        }
        let value = record.local(tx, local)?;
        match meeting {
            Meeting::After => elsewhere(&start),
            Meeting::Within => {}
            Meeting::Across => elsewhere(&finish),
        }
        Ok(value)
    });
    if outcome.committed().is_none() {
        assert_ne!(engine.load(record.value()), LOCAL, "an aborted transaction left its store");
    }
    outcome
}

fn shares(local: Kind, remote: Kind, meeting: Meeting) {
    assert_eq!(meet(local, remote, meeting), Outcome::Committed(OLD), "{local:?} {remote:?} {meeting:?}");
}

fn conflicts(local: Kind, remote: Kind, meeting: Meeting, cause: Cause) {
    assert_eq!(meet(local, remote, meeting), Outcome::Fallback(cause), "{local:?} {remote:?} {meeting:?}");
}

macro_rules! cells {
    ($($name:ident: $outcome:ident($local:ident, $remote:ident, $meeting:ident $(, $cause:expr)?);)+) => {
        $(#[test] fn $name() { $outcome(Kind::$local, Kind::$remote, Meeting::$meeting $(, $cause)?); })+
    };
}

cells! {
    // The one false conflict: the lease is written to the state, which the local reader has read.
    local_read_then_remote_read: conflicts(Read, Read, After, Cause::Conflict);
    local_write_then_remote_read: conflicts(Write, Read, After, Cause::Conflict);
    local_read_then_remote_write: conflicts(Read, Write, After, Cause::Conflict);
    local_write_then_remote_write: conflicts(Write, Write, After, Cause::Conflict);

    local_read_within_remote_read: shares(Read, Read, Within);
    local_write_within_remote_read: conflicts(Write, Read, Within, Cause::Explicit(LEASED));
    local_read_within_remote_write: conflicts(Read, Write, Within, Cause::Explicit(LOCKED));
    local_write_within_remote_write: conflicts(Write, Write, Within, Cause::Explicit(LOCKED));

    local_read_across_remote_read: shares(Read, Read, Across);
    local_write_across_remote_read: conflicts(Write, Read, Across, Cause::Explicit(LEASED));
    local_read_across_remote_write: conflicts(Read, Write, Across, Cause::Explicit(LOCKED));
    local_write_across_remote_write: conflicts(Write, Write, Across, Cause::Explicit(LOCKED));
}

/// The state check makes the second and third meetings safe. Without it the transaction would
/// commit a read of a record that is about to be written back.
#[test]
fn without_the_state_check_strong_atomicity_alone_would_not_do() {
    let htm = Htm::new(Emulated::default());
    let record = Record::new(htm.engine());
    record.remote_start(htm.engine(), Kind::Write);
    let outcome = htm.worker().attempt(ONCE, |tx| tx.load(record.value()));
    assert_eq!(outcome, Outcome::Committed(OLD));
}

/// Strong atomicity makes a write-back after the check safe.
#[test]
fn a_write_back_between_check_and_commit_aborts_the_transaction() {
    let htm = Htm::new(Emulated::default());
    let record = Record::new(htm.engine());
    let outcome = htm.worker().attempt(ONCE, |tx| {
        let value = record.local(tx, Kind::Read)?;
        thread::scope(|scope| {
            scope.spawn(|| {
                record.remote_start(htm.engine(), Kind::Write);
                record.remote_finish(htm.engine(), Kind::Write);
            });
        });
        Ok(value)
    });
    assert_eq!(outcome, Outcome::Fallback(Cause::Conflict));
}
