//! What a ledger's transfers take on several nodes, compared with plain ones.
//!
//! A plain transfer changes two accounts. A ledger's also inserts a row into an ordered table of
//! transfers, with an entry of the index by which an account's transfers are found. Accounts,
//! transfers and entries are divided among three nodes, which are processes, each with eight
//! coroutines in one thread. Prints medians of rounds, in turns, and the ratio.
//! `DRTM_BENCH_ROUNDS` (3) sets the rounds, and `DRTM_BENCH_SECS` (2) the seconds.

use std::{
    env,
    io::{self, Write},
    ops::AddAssign,
    process::ExitCode,
    time::Duration,
};

use drtm_drive::{
    Done, Error, FabricName, Plain, Random, Runner,
    cluster::{ClusterWorkload, Length, Place, Plan, read, run, run_as_member, run_member},
    rates::interleave,
    spread,
};
use drtm_htm::NoHtm;
use drtm_rdma::Fabric;
use drtm_txn::{
    Config, IndexDef, Multi, Ordered, Pod, Table, TableDef, Transaction as _,
    cluster::{Node, NodeBuilder, Partition, Protocol, Worker},
};
use serde::{Deserialize, Serialize};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Accounts of all nodes.
const ACCOUNTS: u64 = 30_000;

/// What each account has at first.
const BALANCE: i64 = 1_000;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Transfer {
    from: u64,
    to: u64,
    amount: i64,
}

const OF_ACCOUNTS: TableDef<u64, Pod<i64>> = TableDef::hash("accounts");
const OF_TRANSFERS: TableDef<u64, Pod<Transfer>, Ordered> = TableDef::ordered("transfers");
const BY_PAYER: IndexDef<u64, Pod<Transfer>, u64, Multi> =
    IndexDef::multi("transfers by payer", |_, transfer| Some(transfer.from));

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
enum Subject {
    Plain,
    Ledger,
}

/// Transfers between accounts of all nodes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Transfers(Subject);

#[derive(Clone, Copy)]
struct Tables {
    accounts: Table<u64, Pod<i64>>,
    transfers: Table<u64, Pod<Transfer>, Ordered>,
}

/// A coroutine that transfers.
struct Client {
    random: Random,
    /// The number of its next transfer: no other client has it.
    next: u64,
    clients: u64,
    inserted: Inserted,
}

/// How many transfers were inserted.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Inserted(u64);

impl AddAssign for Inserted {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl ClusterWorkload for Transfers {
    const NAME: &'static str = "ledger";
    const KINDS: &'static [&'static str] = &["transfer"];
    type Tables = Tables;
    type Client = Client;
    type Count = Inserted;

    fn size(&self) -> Vec<(&'static str, serde_json::Value)> {
        Vec::new()
    }

    fn open<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        node: &mut NodeBuilder<F, S>,
    ) -> Result<Tables, Error> {
        let accounts = node.table(OF_ACCOUNTS, Partition::by("account", |account| *account))?;
        let transfers = node.table(OF_TRANSFERS, Partition::by("transfer", |transfer| *transfer))?;
        node.index(transfers, BY_PAYER, Partition::by("payer", |payer| *payer))?;
        Ok(Tables { accounts, transfers })
    }

    fn load<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        node: &Node<F, S>,
        place: Place,
    ) -> Result<(), Error> {
        let accounts = node.local().table(OF_ACCOUNTS)?;
        for account in (0..ACCOUNTS).filter(|account| place.owns(*account)) {
            node.local().transact(|tx| tx.insert(accounts, account, &BALANCE))?;
        }
        Ok(())
    }

    fn client(&self, place: Place, number: usize) -> Result<Client, Error> {
        Ok(Client {
            random: Random::seeded(spread(1, number)),
            next: number as u64,
            clients: place.all_clients() as u64,
            inserted: Inserted::default(),
        })
    }

    async fn run_next<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Runner<'_, '_, F, S>,
        tables: Tables,
        client: &mut Client,
    ) -> Result<Done, Error> {
        let from = client.random.within(0, ACCOUNTS - 1);
        let to = (from + client.random.within(1, ACCOUNTS - 1)) % ACCOUNTS;
        let transfer = Transfer { from, to, amount: 1 };
        let is_noted = self.0 == Subject::Ledger;
        let number = client.next;
        let moved = worker.transact(async |tx| {
            let balances = tx.get_many(tables.accounts, [from, to]).await?;
            let [Some(payer), Some(payee)] = balances[..] else { return Ok(false) };
            tx.put(tables.accounts, from, &(payer - transfer.amount)).await?;
            tx.put(tables.accounts, to, &(payee + transfer.amount)).await?;
            if is_noted {
                tx.insert(tables.transfers, number, &transfer).await?;
            }
            Ok(true)
        });
        let is_committed = moved.await?;
        if is_noted && is_committed {
            client.next += client.clients;
            client.inserted += Inserted(1);
        }
        Ok(Done { kind: 0, is_committed })
    }

    fn count(client: Client) -> Inserted {
        client.inserted
    }

    async fn check<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Worker<'_, F, S>,
        tables: Tables,
        inserted: &mut Inserted,
    ) -> Result<Vec<String>, Error> {
        let mut violations = Vec::new();
        let rows = read(worker, tables.accounts, 0..ACCOUNTS).await?;
        let all: i64 = rows.iter().map(|(_, balance)| balance).sum();
        if all != BALANCE * ACCOUNTS as i64 {
            violations.push(format!("the accounts have {all} in all"));
        }
        let transfers = worker.transact(async |tx| Ok(tx.range(tables.transfers, ..).await?.len() as u64)).await?;
        if transfers != inserted.0 {
            violations.push(format!("there are {transfers} transfers of {}", inserted.0));
        }
        Ok(violations)
    }

    async fn check_node<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        _worker: &Worker<'_, F, S>,
        _tables: Tables,
        _node: &Node<F, S>,
        _place: Place,
        _inserted: &Inserted,
    ) -> Result<Vec<String>, Error> {
        Ok(Vec::new())
    }
}

/// Returns how many transfers the cluster has made in a second.
fn measure(fabric: FabricName, subject: Subject, protocol: Protocol, counted: Duration) -> Result<f64, String> {
    let plan = Plan {
        nodes: 3,
        threads: 1,
        coroutines: 8,
        protocol: protocol.into(),
        backups: 0,
        length: Length::Window { warm: counted / 4, counted },
        seed: 1,
        memory: 512 << 20,
        warms: false,
    };
    let gathered = run::<Plain, _>(&Transfers(subject), fabric, &plan).map_err(|error| error.to_string())?;
    match &gathered.violations[..] {
        [] => Ok(gathered.tally.committed as f64 / (gathered.tally.nanos as f64 / 1e9)),
        violations => Err(violations.join("; ")),
    }
}

fn compare() -> Result<(), String> {
    let setting = |name: &str, usual: &str| env::var(name).unwrap_or_else(|_| usual.to_owned());
    let rounds = setting("DRTM_BENCH_ROUNDS", "3").parse().map_err(|_| "DRTM_BENCH_ROUNDS is a whole number")?;
    let seconds: f64 = setting("DRTM_BENCH_SECS", "2").parse().map_err(|_| "DRTM_BENCH_SECS is a number")?;
    let counted = Duration::try_from_secs_f64(seconds).map_err(|_| "DRTM_BENCH_SECS is not negative")?;
    for (fabric, name) in [(FabricName::Shm, "shm"), (FabricName::Tcp, "tcp")] {
        for protocol in [Protocol::FASST, Protocol::DRTM_H] {
            let subjects = [Subject::Plain, Subject::Ledger];
            let rates =
                interleave(rounds, &subjects, drop, |subject, ()| measure(fabric, *subject, protocol, counted))?;
            let (plain, ledger) = (rates[0].median, rates[1].median);
            println!("{name} {:8} plain {plain:>8.0}/s  ledger {ledger:>8.0}/s  {:.2}", protocol.name, ledger / plain);
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let member = run_as_member(|name| (name == Transfers::MEMBER).then(run_member::<Transfers>));
    if let Some(status) = member {
        return status;
    }
    // `cargo test` runs benches only to check that they compile.
    if !env::args().any(|argument| argument == "--bench") {
        return ExitCode::SUCCESS;
    }
    match compare() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "ledger: {error}");
            ExitCode::FAILURE
        }
    }
}
