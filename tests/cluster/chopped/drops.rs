//! A chopped transaction that is dropped at any of its awaits: the piece under way happens, or does
//! not; and whoever resumes the rest does each of the others once.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::SeqCst},
};

use drtm::chopping::{Piece, Transaction};
use drtm_htm::NoHtm;
use drtm_rdma::Fabric;
use drtm_txn::{
    Error, Mutation, Transaction as _,
    cluster::{
        Protocol, Worker,
        chopped::{Call, Code, Procedures, Registered},
    },
};

use crate::{
    bed::{Bed, Rings, Script, Setup, Size, Tables, Tested},
    chopped::Chopped,
    drawn::{Counted, DESCRIBED, TABLES},
    drops::polled,
};

/// Four pieces that may run apart, since additions commute.
pub(super) const COUNT: Transaction<'static> = Transaction::new(
    "count",
    &[
        Piece::new("one", &[DESCRIBED[0].add("*")]),
        Piece::new("two", &[DESCRIBED[1].add("*")]),
        Piece::new("three", &[DESCRIBED[2].add("*")]),
        Piece::new("four", &[DESCRIBED[3].add("*")]),
    ],
);

/// Which row is added to, and how much.
pub(super) type Counting = (u64, u64);

/// A transaction, and its program.
type Program<F, C> = (Call<F, Tested, Counting, C>, Registered<F, Tested>);

/// A transaction that adds its input to four sums, and one more to each than to the one before.
pub(super) fn counting<'e, F: Fabric<Engine = NoHtm>>(
    worker: &Worker<'e, F, Tested>,
    chopped: Chopped,
) -> Result<Program<F, impl Code<F, Tested, Counting> + use<F>>, Error> {
    let mut program = Procedures::new(&worker.node(), chopped.progress);
    let [a, b, c, d] = DESCRIBED;
    let [in_a, in_b, in_c, in_d] = chopped.bits();
    let (a, b) = (program.sum(a.add("*"), in_a)?, program.sum(b.add("*"), in_b)?);
    let (c, d) = (program.sum(c.add("*"), in_c)?, program.sum(d.add("*"), in_d)?);
    let count = program
        .procedure::<Counting>(COUNT)
        .piece("one", async move |tx, (key, by)| {
            tx.add(a, *key, *by).await?;
            *by += 1;
            Ok(())
        })
        .piece("two", async move |tx, (key, by)| {
            tx.add(b, *key, *by).await?;
            *by += 1;
            Ok(())
        })
        .piece("three", async move |tx, (key, by)| {
            tx.add(c, *key, *by).await?;
            *by += 1;
            Ok(())
        })
        .piece("four", async move |tx, (key, by)| {
            tx.add(d, *key, *by).await?;
            *by += 1;
            Ok(())
        });
    let count = program.add(count);
    let program = program.register()?;
    assert_eq!(program.chopping().transactions()[0].pieces().len(), 4);
    Ok((count, program))
}

/// Makes the sums of a row.
pub(super) async fn open<F: Fabric<Engine = NoHtm>>(
    worker: &Worker<'_, F, Tested>,
    chopped: Chopped,
    key: u64,
) -> Result<(), Error> {
    worker
        .transact(async |tx| {
            for table in chopped.rows {
                tx.put(table, key, Counted { count: 0, bits: 0 }).await?;
            }
            Ok(())
        })
        .await
}

/// Returns the sums of a row.
pub(super) async fn sums<F: Fabric<Engine = NoHtm>>(
    worker: &Worker<'_, F, Tested>,
    chopped: Chopped,
    key: u64,
) -> Result<[u64; TABLES], Error> {
    worker
        .transact(async |tx| {
            let mut sums = [0; TABLES];
            for (sum, table) in sums.iter_mut().zip(chopped.rows) {
                *sum = tx.get(table, key).await?.expect("it was put").bits;
            }
            Ok(sums)
        })
        .await
}

#[derive(Clone, Default)]
struct Drops {
    rings: Rings,
    /// How many transactions were resumed.
    resumed: Arc<AtomicU32>,
}

impl Script for Drops {
    fn rings(&self) -> Rings {
        Rings { chops: true, ..self.rings }
    }

    async fn run<'e, F: Fabric<Engine = NoHtm>>(self, worker: Worker<'e, F, Tested>, tables: Tables, number: u64) {
        if number > 0 {
            return;
        }
        let chopped = tables.chopped.expect("there are some");
        let (count, program) = counting(&worker, chopped).expect("it is sound");
        open(&worker, chopped, 1).await.expect("room");
        let mut happened = 0;
        for polls in 1.. {
            let ended = polled(count.run_on(&worker, (1, 10)), polls).await;
            let resumed = program.resume_on(&worker).await.expect("all nodes are here") as u32;
            self.resumed.fetch_add(resumed, SeqCst);
            let seen = sums(&worker, chopped, 1).await.expect("all nodes are here");
            let is_done = seen[0] != 10 * happened;
            happened += u64::from(is_done);
            let all = [10, 11, 12, 13].map(|by| by * happened);
            assert_eq!(seen, all, "after {polls} polls, resumed: {resumed}");
            assert!(is_done || resumed == 0, "what was not begun is not resumed");
            assert_eq!(program.resume_on(&worker).await.expect("all nodes are here"), 0);
            if let Some(ended) = ended {
                assert_eq!(ended.expect("all nodes are here"), (1, 14));
                assert!(is_done && resumed == 0);
                break;
            }
        }
        let left = worker.transact(async |tx| tx.len(chopped.progress.rows()).await);
        assert_eq!(left.await.expect("all nodes are here"), 0, "nothing is left");
    }
}

const SIZE: Size = Size { nodes: 3, owners: 3, coroutines: 1, protocol: Protocol::FASST };

#[test]
fn a_dropped_transaction_is_resumed_after_its_last_piece() {
    let mut resumed = 0;
    for protocol in
        [Protocol::FASST, Protocol::DRTM_H, Protocol::FARM, Protocol::DRTM, Protocol::HADES, Protocol::HADES_H]
    {
        let drops = Drops::default();
        for bed in [Bed::perfect(), Bed::Shm, Bed::harsh_and_atomic(1), Bed::atomic(1), Bed::rough(1), Bed::rough(2)] {
            if !bed.has(protocol) {
                continue;
            }
            bed.run(Size { protocol, ..SIZE }, &drops);
            // A coordinator that owns no rows.
            bed.run(Size { protocol, nodes: 2, owners: 1, coroutines: 1 }, &drops);
        }
        resumed += drops.resumed.load(SeqCst);
    }
    assert!(resumed > 0, "none was dropped between its pieces");
}

#[test]
fn a_dropped_transaction_that_is_logged_is_resumed() {
    for protocol in [Protocol::FASST, Protocol::DRTM_H] {
        let drops = Drops { rings: Rings { backups: 1, bytes: 16 << 10, ..Rings::default() }, ..Drops::default() };
        for bed in [Bed::perfect(), Bed::atomic(1), Bed::rough(3)] {
            bed.run(Size { protocol, ..SIZE }, &drops);
        }
        assert!(drops.resumed.load(SeqCst) > 0);
    }
}

/// Whether a fault is found.
fn is_found(fault: Mutation) -> bool {
    let run = || Setup::faulty(fault).run(|| Bed::atomic(1).run(SIZE, &Drops::default()));
    std::panic::catch_unwind(run).is_err()
}

#[test]
fn progress_that_is_noted_apart_is_found() {
    assert!(is_found(Mutation::ProgressApart), "a piece ran twice");
}

#[test]
fn progress_that_is_not_removed_is_found() {
    assert!(is_found(Mutation::RemainderNotRemoved), "the last piece ran twice");
}

#[test]
fn a_piece_that_is_repeated_is_found() {
    assert!(is_found(Mutation::PieceRepeated));
}
