//! Runs of HADES' workloads on a simulated cluster of machines.

use std::{num::NonZeroU64, time::Duration};

use drtm_drive::{
    Plain,
    cluster::{Figures, Length, OfMachines, Plan, ProtocolOf, simulate_machines},
};
use drtm_rdma::{
    Atomicity, NicProfile, Phase, SimConfig,
    machine::{MachineProfile, Replacement},
};
use drtm_tpcc::{Chances, Distributed, MixName, Scale, Supply};
use drtm_txn::{Conflict, cluster::Protocol};
use drtm_workloads::{
    smallbank::{Hot, SmallBank},
    tatp::Tatp,
    ycsb::{SmallOrderedRecords, SmallRecords, Walk},
};

use super::{
    effort::Effort,
    hades_apps::{Apps, Part},
};
use crate::Error;

/// The software, HADES and HADES-H. None waits for the end of a decided transaction, and all read
/// rows in turn.
pub(super) const PROTOCOLS: [ProtocolOf; 3] = [
    ProtocolOf::in_turn("sw-impl", Protocol::SW_IMPL),
    ProtocolOf::in_turn("hades", Protocol { is_passive: true, ..Protocol::HADES }),
    ProtocolOf::in_turn("hades-h", Protocol { is_passive: true, ..Protocol::HADES_H }),
];

/// Table III: transactions on each core.
const MULTIPLEXED: u16 = 2;

/// Section VII: requests of a transaction of a key-value store.
const REQUESTS: u8 = 5;

/// A key-value store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Structure {
    /// Our hash table.
    Hash,
    /// Rows of our hash table, found by a walk through a tree of the client's node.
    Walked(Walk),
    /// Our ordered table, which is a B+Tree.
    Ordered,
}

/// What a workload does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// Requests to a key-value store, of which a percentage write.
    Requests(Structure, u8),
    /// NEW-ORDER of TPC-C, with all items of other warehouses.
    Orders,
    /// TATP.
    Subscribers,
    /// SmallBank, without hot customers.
    Accounts,
}

/// One of the paper's workloads.
#[derive(Clone, Copy, Debug)]
pub(super) struct App {
    pub(super) name: &'static str,
    /// Its name with HADES and HADES-H.
    pub(super) series: [&'static str; 2],
    doing: Doing,
}

macro_rules! app {
    ($name:literal, $doing:expr) => {
        App { name: $name, series: [concat!($name, ": HADES"), concat!($name, ": HADES-H")], doing: $doing }
    };
}

impl App {
    pub(super) const HT_A: Self = app!("HT-wA", Doing::Requests(Structure::Hash, 50));
    pub(super) const HT_B: Self = app!("HT-wB", Doing::Requests(Structure::Hash, 5));
    pub(super) const MAP_A: Self = app!("Map-wA", Doing::Requests(Structure::Walked(Walk::BinaryTree), 50));
    pub(super) const MAP_B: Self = app!("Map-wB", Doing::Requests(Structure::Walked(Walk::BinaryTree), 5));
    pub(super) const BTREE_A: Self = app!("BTree-wA", Doing::Requests(Structure::Walked(Walk::BTree), 50));
    pub(super) const BTREE_B: Self = app!("BTree-wB", Doing::Requests(Structure::Walked(Walk::BTree), 5));
    pub(super) const BPLUS_A: Self = app!("B+Tree-wA", Doing::Requests(Structure::Ordered, 50));
    pub(super) const BPLUS_B: Self = app!("B+Tree-wB", Doing::Requests(Structure::Ordered, 5));
    pub(super) const TPCC: Self = app!("TPC-C", Doing::Orders);
    pub(super) const TATP: Self = app!("TATP", Doing::Subscribers);
    pub(super) const BANK: Self = app!("SmallBank", Doing::Accounts);

    /// All that the paper has.
    pub(super) const ALL: [Self; 11] = [
        Self::HT_A,
        Self::HT_B,
        Self::MAP_A,
        Self::MAP_B,
        Self::BTREE_A,
        Self::BTREE_B,
        Self::BPLUS_A,
        Self::BPLUS_B,
        Self::TPCC,
        Self::TATP,
        Self::BANK,
    ];

    /// One of each kind, for studies of many settings.
    pub(super) const FEW: [Self; 4] = [Self::HT_A, Self::TPCC, Self::TATP, Self::BANK];

    /// Returns all, or those that are enough for a quick check.
    pub(super) fn all(effort: &Effort) -> &'static [Self] {
        if effort.is_quick { &Self::FEW } else { &Self::ALL }
    }

    /// Requests to a hash table, of which a percentage write.
    pub(super) const fn writing(percent: u8) -> Self {
        Self { doing: Doing::Requests(Structure::Hash, percent), ..Self::HT_A }
    }
}

/// How many rows there are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    /// Of a key-value store.
    pub(super) records: u64,
    pub(super) subscribers: u32,
    pub(super) customers: u64,
    /// Of each warehouse, of which there is one for each transaction of TPC-C at a time.
    pub(super) items: u32,
}

impl Rows {
    /// Section VII. TPC-C's 10 million items are those of all 50 warehouses.
    pub(super) const FULL: Self =
        Self { records: 4_000_000, subscribers: 1_000_000, customers: 5_000_000, items: 100_000 };

    /// Returns a quarter of all but a warehouse's items.
    pub(super) fn quarter(self) -> Self {
        let Self { records, subscribers, customers, items } = self;
        Self { records: records / 4, subscribers: subscribers / 4, customers: customers / 4, items }
    }

    fn of(effort: &Effort) -> Self {
        match (effort.is_quick, effort.is_full) {
            (true, _) => Self { records: 2_000, subscribers: 1_000, customers: 2_000, items: 80 },
            (_, true) => Self::FULL,
            _ => Self { records: 50_000, subscribers: 20_000, customers: 50_000, items: 1_000 },
        }
    }
}

/// A cluster, and how long it runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cluster {
    pub(super) nodes: u16,
    /// Of each node.
    pub(super) cores: u16,
    pub(super) rows: Rows,
    /// Percentage of requests to a client's own node. `None`: rows are spread uniformly.
    pub(super) local: Option<u8>,
    /// What constants of the network and of machines are multiplied by.
    pub(super) varied: Varied,
    pub(super) replacement: Replacement,
    pub(super) counted: Duration,
}

/// Factors of constants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Varied {
    /// The round trip between NICs.
    pub(super) network: f64,
    /// The cycles of an instruction.
    pub(super) instructions: f64,
    /// The cycles of the last-level cache and of memory.
    pub(super) memory: f64,
    /// What a processor takes to hand a request to its NIC, and to take its completion.
    pub(super) posting: f64,
    /// What a NIC takes for a verb or a message.
    pub(super) nic: f64,
}

impl Varied {
    pub(super) const NOTHING: Self = Self { network: 1.0, instructions: 1.0, memory: 1.0, posting: 1.0, nic: 1.0 };

    /// Returns the NIC. A simulation keeps it until the process ends.
    fn profile(self, effort: &Effort) -> &'static NicProfile {
        let profile = effort.profile(&NicProfile::HADES);
        if self == Self::NOTHING {
            return profile;
        }
        let posting = ["post", "doorbell", "completion", "poll"].map(|constant| (constant, self.posting));
        let nic = ["read", "write", "atomic", "message"].map(|constant| (constant, self.nic));
        let all = [("wire", self.network)].into_iter().chain(posting).chain(nic);
        let vary = |profile: NicProfile, (constant, factor)| profile.varied(constant, factor);
        let varied = { all }.try_fold(profile.clone(), vary);
        varied.map_or(profile, |varied| Box::leak(Box::new(varied)))
    }
}

/// What a run has given.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// Transactions per second, mean latency and its 95th percentile in microseconds.
    pub(super) figures: [f64; 3],
    /// Of the whole run: loading, and checking its end, too.
    pub(super) of_machines: OfMachines,
    /// The shares of clients' time, in percent, for which they waited for the execution's rounds,
    /// and for those that detect conflicts.
    pub(super) waited: [f64; 2],
}

impl Cluster {
    /// The default of Table III, and a window of so many microseconds unless that is given.
    pub(super) fn new(effort: &Effort, us: u64) -> Self {
        let us = if effort.is_quick { 100 } else { us };
        Self {
            nodes: 5,
            cores: 5,
            rows: Rows::of(effort),
            local: None,
            varied: Varied::NOTHING,
            replacement: MachineProfile::HADES.replacement,
            counted: effort.counted.unwrap_or(Duration::from_micros(us)),
        }
    }

    /// Returns how many transactions there are at a time.
    pub(super) fn clients(&self) -> f64 {
        f64::from(self.nodes * self.cores * MULTIPLEXED)
    }

    pub(super) fn source(&self, what: &str) -> String {
        let Rows { records, subscribers, customers, items } = self.rows;
        format!(
            "SIMULATED in virtual time: {} nodes of {} cores with {MULTIPLEXED} transactions each, HADES' Table III; \
             {what}; {records} records, {subscribers} subscribers, {customers} customers, and for each transaction of \
             TPC-C a warehouse of {items} items and 10 customers a district; {} ms, and half as long before",
            self.nodes,
            self.cores,
            self.counted.as_micros() as f64 / 1_000.0
        )
    }

    fn machine(&self) -> MachineProfile {
        let mut machine =
            MachineProfile::cluster(self.nodes.into(), self.cores.into(), usize::from(self.nodes).saturating_sub(1));
        let vary = |constant: &mut u64, factor: f64| *constant = (*constant as f64 * factor).round() as u64;
        machine.replacement = self.replacement;
        vary(&mut machine.round_trip, self.varied.network);
        vary(&mut machine.instructions, self.varied.instructions);
        vary(&mut machine.llc.cycles, self.varied.memory);
        vary(&mut machine.memory, self.varied.memory);
        machine
    }

    /// Returns a workload that has one of so many parts of each node's cores.
    fn part(&self, app: App, parts: u16, seed: u64) -> Result<Part, Error> {
        let Rows { records, subscribers, customers, items } = self.rows;
        Ok(match app.doing {
            Doing::Requests(Structure::Ordered, writes) => {
                let of = SmallOrderedRecords::requests(records, REQUESTS, 100 - writes, seed)?;
                Part::Ordered(of.in_table(app.name).with_local(self.local))
            }
            Doing::Requests(structure, writes) => {
                let walk = if let Structure::Walked(walk) = structure { Some(walk) } else { None };
                let of = SmallRecords::requests(records, REQUESTS, 100 - writes, seed)?;
                Part::Hashed(of.in_table(app.name).with_local(self.local).found_by(walk))
            }
            Doing::Orders => {
                let warehouses = (self.nodes * self.cores * MULTIPLEXED).div_ceil(parts);
                let scale = Scale::new(warehouses)?.with_customers(10)?.with_items(items)?;
                let remote_item = 100 - self.local.unwrap_or(0);
                let chances = Chances { remote_item, ..Chances::STANDARD };
                let of = Distributed::<Supply>::new(scale, MixName::NewOrder, chances, seed, NonZeroU64::MIN);
                Part::Orders(of.with_uniform_items())
            }
            Doing::Subscribers => Part::Network(Tatp::new(subscribers, seed)?.with_local(self.local)),
            Doing::Accounts => Part::Bank(SmallBank::new(customers, Hot::None, seed)?.with_local(self.local)),
        })
    }

    /// Runs workloads, which share the cores of each node, by a protocol.
    pub(super) fn run(&self, effort: &Effort, apps: &[App], protocol: ProtocolOf) -> Result<Run, Error> {
        let parts = apps.iter().map(|app| self.part(*app, apps.len() as u16, effort.seed));
        let workload = Apps::new(parts.collect::<Result<_, _>>()?, (self.cores, MULTIPLEXED));
        let plan = Plan {
            nodes: self.nodes,
            threads: self.cores,
            coroutines: MULTIPLEXED,
            protocol,
            backups: 0,
            length: Length::Window { warm: self.counted / 2, counted: self.counted },
            seed: effort.seed,
            memory: (1 << 29) + 2_048 * (4 * self.rows.records + self.rows.customers),
            warms: true,
        };
        // NICs' atomics are atomic with processors', so that locks can be taken by them, as in the
        // paper.
        let config = SimConfig::new(self.varied.profile(effort)).atomicity(Atomicity::Global);
        let (gathered, of_machines) = simulate_machines::<Plain, Apps>(&workload, &plan, config, &self.machine())?;
        if let [first, ..] = gathered.violations.as_slice() {
            let violations = gathered.violations.len();
            return Err(drtm_drive::Error::Inconsistent { violations, first: first.clone() }.into());
        }
        let (tally, seconds) = (&gathered.tally, self.counted.as_secs_f64());
        let latencies = tally.latencies();
        let figures = [tally.committed as f64 / seconds, latencies.mean(), latencies.percentile(95.0)];
        let waited = |phase| 100.0 * tally.waited(phase).as_secs_f64() / (self.clients() * seconds);
        let waited = [waited(Phase::Execute), waited(Phase::Lock) + waited(Phase::Validate)];
        if effort.shows_phases {
            let each = |count: &u64| *count as f64 / tally.committed.max(1) as f64;
            let conflicts = Conflict::ALL.iter().zip(tally.conflicts.iter().map(each)).filter(|(_, each)| *each > 0.0);
            let conflicts: Vec<_> = conflicts.map(|(conflict, each)| format!("{conflict:?} {each:.3}")).collect();
            let ([rate, mean, tail], names): (_, Vec<_>) = (figures, apps.iter().map(|app| app.name).collect());
            eprintln!(
                "{} by {}, seed {}: {rate:.0} transactions/s, mean {mean:.2} us, 95 % {tail:.2} us; waited {:.0} % \
                 executing, {:.0} % locking and validating; conflicts {}\n{}\n",
                names.join(", "),
                protocol.protocol.name,
                effort.seed,
                waited[0],
                waited[1],
                conflicts.join(", "),
                Figures::new(&plan, tally).text()
            );
        }
        Ok(Run { figures, of_machines, waited })
    }
}
