//! Places where a test can kill the process, like a power cut: at once, with nothing cleaned up.
//!
//! `DRTM_DIE_AT=site:n` ends the process by `SIGKILL` when it reaches the named site for the `n`th
//! time. Without the feature `kill-points` the calls compile to nothing.

/// Every site, for tests to iterate over.
#[cfg(feature = "kill-points")]
pub const SITES: &[&str] = &[
    "join.locked",
    "join.bound",
    "join.greeted",
    "join.joined",
    "register.known",
    "register.told",
    "verb.read",
    "verb.write",
    "verb.written.half",
    "verb.written",
    "verb.swap",
    "verb.swapped",
    "ring.made",
    "ring.announced",
    "frame.begun",
    "frame.filled",
    "frame.published",
    "wake.looked",
    "wake.rung",
    "receive.taken",
    "receive.freed",
    "reply.begun",
    "nap.announced",
    "nap.over",
    "leave.begun",
];

/// The sites of the fabric over TCP.
#[cfg(feature = "kill-points")]
pub const TCP_SITES: &[&str] = &[
    "tcp.linked",
    "tcp.dialed",
    "tcp.sent.read",
    "tcp.sent.write",
    "tcp.sent.swap",
    "tcp.sent.add",
    "tcp.sent.message",
    "tcp.sent.call",
    "tcp.heard",
    "tcp.read",
    "tcp.writes",
    "tcp.written",
    "tcp.swapped",
    "tcp.added",
    "tcp.delivered",
    "tcp.carried.out",
    "tcp.answered",
    "tcp.replied",
    "tcp.goodbye",
];

/// The sites of a commit to memory that outlives the process, and of a transaction that is logged
/// there (`docs/decisions/0114`).
#[cfg(feature = "kill-points")]
pub const NV_SITES: &[&str] = &[
    "nv.named",
    "nv.held",
    "nv.redo.written",
    "nv.redo.whole",
    "nv.stored",
    "nv.cleared",
    "cooperative.ahead",
    "cooperative.locked",
    "cooperative.decided",
    "cooperative.written",
    "cooperative.settled",
];

/// Those of the fabric of machines with RDMA NICs, which are TCP's, too.
#[cfg(all(feature = "kill-points", feature = "verbs"))]
pub const VERBS_SITES: &[&str] = &[
    "nic.connects",
    "nic.posted.read",
    "nic.posted.write",
    "nic.posted.swap",
    "nic.posted.add",
    "nic.posted.message",
    "nic.posted.call",
    "nic.completed",
    "nic.collected",
    "nic.replied",
    "nic.replies.heard",
];
#[cfg(all(feature = "kill-points", not(feature = "verbs")))]
const VERBS_SITES: &[&str] = &[];

/// Ends the process here if it is to. Without the feature it does nothing.
#[cfg(not(feature = "kill-points"))]
#[inline(always)]
pub fn site(_name: &'static str) {}

/// Ends the process here if it is to.
#[cfg(feature = "kill-points")]
pub fn site(name: &'static str) {
    use std::sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    };

    static WANTED: OnceLock<Option<(String, AtomicU64)>> = OnceLock::new();

    let is_known =
        |name: &str| SITES.iter().chain(TCP_SITES).chain(NV_SITES).chain(VERBS_SITES).any(|site| *site == name);
    debug_assert!(is_known(name), "{name} is not among the sites");
    let wanted = WANTED.get_or_init(|| {
        let setting = std::env::var("DRTM_DIE_AT").ok()?;
        let (site, times) = setting.split_once(':').unwrap_or((&setting, "1"));
        let times = times.parse().unwrap_or_else(|_| panic!("DRTM_DIE_AT is site:n, and was {setting:?}"));
        assert!(
            is_known(site),
            "DRTM_DIE_AT names no site: {site:?}; there are {SITES:?}, {TCP_SITES:?}, {NV_SITES:?} and {VERBS_SITES:?}"
        );
        Some((site.to_owned(), AtomicU64::new(times)))
    });
    if let Some((site, left)) = wanted
        && site == name
        && left.fetch_sub(1, Relaxed) == 1
    {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        // The signal takes effect before the call returns, except for other threads.
        std::process::abort();
    }
}
