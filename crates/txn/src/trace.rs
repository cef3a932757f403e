//! Rare events, for whoever subscribes to them: without the feature `tracing`, nothing.
//!
//! None is told while a record is locked, but that memory for older versions is used up; and none
//! on the way of a transaction that succeeds.

/// Tells of an event, of a level of the crate `tracing`.
macro_rules! event {
    ($level:ident, $($what:tt)*) => {{
        #[cfg(feature = "tracing")]
        tracing::$level!(target: "drtm", $($what)*);
    }};
}

/// Does something within a span.
macro_rules! within {
    ($name:literal, [$($fields:tt)*], $state:expr) => {{
        #[cfg(feature = "tracing")]
        let _entered = tracing::info_span!(target: "drtm", $name, $($fields)*).entered();
        $state
    }};
}

pub(crate) use {event, within};

/// After how many failures a transaction is told of.
#[cfg(feature = "tracing")]
const MANY: u32 = 16;

/// A transaction has failed once more.
#[inline(always)]
pub(crate) fn failed(_database: u32, _times: u32) {
    #[cfg(feature = "tracing")]
    if _times == MANY {
        event!(
            debug,
            database = _database,
            times = _times,
            "a transaction fails again and again, for what others write"
        );
    }
}
