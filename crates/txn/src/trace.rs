//! Tracing events, all of them rare. Without the feature `tracing` they compile to nothing.
//!
//! None is emitted while a record is locked, except that the memory for older versions is used up.
//! None is on the path of a transaction that succeeds.

/// Emits an event, with a level of the crate `tracing`.
macro_rules! event {
    ($level:ident, $($what:tt)*) => {{
        #[cfg(feature = "tracing")]
        tracing::$level!(target: "drtm", $($what)*);
    }};
}

/// Runs an expression within a span.
macro_rules! within {
    ($name:literal, [$($fields:tt)*], $state:expr) => {{
        #[cfg(feature = "tracing")]
        let _entered = tracing::info_span!(target: "drtm", $name, $($fields)*).entered();
        $state
    }};
}

pub(crate) use {event, within};

/// The number of failures after which a transaction is reported.
#[cfg(feature = "tracing")]
const MANY: u32 = 16;

/// Reports a transaction that has failed repeatedly.
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
