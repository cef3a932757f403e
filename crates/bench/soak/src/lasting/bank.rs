//! A bank on nodes that may end. Money is moved between accounts, so that the sum stays. Each
//! client counts its transfers in a row of its own, so that lost ones are noticed.

use std::{sync::Arc, time::Duration};

use drtm_drive::{Error, expect_row};
use drtm_htm::NoHtm;
use drtm_membership::Membership;
use drtm_rdma::{Fabric, NodeId};
use drtm_txn::{
    Builder, Config, Error as DbError, Options, Raw, Table, TableDef, Transaction,
    cluster::{Node, Partition, Protocol, Timing, View, Worker},
};
use fastrand::Rng;

/// What each account has in the beginning.
pub const BALANCE: u64 = 1_000;

const ACCOUNTS: TableDef<u64, Raw> = TableDef::hash("accounts");
const MARKS: TableDef<u64, Raw> = TableDef::hash("marks");

/// Threads of a busy machine answer late, and then the time is less certain than it usually is.
const UNCERTAIN: Duration = Duration::from_secs(10);

/// Accounts that one transaction opens.
const AT_ONCE: u64 = 50;

/// A cluster of nodes that may end.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Nodes that own rows: those with the first numbers.
    pub owners: u16,
    /// Nodes that only run transactions.
    pub clients: u16,
    /// Backups of each owner.
    pub backups: u16,
    /// The commit protocol.
    pub protocol: Protocol,
    /// How long a node may be silent.
    pub lease: Duration,
    /// Accounts of all owners.
    pub accounts: u64,
}

/// The handles of a bank's tables.
#[derive(Clone, Copy, Debug)]
pub struct Bank {
    accounts: Table<u64, Raw>,
    marks: Table<u64, Raw>,
    count: u64,
}

/// What a transaction has read and written, for histories. The unit notes nothing.
pub trait Notes {
    /// Notes that the transaction runs again.
    fn retry(&mut self) {}

    /// Notes that an account was read. `None`: it was not there.
    fn read(&mut self, _account: u64, _version: Option<u64>) {}

    /// Notes that an account is written, and returns the version to write.
    fn write(&mut self, _account: u64) -> u64 {
        0
    }
}

impl Notes for () {}

/// A transfer between two accounts, which a client has counted.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    from: u64,
    to: u64,
    amount: u64,
    client: u64,
    count: u64,
}

/// The balance of an account, and the version of its last write.
struct Account {
    balance: u64,
    version: u64,
}

impl Account {
    fn of(row: Option<Vec<u8>>) -> Result<Self, DbError> {
        let row = expect_row(row, "accounts")?;
        let word = |at: usize| row.get(at..at + 8).and_then(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?)));
        match (word(0), word(8)) {
            (Some(balance), Some(version)) => Ok(Self { balance, version }),
            _ => Err(DbError::Missing { table: "accounts" }),
        }
    }

    fn bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.balance.to_le_bytes());
        bytes[8..].copy_from_slice(&self.version.to_le_bytes());
        bytes
    }
}

impl Shape {
    /// Returns how many nodes there are.
    pub fn nodes(&self) -> u16 {
        self.owners + self.clients
    }

    /// Starts a node. Returns it with the bank's tables.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no memory, or the shape is impossible.
    pub fn start<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        fabric: &F,
        node: NodeId,
        membership: Arc<dyn Membership>,
    ) -> Result<(Node<F, S>, Bank), Error> {
        let timing = Timing { most: UNCERTAIN, ..Timing::default() };
        let memory = Builder::new().memory((32 << 20) + (self.accounts << 11));
        let builder = Node::<F, S>::builder_for(NoHtm, fabric, node, memory, self.protocol)?.timing(timing);
        let builder = builder.owners((0..self.owners).map(NodeId))?.backups(self.backups.into())?;
        let mut builder = builder.membership(membership).lease(self.lease);
        let bank = Bank {
            accounts: builder.table(ACCOUNTS, Partition::by("its number", |account| *account))?,
            marks: builder.table(MARKS, Partition::by("its number", |client| *client))?,
            count: self.accounts,
        };
        Ok((builder.start()?, bank))
    }

    /// Returns the node that owns an account where all owners are members.
    pub fn home(&self, account: u64) -> u16 {
        (account % u64::from(self.owners)) as u16
    }

    /// Returns whether each shard has as many replicas as there can be, and is where it is to be if
    /// all owners are members.
    pub fn is_whole(&self, view: &View) -> bool {
        let members = view.members().len();
        let replicas = members.min(usize::from(self.backups) + 1);
        view.placements().iter().zip(0..).all(|(at, shard)| {
            let is_home = members < usize::from(self.owners) || at.primary.0 == self.home(shard);
            is_home && at.backups.len() + 1 == replicas && at.learners.is_empty()
        })
    }
}

impl Transfer {
    /// Draws the transfer that is a client's with this count.
    pub fn draw(shape: &Shape, random: &mut Rng, client: u64, count: u64) -> Self {
        let from = random.u64(0..shape.accounts);
        let to = (from + random.u64(1..shape.accounts)) % shape.accounts;
        Self { from, to, amount: random.u64(1..10), client, count }
    }

    /// Returns the nodes that own its accounts where all owners are members.
    pub fn homes(&self, shape: &Shape) -> [u16; 2] {
        [self.from, self.to].map(|account| shape.home(account))
    }
}

impl Bank {
    /// Returns the first account of each part that [`open`](Self::open) opens. The last one has the
    /// account that says that all are open.
    pub fn parts(self) -> impl Iterator<Item = u64> {
        (0..self.count.div_ceil(AT_ONCE)).rev().map(|part| part * AT_ONCE)
    }

    /// Opens a part of the accounts, in one transaction. What was opened before stays.
    ///
    /// # Errors
    ///
    /// Returns an error if an owner cannot be reached, or has no memory.
    pub async fn open<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        self,
        worker: &Worker<'_, F, S>,
        first: u64,
        notes: &mut impl Notes,
    ) -> Result<(), DbError> {
        let opened = worker.transact(async |tx| {
            notes.retry();
            for account in first..self.count.min(first + AT_ONCE) {
                if let Some(row) = tx.get(self.accounts, account).await? {
                    notes.read(account, Some(Account::of(Some(row))?.version));
                    continue;
                }
                notes.read(account, None);
                let opened = Account { balance: BALANCE, version: notes.write(account) };
                tx.put(self.accounts, account, &opened.bytes()[..]).await?;
            }
            Ok(())
        });
        opened.await
    }

    /// Returns whether all accounts are open.
    ///
    /// # Errors
    ///
    /// Returns an error if the first owner cannot be reached.
    pub async fn is_open<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        self,
        worker: &Worker<'_, F, S>,
    ) -> Result<bool, DbError> {
        Ok(worker.transact(async |tx| tx.get(self.accounts, 0).await).await?.is_some())
    }

    /// Moves money. With a protocol that has leases, three of four fetch their rows first.
    ///
    /// # Errors
    ///
    /// Returns the error of the transaction.
    pub async fn transfer<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        self,
        worker: &Worker<'_, F, S>,
        options: Options,
        moved: Transfer,
        notes: &mut impl Notes,
    ) -> Result<(), DbError> {
        if worker.protocol().leases && !moved.count.is_multiple_of(4) {
            let fetched = worker.transact_on(
                |sets| {
                    sets.write(self.accounts, moved.from)?;
                    sets.write(self.accounts, moved.to)?;
                    sets.write(self.marks, moved.client)
                },
                async |tx| self.run(tx, moved, notes).await,
            );
            return fetched.await;
        }
        worker.transact_with(options, async |tx| self.run(tx, moved, notes).await).await
    }

    async fn run(self, tx: &mut impl Transaction, moved: Transfer, notes: &mut impl Notes) -> Result<(), DbError> {
        notes.retry();
        let [from, to] = [moved.from, moved.to];
        let mut rows = tx.get_many(self.accounts, [from, to]).await?.into_iter();
        for (account, by) in [(from, moved.amount.wrapping_neg()), (to, moved.amount)] {
            let Account { balance, version } = Account::of(rows.next().flatten())?;
            notes.read(account, Some(version));
            let after = Account { balance: balance.wrapping_add(by), version: notes.write(account) };
            tx.put(self.accounts, account, &after.bytes()[..]).await?;
        }
        tx.put(self.marks, moved.client, &moved.count.to_le_bytes()[..]).await
    }

    /// Reads all accounts in one transaction, and returns their sum.
    ///
    /// # Errors
    ///
    /// Returns the error of the transaction.
    pub async fn sum<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        self,
        worker: &Worker<'_, F, S>,
        options: Options,
        notes: &mut impl Notes,
    ) -> Result<u64, DbError> {
        let read = worker.transact_with(options, async |tx| {
            notes.retry();
            let mut sum = 0_u64;
            for (account, row) in (0..).zip(tx.get_many(self.accounts, 0..self.count).await?) {
                let Account { balance, version } = Account::of(row)?;
                notes.read(account, Some(version));
                sum = sum.wrapping_add(balance);
            }
            Ok(sum)
        });
        read.await
    }

    /// Returns the sum that there is to be.
    pub fn expected(self) -> u64 {
        self.count * BALANCE
    }

    /// Returns how many transfers of each client there are.
    ///
    /// # Errors
    ///
    /// Returns the error of a transaction.
    pub async fn marks<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        self,
        worker: &Worker<'_, F, S>,
        options: Options,
        clients: u64,
    ) -> Result<Vec<u64>, DbError> {
        let mut marks = Vec::new();
        for client in 0..clients {
            let mark = worker.transact_with(options, async |tx| tx.get(self.marks, client).await).await?;
            let bytes = mark.and_then(|bytes| bytes.try_into().ok());
            marks.push(bytes.map_or(0, u64::from_le_bytes));
        }
        Ok(marks)
    }

    /// Writes each account and mark again as it is. Returns those that cannot be written: a lock is
    /// held. Nothing else may run.
    pub async fn locked<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        self,
        worker: &Worker<'_, F, S>,
        options: Options,
        clients: u64,
    ) -> Vec<String> {
        let mut locked = Vec::new();
        let rows = [(self.accounts, self.count, "account"), (self.marks, clients, "mark")];
        for (table, count, what) in rows {
            for key in 0..count {
                let written = worker.transact_with(options, async |tx| match tx.get(table, key).await? {
                    Some(row) => tx.put(table, key, &row[..]).await,
                    // A lock may be left where a row was to be.
                    None => tx.put(table, key, &0_u64.to_le_bytes()[..]).await,
                });
                if let Err(error) = written.await {
                    locked.push(format!("{what} {key} cannot be written: {error}"));
                }
            }
        }
        locked
    }
}
