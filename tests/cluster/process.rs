//! Processes of this program, each of which runs one test: an owner that can be killed.

use std::{
    env,
    io::{BufRead as _, BufReader, Lines},
    process::{Child, ChildStdout, Command, Stdio},
};

/// A process that is killed at the end.
pub(crate) struct Owner {
    pub(crate) process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Owner {
    /// Starts a process that runs a test of this name, and is told something by a variable.
    pub(crate) fn that_runs(test: &str, variable: &str, told: &str) -> Self {
        let mut command = Command::new(env::current_exe().expect("this one"));
        command.args(["--exact", test, "--nocapture"]).env(variable, told).stdout(Stdio::piped());
        let mut process = command.spawn().expect("a process");
        let lines = BufReader::new(process.stdout.take().expect("piped")).lines();
        Self { process, lines }
    }

    /// Waits until it has said something. Returns false if it has ended before.
    pub(crate) fn says(&mut self, what: &str) -> bool {
        self.lines.by_ref().map_while(Result::ok).any(|line| line.contains(what))
    }

    /// Waits until it has said all of this, in any order. Returns false if it has ended before.
    pub(crate) fn says_all(&mut self, what: &[&str]) -> bool {
        let mut left = what.to_vec();
        self.lines.by_ref().map_while(Result::ok).any(|line| {
            left.retain(|what| !line.contains(what));
            left.is_empty()
        })
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("it runs");
        let _ = self.process.wait();
    }

    pub(crate) fn signal(&self, name: &str) {
        let command = format!("kill -{name} {}", self.process.id());
        assert!(Command::new("sh").args(["-c", &command]).status().expect("a shell").success());
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
