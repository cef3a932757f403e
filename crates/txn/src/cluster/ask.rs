//! The requests that there are, and those of a round.

#[cfg(feature = "hades")]
use drtm_rdma::Sender;
use smallvec::SmallVec;

/// The table of requests: each that nodes serve, and the forms in which transactions make it.
macro_rules! requests {
    ($then:ident) => {
        with_lines! { $then;
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
            Recall;
            Close;
            Renew;
            Probe;
            Hold;
            CopyRows;
            CountRows;
            Status;
            TakeOrder;
        }
    };
}
pub(super) use requests;

/// Adds the requests of protocols that find conflicts by cache lines.
#[cfg(feature = "hades")]
macro_rules! with_lines {
    ($then:ident; $($all:tt)*) => {
        $then! {
            $($all)*
            Fetch as Fetch;
            FetchRange as FetchRange;
            PlaceLines as PlaceLines;
            Standing as Standing;
            CheckLines as CheckLines;
            Intend as Intend;
            Update as Update;
            End as End;
            Squash;
        }
    };
}
#[cfg(not(feature = "hades"))]
macro_rules! with_lines {
    ($then:ident; $($all:tt)*) => {
        $then! { $($all)* }
    };
}
pub(super) use with_lines;

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

/// Returns what sends these requests to a node.
#[cfg(feature = "hades")]
pub(super) fn sender(asks: &[Ask]) -> Sender {
    let is_fetch = |ask: &Ask| matches!(ask, Ask::Fetch(_) | Ask::PlaceLines(_));
    let is_of_nic = |ask: &Ask| matches!(ask, Ask::Intend(_) | Ask::Update(_) | Ask::End(_));
    match asks {
        asks if asks.iter().all(is_fetch) => Sender::Verb,
        asks if asks.iter().all(is_of_nic) => Sender::Nic,
        _ => Sender::Message,
    }
}
