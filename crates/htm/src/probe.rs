//! Whether this machine's RTM is usable: what CPUID says, and what a trial shows.

use std::fmt;

/// The result of probing this machine's RTM.
///
/// # Example
///
/// ```
/// use drtm_htm::Probe;
///
/// let probe = Probe::of_this_machine();
/// println!("{probe}");
/// assert!(probe.cpuid_rtm || probe.trial_commits == 0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Probe {
    /// CPUID says that the processor has the instructions.
    pub cpuid_rtm: bool,
    /// CPUID says that microcode makes every transaction abort.
    pub always_abort: bool,
    /// The number of the trial's transactions that committed.
    pub trial_commits: u32,
    /// The number of transactions that the trial began: none where the instructions would fault.
    pub trials: u32,
}

impl Probe {
    /// Returns whether transactions commit often enough to be used: at least every second one of
    /// the smallest kind.
    #[must_use]
    pub fn usable(&self) -> bool {
        self.trials > 0 && self.trial_commits >= self.trials / 2
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { cpuid_rtm: false, always_abort: false, .. } => f.write_str("CPUID lists no RTM"),
            Self { cpuid_rtm: false, always_abort: true, .. } => {
                f.write_str("CPUID lists RTM as disabled by microcode")
            }
            Self { trial_commits, trials, .. } => {
                write!(f, "CPUID lists RTM, {trial_commits} of {trials} trial transactions committed")
            }
        }
    }
}
