//! Registered memory and verbs: how words on one node are reached from another.
//!
//! This crate will hold regions (one reservation of memory, seen as words and addressed by offsets) and a typed
//! interface to one-sided and two-sided verbs, with a backend for each reach: nodes in one process, processes on
//! one machine, machines with RDMA, machines with TCP. Nothing of it is written yet.

// Regions are mapped memory: this crate and `drtm-htm` are the two that may hold unsafe code.
