//! Processes that tests start: this program again, as something else.

use std::{
    env,
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

/// What a process is to be, and its arguments.
const ROLE: &str = "DRTM_MEMBERSHIP_ROLE";

/// Begins a line that is meant for the parent: the test harness has lines of its own.
const MARK: &str = "@ ";

/// A process that this one started. It is killed when this is dropped.
pub(crate) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Process {
    /// Starts this program in a role.
    pub(crate) fn start(role: &str, arguments: &[&str]) -> Self {
        let program = env::current_exe().expect("this program");
        let mut command = Command::new(program);
        command.args(["--exact", "processes::child", "--ignored", "--nocapture"]);
        command.env(ROLE, [&[role], arguments].concat().join("\n"));
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("a process");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            let lines = output.lines().map_while(Result::ok);
            for line in lines.filter_map(|line| Some(line.split_once(MARK)?.1.to_owned())) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let input = child.stdin.take();
        Self { child, input, lines }
    }

    #[cfg_attr(not(feature = "raft"), expect(dead_code, reason = "only voters are told anything"))]
    /// Tells the process a line. `false` if it is gone.
    pub(crate) fn tell(&mut self, line: &str) -> bool {
        let input = self.input.as_mut().expect("it is kept");
        writeln!(input, "{line}").and_then(|()| input.flush()).is_ok()
    }

    /// Waits for a line. `None` if none comes in time, or the process is gone.
    pub(crate) fn line(&self, patience: Duration) -> Option<String> {
        self.lines.recv_timeout(patience).ok()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id() as i32).expect("a process has a number");
        kill_process(pid, signal).expect("it is a child, and has not been waited for");
    }

    /// Kills the process, and returns what it had said.
    pub(crate) fn kill(mut self) -> Vec<String> {
        self.signal(Signal::KILL);
        self.child.wait().expect("it has ended");
        self.lines.iter().collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Says something to the parent.
pub(crate) fn say(line: &str) {
    println!("\n{MARK}{line}");
}

/// What a started process does. Without a role, nothing.
#[test]
#[ignore = "is a process of other tests"]
fn child() {
    let Ok(role) = env::var(ROLE) else { return };
    let mut parts = role.split('\n');
    let role = parts.next().unwrap_or_default();
    let arguments: Vec<&str> = parts.collect();
    match role {
        "directory" => crate::directory::process(&arguments),
        #[cfg(feature = "raft")]
        "raft" => crate::raft_processes::process(&arguments),
        other => panic!("there is no role {other}"),
    }
}
