//! Probes this machine's RTM by running transactions.

use std::sync::OnceLock;

use super::Rtm;
use crate::{Access, Engine, Line, arch, probe::Probe};

/// The number of transactions that the trial begins.
const TRIALS: u32 = 256;

impl Probe {
    /// Probes the machine, once in the life of the process.
    ///
    /// # Example
    ///
    /// See [`Probe`].
    #[must_use]
    pub fn of_this_machine() -> &'static Self {
        static PROBE: OnceLock<Probe> = OnceLock::new();
        PROBE.get_or_init(Self::take)
    }

    fn take() -> Self {
        let cpuid = arch::cpuid();
        let mut probe = Self { cpuid_rtm: cpuid.rtm, always_abort: cpuid.always_abort, trial_commits: 0, trials: 0 };
        if let Some(rtm) = Rtm::if_executable() {
            let line = Line::default();
            for turn in 0..TRIALS {
                // Touched outside first, so that no trial aborts at the page fault of a fresh stack
                // page.
                rtm.store(&line[0], u64::from(turn));
                let committed = rtm.once(&mut (), &mut |tx| {
                    let value = tx.load(&line[0])?;
                    tx.store(&line[1], value)
                });
                probe.trials += 1;
                probe.trial_commits += u32::from(committed.is_ok());
            }
        }
        probe
    }
}
