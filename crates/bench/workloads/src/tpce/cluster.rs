//! Customer-position on a cluster: a customer and all that it has is on one node, and securities
//! are divided by their numbers. Beside it, transactions that change prices.

#[cfg(test)]
mod tests;

use std::hint::black_box;

use drtm_drive::{
    Body, Done, Error, Random, Reads, Runner,
    cluster::{ClusterWorkload, Place, look_up, read},
    expect_row, miscounted, spread, transact,
};
use drtm_htm::NoHtm;
use drtm_rdma::Fabric;
use drtm_txn::{
    Config, Error as DbError, Hash, Pod, Table, TableDef, Transaction,
    cluster::{Node, NodeBuilder, Partition, Sets, Worker},
};

use super::{
    Account, AccountKey, Customer, CustomerKey, CustomerPosition, Holding, HoldingKey, LastTrade, SecurityKey,
};

const CUSTOMER: &str = "customer";
const ACCOUNT: &str = "account";
const HOLDING: &str = "holding";
const LAST_TRADE: &str = "last-trade";

#[derive(Clone, Copy, Debug)]
pub struct Tables {
    customers: Table<CustomerKey, Pod<Customer>>,
    accounts: Table<AccountKey, Pod<Account>>,
    holdings: Table<HoldingKey, Pod<Holding>>,
    last_trades: Table<SecurityKey, Pod<LastTrade>>,
}

/// A client of a node.
#[derive(Debug)]
pub struct Client {
    random: Random,
    /// How many customers its node has; the first, and how far the next is.
    customers: u32,
    first: u32,
    step: u32,
    /// How often it has changed prices.
    fed: u64,
}

/// What the customer is shown of each account: what it has in cash, and what its securities are
/// worth.
type Position = Vec<(AccountKey, i64, i64)>;

/// A transaction that reads what a customer's accounts are worth: three reads on its node, and one
/// on all nodes that have prices. Which rows these are is known by the rows before them.
struct Look(Tables, CustomerKey);

impl Body for Look {
    type Output = Position;

    async fn run(&self, tx: &mut impl Transaction, reads: Reads) -> Result<Position, DbError> {
        let Self(tables, customer) = *self;
        let profile = expect_row(tx.get(tables.customers, customer).await?, CUSTOMER)?;
        let keys = (0..black_box(profile).accounts).map(|number| (customer, number));
        let accounts = reads.get_many(tx, tables.accounts, keys.clone()).await?;
        let (mut position, mut keys_of_holdings) = (Position::new(), Vec::new());
        for (key @ (_, number), account) in keys.zip(accounts) {
            let account = expect_row(account, ACCOUNT)?;
            position.push((key, account.balance.get(), 0));
            keys_of_holdings.extend((0..account.holdings).map(|holding| (customer, number, holding)));
        }
        let mut holdings = Vec::with_capacity(keys_of_holdings.len());
        for holding in reads.get_many(tx, tables.holdings, &keys_of_holdings).await? {
            holdings.push(expect_row(holding, HOLDING)?);
        }
        let securities = holdings.iter().map(|holding| holding.security.get());
        let last = reads.get_many(tx, tables.last_trades, securities).await?;
        for ((last, holding), (_, account, _)) in last.into_iter().zip(&holdings).zip(keys_of_holdings) {
            let worth = expect_row(last, LAST_TRADE)?.price.get() * i64::from(holding.quantity.get());
            position[usize::from(account)].2 += worth;
        }
        Ok(position)
    }
}

/// A transaction that moves a part of one security's price to another's.
struct Feed {
    tables: Tables,
    securities: [SecurityKey; 2],
    part: i64,
}

impl Body for Feed {
    type Output = ();

    fn declare<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        sets: &mut Sets<'_, '_, F, S>,
    ) -> Result<(), DbError> {
        self.securities.iter().try_for_each(|security| sets.write(self.tables.last_trades, security))
    }

    async fn run(&self, tx: &mut impl Transaction, reads: Reads) -> Result<(), DbError> {
        let Self { tables, securities: [from, to], part } = *self;
        reads.prefetch(tx, tables.last_trades, [from, to]).await?;
        for (security, change) in [(from, -part), (to, part)] {
            let changed = tx.update(tables.last_trades, security, |row| {
                row.price += change;
                row.volume += 1;
            });
            expect_row(changed.await?, LAST_TRADE)?;
        }
        Ok(())
    }
}

impl CustomerPosition {
    /// The numbers below one that a node owns.
    fn own(below: u32, place: Place) -> impl Iterator<Item = u32> + Clone {
        (u32::from(place.node)..below).step_by(place.nodes.into())
    }

    fn defs(&self) -> Defs {
        let customers = u64::from(self.brokerage.customers());
        Defs {
            customers: TableDef::hash(CUSTOMER).with_room_for(customers),
            accounts: TableDef::hash(ACCOUNT).with_room_for(5 * customers),
            holdings: TableDef::hash(HOLDING).with_room_for(50 * customers),
            last_trades: TableDef::hash(LAST_TRADE).with_room_for(self.brokerage.securities().into()),
        }
    }
}

struct Defs {
    customers: TableDef<CustomerKey, Pod<Customer>, Hash>,
    accounts: TableDef<AccountKey, Pod<Account>, Hash>,
    holdings: TableDef<HoldingKey, Pod<Holding>, Hash>,
    last_trades: TableDef<SecurityKey, Pod<LastTrade>, Hash>,
}

impl ClusterWorkload for CustomerPosition {
    const NAME: &'static str = "tpce-cp";
    const KINDS: &'static [&'static str] = &["customer-position", "market-feed"];
    type Tables = Tables;
    type Client = Client;
    type Count = u64;

    fn size(&self) -> Vec<(&'static str, serde_json::Value)> {
        vec![
            ("customers", self.brokerage.customers().into()),
            ("securities", self.brokerage.securities().into()),
            ("feeds", self.feeds.into()),
        ]
    }

    fn open<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        node: &mut NodeBuilder<F, S>,
    ) -> Result<Tables, Error> {
        let defs = self.defs();
        let by_number = |name| Partition::by(name, |number: &u32| (*number).into());
        Ok(Tables {
            customers: node.table(defs.customers, by_number("customer"))?,
            accounts: node.table(defs.accounts, Partition::by("customer", |key: &AccountKey| key.0.into()))?,
            holdings: node.table(defs.holdings, Partition::by("customer", |key: &HoldingKey| key.0.into()))?,
            last_trades: node.table(defs.last_trades, by_number("security"))?,
        })
    }

    fn load<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        node: &Node<F, S>,
        place: Place,
    ) -> Result<(), Error> {
        let (db, defs) = (node.local(), self.defs());
        let (customers, accounts) = (db.table(defs.customers)?, db.table(defs.accounts)?);
        let (holdings, last_trades) = (db.table(defs.holdings)?, db.table(defs.last_trades)?);
        for customer in Self::own(self.brokerage.customers(), place) {
            let portfolio = self.brokerage.portfolio(customer);
            db.transact(|tx| {
                tx.insert(customers, customer, &portfolio.customer)?;
                portfolio.accounts().try_for_each(|(key, row)| tx.insert(accounts, key, &row))?;
                portfolio.holdings().try_for_each(|(key, row)| tx.insert(holdings, key, &row))
            })?;
        }
        for security in Self::own(self.brokerage.securities(), place) {
            db.transact(|tx| tx.insert(last_trades, security, &self.brokerage.last_trade(security)))?;
        }
        Ok(())
    }

    fn client(&self, place: Place, number: usize) -> Result<Client, Error> {
        let customers = Self::own(self.brokerage.customers(), place).count() as u32;
        if customers == 0 {
            let instead = "give each node one customer or more, by --customers";
            return Err(Error::Options { option: "--nodes", with: "fewer customers", instead });
        }
        let random = Random::seeded(spread(self.seed, number));
        Ok(Client { random, customers, first: place.node.into(), step: place.nodes.into(), fed: 0 })
    }

    async fn warm<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Worker<'_, F, S>,
        tables: Tables,
        place: Place,
        (number, workers): (usize, usize),
    ) -> Result<(), Error> {
        let others = (0..self.brokerage.securities()).filter(|security| !place.owns((*security).into()));
        look_up(worker, tables.last_trades, others.skip(number).step_by(workers)).await
    }

    async fn run_next<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Runner<'_, '_, F, S>,
        tables: Tables,
        client: &mut Client,
    ) -> Result<Done, Error> {
        let Client { random, customers, first, step, fed } = client;
        let only_feeds = self.only_feeds_after.is_some_and(|after| worker.endpoint().now().nanos() >= after);
        if only_feeds || random.percent(self.feeds) {
            let securities = self.brokerage.securities();
            let from = random.within(0, securities - 1);
            let to = (from + random.within(1, securities - 1)) % securities;
            let part = random.within(1, 10);
            transact(worker, &Feed { tables, securities: [from, to], part: part.into() }).await?;
            *fed += 1;
            return Ok(Done { kind: 1, is_committed: true });
        }
        let customer = *first + *step * random.within(0, *customers - 1);
        black_box(transact(worker, &Look(tables, customer)).await?);
        Ok(Done { kind: 0, is_committed: true })
    }

    fn count(client: Client) -> u64 {
        client.fed
    }

    /// Prices are as much as at first together, and have changed as often as was committed.
    async fn check<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Worker<'_, F, S>,
        tables: Tables,
        fed: &mut u64,
    ) -> Result<Vec<String>, Error> {
        let all = 0..self.brokerage.securities();
        let (mut at_first, mut now, mut changes) = (0, 0, 0);
        let rows = read(worker, tables.last_trades, all.clone()).await?;
        for (security, row) in &rows {
            at_first += self.brokerage.last_trade(*security).price.get();
            now += row.price.get();
            changes += row.volume.get();
        }
        let mut violations = Vec::new();
        if rows.len() != all.len() {
            violations.push(format!("{} prices are there of {}", rows.len(), all.len()));
        }
        if now != at_first {
            violations.push(format!("prices are {now} together where {at_first} is expected"));
        }
        if changes != 2 * *fed {
            violations.push(format!("prices have changed {changes} times where {} is expected", 2 * *fed));
        }
        Ok(violations)
    }

    /// What only is read is as it was, and there is nothing else.
    async fn check_node<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Worker<'_, F, S>,
        tables: Tables,
        node: &Node<F, S>,
        place: Place,
        _fed: &u64,
    ) -> Result<Vec<String>, Error> {
        let (mut violations, mut counts) = (Vec::new(), [0; 3]);
        for customer in Self::own(self.brokerage.customers(), place) {
            let portfolio = self.brokerage.portfolio(customer);
            let accounts: Vec<_> = portfolio.accounts().collect();
            let holdings: Vec<_> = portfolio.holdings().collect();
            counts = [counts[0] + 1, counts[1] + accounts.len() as u64, counts[2] + holdings.len() as u64];
            let of_customer = read(worker, tables.customers, [customer].into_iter()).await?;
            let of_accounts = read(worker, tables.accounts, accounts.iter().map(|(key, _)| *key)).await?;
            let of_holdings = read(worker, tables.holdings, holdings.iter().map(|(key, _)| *key)).await?;
            let is_as_it_was = of_customer == [(customer, portfolio.customer)];
            if !is_as_it_was || of_accounts != accounts || of_holdings != holdings {
                violations.push(format!("customer {customer} or what it has is not as it was"));
            }
        }
        let securities = Self::own(self.brokerage.securities(), place).count() as u64;
        let tables = [CUSTOMER, ACCOUNT, HOLDING].into_iter().zip(counts);
        let counts: Vec<_> = tables.chain([(LAST_TRADE, securities)]).collect();
        violations.extend(miscounted(node.local(), &counts)?);
        Ok(violations)
    }
}
