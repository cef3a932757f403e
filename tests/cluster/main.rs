//! Transactions over several nodes: on the fabric of one process, as perfect as memory and as harsh
//! as verbs allow, and on simulated clusters that lose and delay messages.

mod bank;
mod bed;
mod body;
mod broken;
mod chopped;
mod claims;
mod clients;
mod clocks;
mod closing;
mod coordinators;
mod counts;
mod deadlines;
mod directory;
#[path = "../chopped/drawn.rs"]
mod drawn;
mod drops;
mod durable;
mod failover;
mod faults;
mod frozen;
mod hades;
mod history;
mod hostile;
mod indexes;
mod killed;
mod leases;
mod local;
mod program;
mod refusals;
mod replicated;
mod restarts;
mod rings;
mod rows;
mod single;
mod snapshots;
mod splits;
mod status;
mod stopped;
mod takeover;
mod threads;
mod uncertain;
mod view_changes;
mod views;
mod visitors;
mod watched;
