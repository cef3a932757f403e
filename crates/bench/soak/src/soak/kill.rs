//! Kills a child process at a random moment, and checks what it left in its directory.

use std::{
    env, fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use drtm_drive::{Plain, Progress};
use drtm_htm::NoHtm;
use drtm_report::refuse_occupied;
use drtm_txn::{Db, Durability};
use fastrand::Rng;

use super::{
    End,
    book::{Book, Deeds, Finding},
    child::MEMORY,
    ledger::Ledger,
    tally::Tally,
};
use crate::Error;

/// How long a child may take to commit its first transaction.
const PATIENCE: Duration = Duration::from_secs(60);

const COMMAND: &str = "soak child";

/// A directory that is removed at the end if it was made here.
struct Place {
    path: PathBuf,
    is_own: bool,
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_own {
            // The system removes its temporary files eventually.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Kills children until the end.
pub(super) fn soak(seed: u64, end: End, path: Option<&Path>) -> Result<Tally, Error> {
    path.map_or(Ok(()), refuse_occupied)?;
    let own = || env::temp_dir().join(format!("drtm-soak-{}", std::process::id()));
    let place = Place { path: path.map_or_else(own, Path::to_owned), is_own: path.is_none() };
    let mut tally = Tally::new("kill", "files", seed);
    let _progress = Progress::spinner("killing");
    while !end.is_over(tally.runs) {
        let random = &mut Rng::with_seed(drtm_drive::scatter::scatter(seed).wrapping_add(tally.runs));
        let directory = place.path.join(format!("run-{}", tally.runs));
        run(&directory, random, &mut tally)?;
        if tally.wrong() > 0 {
            // Keeps the directory of a faulty database for inspection.
            tally.runs += 1;
            let left = format!("{} is left as it is", directory.display());
            tally.count(vec![Finding::Anomaly(left)], "in the end");
            std::mem::forget(place);
            return Ok(tally);
        }
        fs::remove_dir_all(&directory).map_err(drtm_report::Error::file(&directory))?;
        tally.runs += 1;
    }
    Ok(tally)
}

/// Runs one database through several children.
fn run(directory: &Path, random: &mut Rng, tally: &mut Tally) -> Result<(), Error> {
    let mut book = Book::default();
    for number in 1..=random.u32(3..=6) {
        let threads = random.u32(1..=4);
        let child = Running::start(directory, threads, number, random.u64(..))?;
        // Some children are killed before they commit anything, possibly during recovery.
        if random.u8(0..5) > 0 && !child.has_begun() {
            tally.count(vec![Finding::Anomaly(child.end()?.1)], &format!("child {number}"));
            return Ok(());
        }
        thread::sleep(Duration::from_micros(random.u64(0..80_000)));
        let (acknowledged, said) = child.end()?;
        tally.kills += 1;
        book.note(Deeds { acknowledged, ..Deeds::default() });
        if random.u8(0..4) == 0 {
            // Two kills in a row.
            continue;
        }
        let place = format!("child {number} ({threads} threads)");
        tally.count(check(directory, &mut book, &said), &place);
        if tally.wrong() > 0 {
            break;
        }
    }
    tally.acknowledged += book.survivors() as u64;
    Ok(())
}

fn check(directory: &Path, book: &mut Book, said: &str) -> Vec<Finding> {
    // A child that was killed early has made no database.
    let builder = Db::builder().memory(MEMORY).path(directory).create(true).durability(Durability::Sync);
    let checked = builder.build_with::<Plain>(NoHtm).map_err(Error::from).and_then(|db| {
        let ledger = Ledger::open(&db)?;
        let findings = book.check(&db, &ledger)?;
        db.close()?;
        Ok(findings)
    });
    let failed = |error| vec![Finding::Anomaly(format!("what is left cannot be opened: {error}; {said}"))];
    checked.unwrap_or_else(failed)
}

/// A child, and the transactions that it acknowledged.
struct Running {
    child: Child,
    begins: Receiver<()>,
    reader: thread::JoinHandle<Vec<u64>>,
}

impl Running {
    fn start(directory: &Path, threads: u32, life: u32, seed: u64) -> Result<Self, Error> {
        let failed = |error: std::io::Error| drtm_drive::Error::Child { command: COMMAND, why: error.to_string() };
        let mut child = Command::new(env::current_exe().map_err(failed)?)
            .args(["soak", "child", "--threads", &threads.to_string(), "--life", &life.to_string()])
            .args(["--seed", &seed.to_string(), "--path"])
            .arg(directory)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let out = child.stdout.take();
        let (began, begins) = channel();
        let reader = thread::spawn(move || {
            let (mut acknowledged, mut id) = (Vec::new(), [0; 8]);
            if let Some(mut out) = out {
                while out.read_exact(&mut id).is_ok() {
                    acknowledged.push(u64::from_le_bytes(id));
                    // The parent may have stopped waiting.
                    let _ = began.send(());
                }
            }
            acknowledged
        });
        Ok(Self { child, begins, reader })
    }

    fn has_begun(&self) -> bool {
        self.begins.recv_timeout(PATIENCE).is_ok()
    }

    /// Kills it, and returns the acknowledged transactions and its error output.
    fn end(mut self) -> Result<(Vec<u64>, String), Error> {
        let failed = |error: std::io::Error| drtm_drive::Error::Child { command: COMMAND, why: error.to_string() };
        self.child.kill().map_err(failed)?;
        self.child.wait().map_err(failed)?;
        let mut said = String::new();
        if let Some(mut err) = self.child.stderr.take() {
            err.read_to_string(&mut said).map_err(failed)?;
        }
        match self.reader.join() {
            Ok(acknowledged) => Ok((acknowledged, format!("the process said: {:?}", said.trim()))),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}
