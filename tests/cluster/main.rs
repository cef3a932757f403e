//! Transactions over several nodes: on the fabric of one process, as perfect as memory and as harsh
//! as verbs allow, and on simulated clusters that lose and delay messages.
#![cfg_attr(feature = "verbs", allow(dead_code))]

// With the feature `verbs`, the suite is what needs NICs: they are emulated where it is tested, and
// all else is tested without.
#[cfg(not(feature = "verbs"))]
mod agreed;
#[cfg(not(feature = "verbs"))]
mod agreeing;
#[cfg(not(feature = "verbs"))]
mod bank;
mod bed;
#[cfg(not(feature = "verbs"))]
mod body;
#[cfg(not(feature = "verbs"))]
mod broken;
#[cfg(all(feature = "etcd", not(feature = "verbs")))]
mod by_etcd;
mod chopped;
#[cfg(not(feature = "verbs"))]
mod claims;
#[cfg(not(feature = "verbs"))]
mod clients;
#[cfg(not(feature = "verbs"))]
mod clocks;
#[cfg(not(feature = "verbs"))]
mod closing;
#[cfg(not(feature = "verbs"))]
mod cooperative;
#[cfg(not(feature = "verbs"))]
mod counts;
#[cfg(not(feature = "verbs"))]
mod deadlines;
#[cfg(not(feature = "verbs"))]
mod directories;
mod directory;
#[path = "../chopped/drawn.rs"]
mod drawn;
#[cfg(not(feature = "verbs"))]
mod drops;
#[cfg(not(feature = "verbs"))]
mod durable;
#[cfg(not(feature = "verbs"))]
mod faults;
#[cfg(not(feature = "verbs"))]
mod frozen;
#[cfg(not(feature = "verbs"))]
mod hades;
mod history;
#[cfg(not(feature = "verbs"))]
mod hostile;
#[cfg(not(feature = "verbs"))]
mod indexes;
mod killed;
#[cfg(not(feature = "verbs"))]
mod leases;
#[cfg(not(feature = "verbs"))]
mod local;
mod process;
#[cfg(not(feature = "verbs"))]
mod program;
#[cfg(not(feature = "verbs"))]
mod refusals;
mod replaced;
#[cfg(not(feature = "verbs"))]
mod replicated;
#[cfg(not(feature = "verbs"))]
mod restarts;
#[cfg(not(feature = "verbs"))]
mod returns;
#[cfg(not(feature = "verbs"))]
mod rings;
#[cfg(not(feature = "verbs"))]
mod rolling;
#[cfg(not(feature = "verbs"))]
mod rows;
#[cfg(not(feature = "verbs"))]
mod simulated;
#[cfg(not(feature = "verbs"))]
mod single;
#[cfg(not(feature = "verbs"))]
mod snapshots;
#[cfg(not(feature = "verbs"))]
mod status;
#[cfg(not(feature = "verbs"))]
mod stopped;
#[cfg(not(feature = "verbs"))]
mod takeover;
#[cfg(not(feature = "verbs"))]
mod threads;
#[cfg(not(feature = "verbs"))]
mod uncertain;
#[cfg(not(feature = "verbs"))]
mod view_changes;
#[cfg(not(feature = "verbs"))]
mod views;
#[cfg(not(feature = "verbs"))]
mod visitors;
#[cfg(not(feature = "verbs"))]
mod watched;
