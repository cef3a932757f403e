//! A cluster of processes, seen from outside: they are killed, stopped and started again, and what
//! they say that clients were told is compared with what is left.

mod ends;

use std::{
    env, fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    path::PathBuf,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use drtm_drive::{Progress, cluster::Places};
use fastrand::Rng;

use super::{
    member::COROUTINES,
    tally::Tally,
    told::{Job, Left, Order, Place, Said},
};
use crate::{
    Error,
    lasting::{bank::Shape, verdict::Told},
};

/// How long something may take that takes no lease.
const PATIENCE: Duration = Duration::from_secs(30);

/// Transfers that are acknowledged between two ends of nodes, at least.
const BETWEEN: u64 = 40;

/// Nodes that end, at least, however short the soak is: one in each way, and two where there is
/// one.
const ENDS: usize = 2;

/// How the processes reach each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Shm,
    Tcp,
}

/// A process.
struct Life {
    number: u64,
    process: Child,
    orders: ChildStdin,
    /// The first of its clients.
    first: u64,
    has_begun: bool,
    has_ended: bool,
    /// It has found itself out.
    is_out: bool,
    /// It stands still, or did: its transactions may fail.
    is_afflicted: bool,
    /// What one of its clients was told last of a transaction that failed.
    failed: String,
}

impl Drop for Life {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What was heard of a process. `None`: it has ended.
type Heard = (u64, Option<Said>);

/// The newest view that a process has told of.
#[derive(Debug, Default)]
struct Seen {
    number: u32,
    members: Vec<(u16, u64)>,
    is_whole: bool,
}

impl Seen {
    fn life(&self, node: u16) -> Option<u64> {
        self.members.iter().find(|member| member.0 == node).map(|member| member.1)
    }
}

/// An owner that was killed, and when its rows were served again.
struct Awaited {
    node: u16,
    killed: u64,
    served: Option<u64>,
}

/// A directory that is removed at the end.
struct Own(PathBuf);

impl Drop for Own {
    fn drop(&mut self) {
        // The system removes its temporary files eventually.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// How a node is silent for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Silence {
    /// Its process stands still.
    Stopped,
    /// Its link is down.
    CutOff,
}

/// The cluster.
struct Cluster {
    job: Job,
    /// Where its processes are, with TCP.
    places: Option<Places>,
    shape: Shape,
    lives: Vec<Life>,
    began: u64,
    heard: (Sender<Heard>, Receiver<Heard>),
    told: Vec<Told>,
    view: Seen,
    is_open: bool,
    awaited: Option<Awaited>,
    /// Whether clients are to end: also those of nodes that start again meanwhile.
    is_over: bool,
    left: Option<Left>,
    tally: Tally,
    // The last: it is removed when no process is left.
    _directory: Own,
}

fn failed(why: impl ToString) -> Error {
    drtm_drive::Error::Child { command: "soak member", why: why.to_string() }.into()
}

/// Runs a cluster, and ends its nodes in turn.
pub(super) fn soak(shape: Shape, way: Way, seed: u64, secs: Duration) -> Result<Tally, Error> {
    let mut random = Rng::with_seed(seed);
    let _progress = Progress::spinner("killing");
    let mut cluster = Cluster::new(shape, way, seed)?;
    if let Err(finding) = cluster.opens()? {
        cluster.tally.is_stuck(finding);
        return Ok(cluster.tally);
    }
    let (end, nodes) = (Instant::now() + secs, shape.nodes());
    let first = random.u16(0..shape.owners);
    // Where the system tells of deaths, a process that is stopped is killed by the others.
    let ways: &[Option<Silence>] = match cluster.places.as_ref().map(Places::have_links) {
        None => &[None],
        Some(false) => &[None, Some(Silence::Stopped)],
        Some(true) => &[None, Some(Silence::Stopped), Some(Silence::CutOff)],
    };
    for number in 0.. {
        if usize::from(number) >= ENDS.max(ways.len()) && Instant::now() >= end {
            break;
        }
        let node = (first + number) % nodes;
        let ended = match ways[usize::from(number + number / nodes) % ways.len()] {
            Some(silence) => cluster.silence(node, silence),
            None => cluster.kill(node),
        };
        let next = match ended? {
            Ok(()) => cluster.goes_on(Duration::from_millis(random.u64(0..200)))?,
            Err(finding) => Err(finding),
        };
        if let Err(finding) = next {
            let finding = format!("{finding}, after {number} others, in {:?}", cluster.view);
            cluster.tally.is_stuck(finding);
            break;
        }
        if cluster.tally.wrong.is_any() {
            break;
        }
    }
    cluster.settle()?;
    Ok(std::mem::take(&mut cluster.tally))
}

impl Cluster {
    fn new(shape: Shape, way: Way, seed: u64) -> Result<Self, Error> {
        let directory = env::temp_dir().join(format!("drtm-soak-failover-{}-{seed}", std::process::id()));
        fs::create_dir_all(&directory).map_err(failed)?;
        let directory = Own(directory);
        let places = if way == Way::Tcp { Some(Places::new(shape.nodes())?) } else { None };
        let place = match &places {
            None => Place::Shm,
            Some(places) => {
                let mut key = [0; 32];
                fs::File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut key)).map_err(failed)?;
                Place::Tcp { addresses: places.addresses().to_vec(), key }
            }
        };
        let job = Job {
            place,
            directory: directory.0.to_str().ok_or_else(|| failed("the temporary directory's name"))?.to_owned(),
            node: 0,
            owners: shape.owners,
            clients: shape.clients,
            backups: shape.backups,
            protocol: shape.protocol.into(),
            lease_ms: shape.lease.as_millis() as u64,
            accounts: shape.accounts,
            seed,
            first: 0,
            opens: false,
        };
        let mut cluster = Self {
            job,
            places,
            shape,
            lives: Vec::new(),
            began: 0,
            heard: channel(),
            told: Vec::new(),
            view: Seen::default(),
            is_open: false,
            awaited: None,
            is_over: false,
            left: None,
            tally: Tally::default(),
            _directory: directory,
        };
        for node in 0..shape.nodes() {
            let life = cluster.begin(node)?;
            cluster.lives.push(life);
        }
        Ok(cluster)
    }

    /// Starts the process of a node.
    fn begin(&mut self, node: u16) -> Result<Life, Error> {
        let program = match &self.places {
            Some(places) => places.program(node),
            None => env::current_exe().map(Command::new),
        };
        let mut program = program.map_err(failed)?;
        program.args(["soak", "member"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = program.spawn().map_err(failed)?;
        let (orders, out) = (process.stdin.take(), process.stdout.take());
        let (Some(orders), Some(out)) = (orders, out) else { return Err(failed("it has no pipes")) };
        let (number, first) = (self.began, self.told.len() as u64);
        self.began += 1;
        self.told.resize_with(self.told.len() + COROUTINES as usize, Told::default);
        let (has_begun, has_ended, is_out, is_afflicted, failed) = (false, false, false, false, String::new());
        let mut life = Life { number, process, orders, first, has_begun, has_ended, is_out, is_afflicted, failed };
        let opens = node + 1 == self.shape.nodes() && !self.is_open;
        send(&mut life.orders, &Job { node, first, opens, ..self.job.clone() })?;
        if self.is_over {
            send(&mut life.orders, &Order::Stop)?;
        }
        let sender = self.heard.0.clone();
        thread::spawn(move || {
            let lines = BufReader::new(out).lines().map_while(Result::ok);
            // A line that is not whole was cut by a kill.
            for said in lines.filter_map(|line| serde_json::from_str(&line).ok()) {
                // At the end nothing receives this any more.
                let _ = sender.send((number, Some(said)));
            }
            let _ = sender.send((number, None));
        });
        Ok(life)
    }

    /// Starts a node again.
    fn restart(&mut self, node: u16) -> Result<(), Error> {
        let life = self.begin(node)?;
        self.lives[usize::from(node)] = life;
        self.tally.restarts += 1;
        Ok(())
    }

    /// Takes what processes say, until something holds. Returns false if it does not within a
    /// limit.
    fn until(&mut self, limit: Duration, holds: impl Fn(&Self) -> bool) -> Result<bool, Error> {
        let end = Instant::now() + limit;
        while !holds(self) {
            let left = end.saturating_duration_since(Instant::now());
            match self.heard.1.recv_timeout(left) {
                Ok(heard) => self.hear(heard)?,
                Err(RecvTimeoutError::Timeout) => return Ok(false),
                Err(RecvTimeoutError::Disconnected) => return Err(failed("its lines cannot be read")),
            }
        }
        Ok(true)
    }

    /// Returns how long something may take at most that takes leases.
    fn patience(&self) -> Duration {
        PATIENCE + 10 * self.shape.lease
    }

    /// Takes a line.
    fn hear(&mut self, (number, said): Heard) -> Result<(), Error> {
        let node = self.lives.iter().position(|life| life.number == number);
        let afflicted = node.is_none_or(|node| self.lives[node].is_afflicted);
        let life = node.map(|node| &mut self.lives[node]);
        match (said, life) {
            (Some(Said::Acknowledged { client, count, began, ended, homes }), _) => {
                self.tally.acknowledged += 1;
                let told = &mut self.told[client as usize];
                // What is under way now, nobody may have been told of.
                (told.acknowledged, told.begun) = (count, count + 1);
                if let Some(awaited) = &mut self.awaited
                    && began > awaited.killed
                    && homes.contains(&awaited.node)
                {
                    awaited.served.get_or_insert(ended);
                }
            }
            (Some(Said::Failed { client, count, why }), life) => {
                if let Some(life) = life {
                    life.failed.clone_from(&why);
                }
                let told = &mut self.told[client as usize];
                told.begun = told.begun.max(count + 1);
                if !afflicted {
                    self.tally.is_odd(format!("client {client}, whose node is here, was told: {why}"));
                }
            }
            (Some(Said::View { number, members, is_whole }), _) if number > self.view.number => {
                self.view = Seen { number, members, is_whole };
            }
            (Some(Said::Odd(finding)), _) => self.tally.is_odd(finding),
            (Some(Said::Open), _) => self.is_open = true,
            (Some(Said::Left(left)), _) => self.left = Some(left),
            (Some(Said::Begun), Some(life)) => life.has_begun = true,
            (Some(Said::Ended), Some(life)) => life.has_ended = true,
            (Some(Said::Out { client, count }), life) => {
                let told = &mut self.told[client as usize];
                told.begun = told.begun.max(count);
                if let Some(life) = life {
                    life.is_out = true;
                }
            }
            (None, Some(life)) => {
                let (status, is_out) = (life.process.wait().map_err(failed)?, life.is_out);
                let node = node.unwrap_or_default();
                // One that ends by itself might do so again and again.
                match is_out {
                    true => self.restart(node as u16)?,
                    false => self.tally.is_odd(format!("the process of node {node} has ended by itself: {status}")),
                }
            }
            (Some(Said::View { .. } | Said::Begun | Said::Ended) | None, _) => {}
        }
        Ok(())
    }

    /// Waits until all nodes are here, and the accounts are open.
    fn opens(&mut self) -> Result<Result<(), String>, Error> {
        let all = |cluster: &Self| {
            cluster.is_open && cluster.view.is_whole && cluster.lives.iter().all(|life| life.has_begun)
        };
        let is_open = self.until(self.patience(), all)?;
        Ok(is_open.then_some(()).ok_or_else(|| "the nodes do not meet".to_owned()))
    }

    /// Waits for a while, and until more transfers are acknowledged.
    fn goes_on(&mut self, pause: Duration) -> Result<Result<(), String>, Error> {
        self.until(pause, |_| false)?;
        let more = self.tally.acknowledged + BETWEEN;
        let goes_on = self.until(self.patience(), |cluster| cluster.tally.acknowledged >= more)?;
        Ok(goes_on.then_some(()).ok_or_else(|| "no transfers are acknowledged".to_owned()))
    }
}

fn send(orders: &mut ChildStdin, line: &impl serde::Serialize) -> Result<(), Error> {
    let line = serde_json::to_string(line).map_err(failed)?;
    writeln!(orders, "{line}").map_err(failed)
}
