//! `drtm-bench tatp`: TATP, run.

use clap::{Args as ClapArgs, ValueEnum, value_parser};
use drtm_txn::{Db, Setting, TableDef};
use serde_json::Value;
use zerocopy::little_endian::U32;

use super::{
    AccessInfo, AccessInfoKey, CallForwarding, CallForwardingKey, Choice, Inputs, Register, STANDARD_MIX,
    SpecialFacility, SpecialFacilityKey, Subscriber, SubscriberKey, SubscriberNumber, View, check,
    network::{self, Network, Tables},
    subscriber_number,
};
use crate::{
    Error,
    drive::{Options, Workload, if_there, measure, miscounted, of_piece, pieces, spread},
    names::name_of,
    report::Report,
};

/// Run TATP, and check that what refers to something finds it
///
/// The seven transactions in the specified mix. Those that find nothing have failed, as the
/// specification has it, and are committed all the same.
///
/// JSON: {workload, threads, subscribers, choice, engine, simulated, nodes, fabric, protocol, durability,
/// seconds, committed, throughput, aborts: {cause: n}, latency_us: {transaction: {p50, p90, p99, p999}},
/// consistency: "ok"|[violations], max_rss_mib}; with a log also
/// {log_bytes_per_transaction, log_bytes_per_s, log_syncs_per_s, recovery_s, recovery_rows, recovery_log_bytes}
#[derive(Debug, ClapArgs)]
#[command(verbatim_doc_comment, after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Subscribers; the specification's smallest population is the default
    #[arg(long, value_parser = value_parser!(u32).range(1..), default_value_t = 100_000, value_name = "N")]
    subscribers: u32,

    /// Which subscribers are asked for
    #[arg(long, value_enum, default_value_t = ChoiceName::NonUniform)]
    choice: ChoiceName,

    #[command(flatten)]
    options: Options,
}

const AFTER_HELP: &str = "\
Examples:
  drtm-bench tatp                                   a hundred thousand subscribers
  drtm-bench tatp --subscribers 1000000 --choice uniform --threads 2";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ChoiceName {
    /// Some more often than others, as specified
    NonUniform,
    /// All alike
    Uniform,
}

impl Args {
    pub(crate) fn carry_out(&self, seed: u64, report: &Report) -> Result<(), Error> {
        let register = Register::new(self.subscribers, seed)?;
        measure(&Tatp { register, choice: self.choice, seed }, &self.options)?.tell(report)
    }
}

struct Tatp {
    register: Register,
    choice: ChoiceName,
    seed: u64,
}

impl Workload for Tatp {
    const NAME: &'static str = "tatp";
    type Tables = Tables;
    type Client<'w, S: Setting> = Network<'w, S>;

    fn size(&self) -> Vec<(&'static str, Value)> {
        vec![("subscribers", self.register.subscribers().into()), ("choice", name_of(&self.choice).into())]
    }

    fn open<S: Setting>(&self, db: &Db<S>) -> Result<Tables, Error> {
        let subscribers = u64::from(self.register.subscribers());
        Ok(Tables {
            subscribers: db.table(TableDef::hash(network::SUBSCRIBER).with_room_for(subscribers))?,
            numbers: db.table(TableDef::hash(network::NUMBER).with_room_for(subscribers))?,
            access_infos: db.table(TableDef::hash(network::ACCESS_INFO).with_room_for(3 * subscribers))?,
            special_facilities: db.table(TableDef::hash(network::SPECIAL_FACILITY).with_room_for(3 * subscribers))?,
            call_forwardings: db.table(TableDef::hash(network::CALL_FORWARDING).with_room_for(4 * subscribers))?,
        })
    }

    fn pieces(&self) -> u64 {
        pieces(self.register.subscribers().into())
    }

    fn load<S: Setting>(&self, db: &Db<S>, tables: Tables, piece: u64) -> Result<(), Error> {
        let numbers = of_piece(piece, self.register.subscribers().into());
        // Subscribers are counted from one, and are no more than fit.
        for profile in self.register.profiles(numbers.start as u32 + 1..=numbers.end as u32) {
            db.transact(|tx| {
                tx.insert(tables.subscribers, profile.key, &profile.subscriber)?;
                tx.insert(tables.numbers, profile.subscriber.number, &U32::new(profile.key))?;
                profile.access_infos().try_for_each(|(key, row)| tx.insert(tables.access_infos, key, &row))?;
                profile
                    .special_facilities()
                    .try_for_each(|(key, row)| tx.insert(tables.special_facilities, key, &row))?;
                profile.call_forwardings().try_for_each(|(key, row)| tx.insert(tables.call_forwardings, key, &row))
            })?;
        }
        Ok(())
    }

    fn clients<'w, S: Setting>(
        &'w self,
        db: &'w Db<S>,
        tables: Tables,
        threads: usize,
    ) -> Result<Vec<Network<'w, S>>, Error> {
        let choice = match self.choice {
            ChoiceName::NonUniform => Choice::NonUniform,
            ChoiceName::Uniform => Choice::Uniform,
        };
        let inputs = |thread| Inputs::new(self.register, STANDARD_MIX, choice, spread(self.seed, thread));
        Ok((0..threads).map(|thread| Network::new(db, tables, inputs(thread))).collect())
    }

    fn check<S: Setting>(&self, db: &Db<S>, tables: Tables, clients: &[&Network<'_, S>]) -> Result<Vec<String>, Error> {
        let inserted = clients.iter().map(|client| client.inserted()).sum();
        let rows = Rows { db, tables, subscribers: self.register.subscribers() };
        let mut violations: Vec<String> =
            check(&rows, &self.register, inserted)?.iter().map(ToString::to_string).collect();
        // Those that are missing have been found; others there may not be.
        let subscribers = u64::from(self.register.subscribers());
        violations.extend(miscounted(
            db,
            &[
                (network::SUBSCRIBER, subscribers),
                (network::NUMBER, subscribers),
                (network::ACCESS_INFO, count(rows.access_infos())?),
                (network::SPECIAL_FACILITY, count(rows.special_facilities())?),
                (network::CALL_FORWARDING, count(rows.call_forwardings())?),
            ],
        )?);
        Ok(violations)
    }
}

fn count<R>(mut rows: impl Iterator<Item = Result<R, Error>>) -> Result<u64, Error> {
    rows.try_fold(0, |count, row| row.map(|_| count + 1))
}

/// The rows whose keys there can be.
struct Rows<'db, S: Setting> {
    db: &'db Db<S>,
    tables: Tables,
    subscribers: u32,
}

impl<S: Setting> Rows<'_, S> {
    fn keys(&self) -> impl Iterator<Item = SubscriberKey> + use<S> {
        1..=self.subscribers
    }

    /// Of each of the four types.
    fn typed(&self) -> impl Iterator<Item = (SubscriberKey, u8)> + use<S> {
        self.keys().flat_map(|key| (1..=4).map(move |kind| (key, kind)))
    }
}

impl<S: Setting> View for Rows<'_, S> {
    type Error = Error;

    fn subscribers(&self) -> impl Iterator<Item = Result<(SubscriberKey, Subscriber), Error>> {
        self.keys().filter_map(|key| if_there(key, self.db.transact(|tx| tx.get(self.tables.subscribers, key))))
    }

    fn numbers(&self) -> impl Iterator<Item = Result<(SubscriberNumber, SubscriberKey), Error>> {
        self.keys().map(subscriber_number).filter_map(|number| {
            let found = self.db.transact(|tx| tx.view(self.tables.numbers, number, |key| key.get()));
            if_there(number, found)
        })
    }

    fn access_infos(&self) -> impl Iterator<Item = Result<(AccessInfoKey, AccessInfo), Error>> {
        self.typed().filter_map(|key| if_there(key, self.db.transact(|tx| tx.get(self.tables.access_infos, key))))
    }

    fn special_facilities(&self) -> impl Iterator<Item = Result<(SpecialFacilityKey, SpecialFacility), Error>> {
        let row = |key| self.db.transact(|tx| tx.get(self.tables.special_facilities, key));
        self.typed().filter_map(move |key| if_there(key, row(key)))
    }

    fn call_forwardings(&self) -> impl Iterator<Item = Result<(CallForwardingKey, CallForwarding), Error>> {
        let row = |key| self.db.transact(|tx| tx.get(self.tables.call_forwardings, key));
        let keys = self.typed().flat_map(|(key, kind)| [0, 8, 16].map(|start| (key, kind, start)));
        keys.filter_map(move |key| if_there(key, row(key)))
    }
}
