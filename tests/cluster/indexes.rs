//! Indexes whose entries are on other nodes than their rows: what is found by them is what is in
//! the table, at every moment and whatever the fabric does, and no two rows have one unique entry.

use std::{
    cell::Cell,
    collections::BTreeMap,
    panic::catch_unwind,
    sync::{Arc, Mutex},
};

use drtm_history::{Anomaly, History, Log, Order, Recording, check};
use drtm_htm::NoHtm;
use drtm_rdma::{Fabric, LocalConfig, LocalFabric, block_on};
use drtm_testing::rounds;
use drtm_txn::{
    Error, Mutation, Transaction as _,
    cluster::{ClusterError, ClusterTx, Protocol, Worker},
};
use fastrand::Rng;

use crate::{
    bed::{Bed, Script, Setup, Size, Tables, Tested, node},
    directory::Person,
    drops::polled,
};

/// The tables of histories: people by number, by nick, and by group and number.
const PEOPLE: u32 = 10;
const NICKS: u32 = 11;
const GROUPS: u32 = 12;

const GROUPS_OF: u64 = 3;
const MOST_PEOPLE: u64 = 1 << 20;

/// Under which key a history has a person of a group.
fn in_group(group: u64, number: u64) -> u64 {
    group * MOST_PEOPLE + number
}

#[derive(Clone)]
pub(crate) struct Random {
    pub(crate) people: u64,
    pub(crate) transactions: u64,
    pub(crate) seed: u64,
    pub(crate) logs: Arc<Mutex<Vec<Option<Log<u64>>>>>,
}

/// What a transaction has written of people: as they were, and as they are for it.
pub(crate) type Own = BTreeMap<u64, (Option<Person>, Option<Person>)>;

/// Whether any of these has, or had, something.
fn has(own: &Own, is: impl Fn(&Person) -> bool) -> bool {
    own.values().flat_map(|(was, is)| [was, is]).flatten().any(is)
}

impl Random {
    /// Looks for a person, and notes what was seen unless it is the transaction's own.
    async fn read<F: Fabric<Engine = NoHtm>>(
        tx: &mut ClusterTx<'_, F, Tested>,
        tables: Tables,
        number: u64,
        recording: &mut Recording<'_, u64>,
        own: &Own,
    ) -> Result<Option<Person>, Error> {
        let seen = tx.get(tables.directory.people, number).await?;
        match own.get(&number) {
            Some((_, is)) => assert_eq!(*is, seen, "a transaction sees what it has written"),
            None => recording.read(PEOPLE, number, seen.map(|person| person.stamp)),
        }
        Ok(seen)
    }

    /// The same by nick.
    async fn read_nick<F: Fabric<Engine = NoHtm>>(
        tx: &mut ClusterTx<'_, F, Tested>,
        tables: Tables,
        nick: u64,
        (recording, is_torn): (&mut Recording<'_, u64>, &mut bool),
        own: &Own,
    ) -> Result<Option<u64>, Error> {
        let seen = tx.get(tables.directory.by_nick, nick).await?;
        if has(own, |person| person.nick == nick) {
            let expected = own.iter().find(|(_, (_, is))| is.is_some_and(|person| person.nick == nick));
            // Another can have one's own nick if the own row was written as it had been.
            *is_torn |= seen.map(|(number, _)| number) != expected.map(|(number, _)| *number);
        } else {
            recording.read(NICKS, nick, seen.map(|(_, person)| person.stamp));
        }
        Ok(seen.map(|(number, _)| number))
    }

    pub(crate) async fn step<F: Fabric<Engine = NoHtm>>(
        &self,
        tx: &mut ClusterTx<'_, F, Tested>,
        tables: Tables,
        random: &mut Rng,
        // Whether it has seen what never was at one moment, so that it must not commit.
        (recording, is_torn): (&mut Recording<'_, u64>, &mut bool),
        own: &mut Own,
    ) -> Result<(), Error> {
        let people = tables.directory.people;
        let number = random.u64(0..self.people);
        // Half as many as people, so that they want each other's.
        let (nick, group) = (random.u64(0..=self.people.div_ceil(2)), random.u64(0..GROUPS_OF));
        match random.u8(0..10) {
            0..2 => return Self::read(tx, tables, number, recording, own).await.map(drop),
            2 => return Self::read_nick(tx, tables, nick.max(1), (recording, is_torn), own).await.map(drop),
            3..5 => {
                let end = group + random.u64(1..3);
                let rows = tx.range(tables.directory.by_group, group..end).await?;
                if !has(own, |person| (group..end).contains(&person.group)) {
                    let rows =
                        rows.into_iter().map(|(group, (number, person))| (in_group(group, number), person.stamp));
                    recording.scan(GROUPS, in_group(group, 0)..in_group(end, 0), rows);
                }
                return Ok(());
            }
            _ => {}
        }
        let was = Self::read(tx, tables, number, recording, own).await?;
        if random.u8(0..4) == 0 {
            assert_eq!(tx.remove(people, number).await?.is_some(), was.is_some());
            own.entry(number).or_insert((was, None)).1 = None;
            return Ok(());
        }
        let holder = match nick {
            0 => None,
            nick => Self::read_nick(tx, tables, nick, (recording, is_torn), own).await?,
        };
        let next = Person { nick, group, stamp: recording.version(), balance: 0 };
        let written = match (was, random.bool()) {
            (None, _) => tx.insert(people, number, next).await,
            (Some(_), true) => tx.put(people, number, next).await,
            (Some(_), false) => tx.update(people, number, |person| *person = next).await.map(drop),
        };
        match (written, holder) {
            (Ok(()), holder) => {
                // It had the nick, and had lost it when another was seen to have it.
                *is_torn |= holder.is_some_and(|holder| holder != number);
                own.entry(number).or_insert((was, None)).1 = Some(next);
            }
            (Err(Error::Duplicate { index: "people by nick" }), Some(holder)) => {
                // It goes on as if it had not tried.
                *is_torn |= holder == number;
                Self::read(tx, tables, number, recording, own).await?;
            }
            (Err(error), _) => return Err(error),
        }
        Ok(())
    }

    /// Notes what has become of the people, and of what they are found by. Who has read a person
    /// knows what that is found by, and by what it is not.
    pub(crate) fn note(recording: &mut Recording<'_, u64>, own: Own) {
        let mut changes: BTreeMap<(u32, u64), (Option<u64>, Option<u64>)> = BTreeMap::new();
        let places = |number, person: Person| {
            let nick = (person.nick != 0).then_some((NICKS, person.nick));
            [Some((PEOPLE, number)), nick, Some((GROUPS, in_group(person.group, number)))].into_iter().flatten()
        };
        for (number, (was, _)) in &own {
            if let Some(person) = was {
                places(*number, *person).for_each(|place| changes.entry(place).or_default().0 = Some(person.stamp));
            }
        }
        for (number, (_, is)) in &own {
            if let Some(person) = is {
                places(*number, *person).for_each(|place| changes.entry(place).or_default().1 = Some(person.stamp));
            }
        }
        for ((table, key), (was, is)) in changes {
            recording.read(table, key, was);
            match (was, is) {
                (_, Some(version)) => recording.write(table, key, version),
                (Some(_), None) => {
                    let version = recording.version();
                    recording.remove(table, key, version);
                }
                (None, None) => {}
            }
        }
    }
}

impl Script for Random {
    async fn run<'e, F: Fabric<Engine = NoHtm>>(self, worker: Worker<'e, F, Tested>, tables: Tables, number: u64) {
        let mut log = self.logs.lock().expect("no thread panics")[number as usize].take().expect("one for each");
        let mut random = Rng::with_seed(self.seed << 16 | number);
        for _ in 0..self.transactions {
            let (mut recording, is_given_up) = (log.begin(), random.u8(0..10) == 0);
            let steps = random.u8(1..4);
            let mut is_torn = false;
            let ended = worker.transact(async |tx| {
                recording.retry();
                is_torn = false;
                let mut own = Own::new();
                for _ in 0..steps {
                    self.step(tx, tables, &mut random, (&mut recording, &mut is_torn), &mut own).await?;
                }
                Self::note(&mut recording, own);
                if is_given_up { Err(Error::aborted("it was to be")) } else { Ok(()) }
            });
            match ended.await {
                Ok(()) => {
                    assert!(!is_torn, "two had one nick");
                    recording.commit();
                }
                Err(Error::Aborted { .. }) => recording.abort(),
                Err(error) => panic!("{error}"),
            }
        }
        agree(&worker, tables, self.people).await;
        self.logs.lock().expect("no thread panics")[number as usize] = Some(log);
    }
}

/// Checks that table and indexes have the same people, at one moment.
pub(crate) async fn agree<F: Fabric<Engine = NoHtm>>(worker: &Worker<'_, F, Tested>, tables: Tables, people: u64) {
    let directory = tables.directory;
    let seen = worker.transact(async |tx| {
        let all = tx.get_many(directory.people, 0..people).await?;
        Ok((all, tx.range(directory.by_nick, ..).await?, tx.range(directory.by_group, ..).await?))
    });
    let (all, by_nick, by_group) = seen.await.expect("all nodes are here");
    let all = (0..people).zip(all).filter_map(|(number, person)| Some((number, person?)));
    let (mut nicks, mut groups) = (Vec::new(), Vec::new());
    for (number, person) in all {
        nicks.extend((person.nick != 0).then_some((person.nick, (number, person))));
        groups.push((person.group, (number, person)));
    }
    nicks.sort_unstable_by_key(|(nick, _)| *nick);
    groups.sort_unstable_by_key(|(group, (number, _))| (*group, *number));
    assert_eq!((nicks, groups), (by_nick, by_group));
}

/// Runs random transactions, and gives what was wrong with them.
fn anomalies(bed: &Bed, size: Size, people: u64, transactions: u64, seed: u64) -> Vec<Anomaly<u64>> {
    let mut recorder = bed.recorder();
    let coroutines = size.coroutines * u64::from(size.nodes);
    let logs: Vec<_> = (0..coroutines).map(|_| Some(recorder.log().expect("a few logs"))).collect();
    let logs = Arc::new(Mutex::new(logs));
    bed.run(size, &Random { people, transactions, seed, logs: Arc::clone(&logs) });
    let logs = std::mem::take(&mut *logs.lock().expect("no thread panics"));
    let history = History::of(logs.into_iter().flatten()).with_insertions_in_order();
    assert!(history.transactions.len() as u64 >= coroutines * transactions);
    check(&history, Order::RealTime).expect("a history")
}

const SIZE: Size = Size { nodes: 3, owners: 3, coroutines: 3, protocol: Protocol::FASST };

fn check_all(bed: impl Fn(u64) -> Bed, seeds: u64) {
    for protocol in [Protocol::FASST, Protocol::DRTM_H, Protocol::HADES, Protocol::HADES_H] {
        for seed in 0..rounds(seeds) {
            let size = Size { protocol, owners: [3, 1][seed as usize % 2], ..SIZE };
            let anomalies = anomalies(&bed(seed), size, [3, 8, 24][seed as usize % 3], 12, seed);
            let told: Vec<String> = anomalies.iter().map(ToString::to_string).collect();
            assert!(told.is_empty(), "seed {seed}, {size:?}:\n{}", told.join("\n"));
        }
    }
}

#[test]
fn agree_with_rows_on_a_harsh_fabric() {
    check_all(Bed::harsh, 2);
}

#[test]
fn agree_with_rows_on_a_harsh_fabric_with_atomic_swaps() {
    check_all(Bed::harsh_and_atomic, 2);
}

#[test]
fn agree_with_rows_on_simulated_clusters() {
    check_all(Bed::simulated, 2);
    check_all(Bed::atomic, 3);
}

#[test]
fn agree_with_rows_on_simulated_clusters_that_lose_messages() {
    check_all(Bed::rough, 3);
}

#[test]
fn entries_that_stay_behind_are_found() {
    let found = (0..rounds(20)).any(|seed| {
        let faulty = Setup::faulty(Mutation::EntriesLeftByClusters);
        let run = || faulty.run(|| anomalies(&Bed::atomic(seed), SIZE, 4, 12, seed));
        catch_unwind(run).map_or(true, |all| !all.is_empty())
    });
    assert!(found, "nothing is wrong with entries that stay behind");
}

/// One nick, which all want.
#[derive(Clone)]
struct Rivals {
    /// The numbers of people that have got it.
    winners: Arc<Mutex<Vec<u64>>>,
}

impl Script for Rivals {
    async fn run<'e, F: Fabric<Engine = NoHtm>>(self, worker: Worker<'e, F, Tested>, tables: Tables, number: u64) {
        let people = tables.directory.people;
        let person = Person { nick: 7, group: 1, stamp: 0, balance: 0 };
        match worker.transact(async |tx| tx.insert(people, number, person).await).await {
            Ok(()) => self.winners.lock().expect("no thread panics").push(number),
            Err(Error::Duplicate { index: "people by nick" }) => {
                // The one that has it has committed.
                let holder = worker.transact(async |tx| tx.get(tables.directory.by_nick.keys(), 7).await);
                let holder = holder.await.expect("all nodes are here").expect("somebody has it");
                assert_ne!(holder, number);
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn of_many_that_want_one_unique_entry_one_gets_it() {
    for protocol in [Protocol::FASST, Protocol::DRTM_H, Protocol::HADES, Protocol::HADES_H] {
        for bed in [Bed::perfect(), Bed::harsh(1), Bed::harsh_and_atomic(2), Bed::atomic(3), Bed::rough(4)] {
            let rivals = Rivals { winners: Arc::default() };
            bed.run(Size { protocol, coroutines: 6, ..SIZE }, &rivals);
            let winners = rivals.winners.lock().expect("no thread panics");
            assert_eq!(winners.len(), 1, "{}: {winners:?}", protocol.name);
        }
    }
}

/// Changes what a person is found by, and drops that at each of its awaits.
#[derive(Clone)]
struct Drops;

impl Script for Drops {
    async fn run<'e, F: Fabric<Engine = NoHtm>>(self, worker: Worker<'e, F, Tested>, tables: Tables, number: u64) {
        if number > 0 {
            return;
        }
        let (people, next) = (tables.directory.people, Cell::new(2));
        let person = |nick: u64| Person { nick, group: nick % GROUPS_OF, stamp: nick, balance: 0 };
        // One that changes, one that comes, and one that goes.
        let change = async |nick: u64, polls: Option<u32>| {
            let changed = worker.transact(async |tx| {
                tx.put(people, 1, person(nick)).await?;
                tx.insert(people, 1_000 + nick, person(1_000_000 + nick)).await?;
                tx.remove(people, 1_000 + nick - 1).await.map(|person| person.is_some())
            });
            match polls {
                Some(polls) => polled(changed, polls).await.is_some(),
                None => {
                    changed.await.expect("all nodes are here");
                    true
                }
            }
        };
        let begun = worker.transact(async |tx| {
            tx.put(people, 1, person(1)).await?;
            tx.put(people, 1_001, person(1_000_001)).await
        });
        begun.await.expect("room");
        for polls in 1.. {
            let (nick, has_ended) = (next.get(), change(next.get(), Some(polls)).await);
            worker.settle().await;
            let seen = worker.transact(async |tx| {
                let directory = tables.directory;
                let by_nick = tx.range(directory.by_nick, ..).await?;
                Ok((tx.get(people, 1).await?, by_nick, tx.range(directory.by_group.keys(), ..).await?))
            });
            let (row, by_nick, mut by_group) = seen.await.expect("all nodes are here");
            let is_done = row == Some(person(nick));
            let now = if is_done { nick } else { nick - 1 };
            let expected = [(1, person(now)), (1_000 + now, person(1_000_000 + now))];
            assert_eq!(by_nick, expected.map(|(number, person)| (person.nick, (number, person))), "{polls} polls");
            let mut groups = expected.map(|(number, person)| (person.group, number));
            groups.sort_unstable();
            by_group.sort_unstable();
            assert_eq!(by_group, groups, "after {polls} polls");
            assert!(is_done || !has_ended, "it has committed");
            // Whatever it had locked is free.
            next.set(now + 1);
            change(next.get(), None).await;
            next.set(next.get() + 1);
            if has_ended {
                break;
            }
        }
    }
}

#[test]
fn a_dropped_transaction_changes_a_row_and_its_entries_or_neither() {
    let size = Size { coroutines: 1, ..SIZE };
    for protocol in [Protocol::FASST, Protocol::DRTM_H, Protocol::HADES, Protocol::HADES_H] {
        for bed in [Bed::perfect(), Bed::harsh(1), Bed::atomic(1), Bed::rough(1), Bed::rough(2)] {
            bed.run(Size { protocol, ..size }, &Drops);
        }
    }
}

#[test]
fn rows_with_entries_are_fetched_to_be_read_only() {
    let fabric = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect());
    let (node, tables) = node(&fabric, 0, 1, Protocol::DRTM);
    let endpoint = node.endpoint().expect("room");
    let worker = node.worker(&endpoint).expect("few workers");
    let people = tables.directory.people;
    let is_refused =
        |ended: Result<bool, Error>| matches!(ended, Err(Error::Cluster(ClusterError::Indexed { table: "people" })));
    let declared = worker.transact_on(|sets| sets.write(people, 1), async |_| Ok(true));
    assert!(is_refused(block_on(&endpoint, declared)));
    let removed = worker.transact_on(|_| Ok(()), async |rows| Ok(rows.remove(people, 1).await?.is_some()));
    assert!(is_refused(block_on(&endpoint, removed)));
    let read = worker.transact_on(|sets| sets.read(people, 1), async |rows| rows.contains(people, 1).await);
    assert!(!block_on(&endpoint, read).expect("it is its own node"));
}
