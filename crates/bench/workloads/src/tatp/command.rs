//! `drtm-bench tatp`: runs TATP.

use clap::{Args as ClapArgs, ValueEnum, value_parser};
use drtm_drive::{
    Error, Options, Workload, measure, measure_cluster, miscounted, pieces, row_with_key, rows_of_piece, spread,
};
use drtm_report::{Report, name_of};
use drtm_txn::{Config, Db};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use zerocopy::little_endian::U32;

use super::{
    AccessInfo, AccessInfoKey, CallForwarding, CallForwardingKey, Choice, Inputs, Register, STANDARD_MIX,
    SpecialFacility, SpecialFacilityKey, Subscriber, SubscriberKey, SubscriberNumber, View, check,
    network::{self, Defs, Network, Tables},
    subscriber_number,
};

/// Run TATP, and check that no row refers to a missing one
///
/// Runs the seven transactions in the specified mix. A transaction that finds no row has failed by
/// the specification, and commits all the same.
///
/// On several nodes, subscribers are partitioned by their identities, together with their rows;
/// index entries of numbers are on any node. On shm and tcp, each node is a process. On sim,
/// everything is simulated in virtual time, and nothing is measured.
///
/// JSON: {workload, threads, subscribers, choice, engine, simulated, nodes, fabric, protocol,
/// durability, seconds, committed, throughput, aborts: {cause: n}, latency_us: {transaction: {p50,
/// p90, p99, p999}}, consistency: "ok"|[TEXT, ...], max_rss_mib}; with a log also
/// {log_bytes_per_transaction, log_bytes_per_s, log_syncs_per_s, recovery_s, recovery_rows,
/// recovery_log_bytes}; on several nodes also {coroutines, cpu_us, per_transaction: {round_trips,
/// messages, one_sided, bytes, wait_us, round_us}, per_phase: {phase: the same}}, of committed
/// transactions and what their aborted runs sent
#[derive(Debug, ClapArgs)]
#[command(verbatim_doc_comment, after_help = AFTER_HELP)]
pub struct Args {
    /// Subscribers; the default is the specification's smallest population
    #[arg(long, value_parser = value_parser!(u32).range(1..), default_value_t = 100_000, value_name = "N")]
    subscribers: u32,

    /// The distribution of subscribers
    #[arg(long, value_enum, default_value_t = ChoiceName::NonUniform)]
    choice: ChoiceName,

    #[command(flatten)]
    options: Options,
}

const AFTER_HELP: &str = "\
Examples:
  drtm-bench tatp                                   a hundred thousand subscribers
  drtm-bench tatp --subscribers 1000000 --choice uniform --threads 2
  drtm-bench tatp --nodes 3 --fabric tcp            a process for each node";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(super) enum ChoiceName {
    /// Not uniform, as specified
    NonUniform,
    /// All subscribers equally often
    Uniform,
}

impl Args {
    /// Loads, runs and checks it, and reports the outcome.
    ///
    /// # Errors
    ///
    /// Returns an error if the options do not fit, the run fails, or a condition does not hold.
    pub fn execute(&self, seed: u64, report: &Report) -> Result<(), Error> {
        let tatp = Tatp { choice: self.choice, ..Tatp::new(self.subscribers, seed)? };
        if self.options.is_cluster() {
            return measure_cluster(&tatp, &self.options, seed)?.print(report);
        }
        measure(&tatp, &self.options)?.print(report)
    }
}

/// The workload, with its size.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Tatp {
    pub(super) register: Register,
    pub(super) choice: ChoiceName,
    /// The percentage of subscribers that are of a client's own node. `None`: as it happens.
    pub(super) local: Option<u8>,
    pub(super) seed: u64,
}

impl Tatp {
    /// Creates the workload, which chooses subscribers as specified.
    pub fn new(subscribers: u32, seed: u64) -> Result<Self, Error> {
        let register = Register::new(subscribers, seed)?;
        Ok(Self { register, choice: ChoiceName::NonUniform, local: None, seed })
    }

    /// Sets the percentage of subscribers that are of a client's own node, on several nodes.
    pub fn with_local(self, local: Option<u8>) -> Self {
        Self { local, ..self }
    }

    /// Returns the inputs of a client.
    pub(super) fn inputs(&self, client: usize) -> Inputs {
        let choice = match self.choice {
            ChoiceName::NonUniform => Choice::NonUniform,
            ChoiceName::Uniform => Choice::Uniform,
        };
        Inputs::new(self.register, STANDARD_MIX, choice, spread(self.seed, client))
    }
}

impl Workload for Tatp {
    const NAME: &'static str = "tatp";
    type Tables = Tables;
    type Client<'w, S: Config> = Network<'w, S>;

    fn size(&self) -> Vec<(&'static str, Value)> {
        vec![("subscribers", self.register.subscribers().into()), ("choice", name_of(&self.choice).into())]
    }

    fn open<S: Config>(&self, db: &Db<S>) -> Result<Tables, Error> {
        Ok(Defs::new(&self.register).open(db)?)
    }

    fn pieces(&self) -> u64 {
        pieces(self.register.subscribers().into())
    }

    fn load<S: Config>(&self, db: &Db<S>, tables: Tables, piece: u64) -> Result<(), Error> {
        let numbers = rows_of_piece(piece, self.register.subscribers().into());
        // Subscribers are counted from one, and fit.
        for profile in self.register.profiles(numbers.start as u32 + 1..=numbers.end as u32) {
            db.transact(|tx| {
                tables.insert(tx, &profile)?;
                tx.insert(tables.numbers, profile.subscriber.number, &U32::new(profile.key))
            })?;
        }
        Ok(())
    }

    fn clients<'w, S: Config>(
        &'w self,
        db: &'w Db<S>,
        tables: Tables,
        threads: usize,
    ) -> Result<Vec<Network<'w, S>>, Error> {
        Ok((0..threads).map(|thread| Network::new(db, tables, self.inputs(thread))).collect())
    }

    fn check<S: Config>(&self, db: &Db<S>, tables: Tables, clients: &[&Network<'_, S>]) -> Result<Vec<String>, Error> {
        let inserted = clients.iter().map(|client| client.inserted()).sum();
        let rows = Rows { db, tables, subscribers: (1..=self.register.subscribers()).collect() };
        let mut violations: Vec<String> =
            check(&rows, &self.register, inserted)?.iter().map(ToString::to_string).collect();
        // Missing rows have been found; there must be no others.
        let subscribers = u64::from(self.register.subscribers());
        let mut counts = rows.counts()?;
        counts.extend([(network::SUBSCRIBER, subscribers), (network::NUMBER, subscribers)]);
        violations.extend(miscounted(db, &counts)?);
        Ok(violations)
    }
}

fn count<R>(mut rows: impl Iterator<Item = Result<R, Error>>) -> Result<u64, Error> {
    rows.try_fold(0, |count, row| row.map(|_| count + 1))
}

/// The rows of all possible keys.
pub(super) struct Rows<'db, S: Config> {
    pub(super) db: &'db Db<S>,
    pub(super) tables: Tables,
    /// The subscribers.
    pub(super) subscribers: Vec<SubscriberKey>,
}

impl<S: Config> Rows<'_, S> {
    fn keys(&self) -> impl Iterator<Item = SubscriberKey> {
        self.subscribers.iter().copied()
    }

    /// Returns the keys of all four types.
    fn typed(&self) -> impl Iterator<Item = (SubscriberKey, u8)> {
        self.keys().flat_map(|key| (1..=4).map(move |kind| (key, kind)))
    }

    /// Returns the number of rows that belong to the subscribers.
    pub(super) fn counts(&self) -> Result<Vec<(&'static str, u64)>, Error> {
        Ok(vec![
            (network::ACCESS_INFO, count(self.access_infos())?),
            (network::SPECIAL_FACILITY, count(self.special_facilities())?),
            (network::CALL_FORWARDING, count(self.call_forwardings())?),
        ])
    }
}

impl<S: Config> View for Rows<'_, S> {
    type Error = Error;

    fn subscribers(&self) -> impl Iterator<Item = Result<(SubscriberKey, Subscriber), Error>> {
        self.keys().filter_map(|key| row_with_key(key, self.db.transact(|tx| tx.get(self.tables.subscribers, key))))
    }

    fn numbers(&self) -> impl Iterator<Item = Result<(SubscriberNumber, SubscriberKey), Error>> {
        self.keys().map(subscriber_number).filter_map(|number| {
            let found = self.db.transact(|tx| tx.view(self.tables.numbers, number, |key| key.get()));
            row_with_key(number, found)
        })
    }

    fn access_infos(&self) -> impl Iterator<Item = Result<(AccessInfoKey, AccessInfo), Error>> {
        self.typed().filter_map(|key| row_with_key(key, self.db.transact(|tx| tx.get(self.tables.access_infos, key))))
    }

    fn special_facilities(&self) -> impl Iterator<Item = Result<(SpecialFacilityKey, SpecialFacility), Error>> {
        let row = |key| self.db.transact(|tx| tx.get(self.tables.special_facilities, key));
        self.typed().filter_map(move |key| row_with_key(key, row(key)))
    }

    fn call_forwardings(&self) -> impl Iterator<Item = Result<(CallForwardingKey, CallForwarding), Error>> {
        let row = |key| self.db.transact(|tx| tx.get(self.tables.call_forwardings, key));
        let keys = self.typed().flat_map(|(key, kind)| [0, 8, 16].map(|start| (key, kind, start)));
        keys.filter_map(move |key| row_with_key(key, row(key)))
    }
}
