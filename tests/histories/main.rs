//! Whether transactions are strictly serializable: what many of them saw and left, on every engine,
//! judged by the checker of histories; small cases whose outcomes are known; and the same with
//! deliberate faults, which must be found.
//!
//! `DRTM_STRESS=N` makes all of it N times longer.

mod counted;
mod faults;
mod litmus;
mod notes;
mod random;
mod scribe;
mod settings;
mod world;
