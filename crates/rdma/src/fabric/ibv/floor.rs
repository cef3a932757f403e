//! The floor of this fabric, for benchmarks: two bare queue pairs of the device, of one thread,
//! that carry the same operations.

use std::{hint::spin_loop, sync::Arc};

use drtm_htm::Engine;

use crate::{Buffers, Region};

use super::{
    VerbsConfig, VerbsError,
    adapter::Ends,
    sys::{Action, Completion, CompletionQueue, Device, QueuePair, Registration, Requests, Shape, Slab},
};

/// An operation, at an offset of the region where it accesses one.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub enum FloorVerb {
    Read(u64),
    Write(u64),
    /// Swaps zero for zero.
    CompareSwap(u64),
    /// Adds one.
    FetchAdd(u64),
    /// A message and one that answers it.
    Message,
}

/// A queue pair that asks, and its peer.
#[derive(Debug)]
struct Side {
    pair: QueuePair,
    completed: Arc<CompletionQueue>,
    slab: Slab,
    requests: Requests,
    completions: Vec<Completion>,
    received: usize,
    /// Signaled requests that are not over.
    under_way: usize,
}

impl Side {
    fn new(device: &Arc<Device>, most: usize, inline: usize) -> Result<Self, VerbsError> {
        let completed = Arc::new(CompletionQueue::new(device, 2 * most + 2, false)?);
        let shape = Shape {
            sends: &completed,
            receives: &completed,
            shared: None,
            most_sends: most + 1,
            most_receives: most,
            inline,
            datagrams: false,
        };
        let (requests, completions) = (Requests::default(), Vec::new());
        let pair = QueuePair::new(device, &shape)?;
        let slab = Slab::new(device, 2 * Buffers::MEDIUM, false)?;
        Ok(Self { pair, completed, slab, requests, completions, received: 0, under_way: 0 })
    }

    fn post(&mut self) -> Result<(), VerbsError> {
        self.requests.signal_last();
        self.under_way += 1;
        self.pair.post(&mut self.requests)
    }

    /// Takes what has come.
    fn poll(&mut self) -> Result<(), VerbsError> {
        while self.completed.take(&mut self.completions) {}
        for completion in self.completions.drain(..) {
            match (completion.failure, completion.received) {
                (Some(status), _) => return Err(VerbsError::Failed { status }),
                (None, Some(_)) => self.received += 1,
                (None, None) => self.under_way -= 1,
            }
        }
        Ok(())
    }
}

/// Two queue pairs of a device that are connected to each other, and a region that they access.
///
/// What is posted at once is one list with one signaled request, and completions are polled. So it
/// is the least that the same operations can take.
#[derive(Debug)]
#[doc(hidden)]
pub struct VerbsFloor {
    asks: Side,
    answers: Side,
    key: u32,
    inline: usize,
    _memory: Registration,
}

impl VerbsFloor {
    /// Creates them for so many operations at once.
    ///
    /// # Errors
    ///
    /// As for [`VerbsFabric::join`](super::VerbsFabric::join), but for the cluster.
    pub fn new<E: Engine>(config: &VerbsConfig, region: &Arc<Region<E>>, most: usize) -> Result<Self, VerbsError> {
        let device = Arc::new(Device::open(config.device.as_deref())?);
        let Ends { exit, end, .. } = Ends::of(&device, config)?;
        let inline = super::adapter::inline(&device, most + 1, most)?;
        let (asks, answers) = (Side::new(&device, most, inline)?, Side::new(&device, most, inline)?);
        let memory = Registration::of_region(&device, region, 0, region.capacity())?;
        let [mine, theirs] = [&asks, &answers].map(|side| super::sys::End { pair: side.pair.number(), ..end });
        asks.pair.connect(exit, &mine, &theirs)?;
        answers.pair.connect(exit, &theirs, &mine)?;
        Ok(Self { asks, answers, key: memory.remote_key(), inline, _memory: memory })
    }

    /// Carries operations out, of up to 4 KiB each: all are posted at once.
    ///
    /// # Errors
    ///
    /// [`VerbsError::Failed`] where one fails.
    pub fn turn(&mut self, verbs: impl Iterator<Item = FloorVerb>, bytes: usize) -> Result<(), VerbsError> {
        let (key, inlined) = (self.key, bytes <= self.inline);
        let (from, into) = (self.asks.slab.span(0, bytes.max(1)), self.asks.slab.span(Buffers::MEDIUM, bytes.max(8)));
        let mut messages = 0;
        for verb in verbs {
            let requests = &mut self.asks.requests;
            match verb {
                FloorVerb::Read(address) => requests.push(0, Action::Read { address, key }, into, false),
                FloorVerb::Write(address) => requests.push(0, Action::Write { address, key }, from, inlined),
                FloorVerb::CompareSwap(address) => {
                    requests.push(0, Action::CompareSwap { address, key, expected: 0, new: 0 }, into, false);
                }
                FloorVerb::FetchAdd(address) => {
                    requests.push(0, Action::FetchAdd { address, key, add: 1 }, into, false)
                }
                FloorVerb::Message => {
                    messages += 1;
                    self.asks.pair.post_receive(0, into)?;
                    let question = self.answers.slab.span(Buffers::MEDIUM, bytes.max(1));
                    self.answers.pair.post_receive(0, question)?;
                    requests.push(0, Action::Send, from, inlined);
                }
            }
        }
        self.asks.post()?;
        let (mut answered, answer) = (0, self.answers.slab.span(0, bytes.max(1)));
        (self.asks.received, self.answers.received) = (0, 0);
        while self.asks.under_way + self.answers.under_way > 0 || self.asks.received < messages {
            if messages > 0 {
                self.answers.poll()?;
                while answered < self.answers.received {
                    self.answers.requests.push(0, Action::Send, answer, inlined);
                    answered += 1;
                }
                if self.answers.requests.len() > 0 {
                    self.answers.post()?;
                }
            }
            self.asks.poll()?;
            spin_loop();
        }
        Ok(())
    }
}
