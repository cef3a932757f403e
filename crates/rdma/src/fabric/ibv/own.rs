//! Swaps by a node's NIC on memory of its own, by queue pairs that are connected to themselves.

use std::{
    hint::spin_loop,
    sync::{
        Arc, Weak,
        atomic::{Ordering::SeqCst, fence},
    },
    thread,
    time::Duration,
};

use drtm_htm::{Engine, Word};
use parking_lot::Mutex;

use crate::Loopback;

use super::{
    VerbsError,
    adapter::Adapter,
    sys::{Action, Completion, CompletionQueue, QueuePair, Requests, Slab},
};

/// How often a completion is looked for before the processor is left to others. Where software is
/// the NIC, it may need this one.
const SPINS: u32 = 1 << 10;

/// How long a swap waits that has failed, before it is tried again.
const AGAIN: Duration = Duration::from_millis(1);

/// A queue pair that is connected to itself, for one swap at a time.
#[derive(Debug)]
struct LoopbackPair {
    /// The pair goes first, then what it uses.
    pair: QueuePair,
    completed: Arc<CompletionQueue>,
    slab: Slab,
    requests: Requests,
    completions: Vec<Completion>,
}

impl LoopbackPair {
    fn new<E: Engine>(adapter: &Adapter<E>) -> Result<Self, VerbsError> {
        let device = &adapter.device;
        let completed = Arc::new(CompletionQueue::new(device, 2, false)?);
        let pair = QueuePair::new(device, &adapter.shape(&completed, &completed, (1, 1)))?;
        let end = adapter.end_of(&pair);
        pair.connect(adapter.exit, &end, &end)?;
        let slab = Slab::new(device, size_of::<u64>(), false)?;
        Ok(Self { pair, completed, slab, requests: Requests::default(), completions: Vec::new() })
    }

    /// Swaps, and waits until that is done. Returns what the word was.
    fn swap(&mut self, action: Action) -> Result<u64, VerbsError> {
        self.requests.push(0, action, self.slab.span(0, size_of::<u64>()), false);
        self.requests.signal_last();
        // What this processor has written before is seen before the swap, and the swap before what
        // it reads after.
        fence(SeqCst);
        self.pair.post(&mut self.requests)?;
        let mut looked = 0;
        let completion = loop {
            self.completed.take(&mut self.completions);
            match self.completions.pop() {
                Some(completion) => break completion,
                None if looked < SPINS => spin_loop(),
                None => thread::yield_now(),
            }
            looked += 1;
        };
        fence(SeqCst);
        if let Some(status) = completion.failure {
            return Err(VerbsError::Failed { status });
        }
        let mut found = [0];
        self.slab.read(0, &mut found);
        let [found] = found;
        Ok(found)
    }
}

/// A node's NIC, for its own processors.
#[derive(Debug)]
pub(super) struct OwnNic<E: Engine> {
    /// It has the node's regions, which have this.
    adapter: Weak<Adapter<E>>,
    /// Pairs that no thread uses: as many are made as threads swap at the same time, so that none
    /// waits for another.
    idle: Mutex<Vec<LoopbackPair>>,
}

impl<E: Engine> OwnNic<E> {
    pub(super) fn new(adapter: &Arc<Adapter<E>>) -> Result<Self, VerbsError> {
        let idle = Mutex::new(vec![LoopbackPair::new(adapter)?]);
        Ok(Self { adapter: Arc::downgrade(adapter), idle })
    }

    /// Swaps a word, unless it is of no region that peers know.
    fn swap(&self, adapter: &Adapter<E>, word: &Word, (expected, new): (u64, u64)) -> Result<Option<u64>, VerbsError> {
        let Some((address, key)) = adapter.exports.place(&adapter.device, word)? else { return Ok(None) };
        let idle = self.idle.lock().pop();
        let mut pair = match idle {
            Some(pair) => pair,
            None => LoopbackPair::new(adapter)?,
        };
        // One that fails ends here, and what it has under way ends with it.
        let found = pair.swap(Action::CompareSwap { address, key, expected, new })?;
        self.idle.lock().push(pair);
        Ok(Some(found))
    }
}

impl<E: Engine> Loopback<E> for OwnNic<E> {
    fn compare_swap(&self, engine: &E, word: &Word, expected: u64, new: u64) -> u64 {
        let by_processor = || engine.compare_exchange(word, expected, new).unwrap_or_else(|found| found);
        loop {
            // Without the fabric, no peer swaps.
            let Some(adapter) = self.adapter.upgrade() else { return by_processor() };
            match self.swap(&adapter, word, (expected, new)) {
                Ok(Some(found)) => return found,
                Ok(None) => return by_processor(),
                // The node cannot do without its NIC, so it waits for it.
                Err(error) => adapter.fail(error),
            }
            // It may have been carried out. What others would write here is no different.
            if engine.load(word) == new {
                return expected;
            }
            thread::sleep(AGAIN);
        }
    }
}
