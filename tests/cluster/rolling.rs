//! All owners on machines are closed and started again, one after the other, under load of all: no
//! transaction fails but those that are given to a node which closes.

use std::{
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use drtm_rdma::NodeId;
use drtm_txn::{Error, Options, Transaction as _};
use fastrand::Rng;

use crate::agreeing::{Bank, Money, OWNERS, PATIENCE, Place, fill, is_whole, judge, start, transfer};

/// Rows in which each owner counts what it was told of.
const COUNTS: u64 = 1_000;

/// An owner that moves money until it is closed.
struct Running {
    bank: Bank,
    money: Money,
    is_over: Arc<AtomicBool>,
    moves: JoinHandle<()>,
}

impl Running {
    /// Starts an owner's load, which counts what is acknowledged.
    fn new((bank, money): (Bank, Money), node: u16, counted: &Arc<AtomicU64>) -> Self {
        let (its, counted, is_over) = (bank.clone(), Arc::clone(counted), Arc::<AtomicBool>::default());
        let ends = Arc::clone(&is_over);
        let moves = thread::spawn(move || {
            let mut random = Rng::with_seed(node.into());
            while !ends.load(SeqCst) {
                let count = counted.load(Relaxed) + 1;
                let noted = its.transact_with(Options::new().within(PATIENCE), async move |tx| {
                    tx.put(money, COUNTS + u64::from(node), &count).await
                });
                match noted.wait() {
                    Ok(()) => counted.store(count, SeqCst),
                    Err(Error::Closed) => return,
                    Err(error) => panic!("node {node}, in {}: {error:?}", its.node().view()),
                }
                match transfer(&its, money, &mut random, None) {
                    Ok(()) => {}
                    Err(Error::Closed) => return,
                    Err(error) => panic!("node {node}, in {}: {error:?}", its.node().view()),
                }
            }
        });
        Self { bank, money, is_over, moves }
    }

    fn until(&self, is_so: impl Fn(&Self) -> bool) {
        while !is_so(self) {
            assert!(!self.moves.is_finished(), "money stands still");
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Closes all owners in turn, and starts each again.
fn closes_all(place: &Place) {
    let banks: Vec<_> = (0..OWNERS).map(|node| start(&place.path, node, node == 0)).collect();
    fill(&banks[0].0, banks[0].1);
    let counted: Vec<Arc<AtomicU64>> = (0..OWNERS).map(|_| Arc::default()).collect();
    let run = |bank, node: u16| Running::new(bank, node, &counted[usize::from(node)]);
    let mut owners: Vec<_> = (0..).zip(banks).map(|(node, bank)| run(bank, node)).collect();
    for node in 0..OWNERS {
        owners[0].until(|one| is_whole(&one.bank.node().view()));
        let Running { bank, moves, .. } = owners.remove(0);
        let life = bank.node().incarnation();
        bank.close_within(PATIENCE).expect("all that was begun there ends");
        moves.join().expect("none of its transactions fails otherwise");
        drop(bank);
        let is_out = |one: &Running| {
            let view = one.bank.node().view();
            view.members().iter().all(|member| member.node != NodeId(node) || member.incarnation != Some(life))
        };
        owners.iter().for_each(|one| one.until(is_out));
        owners.push(run(start(&place.path, node, false), node));
        let before: Vec<u64> = counted.iter().map(|count| count.load(SeqCst)).collect();
        let have_moved = || counted.iter().zip(&before).all(|(now, before)| now.load(SeqCst) >= before + 20);
        owners[0].until(|one| is_whole(&one.bank.node().view()) && have_moved());
    }
    // Of two owners, none goes on without the other.
    owners.iter().for_each(|one| one.is_over.store(true, SeqCst));
    let moved: Vec<_> = owners.into_iter().map(|one| (one.bank, one.money, one.moves.join())).collect();
    assert!(moved.iter().all(|(.., moved)| moved.is_ok()), "none of their transactions fails");
    let (bank, money, _) = &moved[0];
    assert_eq!(judge(bank, *money), 0);
    let (money, within) = (*money, Options::new().within(PATIENCE));
    let told: Vec<u64> = counted.iter().map(|count| count.load(SeqCst)).collect();
    let rows = bank.transact_with(within, async move |tx| {
        tx.get_many(money, (0..u64::from(OWNERS)).map(|node| COUNTS + node)).await
    });
    let rows = rows.wait().expect("all are here");
    assert!(rows.iter().zip(&told).all(|(row, told)| row.is_some_and(|row| row >= *told)), "{rows:?}, {told:?}");
}

#[test]
fn owners_are_closed_and_started_again_in_turn() {
    closes_all(&Place::new("rolling", false));
}

#[test]
fn owners_with_directories_are_closed_and_started_again_in_turn() {
    closes_all(&Place::new("rolling-durable", true));
}
