//! Silo, another system, measured beside ours where its program is given.
//!
//! The program is `dbtest` of Silo's own release, built with Masstree. It prints five numbers to
//! its standard output: transactions per second, those that are durable, the latency, that until
//! durable, and aborts per second.

use std::{fs, path::PathBuf, process::Command, time::Duration};

use drtm_drive::{Finished, Latencies, Tally};

use crate::Error;

/// Why Silo is absent, unless its program is given.
pub(super) const NOT_GIVEN: &str = "another system: say --silo FILE, where FILE is the dbtest of its release";

/// A run of Silo's TPC-C.
#[derive(Clone, Debug)]
pub(super) struct Silo {
    pub(super) program: PathBuf,
    pub(super) seconds: Duration,
    /// Where it logs. `None` if it does not.
    pub(super) log: Option<PathBuf>,
}

impl Silo {
    /// Runs the standard mix with a warehouse for each thread. The latency is the mean.
    pub(super) fn run(&self, threads: usize) -> Result<Finished, Error> {
        let seconds = self.seconds.as_secs().max(1);
        let threads = threads.to_string();
        let mut command = Command::new(&self.program);
        command.args(["--bench", "tpcc", "--db-type", "ndb-proto2", "--retry-aborted-transactions"]);
        command.args(["--num-threads", &threads, "--scale-factor", &threads, "--runtime", &seconds.to_string()]);
        if let Some(log) = &self.log {
            command.arg("--logfile").arg(log);
        }
        let output = command.output().map_err(drtm_report::Error::file(&self.program))?;
        if let Some(log) = &self.log {
            // It may have failed before it made the file.
            let _ = fs::remove_file(log);
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let refused = || self.refused(&String::from_utf8_lossy(&output.stderr));
        if !output.status.success() {
            return Err(refused());
        }
        let (rate, latency) = parse(&text, self.log.is_some()).ok_or_else(refused)?;
        let mut latencies = Latencies::default();
        latencies.record((latency * 1e6) as u64);
        Ok(Finished::of(Tally {
            time: Duration::from_secs(seconds),
            committed: (rate * seconds as f64) as u64,
            latencies: vec![latencies],
            ..Tally::default()
        }))
    }

    fn refused(&self, told: &str) -> Error {
        let told = told.lines().last().unwrap_or("nothing");
        let what = format!("{} is not the dbtest of Silo, or has failed: it says \"{told}\"", self.program.display());
        Error::Figure { figure: "--silo", what }
    }
}

/// Reads what the program prints last: the throughput, and the mean latency in milliseconds. With a
/// log, both are of durable transactions.
fn parse(text: &str, is_durable: bool) -> Option<(f64, f64)> {
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
    let numbers: Vec<f64> = line.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    let [rate, durable, latency, until_durable, _] = numbers[..] else { return None };
    Some(if is_durable { (durable, until_durable) } else { (rate, latency) })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_last_line_has_the_numbers() {
        let printed = "41000.5 40000 0.02 117.5 3\n\n";
        assert_eq!(parse(printed, false), Some((41_000.5, 0.02)));
        assert_eq!(parse(printed, true), Some((40_000.0, 117.5)));
        assert_eq!(parse("41000 2 3 4", false), None, "a number is missing");
        assert_eq!(parse("", false), None);
    }

    #[test]
    fn a_program_is_run_and_one_that_fails_is_told() {
        let directory = std::env::temp_dir().join(format!("drtm-silo-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("space");
        let program = directory.join("dbtest");
        let write = |script: &str| {
            fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("space");
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it is ours");
        };
        write("case \"$*\" in *'--num-threads 2 --scale-factor 2 --runtime 1'*) echo 300 200 0.5 40 0;; esac");
        let silo = Silo { program: program.clone(), seconds: Duration::from_millis(20), log: None };
        let finished = silo.run(2).expect("it prints");
        assert_eq!((finished.tally.committed, finished.tally.time), (300, Duration::from_secs(1)));
        let refused = silo.run(1).expect_err("it prints nothing").to_string();
        assert!(refused.contains("dbtest"), "{refused}");
        write("echo no memory >&2; exit 1");
        let refused = silo.run(2).expect_err("it fails").to_string();
        assert!(refused.contains("no memory"), "{refused}");
        fs::remove_dir_all(&directory).expect("it is there");
    }
}
