//! Checks that transactions are strictly serializable. The history checker checks the reads and
//! writes of random transactions on every engine. Litmus tests have known outcomes. Both also run
//! with deliberate faults, which must be found.
//!
//! `DRTM_STRESS=N` runs everything N times longer.

mod counted;
mod faults;
mod litmus;
mod notes;
mod random;
mod scribe;
mod settings;
mod world;
