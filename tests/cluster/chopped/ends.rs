//! What ends a chopped transaction otherwise: errors, aborts, restarts, and programs that clusters
//! refuse.

use std::time::Duration;

use drtm::chopping::{Options, Piece, Transaction};
use drtm_htm::NoHtm;
use drtm_rdma::{Executor, LocalConfig, LocalFabric, NodeId, Phase, block_on};
use drtm_txn::{
    ChoppedError, Error, Mutation, Pod, TableDef, Transaction as _,
    chopped::Abort,
    cluster::{Cluster, Partition, Protocol, chopped::Procedures},
};

use super::{
    Chopped,
    drops::{COUNT, counting, open, sums},
};
use crate::{
    bed::{Rings, Setup, Tables, backed_up, disks},
    drawn::DESCRIBED,
    drops::polled,
};

const PROTOCOL: Protocol = Protocol::FASST;
const CHOPS: Rings = Rings { chops: true, ..Rings::NONE };

/// Returns why a program or a transaction was refused.
fn refused<T>(ended: Result<T, Error>) -> ChoppedError {
    match ended {
        Err(Error::Chopped(why)) => *why,
        Err(why) => panic!("{why}"),
        Ok(_) => panic!("it is not refused"),
    }
}

/// Runs it on the only node of a cluster.
fn on_one_node<T>(
    run: impl AsyncFnOnce(&drtm_txn::cluster::Worker<'_, LocalFabric<NoHtm>, crate::bed::Tested>, Chopped) -> T,
) -> T {
    let fabric = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect());
    let (node, Tables { chopped, .. }) = backed_up(&fabric, 0, 1, PROTOCOL, CHOPS);
    let endpoint = node.endpoint().expect("one");
    let worker = node.worker(&endpoint).expect("one");
    block_on(&endpoint, run(&worker, chopped.expect("there are some")))
}

/// A node restarts with its disk, and finishes what its former life has begun.
#[test]
fn a_coordinator_that_restarts_finishes_what_it_has_begun() {
    for polls in 1..60 {
        let fabric = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect());
        let disks = disks(1);
        let rings = Rings { disks, ..CHOPS };
        let (node, tables) = backed_up(&fabric, 0, 1, PROTOCOL, rings);
        let chopped = tables.chopped.expect("there are some");
        let has_ended = {
            let endpoint = node.endpoint().expect("room");
            let mut executor = Executor::new(&endpoint).patience(Duration::from_secs(20));
            let worker = node.worker(&endpoint).expect("few");
            worker.serve(&executor.spawner());
            let ended = std::rc::Rc::new(std::cell::Cell::new(false));
            let has_ended = std::rc::Rc::clone(&ended);
            executor.spawn(async move {
                let (count, _program) = counting(&worker, chopped).expect("it is sound");
                open(&worker, chopped, 1).await.expect("room");
                has_ended.set(polled(count.run_on(&worker, (1, 10)), polls).await.is_some());
                worker.settle().await;
                // Another commit is durable only after all earlier ones.
                open(&worker, chopped, 2).await.expect("room");
            });
            executor.run();
            ended.get()
        };
        fabric.kill(NodeId(0)).expect("it is here");
        drop(node);
        fabric.revive(NodeId(0)).expect("it is gone");
        let image = disks[0].after_crash(&mut |choices| choices - 1);
        let (node, tables) = backed_up(&fabric, 0, 1, PROTOCOL, Rings { disks: Vec::leak(vec![image]), ..CHOPS });
        let chopped = tables.chopped.expect("there are some");
        let endpoint = node.endpoint().expect("room");
        let worker = node.worker(&endpoint).expect("few");
        block_on(&endpoint, async {
            let (_, program) = counting(&worker, chopped).expect("it is sound");
            let before = sums(&worker, chopped, 1).await.expect("it is here");
            let done = before.iter().filter(|sum| **sum > 0).count();
            let resumed = program.resume_on(&worker).await.expect("it is here");
            assert_eq!(resumed, usize::from((1..4).contains(&done)), "after {polls} polls: {before:?}");
            let all = if done == 0 { [0; 4] } else { [10, 11, 12, 13] };
            assert_eq!(sums(&worker, chopped, 1).await.expect("it is here"), all, "after {polls} polls");
            assert!(done == 4 || !has_ended);
        });
        if has_ended {
            assert!(polls > 4, "it was dropped between its pieces");
            return;
        }
    }
    panic!("it does not end");
}

#[test]
fn a_transaction_that_halts_is_resumed_by_the_node_itself() {
    const SUMS: [TableDef<u64, Pod<u64>>; 4] =
        [TableDef::hash("a"), TableDef::hash("b"), TableDef::hash("c"), TableDef::hash("d")];
    let mut builder = Cluster::builder().nodes(2).protocol(PROTOCOL);
    let tables = SUMS.map(|def| builder.table(def, Partition::by("number", |number| *number)));
    let progress = builder.progress("counting");
    let nodes = builder.start().expect("memory");
    let mut program = Procedures::new(&nodes[0].node(), progress);
    let [a, b, c, d] = [0, 1, 2, 3].map(|at| program.sum(DESCRIBED[at].add("*"), tables[at]).expect("few"));
    let count = program
        .procedure::<u64>(COUNT)
        .piece("one", async move |tx, key| tx.add(a, *key, 1).await)
        .piece("two", async move |tx, key| tx.add(b, *key, 1).await)
        .piece("three", async move |tx, key| tx.add(c, *key, 1).await)
        .piece("four", async move |tx, key| tx.add(d, *key, 1).await);
    let count = program.add(count);
    let early = refused(count.run(&nodes[0], 1).wait());
    assert!(matches!(early, ChoppedError::NotRegistered { .. }), "{early}");
    let program = program.register().expect("it is sound");
    let other = count.run(&nodes[1], 1).wait();
    assert!(matches!(other, Err(Error::OtherDatabase)), "it is registered at another node");
    // Nothing has happened before its first piece.
    assert!(matches!(count.run(&nodes[0], 1).wait(), Err(Error::Missing { table: "a" })));
    assert_eq!(program.resume(&nodes[0]).wait().expect("it is here"), 0);

    let put = |table: usize| nodes[1].transact(async move |tx| tx.put(tables[table], 1, 0).await).wait();
    put(0).and_then(|()| put(1)).and_then(|()| put(3)).expect("they are here");
    let halted = refused(count.run(&nodes[0], 1).wait());
    assert!(matches!(&halted, ChoppedError::Halted { piece: 3, .. }), "{halted}");
    let again = refused(program.resume(&nodes[0]).wait());
    assert!(matches!(&again, ChoppedError::Halted { piece: 3, .. }), "{again}");
    put(2).expect("it is here");
    program.serve(&nodes[0]);
    let get = |table: usize| nodes[1].transact(async move |tx| tx.get(tables[table], 1).await).wait();
    let is_done = || get(3).expect("it is here") == Some(1);
    let begun = std::time::Instant::now();
    while !is_done() {
        assert!(begun.elapsed() < Duration::from_secs(20), "nobody finishes it");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!([0, 1, 2, 3].map(|table| get(table).expect("it is here")), [Some(1); 4]);
}

/// The row is at the coordinator's own node: the pieces of a transaction ask other nodes as often
/// as whole transactions that do the same.
#[test]
fn noting_progress_asks_no_other_node() {
    const ADD: Transaction<'static> = Transaction::new(
        "add",
        &[Piece::new("one", &[DESCRIBED[0].add("*")]), Piece::new("two", &[DESCRIBED[1].add("*")])],
    );
    for protocol in [Protocol::FASST, Protocol::DRTM_H] {
        let mut builder = Cluster::builder().nodes(2).protocol(protocol);
        let at_second = Partition::by("number", |number: &u64| *number);
        let tables = ["a", "b"].map(|name| builder.table(TableDef::<u64, Pod<u64>>::hash(name), at_second));
        let progress = builder.progress("adding");
        let nodes = builder.start().expect("memory");
        let mut program = Procedures::new(&nodes[0].node(), progress);
        let [one, two] = [0, 1].map(|at| program.sum(DESCRIBED[at].add("*"), tables[at]).expect("few"));
        let add = program
            .procedure::<u64>(ADD)
            .piece("one", async move |tx, key| tx.add(one, *key, 1).await)
            .piece("two", async move |tx, key| tx.add(two, *key, 1).await);
        let add = program.add(add);
        program.register().expect("it is sound");
        for table in tables {
            nodes[0].transact(async move |tx| tx.put(table, 1, 0).await).wait().expect("both are here");
        }
        let rounds = || {
            let stats = nodes[0].stats();
            Phase::ALL.map(|phase| stats.rounds(phase).count)
        };
        let spent = |run: &dyn Fn()| {
            let before = rounds();
            run();
            let after = rounds();
            std::array::from_fn::<u64, { Phase::ALL.len() }, _>(|phase| after[phase] - before[phase])
        };
        let whole = || {
            for table in tables {
                let added = nodes[0].transact(async move |tx| tx.update(table, 1, |sum| *sum += 1).await);
                assert_eq!(added.wait().expect("both are here"), Some(()));
            }
        };
        let in_pieces = || assert_eq!(add.run(&nodes[0], 1).wait().expect("both are here"), 1);
        // The first makes acquaintance.
        whole();
        in_pieces();
        assert_eq!(spent(&in_pieces), spent(&whole), "{}", protocol.name);
        assert!(spent(&whole).iter().sum::<u64>() > 0);
    }
}

#[test]
fn an_abort_leaves_nothing() {
    const ADD: Transaction<'static> = Transaction::new(
        "add",
        &[
            Piece::new("one", &[DESCRIBED[0].add("*")]).after(&[]),
            Piece::new("two", &[DESCRIBED[1].add("*")]).after(&[]),
            Piece::new("check", &[DESCRIBED[2].read("*")]).after(&[]).may_abort(),
        ],
    );
    on_one_node(async |worker, chopped| {
        open(worker, chopped, 1).await.expect("room");
        let mut program = Procedures::new(&worker.node(), chopped.progress);
        let [one, two, ..] = chopped.bits();
        let one = program.sum(DESCRIBED[0].add("*"), one).expect("few");
        let two = program.sum(DESCRIBED[1].add("*"), two).expect("few");
        let add = program
            .procedure::<u64>(ADD)
            .piece("one", async move |tx, by| tx.add(one, 1, *by).await)
            .piece("two", async move |tx, by| tx.add(two, 1, *by).await)
            .may_abort("check", async move |tx, by| {
                let seen = tx.get(chopped.rows[2], 1).await?;
                assert!(seen.is_some(), "it was put");
                if *by > 5 { Err(Abort::because("too much")) } else { Ok(()) }
            });
        let add = program.add(add);
        let program = program.register().expect("it is sound");
        let aborted = add.run_on(worker, 6).await;
        assert!(matches!(aborted, Err(Error::Aborted { reason }) if reason == "too much"));
        assert_eq!(sums(worker, chopped, 1).await.expect("it is here"), [0; 4]);
        assert_eq!(program.resume_on(worker).await.expect("it is here"), 0);
        assert_eq!(add.run_on(worker, 5).await.expect("it is here"), 5);
        assert_eq!(sums(worker, chopped, 1).await.expect("it is here"), [5, 5, 0, 0]);
    });
}

#[test]
fn what_clusters_do_not_have_is_refused() {
    const ALONE: Transaction<'static> = COUNT.alone();
    on_one_node(async |worker, chopped| {
        let node = worker.node();
        for (options, needed) in [
            (Options { deferral: true, ..Options::NONE }, "deferral of additions"),
            (Options { two_rounds: true, ..Options::NONE }, "reading by two rounds"),
        ] {
            let refused = refused(Procedures::new(&node, chopped.progress).options(options).register());
            assert!(matches!(refused, ChoppedError::OfOneNode { what, .. } if what == needed), "{refused}");
        }
        let mut alone = Procedures::new(&node, chopped.progress);
        let count = alone
            .procedure::<u64>(ALONE)
            .piece("one", async |_, _| Ok(()))
            .piece("two", async |_, _| Ok(()))
            .piece("three", async |_, _| Ok(()))
            .piece("four", async |_, _| Ok(()));
        alone.add(count);
        let refused = refused(alone.register());
        assert!(matches!(refused, ChoppedError::OfOneNode { what: "running alone", .. }), "{refused}");
    });
}

#[test]
fn another_version_of_a_program_does_not_take_the_rest_for_its_own() {
    const OTHER: Transaction<'static> = Transaction::new(
        "count",
        &[
            Piece::new("one", &[DESCRIBED[0].add("*")]),
            Piece::new("two and three", &[DESCRIBED[1].add("*"), DESCRIBED[2].add("*")]),
            Piece::new("four", &[DESCRIBED[3].add("*")]),
        ],
    );
    on_one_node(async |worker, chopped| {
        let (count, program) = counting(worker, chopped).expect("it is sound");
        open(worker, chopped, 1).await.expect("room");
        let removed = worker.transact(async |tx| tx.remove(chopped.rows[1], 1).await);
        removed.await.expect("it is here");
        let halted = refused(count.run_on(worker, (1, 10)).await);
        assert!(matches!(halted, ChoppedError::Halted { piece: 2, .. }), "{halted}");
        let mut other = Procedures::new(&worker.node(), chopped.progress);
        let other_count = other
            .procedure::<(u64, u64)>(OTHER)
            .piece("one", async |_, _| Ok(()))
            .piece("two and three", async |_, _| Ok(()))
            .piece("four", async |_, _| Ok(()));
        other.add(other_count);
        let other = other.register().expect("it is sound");
        let refused = refused(other.resume_on(worker).await);
        assert!(matches!(refused, ChoppedError::OtherPieces { .. }), "{refused}");
        // It is still there for the right one.
        let put =
            worker.transact(async |tx| tx.put(chopped.rows[1], 1, crate::drawn::Counted { count: 0, bits: 0 }).await);
        put.await.expect("room");
        assert_eq!(program.resume_on(worker).await.expect("it is here"), 1);
        assert_eq!(sums(worker, chopped, 1).await.expect("it is here"), [10, 11, 12, 13]);
    });
}

/// What a piece accesses is checked.
fn undeclared() -> Result<u64, Error> {
    const READ: Transaction<'static> = Transaction::new("read", &[Piece::new("read", &[DESCRIBED[0].read("*")])]);
    on_one_node(async |worker, chopped| {
        open(worker, chopped, 1).await?;
        let mut program = Procedures::new(&worker.node(), chopped.progress);
        let read = program.procedure::<u64>(READ).piece("read", async move |tx, _| {
            tx.get(chopped.rows[0], 1).await?;
            tx.get(chopped.rows[1], 1).await.map(drop)
        });
        let read = program.add(read);
        program.register()?;
        read.run_on(worker, 7).await
    })
}

#[test]
fn what_a_piece_has_not_declared_is_refused() {
    let why = refused(undeclared());
    assert!(matches!(why, ChoppedError::Undeclared { table: "b", access: "read", .. }), "{why}");
    assert_eq!(Setup::faulty(Mutation::UndeclaredAllowed).run(undeclared).expect("the fault allows it"), 7);
}
