//! The view that a node is in, and how it leaves one for the next.

use std::{
    rc::Rc,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU32, AtomicU64,
            Ordering::{Acquire, Release, SeqCst},
        },
    },
};

use parking_lot::Mutex;

use super::{ClusterError, View, bad};

/// The number that a node that closes shows instead of its view's: it serves in no view.
pub(in crate::cluster) const NO_VIEW: u32 = 0;

/// The number that a node shows while it changes to another view.
pub(in crate::cluster) const BETWEEN: u32 = u32::MAX;

/// One more node closes, in [`Current::moment`].
const CLOSES: u64 = 1 << u32::BITS;

/// The view that a node is in. Its workers share it.
#[derive(Debug)]
pub(in crate::cluster) struct Current {
    /// The number of the view, to be looked at without a lock; and above it, how many other nodes
    /// have said that they close.
    moment: AtomicU64,
    /// The number of the view, or [`BETWEEN`] while the node changes to another one: nothing of a
    /// view is served then, and no transaction is decided that has not begun to write records.
    open: AtomicU32,
    /// Whether the node closes, and serves others in no view any more.
    closes: AtomicBool,
    latest: Mutex<Latest>,
}

#[derive(Debug)]
struct Latest {
    view: Arc<View>,
    /// The view that the node has promised to change to: no older one opens.
    promised: u32,
}

impl Current {
    /// Begins in a view. If it `is_closed`, the next one opens first.
    pub(in crate::cluster) fn new(view: View, is_closed: bool) -> Self {
        let number = view.number;
        let latest = Latest { promised: number + u32::from(is_closed), view: Arc::new(view) };
        Self {
            moment: AtomicU64::new(number.into()),
            open: AtomicU32::new(if is_closed { BETWEEN } else { number }),
            closes: AtomicBool::new(false),
            latest: Mutex::new(latest),
        }
    }

    pub(in crate::cluster) fn number(&self) -> u32 {
        self.moment() as u32
    }

    /// Returns a word that changes when the view does, and when another node begins to close. Its
    /// lower half is the number of the view.
    pub(in crate::cluster) fn moment(&self) -> u64 {
        self.moment.load(Acquire)
    }

    /// Returns the number of the view in which the node serves others; [`NO_VIEW`] if it closes;
    /// [`BETWEEN`] if it changes to another view.
    pub(in crate::cluster) fn served(&self) -> u32 {
        self.shown(self.open.load(SeqCst))
    }

    /// Returns the number that others see where this one is open.
    pub(in crate::cluster) fn shown(&self, open: u32) -> u32 {
        if self.closes.load(Acquire) { NO_VIEW } else { open }
    }

    /// Serves others in no view any more, and tells it before.
    ///
    /// # Errors
    ///
    /// When it cannot be told.
    pub(in crate::cluster) fn serve_no_more(
        &self,
        tell: impl FnOnce() -> Result<(), ClusterError>,
    ) -> Result<(), ClusterError> {
        // No view is installed meanwhile, whose number would be told after this.
        let _latest = self.latest.lock();
        tell()?;
        self.closes.store(true, Release);
        Ok(())
    }

    /// Notes that another node has begun to close: workers look again at the nodes that they know.
    pub(in crate::cluster) fn another_closes(&self) {
        let _latest = self.latest.lock();
        self.moment.store(self.moment() + CLOSES, Release);
    }

    /// Returns whether this node's transactions of a view may be decided.
    pub(in crate::cluster) fn is_open(&self, view: u32) -> bool {
        self.open.load(SeqCst) == view
    }

    /// Returns whether the node changes to another view.
    pub(in crate::cluster) fn is_between(&self) -> bool {
        self.is_open(BETWEEN)
    }

    pub(in crate::cluster) fn view(&self) -> Arc<View> {
        Arc::clone(&self.latest.lock().view)
    }

    /// Leaves the view, before another one of this number, and tells it before. Returns the number
    /// of the view that is installed: nothing happens if that is not older.
    ///
    /// # Errors
    ///
    /// When it cannot be told.
    pub(in crate::cluster) fn suspend(
        &self,
        next: u32,
        tell: impl FnOnce() -> Result<(), ClusterError>,
    ) -> Result<u32, ClusterError> {
        let mut latest = self.latest.lock();
        if next > latest.view.number {
            tell()?;
            latest.promised = latest.promised.max(next);
            // What a worker notes before it looks at this is seen after it.
            self.open.store(BETWEEN, SeqCst);
        }
        Ok(latest.view.number)
    }

    /// Returns a worker's own copy, which it counts the users of.
    pub(in crate::cluster) fn copy(&self) -> Rc<View> {
        Rc::new((*self.view()).clone())
    }

    /// Installs a view if it is newer than the present one, and tells of it before: of the number
    /// that is open then. Returns whether it is newer.
    ///
    /// # Errors
    ///
    /// [`ClusterError::BadView`] if it has another number of shards or groups; or when it cannot be
    /// told of.
    pub(in crate::cluster) fn install(
        &self,
        next: View,
        tell: impl FnOnce(&View, u32) -> Result<(), ClusterError>,
    ) -> Result<bool, ClusterError> {
        let mut latest = self.latest.lock();
        let Latest { view, promised } = &mut *latest;
        if next.placements.len() != view.placements.len() || next.groups != view.groups {
            return Err(bad("the number of shards never changes, nor that of their groups"));
        }
        let is_newer = next.number > view.number;
        if is_newer {
            let number = next.number;
            let open = if number >= *promised { number } else { BETWEEN };
            tell(&next, open)?;
            *view = Arc::new(next);
            self.moment.store(self.moment() & !u64::from(u32::MAX) | u64::from(number), Release);
            self.open.store(open, SeqCst);
        }
        Ok(is_newer)
    }
}
