//! Knowledge about a database kept outside of it, and the check of recovered data against it.
//!
//! Lists are only appended to. So a recovered list shows which transactions each of its
//! transactions depends on, and the journal of each recovered transaction shows which lists it
//! read. The recovered transactions are a prefix of the serialization order under two conditions:
//! every transaction finds what it read, and no list contains more than a lost transaction read.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use drtm_txn::{Config, Db};

use super::ledger::{self, Account, BANK, Count, GROUPS, LISTS, Ledger, OPENING, Seen, digest, ids, note, note_of};
use crate::Error;

/// A fault of the recovered data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// An acknowledged transaction is missing.
    Lost(String),
    /// A transaction is partly present.
    Partial(String),
    /// Anything else.
    Anomaly(String),
}

/// A transaction that committed in memory, or may have.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub(super) id: u64,
    /// When it began, and when its commit returned: `None` if the outcome is unknown.
    pub(super) invoked: u64,
    pub(super) completed: Option<u64>,
    pub(super) seen: Vec<Seen>,
}

/// The transactions of a thread in one life of the database.
#[derive(Debug, Default)]
pub(super) struct Deeds {
    pub(super) made: Vec<Made>,
    /// Transactions that were acknowledged, or read by acknowledged ones.
    pub(super) acknowledged: Vec<u64>,
    pub(super) read: Vec<Seen>,
    /// Transactions that aborted.
    pub(super) refused: Vec<u64>,
}

impl Deeds {
    pub(super) fn add(&mut self, other: Self) {
        let Self { made, acknowledged, read, refused } = other;
        self.made.extend(made);
        self.acknowledged.extend(acknowledged);
        self.read.extend(read);
        self.refused.extend(refused);
    }
}

/// Knowledge about a database.
#[derive(Debug, Default)]
pub(super) struct Book {
    /// Transactions that must survive.
    sure: BTreeSet<u64>,
    /// Transactions that must not reappear.
    gone: HashSet<u64>,
    /// Transactions since the last check.
    open: Deeds,
}

/// All rows of a recovered database.
struct Rows {
    journal: BTreeMap<u64, Vec<Seen>>,
    lists: Vec<Vec<u64>>,
    notes: BTreeMap<String, Vec<u8>>,
    accounts: Vec<(u32, Account)>,
    counts: BTreeMap<u32, Count>,
}

impl Book {
    /// Records the transactions of a life.
    pub(super) fn note(&mut self, deeds: Deeds) {
        self.open.add(deeds);
    }

    /// Records that all transactions are durable.
    pub(super) fn is_closed(&mut self) {
        let made = self.open.made.iter().map(|made| made.id);
        self.open.acknowledged.extend(made);
    }

    /// Checks a recovered database, and learns from it which transactions survived.
    ///
    /// # Errors
    ///
    /// Returns an error if a row cannot be read.
    pub(super) fn check<S: Config>(&mut self, db: &Db<S>, ledger: &Ledger) -> Result<Vec<Finding>, Error> {
        let mut findings = Vec::new();
        let rows = Rows::read(db, ledger, &mut findings)?;
        self.check_presence(&rows, &mut findings);
        rows.check_transactions(&mut findings);
        rows.check_money(&mut findings);
        check_indexes(db, ledger, &rows, &mut findings)?;
        self.check_order(&rows, &mut findings);
        let Deeds { made, refused, .. } = std::mem::take(&mut self.open);
        let lost = made.iter().map(|made| made.id).filter(|id| !rows.journal.contains_key(id));
        self.gone.extend(lost.chain(refused));
        self.sure = rows.journal.into_keys().collect();
        Ok(findings)
    }

    /// Returns the number of transactions that must survive.
    pub(super) fn survivors(&self) -> usize {
        self.sure.len()
    }

    fn check_presence(&self, rows: &Rows, findings: &mut Vec<Finding>) {
        let Deeds { acknowledged, refused, .. } = &self.open;
        for id in acknowledged.iter().chain(&self.sure).filter(|id| !rows.journal.contains_key(id)) {
            findings.push(Finding::Lost(format!("transaction {id:#x} was acknowledged, and is not there")));
        }
        for id in refused.iter().filter(|id| rows.journal.contains_key(id)) {
            findings.push(Finding::Anomaly(format!("transaction {id:#x} was refused, and is there")));
        }
        for id in self.gone.iter().filter(|id| rows.journal.contains_key(id)) {
            findings.push(Finding::Anomaly(format!("transaction {id:#x} was gone, and has come back")));
        }
    }

    /// Checks that no surviving transaction follows a lost one.
    fn check_order(&self, rows: &Rows, findings: &mut Vec<Finding>) {
        for seen in &self.open.read {
            if !rows.contains(seen) {
                findings.push(Finding::Lost(format!("{seen:?} was read by a transaction that was acknowledged")));
            }
        }
        let (survived, lost): (Vec<_>, Vec<_>) =
            self.open.made.iter().partition(|made| rows.journal.contains_key(&made.id));
        for made in &lost {
            for seen in &made.seen {
                if rows.list(seen.list).len() > seen.length as usize {
                    let Made { id, .. } = made;
                    let what = format!("transaction {id:#x} is lost, and what was appended after {seen:?} is not");
                    findings.push(Finding::Anomaly(what));
                }
            }
        }
        let first_lost = lost.iter().filter_map(|made| Some((made.completed?, made.id))).min();
        let last = survived.iter().map(|made| (made.invoked, made.id)).max();
        if let (Some((completed, lost)), Some((invoked, survivor))) = (first_lost, last)
            && completed < invoked
        {
            let what = format!("transaction {lost:#x} is lost, and {survivor:#x}, which began later, is not");
            findings.push(Finding::Anomaly(what));
        }
    }
}

impl Rows {
    fn read<S: Config>(db: &Db<S>, ledger: &Ledger, findings: &mut Vec<Finding>) -> Result<Self, Error> {
        let (journal, lists, notes, accounts, counts) = db.read(|tx| {
            let journal: Vec<(u64, Vec<u8>)> = tx.range(ledger.journal, ..)?.rows().collect::<Result<_, _>>()?;
            let lists = (0..LISTS).map(|list| Ok(tx.get(ledger.lists, list)?.unwrap_or_default()));
            let lists: Vec<Vec<u8>> = lists.collect::<Result<_, drtm_txn::Error>>()?;
            let notes = tx.range(ledger.notes, ..)?.rows().collect::<Result<_, _>>()?;
            let mut accounts = Vec::new();
            for number in 0..BANK {
                accounts.extend(tx.get(ledger.accounts, number)?.map(|row| (number, row)));
            }
            let mut counts = BTreeMap::new();
            for thread in 0..=u32::from(u8::MAX) {
                counts.extend(tx.get(ledger.counts, thread)?.map(|row| (thread, row)));
            }
            Ok((journal, lists, notes, accounts, counts))
        })?;
        let mut rows = Self {
            journal: BTreeMap::new(),
            lists: lists.iter().map(|list| ids(list)).collect(),
            notes,
            accounts,
            counts,
        };
        for (id, row) in journal {
            match Seen::decode_all(&row) {
                Some(seen) => drop(rows.journal.insert(id, seen)),
                None => findings.push(Finding::Partial(format!("the journal's row of {id:#x} is torn"))),
            }
        }
        Ok(rows)
    }

    fn list(&self, list: u32) -> &[u64] {
        self.lists.get(list as usize).map_or(&[], Vec::as_slice)
    }

    /// Returns whether a list still begins with what was read of it.
    fn contains(&self, seen: &Seen) -> bool {
        self.list(seen.list).get(..seen.length as usize).is_some_and(|list| digest(list) == seen.digest)
    }

    /// Checks that each transaction is complete, and so is everything that it depends on.
    fn check_transactions(&self, findings: &mut Vec<Finding>) {
        let mut places = HashMap::new();
        for (number, list) in (0..).zip(&self.lists) {
            for (place, id) in (0_u32..).zip(list) {
                if places.insert((number, *id), place).is_some() {
                    findings.push(Finding::Anomaly(format!("transaction {id:#x} is twice in list {number}")));
                }
            }
            let found = self.notes.get(&note_of(number)).map(Vec::as_slice);
            let expected = list.last().and_then(|last| note(*last));
            if found != expected.as_ref().map(<[u8; 8]>::as_slice) {
                let what = format!("the note of list {number} is {found:?}, after {:?}", list.last());
                findings.push(Finding::Partial(what));
            }
        }
        for (id, all) in &self.journal {
            for seen in all {
                if !self.contains(seen) {
                    findings.push(Finding::Anomaly(format!("transaction {id:#x} saw {seen:?}, which is lost")));
                }
                if seen.appended && places.remove(&(seen.list, *id)) != Some(seen.length) {
                    let what = format!("transaction {id:#x} is not in list {} where it should be", seen.list);
                    findings.push(Finding::Partial(what));
                }
            }
        }
        for (list, id) in places.keys() {
            findings.push(Finding::Partial(format!("transaction {id:#x} is in list {list}, and not in the journal")));
        }
        let mut made: BTreeMap<u32, u64> = BTreeMap::new();
        self.journal.keys().for_each(|id| *made.entry(ledger::thread_of(*id)).or_default() += 1);
        let found: BTreeMap<u32, u64> = self.counts.iter().map(|(thread, count)| (*thread, count.made)).collect();
        if made != found || self.counts.iter().any(|(thread, count)| count.thread != u64::from(*thread)) {
            findings.push(Finding::Partial(format!("threads have counted {found:?}, and made {made:?}")));
        }
    }

    fn check_money(&self, findings: &mut Vec<Finding>) {
        if self.accounts.is_empty() && self.journal.is_empty() {
            return;
        }
        let money: i64 = self.accounts.iter().map(|(_, row)| row.balance).sum();
        if self.accounts.len() != BANK as usize || money != OPENING * i64::from(BANK) {
            let accounts = self.accounts.len();
            findings.push(Finding::Partial(format!("{accounts} accounts hold {money}")));
        }
        for (account, row) in self.accounts.iter().filter(|(_, row)| row.last >= u64::from(BANK)) {
            if !self.journal.contains_key(&(row.last / 2)) {
                let id = row.last / 2;
                findings
                    .push(Finding::Partial(format!("account {account} was changed by {id:#x}, which is not there")));
            }
        }
    }
}

/// Checks that both indexes have exactly the entries of the accounts.
fn check_indexes<S: Config>(
    db: &Db<S>,
    ledger: &Ledger,
    rows: &Rows,
    findings: &mut Vec<Finding>,
) -> Result<(), Error> {
    let (by_last, by_group) = db.read(|tx| {
        let by_last: Vec<Option<u32>> = rows
            .accounts
            .iter()
            .map(|(_, row)| tx.get(ledger.by_last.keys(), row.last))
            .collect::<Result<_, drtm_txn::Error>>()?;
        let groups = (0..GROUPS).map(|group| tx.range(ledger.by_group, group..=group)?.count());
        let groups = groups.collect::<Result<Vec<u64>, drtm_txn::Error>>()?;
        Ok(((by_last, tx.range(ledger.by_last, ..)?.count()?), (groups, tx.range(ledger.by_group, ..)?.count()?)))
    })?;
    let all = rows.accounts.len();
    let is_found = |((number, _), found): (&(u32, Account), &Option<u32>)| Some(*number) == *found;
    if !rows.accounts.iter().zip(&by_last.0).all(is_found) || by_last.1 as usize != all {
        findings.push(Finding::Anomaly(format!("the unique index has {by_last:?} for {:?}", rows.accounts)));
    }
    let in_group = |group| rows.accounts.iter().filter(|(_, row)| row.last % GROUPS == group).count();
    let is_right = by_group.0.iter().zip(0..).all(|(found, group)| *found as usize == in_group(group));
    if !is_right || by_group.1 as usize != all {
        findings.push(Finding::Anomaly(format!("the index of groups has {by_group:?} for {:?}", rows.accounts)));
    }
    Ok(())
}
