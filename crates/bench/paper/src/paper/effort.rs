//! The effort of measuring a figure, and measuring several subjects in turns.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, value_parser};
use drtm_drive::{
    EngineName as DatabaseEngine, Finished, Latencies, LogPlace, Pace, Run, Until, Workload,
    rates::{Rates, interleave},
    seconds,
};
use drtm_htm::{Profile, Stats};
use drtm_rdma::NicProfile;
use drtm_report::units;
use drtm_txn::Durability;

use crate::{
    Error,
    htm::{EngineName, working_set::Scope},
};

/// Options of figures that run databases.
#[derive(Clone, Debug, Args)]
pub(super) struct EffortArgs {
    /// Threads that run transactions [default: 1 and its doubles, as far as there are processors]
    #[arg(long, value_parser = value_parser!(u16).range(1..=1024), value_delimiter = ',', value_name = "N,...")]
    threads: Option<Vec<u16>>,

    /// Seconds of each run
    #[arg(long, value_parser = seconds, default_value = "1", value_name = "S")]
    secs: Duration,

    /// Rounds, in each of which every series is measured once. One more goes before, and is not
    /// counted
    #[arg(long, value_parser = value_parser!(u16).range(1..=100), default_value_t = 3, value_name = "N")]
    rounds: u16,

    /// Tiny databases and a few hundred transactions, to check that everything works. Speeds mean
    /// nothing then
    #[arg(long, conflicts_with_all = ["secs", "rounds"])]
    quick: bool,

    /// The program of Silo, which is measured beside ours: the dbtest of its own release
    #[arg(long, value_name = "FILE")]
    silo: Option<PathBuf>,

    /// Simulated clusters as large as the paper's. Takes hours
    #[arg(long, conflicts_with = "quick")]
    full: bool,

    /// Multiply constants of simulated NICs and processors, to see how much results depend on them
    #[arg(long, value_parser = varied, value_delimiter = ',', value_name = "CONSTANT=FACTOR,...")]
    vary: Vec<(&'static str, f64)>,

    /// Microseconds of virtual time that are counted of each point of simulated clusters, and half
    /// as many to warm up [default: of DrTM+H's figures 1500, with ConnectX-3 3000, of SmallBank a
    /// third of that; of DrTM's 3000,
    /// and 1000 to warm up; of auto's 6000, and 4000; of HADES' 500 to 5000]
    #[arg(long, value_parser = value_parser!(u64).range(100..=1_000_000), value_name = "US")]
    virtual_us: Option<u64>,

    /// Seeds with which each point of simulated clusters is run, from --seed on: medians are
    /// reported, and what they lie between [default: 1; of DrTM's Fig. 16,
    /// scale-out and remote items 3, but 1 with --quick]
    #[arg(long, value_parser = value_parser!(u16).range(1..=100), value_name = "N")]
    seeds: Option<u16>,

    /// Of simulated clusters, print to stderr what the phases of each point sent, and its conflicts
    #[arg(long)]
    phases: bool,

    /// Coroutines of each thread of simulated clusters, in DrTM+H's figures [default: 1,10]
    #[arg(long, value_parser = value_parser!(u16).range(1..=64), value_delimiter = ',', value_name = "N,...")]
    coroutines: Option<Vec<u16>>,
}

impl EffortArgs {
    /// Returns the options that are not the default ones, as they are written.
    pub(super) fn written(&self) -> String {
        let list = |numbers: &[u16]| numbers.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
        let (mut words, usual) = (Vec::new(), (Duration::from_secs(1), 3));
        let flags = [("--quick", self.quick), ("--full", self.full)];
        words.extend(flags.into_iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag.to_owned()));
        words.extend(self.threads.as_ref().map(|threads| format!("--threads {}", list(threads))));
        words.extend((self.secs != usual.0).then(|| format!("--secs {}", self.secs.as_secs_f64())));
        words.extend((self.rounds != usual.1).then(|| format!("--rounds {}", self.rounds)));
        let varied: Vec<String> = self.vary.iter().map(|(constant, factor)| format!("{constant}={factor}")).collect();
        words.extend((!varied.is_empty()).then(|| format!("--vary {}", varied.join(","))));
        words.extend(self.seeds.map(|seeds| format!("--seeds {seeds}")));
        words.extend(self.virtual_us.map(|us| format!("--virtual-us {us}")));
        words.extend(self.coroutines.as_ref().map(|coroutines| format!("--coroutines {}", list(coroutines))));
        words.join(" ")
    }

    /// Returns whether everything is tiny.
    pub(super) fn is_quick(&self) -> bool {
        self.quick
    }
}

/// Returns a NIC of which these constants are multiplied.
fn vary(profile: &'static NicProfile, constants: &[(&str, f64)]) -> &'static NicProfile {
    if constants.is_empty() {
        return profile;
    }
    let vary = |profile: NicProfile, (constant, factor): &(&str, f64)| profile.varied(constant, *factor);
    let varied = constants.iter().try_fold(profile.clone(), vary);
    // A simulation keeps it until the process ends.
    varied.map_or(profile, |varied| Box::leak(Box::new(varied)))
}

/// Parses a constant's name and a factor.
fn varied(given: &str) -> Result<(&'static str, f64), String> {
    let names = || format!("one of {}", NicProfile::CONSTANTS.join(", "));
    let (name, factor) = given.split_once('=').ok_or("write CONSTANT=FACTOR")?;
    let constant = NicProfile::CONSTANTS.into_iter().find(|constant| *constant == name).ok_or_else(names)?;
    match factor.parse::<f64>() {
        Ok(factor) if (0.0..=1e3).contains(&factor) => Ok((constant, factor)),
        _ => Err("a factor from 0 to 1000".to_owned()),
    }
}

/// The effort of measuring.
#[derive(Clone, Debug)]
pub(super) struct Effort {
    /// The engine of studies of regions.
    pub(super) engine: EngineName,
    pub(super) seed: u64,
    pub(super) threads: Vec<usize>,
    /// Whether threads were given.
    pub(super) has_threads: bool,
    /// The program of Silo, if it is given.
    pub(super) silo: Option<PathBuf>,
    pub(super) is_quick: bool,
    /// Whether simulated clusters are as large as the papers'.
    pub(super) is_full: bool,
    /// Constants of simulated clusters that are multiplied.
    pub(super) varied: Vec<(&'static str, f64)>,
    /// Whether phases of simulated clusters are printed.
    pub(super) shows_phases: bool,
    /// Virtual time that is counted, if it is given.
    pub(super) counted: Option<Duration>,
    /// Coroutines of simulated clusters' threads, if they are given.
    pub(super) coroutines: Option<Vec<u16>>,
    /// How many seeds simulated clusters are run with.
    pub(super) seeds: u16,
    /// The number of seeds, if it is given.
    given_seeds: Option<u16>,
    rounds: u16,
    until: Until,
}

/// How much shorter the runs of studies with many series are.
const MANY: u32 = 4;

/// A measured subject: loads, runs and checks a workload.
pub(super) type Subject<'s> = Box<dyn Fn() -> Result<Finished, Error> + 's>;

/// The sums of a subject over all counted rounds.
#[derive(Debug)]
pub(super) struct Sum {
    /// Transactions per second.
    pub(super) rates: Rates,
    /// Finished transactions, by kind.
    pub(super) ended: Vec<u64>,
    /// The number of conflicts.
    pub(super) conflicts: u64,
    /// The clients' counters.
    counted: BTreeMap<String, u64>,
    pub(super) regions: Stats,
    /// The latencies of transactions of all kinds. `None` if nothing ran.
    pub(super) latencies: Option<Latencies>,
}

impl Effort {
    /// Returns a NIC of simulated clusters, with the constants that are varied.
    pub(super) fn profile(&self, profile: &'static NicProfile) -> &'static NicProfile {
        vary(profile, &self.varied)
    }

    /// Returns the same effort with another seed.
    pub(super) fn with_seed(&self, seed: u64) -> Self {
        Self { seed, ..self.clone() }
    }

    pub(super) fn new(args: &EffortArgs, engine: EngineName, seed: u64) -> Self {
        let is_quick = args.quick;
        let threads = match &args.threads {
            Some(threads) => threads.iter().map(|threads| usize::from(*threads)).collect(),
            None if is_quick => vec![1, 2],
            None => doubles(std::thread::available_parallelism().map_or(1, Into::into)),
        };
        let (rounds, until) =
            if is_quick { (1, Until::Transactions(200)) } else { (args.rounds, Until::Time(args.secs)) };
        let (varied, shows_phases, coroutines) = (args.vary.clone(), args.phases, args.coroutines.clone());
        let (is_full, counted) = (args.full, args.virtual_us.map(Duration::from_micros));
        let (has_threads, silo) = (args.threads.is_some(), args.silo.clone());
        Self {
            engine,
            seed,
            threads,
            has_threads,
            silo,
            is_quick,
            is_full,
            varied,
            shows_phases,
            counted,
            coroutines,
            seeds: args.seeds.unwrap_or(if is_quick { 1 } else { 3 }),
            given_seeds: args.seeds,
            rounds,
            until,
        }
    }

    /// Returns an effort of so many seeds, unless their number is given.
    pub(super) fn of_usual_seeds(&self, usual: u16) -> Self {
        Self { seeds: self.given_seeds.unwrap_or(usual), ..self.clone() }
    }

    /// Returns an effort whose runs are shorter, for studies with many series.
    pub(super) fn of_many(&self) -> Self {
        let until = match self.until {
            Until::Time(time) => Until::Time(time / MANY),
            few @ Until::Transactions(_) => few,
        };
        Self { until, ..self.clone() }
    }

    /// Returns how long a run lasts, if it is timed.
    pub(super) fn time(&self) -> Duration {
        match self.until {
            Until::Time(time) => time,
            Until::Transactions(_) => Duration::ZERO,
        }
    }

    /// Returns where measured numbers come from.
    pub(super) fn source(&self) -> String {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let machine =
            format!("MEASURED on this machine, {processors} processor{}", if processors == 1 { "" } else { "s" });
        match self.until {
            Until::Time(time) => {
                let (rounds, seconds) = (self.rounds, time.as_secs_f64());
                format!("{machine}: medians of {rounds} rounds, {seconds} s each, after one that is not counted")
            }
            Until::Transactions(count) => format!("{machine}. QUICK: {count} transactions a thread, tiny databases"),
        }
    }

    /// Returns the scope of studies of whole transactions.
    pub(super) fn scope(&self) -> Scope {
        let transactions = if self.is_quick { 400 } else { 20_000 };
        let Self { engine, seed, is_quick: is_tiny, .. } = *self;
        Scope { engine, profile: Profile::L1_32K_8, transactions, is_tiny, seed }
    }

    /// Returns the pace of a run with this many threads.
    pub(super) fn pace(&self, threads: usize) -> Pace {
        let memory = if self.is_quick { 1 << 30 } else { 64 << 30 };
        Pace { threads, until: self.until, memory, prefault: 0 }
    }

    /// Like [`pace`](Self::pace), with pre-faulted memory for TPC-C, so that page faults are not
    /// measured.
    pub(super) fn pace_with_memory(&self, threads: usize) -> Pace {
        let prefault = (threads as u64) << if self.is_quick { 25 } else { 29 };
        Pace { prefault, ..self.pace(threads) }
    }

    /// Returns a workload on an engine. Each run has a new database.
    pub(super) fn subject<'s, W: Workload + 's>(&self, workload: W, engine: DatabaseEngine, pace: Pace) -> Subject<'s> {
        Box::new(move || Ok(engine.dispatch(Run { workload: &workload, pace, log: None })?.1))
    }

    /// Like [`subject`](Self::subject), with a log in an own directory below this one, which is
    /// removed after each run.
    pub(super) fn logged<'s, W: Workload + 's>(
        &self,
        workload: W,
        engine: DatabaseEngine,
        threads: usize,
        (below, mode): (&'s Path, Durability),
    ) -> Subject<'s> {
        let pace = self.pace(threads);
        Box::new(move || {
            let directory = below.join("log");
            let log = Some(LogPlace { directory: &directory, mode });
            let finished = engine.dispatch(Run { workload: &workload, pace, log });
            let removed = fs::remove_dir_all(&directory).map_err(drtm_report::Error::file(&directory));
            let finished = finished?.1;
            removed?;
            Ok(finished)
        })
    }

    /// Measures subjects in turns. Each is checked, too.
    pub(super) fn in_turns(&self, subjects: &[Subject<'_>]) -> Result<Vec<Sum>, Error> {
        let all: RefCell<Vec<Vec<Finished>>> = RefCell::new(subjects.iter().map(|_| Vec::new()).collect());
        let numbers: Vec<usize> = (0..subjects.len()).collect();
        let rates = interleave(
            self.rounds,
            &numbers,
            |round| round,
            |&subject, &round| {
                let finished = subjects[subject]()?;
                if let [first, ..] = finished.violations.as_slice() {
                    let violations = finished.violations.len();
                    return Err(drtm_drive::Error::Inconsistent { violations, first: first.clone() }.into());
                }
                let rate = finished.tally.committed as f64 / finished.tally.time.as_secs_f64();
                if round > 0 {
                    all.borrow_mut()[subject].push(finished);
                }
                Ok::<_, Error>(rate)
            },
        )?;
        Ok(rates.into_iter().zip(all.into_inner()).map(|(rates, runs)| Sum::of(rates, &runs)).collect())
    }
}

/// Returns one and its doubles up to a number, and that number.
fn doubles(most: usize) -> Vec<usize> {
    let mut doubles: Vec<usize> = std::iter::successors(Some(1), |n| Some(2 * n)).take_while(|n| *n < most).collect();
    doubles.push(most);
    doubles
}

impl Sum {
    fn of(rates: Rates, runs: &[Finished]) -> Self {
        let kinds = runs.iter().map(|run| run.tally.latencies.len()).max().unwrap_or(0);
        let of_kind = |kind: usize| runs.iter().filter_map(|run| Some(run.tally.latencies.get(kind)?.count())).sum();
        let mut counted = BTreeMap::new();
        for (name, count) in runs.iter().flat_map(|run| &run.counted) {
            *counted.entry(name.clone()).or_default() += count;
        }
        Self {
            rates,
            ended: (0..kinds).map(of_kind).collect(),
            conflicts: runs.iter().flat_map(|run| &run.conflicts).map(|(_, count)| count).sum(),
            counted,
            regions: runs.iter().map(|run| run.regions).sum(),
            latencies: runs.iter().flat_map(|run| &run.tally.latencies).cloned().reduce(|mut all, one| {
                all.add(&one);
                all
            }),
        }
    }

    #[cfg(test)]
    pub(super) fn with<const N: usize>(ended: Vec<u64>, conflicts: u64, counted: [(&str, u64); N]) -> Self {
        let counted = counted.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
        Self { rates: Rates::of(vec![1.0]), ended, conflicts, counted, regions: Stats::default(), latencies: None }
    }

    /// Returns the sum of the clients' counters whose names end with this.
    pub(super) fn counted(&self, ending: &str) -> u64 {
        self.counted.iter().filter(|(name, _)| name.ends_with(ending)).map(|(_, count)| count).sum()
    }

    /// Returns the number of finished transactions of all kinds.
    pub(super) fn all_ended(&self) -> u64 {
        self.ended.iter().sum()
    }

    /// Returns the share of failed attempts among all.
    pub(super) fn abort_rate(&self) -> f64 {
        units::share(self.conflicts, self.conflicts + self.all_ended())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_options_are_those_that_were_given() {
        #[derive(clap::Parser)]
        struct Command {
            #[command(flatten)]
            effort: EffortArgs,
        }
        let written = |words: &str| {
            let command = <Command as clap::Parser>::parse_from(["paper"].into_iter().chain(words.split_whitespace()));
            command.effort.written()
        };
        for words in [
            "",
            "--quick",
            "--full --threads 1,2 --secs 0.5 --rounds 5 --vary wire=2 --seeds 5 --virtual-us 1000 --coroutines 1",
        ] {
            assert_eq!(written(words), words);
        }
    }

    #[test]
    fn threads_double_up_to_the_processors() {
        assert_eq!((doubles(1), doubles(2), doubles(6)), (vec![1], vec![1, 2], vec![1, 2, 4, 6]));
    }
}
