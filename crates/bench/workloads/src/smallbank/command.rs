//! `drtm-bench smallbank`: runs SmallBank.

use clap::{Args as ClapArgs, ValueEnum, value_parser};
use drtm_drive::{
    Error, Options, Workload, measure, measure_cluster, miscounted, pieces, row_with_key, rows_of_piece, spread,
};
use drtm_report::{Report, name_of};
use drtm_txn::{Config, Db, Pod, Table, TableDef};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Bank, Checking, CustomerKey, HotSet, Inputs, Ledger, STANDARD_MIX, Savings, View,
    bank_client::BankClient,
    check,
    ours::{CHECKING, Ours, SAVINGS, Tables},
};

/// Run SmallBank, and check that no money is lost
///
/// Runs the six transactions in H-Store's mix and with its amounts. Customers are given by their
/// numbers, as in FaSST and DrTM+H, so there is no table of names. A payment that is not covered is
/// refused, which counts as an abort by the user. At the end, the money of all accounts must be the
/// initial money plus deposits, less withdrawals.
///
/// On several nodes, customers are partitioned by their numbers, and clients access all nodes
/// alike. On shm, each node is a process. On sim, everything is simulated in virtual time, and
/// nothing is measured.
///
/// JSON: {workload, threads, customers, hot, engine, simulated, nodes, fabric, protocol,
/// durability, seconds, committed, throughput, aborts: {cause: n}, latency_us: {transaction: {p50,
/// p90, p99, p999}}, consistency: "ok"|[TEXT, ...], max_rss_mib}; with a log also
/// {log_bytes_per_transaction, log_bytes_per_s, log_syncs_per_s, recovery_s, recovery_rows,
/// recovery_log_bytes}; on several nodes also {coroutines, cpu_us, per_transaction: {round_trips,
/// messages, one_sided, bytes, wait_us, round_us}, per_phase: {phase: the same}}, of committed
/// transactions and what their aborted runs sent
#[derive(Debug, ClapArgs)]
#[command(verbatim_doc_comment, after_help = AFTER_HELP)]
pub struct Args {
    /// Customers of the bank
    #[arg(long, value_parser = value_parser!(u64).range(2..=1 << 32), default_value_t = 100_000, value_name = "N")]
    customers: u64,

    /// Which customers are accessed more often
    #[arg(long, value_enum, default_value_t)]
    hot: Hot,

    #[command(flatten)]
    options: Options,
}

const AFTER_HELP: &str = "\
Examples:
  drtm-bench smallbank                              a hundred thousand customers, of whom 4 % are hot
  drtm-bench smallbank --customers 18000 --hot alomari --threads 2
  drtm-bench smallbank --nodes 3 --fabric shm       a process for each node
  drtm-bench smallbank --nodes 4 --fabric sim:cx4   a simulated cluster";

/// Which customers are accessed more often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hot {
    /// 4 % of the customers have 90 % of the transactions
    #[default]
    DrtmH,
    /// 1000 customers have 90 % of the transactions
    Alomari,
    /// All customers equally often
    None,
}

impl Args {
    /// Loads, runs and checks it, and reports the outcome.
    ///
    /// # Errors
    ///
    /// Returns an error if the options do not fit, the run fails, or a condition does not hold.
    pub fn execute(&self, seed: u64, report: &Report) -> Result<(), Error> {
        let smallbank = SmallBank::new(self.customers, self.hot, seed)?;
        let outcome = if self.options.is_cluster() {
            measure_cluster(&smallbank, &self.options, seed)?
        } else {
            measure(&smallbank, &self.options)?
        };
        outcome.print(report)
    }
}

/// The workload: a bank, and how inputs are drawn.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SmallBank {
    pub(super) bank: Bank,
    hot: Hot,
    /// Percentage of the customers that are hot, instead of what `hot` says.
    hot_share: Option<u8>,
    /// The percentage of customers that are of a client's own node. `None`: as it happens.
    pub(super) local: Option<u8>,
    seed: u64,
}

impl SmallBank {
    /// Creates the workload. Returns an error if there are too few customers for hot and other
    /// ones.
    pub fn new(customers: u64, hot: Hot, seed: u64) -> Result<Self, Error> {
        let smallbank = Self { bank: Bank::new(customers, seed)?, hot, hot_share: None, local: None, seed };
        smallbank.inputs(0)?;
        Ok(smallbank)
    }

    /// Gives 90 % of the transactions to this percentage of the customers. With fewer customers and
    /// as many hot ones, about as many transactions conflict. Returns an error if there are too few
    /// hot customers, or others.
    pub fn with_hot_share(self, percent: u8) -> Result<Self, Error> {
        let smallbank = Self { hot_share: Some(percent), ..self };
        smallbank.inputs(0)?;
        Ok(smallbank)
    }

    /// Sets the percentage of customers that are of a client's own node, on several nodes.
    pub fn with_local(self, local: Option<u8>) -> Self {
        Self { local, ..self }
    }

    /// Returns the bank that is filled and checked.
    #[cfg(feature = "stores")]
    pub fn bank(&self) -> &Bank {
        &self.bank
    }

    /// Returns the inputs of a thread.
    pub fn inputs(&self, thread: usize) -> Result<Inputs, Error> {
        let hot = match (self.hot_share, self.hot) {
            (Some(customers), _) => HotSet::Share { customers, transactions: 90 },
            (None, Hot::DrtmH) => HotSet::DRTM_H,
            (None, Hot::Alomari) => HotSet::ALOMARI,
            (None, Hot::None) => HotSet::None,
        };
        Ok(Inputs::new(self.bank, STANDARD_MIX, hot, spread(self.seed, thread))?)
    }
}

impl Workload for SmallBank {
    const NAME: &'static str = "smallbank";
    type Tables = Tables;
    type Client<'w, S: Config> = BankClient<Ours<'w, S>>;

    fn size(&self) -> Vec<(&'static str, Value)> {
        vec![("customers", self.bank.customers().into()), ("hot", name_of(&self.hot).into())]
    }

    fn open<S: Config>(&self, db: &Db<S>) -> Result<Tables, Error> {
        let customers = self.bank.customers();
        Ok(Tables {
            savings: db.table(TableDef::hash(SAVINGS).with_room_for(customers))?,
            checking: db.table(TableDef::hash(CHECKING).with_room_for(customers))?,
        })
    }

    fn pieces(&self) -> u64 {
        pieces(self.bank.customers())
    }

    fn load<S: Config>(&self, db: &Db<S>, tables: Tables, piece: u64) -> Result<(), Error> {
        for (customer, savings, checking) in self.bank.balances(rows_of_piece(piece, self.bank.customers())) {
            db.transact(|tx| {
                tx.insert(tables.savings, customer, &savings)?;
                tx.insert(tables.checking, customer, &checking)
            })?;
        }
        Ok(())
    }

    fn clients<'w, S: Config>(
        &'w self,
        db: &'w Db<S>,
        tables: Tables,
        threads: usize,
    ) -> Result<Vec<Self::Client<'w, S>>, Error> {
        (0..threads).map(|thread| Ok(BankClient::new(Ours { db, tables }, self.inputs(thread)?))).collect()
    }

    fn check<S: Config>(
        &self,
        db: &Db<S>,
        tables: Tables,
        clients: &[&Self::Client<'_, S>],
    ) -> Result<Vec<String>, Error> {
        let mut ledger = Ledger::default();
        clients.iter().for_each(|client| ledger.add(client.ledger()));
        let rows = Rows { db, tables, customers: self.bank.customers() };
        let mut violations: Vec<String> = check(&rows, &self.bank, &ledger)?.iter().map(ToString::to_string).collect();
        // Missing rows have been found; there must be no others.
        let customers = self.bank.customers();
        violations.extend(miscounted(db, &[(SAVINGS, customers), (CHECKING, customers)])?);
        Ok(violations)
    }
}

struct Rows<'db, S: Config> {
    db: &'db Db<S>,
    tables: Tables,
    customers: u64,
}

impl<S: Config> Rows<'_, S> {
    fn of<T: 'static>(&self, table: Table<CustomerKey, Pod<T>>) -> impl Iterator<Item = Result<(CustomerKey, T), Error>>
    where
        Pod<T>: drtm_txn::Codec<Value = T>,
    {
        (0..self.customers).filter_map(move |key| row_with_key(key, self.db.transact(|tx| tx.get(table, &key))))
    }
}

impl<S: Config> View for Rows<'_, S> {
    type Error = Error;

    fn savings(&self) -> impl Iterator<Item = Result<(CustomerKey, Savings), Error>> {
        self.of(self.tables.savings)
    }

    fn checkings(&self) -> impl Iterator<Item = Result<(CustomerKey, Checking), Error>> {
        self.of(self.tables.checking)
    }
}
