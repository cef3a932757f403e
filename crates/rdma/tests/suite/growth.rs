//! A region that its owner enlarges while peers use it, on every fabric.

use std::cell::{Cell, RefCell};

use drtm_rdma::{NodeId, Phase, Port, RegionId, Remote, VerbError, Verbs, run};

use crate::{
    agent::{Agent, Order, ROOM, growth},
    support::{BASE, Mood, Testbed, World, on_every_fabric, rounds},
};

on_every_fabric!(a_region_grows_under_reads_and_atomics);

/// What coroutines of the peer know of the region, and have done to it.
struct Traffic {
    steps: u64,
    /// Where it ends, as far as its owner has said.
    end: Cell<u64>,
    /// The last word of each part that was seen, and what is there.
    marks: RefCell<Vec<(Remote, u64)>>,
    added: Cell<u64>,
    over: Cell<bool>,
}

fn at(offset: u64) -> Remote {
    Remote { offset: BASE + (offset - BASE.bytes()), ..HEAD }
}

/// Where the owner says where the region ends.
const HEAD: Remote = Remote { node: NodeId(1), region: RegionId(1), offset: BASE };
/// What all add to.
const SUM: u64 = BASE.bytes() + 64;

impl Traffic {
    fn last_end(&self) -> u64 {
        (0..self.steps).fold(BASE.bytes() + (64 << 10), |end, step| end + growth(step))
    }

    /// Goes where the region ends, over and over, and leaves a mark there.
    async fn explore<P: Port>(&self, verbs: Verbs<'_, P>) -> Result<(), VerbError> {
        while self.end.get() < self.last_end() {
            let end = verbs.read_word(HEAD).await?;
            if end <= self.end.get() {
                // Nothing is there yet, or all at once.
                self.look_beyond(verbs, self.end.get()).await?;
                verbs.endpoint().yield_now().await;
                continue;
            }
            self.end.set(end);
            let (mark, value) = (at(end - 8), self.marks.borrow().len() as u64 + 1);
            assert_eq!(verbs.compare_swap(mark, 0, value).await?, 0, "new memory holds zeros");
            self.marks.borrow_mut().push((mark, value));
            // The largest access that ends there.
            let words = verbs.endpoint().capabilities().max_read_bytes / 8;
            let words = words.min(((end - BASE.bytes()) / 8) as usize);
            let found = verbs.read(at(end - 8 * words as u64), words).await?;
            assert_eq!(found.last(), Some(&value));
            self.look_beyond(verbs, end).await?;
        }
        self.over.set(true);
        Ok(())
    }

    /// Behind the end there are zeros, or nothing; behind the room there is nothing.
    async fn look_beyond<P: Port>(&self, verbs: Verbs<'_, P>, end: u64) -> Result<(), VerbError> {
        for beyond in [at(end.max(BASE.bytes()) + (8 << 20)), at(ROOM - 8), at(ROOM), at(2 * ROOM)] {
            match verbs.read_word(beyond).await {
                Ok(found) => assert!(found == 0 && beyond.offset.bytes() < self.last_end(), "{beyond:?}"),
                Err(error) => assert_eq!(error, VerbError::OutOfBounds { at: beyond, words: 1 }),
            }
        }
        Ok(())
    }

    /// Adds to a word, and reads and swaps marks.
    async fn use_it<P: Port>(&self, verbs: Verbs<'_, P>, seed: u64) -> Result<(), VerbError> {
        let mut random = fastrand::Rng::with_seed(seed);
        while !self.over.get() {
            verbs.fetch_add(at(SUM), 1).await?;
            self.added.set(self.added.get() + 1);
            let mark = random.choice(&*self.marks.borrow()).copied();
            if let Some((mark, value)) = mark {
                assert_eq!(verbs.read_word(mark).await?, value);
                assert_eq!(verbs.compare_swap(mark, value, value).await?, value);
            }
            verbs.endpoint().yield_now().await;
        }
        Ok(())
    }
}

fn a_region_grows_under_reads_and_atomics<R: Testbed>(mood: R::Mood) {
    let world = World::<R>::new(2, mood.queue_depth(8));
    let steps = rounds(40).min(60);
    let traffic =
        Traffic { steps, end: Cell::new(0), marks: RefCell::default(), added: Cell::new(0), over: Cell::new(false) };
    world.agent(1).ask(Order::Grow(steps));
    let endpoint = world.endpoint();
    let rest = endpoint.at_rest();
    let verbs = endpoint.during(Phase::Other);
    let outcomes = run(&endpoint, 4, async |index| {
        let outcome = match index {
            0 => traffic.explore(verbs).await,
            _ => traffic.use_it(verbs, index as u64).await,
        };
        // One that fails ends the others.
        traffic.over.set(true);
        outcome
    });
    for outcome in outcomes {
        outcome.expect("what is allocated can be accessed");
    }
    assert_eq!(world.agent(1).ask(Order::Await), steps);
    assert!(traffic.marks.borrow().len() as u64 >= steps / 2, "it has grown under this traffic");
    let found = run(&endpoint, 1, async |_| {
        for (mark, value) in traffic.marks.take() {
            assert_eq!(verbs.read_word(mark).await?, value, "what was there stays");
        }
        verbs.read_word(at(SUM)).await
    });
    assert_eq!(found, [Ok(traffic.added.get())]);
    assert_eq!(endpoint.at_rest(), rest, "every buffer is back");
}
