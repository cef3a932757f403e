//! Waiting until an epoch is durable, and leading: one thread at a time makes epochs durable.

use std::{
    sync::{
        Arc,
        atomic::Ordering::{Acquire, Relaxed, Release, SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use drtm_htm::{Engine, Waiter, fence_locked};

use super::{Log, Participant, Unwritten, Writer};
use crate::{Error, model::bounds::MODEL, trace::event};

/// How long the leader watches an open epoch before it sleeps between looks. A commit takes less.
/// If it takes longer, its thread probably lacks a processor, perhaps that of the leader.
const WATCH: Duration = Duration::from_micros(20);
const NAP: Duration = Duration::from_micros(50);

/// How long an epoch may stay open before that is reported.
const LONG: Duration = Duration::from_secs(1);

/// The end of a wait, and its beginning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    since: Instant,
    until: Option<Instant>,
}

impl Deadline {
    /// Returns a deadline after this time. `None` means no deadline, and so does a time beyond the
    /// range of `Instant`.
    pub(crate) fn within(patience: Option<Duration>) -> Self {
        let since = Instant::now();
        Self { since, until: patience.and_then(|patience| since.checked_add(patience)) }
    }

    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }
}

/// How a flush has ended.
#[derive(Debug)]
enum Flushed {
    Done,
    /// An epoch was open until the deadline, and no buffer was taken; or the log has failed, which
    /// [`Refusals::failed`](super::refusals::Refusals::failed) says.
    Unfinished,
    /// There is no room for what is pending.
    Full(String),
}

impl<E: Engine> Log<E> {
    /// Waits until every transaction of this epoch, and of those before, is durable.
    ///
    /// # Errors
    ///
    /// [`Error::OutcomeUnknown`]. [`Error::NotYetDurable`] when the deadline has passed, or the
    /// disk is full.
    pub(super) fn wait_until_durable(&self, epoch: u64, deadline: Deadline) -> Result<(), Error> {
        self.pace.hurry();
        self.flush_until(epoch, deadline)
    }

    /// Waits like [`wait_until_durable`](Self::wait_until_durable), but does not limit what other
    /// threads may have pending.
    #[inline(never)]
    fn flush_until(&self, epoch: u64, deadline: Deadline) -> Result<(), Error> {
        while self.durable() < epoch {
            if let Some(reason) = self.refusals.failed() {
                return Err(Error::OutcomeUnknown { reason: reason.clone() });
            }
            if deadline.is_over() {
                return Err(self.not_yet_durable(epoch, deadline));
            }
            let mut is_led = self.is_led.lock();
            if *is_led {
                match deadline.until {
                    None => self.led.wait(&mut is_led),
                    Some(until) => drop(self.led.wait_until(&mut is_led, until)),
                }
                continue;
            }
            // Another thread may have led meanwhile.
            if self.durable() < epoch {
                *is_led = true;
                drop(is_led);
                let leading = Leading(self);
                let flushed = self.flush(deadline);
                drop(leading);
                if let (Flushed::Full(reason), true) = (flushed, self.durable() < epoch) {
                    let waited = deadline.since.elapsed();
                    return Err(Error::NotYetDurable { waited, thread: None, full: Some(reason) });
                }
            }
        }
        Ok(())
    }

    #[cold]
    fn not_yet_durable(&self, epoch: u64, deadline: Deadline) -> Error {
        let participants = self.participants.lock().clone();
        let holds = |one: &&Arc<Participant>| one.holds(self.engine(), epoch);
        let thread = participants.iter().find(holds).map(|holder| holder.thread());
        Error::NotYetDurable { waited: deadline.since.elapsed(), thread, full: None }
    }

    pub(super) fn flush_if_dirty(&self) -> Result<(), Error> {
        if self.is_clean() {
            return Ok(());
        }
        self.wait_until_all_is_durable()
    }

    /// Waits until all that is committed is durable.
    ///
    /// # Errors
    ///
    /// [`Error::OutcomeUnknown`]. [`Error::NotYetDurable`] if the disk is full.
    pub(crate) fn wait_until_all_is_durable(&self) -> Result<(), Error> {
        self.flush_until(self.now()?, Deadline::within(None))
    }

    /// Waits until the flush that is under way ends, or the next one.
    ///
    /// # Errors
    ///
    /// As for [`wait_until_all_is_durable`](Self::wait_until_all_is_durable).
    pub(super) fn flush_once(&self) -> Result<(), Error> {
        self.flush_until(self.durable() + 1, Deadline::within(None))
    }

    /// Waits until a frame closes this epoch, or a later one.
    ///
    /// # Errors
    ///
    /// As for [`wait_until_durable`](Self::wait_until_durable).
    pub(crate) fn close_by_frame(&self, epoch: u64) -> Result<(), Error> {
        self.must_close.fetch_max(epoch, SeqCst);
        while self.writer.lock().closed_by_frame() < epoch {
            // A flush that closes the present epoch begins after this.
            self.wait_until_all_is_durable()?;
        }
        Ok(())
    }

    /// Changes the stream of frames. If that fails, the log is poisoned, unless the disk is full.
    ///
    /// # Errors
    ///
    /// [`Error::Poisoned`], [`Error::ReadOnly`], [`Error::DiskFull`].
    pub(crate) fn change_stream<T>(
        &self,
        change: impl FnOnce(&mut Writer) -> Result<T, Unwritten>,
    ) -> Result<T, Error> {
        let mut writer = self.writer.lock();
        self.refusals.check_lasting()?;
        let changed = change(&mut writer).map_err(|unwritten| match unwritten {
            Unwritten::NoRoom(error) => Error::DiskFull { reason: self.refusals.disk_is_full(&error) },
            Unwritten::Failed(error) => {
                let error = error.into();
                self.refusals.fail(&error);
                error
            }
        });
        drop(writer);
        self.wake_tasks();
        changed
    }

    /// Creates the first segment that is written. On a full disk that is left to the first commit
    /// that finds room, unless the database is `new`.
    ///
    /// # Errors
    ///
    /// [`Error::Log`] when an I/O operation fails.
    pub(crate) fn begin(&self, is_new: bool) -> Result<(), Error> {
        match self.writer.lock().look_ahead() {
            Err(Unwritten::NoRoom(error)) if !is_new => drop(self.refusals.disk_is_full(&error)),
            Err(Unwritten::NoRoom(error) | Unwritten::Failed(error)) => return Err(error.into()),
            Ok(()) => {}
        }
        Ok(())
    }

    /// Closes the present epoch and makes it durable. The calling thread leads.
    #[inline(never)]
    fn flush(&self, deadline: Deadline) -> Flushed {
        let mut writer = self.writer.lock();
        if self.refusals.failed().is_some() {
            return Flushed::Unfinished;
        }
        self.is_flushing.store(true, SeqCst);
        self.is_dirty.store(false, SeqCst);
        let flushed = self.flush_with(&mut writer, deadline).unwrap_or_else(|error| {
            self.refusals.fail(&error);
            // The buffers that were taken are not durable, and will not be.
            Flushed::Unfinished
        });
        if !matches!(flushed, Flushed::Done) {
            self.is_dirty.store(true, SeqCst);
        }
        self.is_flushing.store(false, SeqCst);
        drop(writer);
        self.wake_tasks();
        flushed
    }

    #[inline(never)]
    fn flush_with(&self, writer: &mut Writer, deadline: Deadline) -> Result<Flushed, Error> {
        let epoch = self.engine().fetch_add(self.number()?, 1);
        fence_locked();
        // This is a copy, since no word may be accessed while the list is locked.
        let participants = self.participants.lock().clone();
        if !self.wait_until_closed(&participants, epoch, deadline) {
            return Ok(Flushed::Unfinished);
        }
        let took = |participant: &&Arc<Participant>| participant.drain(|buffer| writer.add(buffer));
        self.pace.divide(participants.iter().filter(took).count() as u64);
        let written = match writer.write(epoch, self.must_close.load(SeqCst)) {
            Ok(written) => written,
            Err(Unwritten::NoRoom(error)) => return Ok(Flushed::Full(self.refusals.disk_is_full(&error))),
            Err(Unwritten::Failed(error)) => return Err(error.into()),
        };
        self.durable.store(epoch, Release);
        drop(participants);
        // The list holds one reference. A dropped state holds none, and appends nothing any more.
        self.participants.lock().retain(|one| Arc::strong_count(one) > 1 || one.pending() > 0);
        if self.unsaved.fetch_add(written, Relaxed) + written >= self.config.checkpoint_every && written > 0 {
            self.request_checkpoint();
        }
        // What is committed next must have room before it is committed.
        match writer.look_ahead() {
            Ok(()) => self.refusals.disk_has_room(),
            Err(Unwritten::NoRoom(error)) => drop(self.refusals.disk_is_full(&error)),
            Err(Unwritten::Failed(error)) => return Err(error.into()),
        }
        Ok(Flushed::Done)
    }

    /// Waits until the epoch is closed, and returns true. Returns false when the deadline has
    /// passed.
    fn wait_until_closed(&self, participants: &[Arc<Participant>], epoch: u64, deadline: Deadline) -> bool {
        let (waiter, began) = (Waiter::new(), Instant::now());
        let mut is_reported = false;
        while let Some(_holder) = participants.iter().find(|participant| participant.holds(self.engine(), epoch)) {
            if MODEL || began.elapsed() < WATCH {
                waiter.pause();
                continue;
            }
            if deadline.is_over() {
                return false;
            }
            thread::sleep(NAP);
            if !is_reported && began.elapsed() > LONG {
                is_reported = true;
                event!(
                    warn,
                    epoch,
                    thread = _holder.thread().as_str(),
                    "a transaction that is committing has held an epoch open for a second"
                );
            }
        }
        true
    }

    /// Makes everything durable, and shuts the log down: nothing is appended any more.
    ///
    /// # Errors
    ///
    /// [`Error::OutcomeUnknown`] if not everything is durable. [`Error::NotYetDurable`] if the disk
    /// is full: the log is not shut down, and this can be called again when there is room.
    pub(crate) fn shut_down(&self) -> Result<(), Error> {
        let flushed = self.flush_if_dirty();
        if !matches!(flushed, Err(Error::NotYetDurable { .. })) {
            self.release(flushed.is_ok());
        }
        flushed
    }

    /// Shuts the log down, whether everything is durable or not.
    ///
    /// # Errors
    ///
    /// As for [`shut_down`](Self::shut_down), but the log is shut down.
    pub(crate) fn shut_down_for_good(&self) -> Result<(), Error> {
        let flushed = self.shut_down();
        if let Err(error @ Error::NotYetDurable { .. }) = &flushed {
            let writer = self.writer.lock();
            // A token may still be waited for. Another process may write the directory from now on,
            // so this one must not.
            self.refusals.fail(error);
            drop(writer);
            self.release(false);
            self.wake_tasks();
        }
        flushed
    }

    /// Ends the log's threads, and lets others lock the directory.
    fn release(&self, all_is_durable: bool) {
        self.is_stopped.store(true, Release);
        self.flusher.join();
        self.checkpointer.join();
        // A checkpoint of another thread ends early.
        let checkpoints = self.checkpoints.lock();
        let lock = self.lock.lock().take();
        if lock.is_some() && all_is_durable {
            // The reserved space is freed. If that fails, the next recovery frees it.
            let _ = self.writer.lock().trim();
        }
        drop((lock, checkpoints));
    }

    /// Wakes tasks whose epoch is durable, or never will be.
    fn wake_tasks(&self) {
        let mut tasks = self.tasks.lock();
        if tasks.is_empty() {
            return;
        }
        let (durable, has_failed) = (self.durable.load(Acquire), self.refusals.failed().is_some());
        let woken: Vec<_> = tasks.extract_if(.., |(epoch, _)| has_failed || *epoch <= durable).collect();
        drop(tasks);
        woken.into_iter().for_each(|(_, task)| task.wake());
    }
}

/// A thread that leads. Dropping it, by a panic too, lets another thread lead.
struct Leading<'l, E: Engine>(&'l Log<E>);

impl<E: Engine> Drop for Leading<'_, E> {
    fn drop(&mut self) {
        *self.0.is_led.lock() = false;
        self.0.led.notify_all();
    }
}
