//! Transactions over several nodes: on the fabric of one process, as perfect as memory and as harsh
//! as verbs allow, and on simulated clusters that lose and delay messages.

mod bank;
mod bed;
mod clocks;
mod counts;
mod drops;
mod faults;
mod history;
mod leases;
mod refusals;
mod rings;
mod snapshots;
mod threads;
