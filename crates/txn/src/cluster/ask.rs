//! The requests that there are, and those of a round.

use smallvec::SmallVec;

/// The table of requests: each that nodes serve, and the forms in which transactions make it.
macro_rules! requests {
    ($then:ident) => {
        $then! {
            Introduce;
            Read as Read;
            Lease as Lease;
            Scan as Scan;
            Place as Place;
            Lock as Lock;
            Line as Line, Count;
            Check as Check;
            Guard as Guard;
            Apply as Apply;
            Unlock as Unlock;
            Reap as Reap;
            Clock;
            OpenRing;
            Append as Log, Void;
            Settle;
            Durable as Durable;
            Prepare;
            Report;
            Carry;
            Decide;
            Close;
            Renew;
            Probe;
        }
    };
}
pub(super) use requests;

macro_rules! asks {
    ($($request:ident $(as $($ask:ident),+)?;)+) => {
        /// A request of a transaction, and the number of what it is about. See [`requests`].
        ///
        /// [`requests`]: super::requests
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Ask {
            $($($(#[doc = concat!("The request `", stringify!($ask), "`.")] $ask(u32),)+)?)+
        }
    };
}
requests!(asks);

/// Requests of one round, mostly few.
pub(super) type Asks = SmallVec<[Ask; 16]>;
