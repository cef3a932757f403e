//! Where results were made: machine, commit, command, day.

use std::{
    env, fs,
    process::Command,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

/// Where a figure was made. Empty where that was not recorded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Origin {
    /// The command that makes it.
    pub(super) command: String,
    pub(super) commit: String,
    pub(super) machine: String,
    /// The day, as `2026-01-31`.
    pub(super) day: String,
    /// Whether everything was tiny.
    pub(super) is_quick: bool,
    /// How long it took, with the other panels of its study.
    pub(super) seconds: f64,
}

impl Origin {
    /// Returns this program on this machine, today. The command is to be filled in.
    pub(super) fn here(is_quick: bool) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { commit: commit(), machine: machine(), day: day(now), is_quick, ..Self::default() }
    }
}

fn machine() -> String {
    let line = |path: &str, name: &str| {
        let text = fs::read_to_string(path).ok()?;
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let model = line("/proc/cpuinfo", "model name").unwrap_or_else(|| env::consts::ARCH.to_owned());
    let plural = if processors == 1 { "" } else { "s" };
    let kilobytes = line("/proc/meminfo", "MemTotal").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    let memory = kilobytes.map(|kilobytes| format!(", {} GiB of memory", kilobytes.div_ceil(1 << 20)));
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let rtm = if drtm_htm::Probe::of_this_machine().usable() { "RTM" } else { "no RTM" };
    let build = if cfg!(debug_assertions) { "; a debug build" } else { "" };
    format!(
        "{processors} processor{plural} ({model}){}, {rtm}, {} {}{build}",
        memory.unwrap_or_default(),
        env::consts::OS,
        kernel.trim()
    )
}

/// Returns the commit of the sources that this program was built from, as far as git knows it.
///
/// Git says what the sources are now. If its last commit is younger than the program, that is said.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(env!("CARGO_MANIFEST_DIR")).args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "unknown".to_owned() };
    let is_changed = git(&["status", "--porcelain", "--untracked-files=no"]).is_some();
    let committed = git(&["log", "-1", "--format=%ct"]).and_then(|text| text.parse().ok()).map(Duration::from_secs);
    let built = env::current_exe().and_then(|program| program.metadata()?.modified()).ok();
    let built = built.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let is_older = committed.zip(built).is_some_and(|(committed, built)| built < committed);
    match (is_older, is_changed) {
        (true, _) => format!("older than {commit}"),
        (false, true) => format!("{commit}, with changes"),
        (false, false) => commit,
    }
}

/// Returns the day, in UTC.
fn day(since_1970: Duration) -> String {
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut days = since_1970.as_secs() / 86_400;
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (1_709_164_800, "2024-02-29"),
            (1_735_689_599, "2024-12-31"),
            (4_107_542_400, "2100-03-01"),
        ] {
            assert_eq!(day(Duration::from_secs(seconds)), expected);
        }
    }

    #[test]
    fn a_machine_is_described() {
        let here = Origin::here(true);
        assert!(here.machine.contains("processor") && here.machine.contains("RTM"), "{}", here.machine);
        assert!(!here.commit.is_empty() && here.day.len() == 10 && here.is_quick);
    }
}
