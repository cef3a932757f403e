//! What an operator asks: how the cluster is, and for that, how many rows primaries have. See
//! [`gather`](crate::cluster::gather).

use std::{collections::BTreeMap, time::Duration};

use drtm_rdma::{Cost, Fabric};

use super::{Answer, Binds, On, Request, Serving, learn::tour_from};
use crate::cluster::{
    Refusal,
    gathered::{LONGEST, Part},
    partition::Home,
    shared::VERSION,
    wire::{Many, Wire as _, messages},
};

/// Rows and bytes that are looked at before a message is answered.
const ROWS: u64 = 512;
const BYTES: u64 = 256 << 10;

/// What a message has beside a part of a status.
const BESIDE: usize = 128;

messages! {
    /// Asks for the number of rows of a table of a group: of a hash table from a bucket on, of so
    /// many; behind a key, if there is one.
    CountFrom<'a> { group: u16, table: u16, bucket: u64, buckets: u64, behind: Option<&'a [u8]>, }
    /// The rows and bytes of a shard.
    OfShard { shard: u16, rows: u64, bytes: u64, }
    /// What some rows are, and where the next ones are, if there are any.
    Counted<'a> { shards: Many<'a, OfShard>, bucket: u64, buckets: u64, behind: Option<&'a [u8]>, is_all: bool, }
    /// Asks for the bytes of a status from here on; or for a new one, if the ticket is zero, for
    /// which rows are counted for so many milliseconds at most.
    AskStatus { version: u32, ticket: u64, from: u32, within: u32, }
    /// Under which ticket the status is, whether it is ready, and then how long it is, and some of
    /// it.
    StatusPart<'a> { ticket: u64, is_ready: bool, length: u32, bytes: &'a [u8], }
}

/// Counts some rows of a table of a group, at the node that serves it.
pub(in crate::cluster) enum CountRows {}

impl Request for CountRows {
    const NUMBER: u16 = 35;
    const COST: Option<Cost> = Some(Cost::Lookup);
    const BINDS: Binds = Binds::Incarnation;
    type Body<'a> = CountFrom<'a>;
    type Reply<'a> = Counted<'a>;

    fn serve<'p, F: Fabric, S: On<F>>(body: CountFrom<'_>, at: Serving<'p, '_, F, S>) -> Answer<'p, Self> {
        let Serving { worker, participant, .. } = at;
        let (stored, served) = worker.served_of(body.table, body.group)?;
        let storage = &stored.storage;
        let mut tour = tour_from(storage, served.key_size, ((body.bucket, body.buckets), body.behind))?;
        let (mut shards, mut last) = (BTreeMap::<u16, (u64, u64)>::new(), Vec::new());
        let (mut seen, mut bytes) = (0, 0);
        // Entries are divided by what they are found by.
        let (index, mut by) = (worker.index(body.table), Vec::new());
        let is_all = loop {
            let has_more = storage.rows(&mut tour, |key, value, _| {
                last.clear();
                last.extend_from_slice(key.encoded(served.key_size, &mut [0; 8]));
                let length = (last.len() + value.len()) as u64;
                (seen, bytes) = (seen + 1, bytes + length);
                by.clear();
                let by = match index {
                    Some(index) => index.by(key, &mut by).ok(),
                    None => Some(key),
                };
                // Rows have no other home.
                if let Some(Home::Shard(shard)) = by.map(|by| served.partition.home(by, worker.node.shards)) {
                    let counted = shards.entry(shard.0).or_default();
                    counted.0 += u64::from(served.is_index_of.is_none());
                    counted.1 += length;
                }
            })?;
            if !has_more {
                break true;
            }
            if seen >= ROWS || bytes >= BYTES {
                break false;
            }
        };
        (0..seen).for_each(|_| worker.endpoint().charge(Cost::Lookup));
        let into = &mut participant.value;
        into.clear();
        shards
            .iter()
            .for_each(|(shard, (rows, bytes))| OfShard { shard: *shard, rows: *rows, bytes: *bytes }.put(into));
        let length = into.len();
        into.extend_from_slice(&last);
        let (counted, last) = into.split_at(length);
        let (bucket, buckets) = tour.position().unwrap_or_default();
        // A hash table goes on at a bucket.
        let behind = (tour.position().is_none() && !is_all).then_some(last);
        Ok(Counted { shards: Many::new(counted, shards.len()), bucket, buckets, behind, is_all })
    }
}

/// Gives a status to a visitor, a part at a time. It is not ready at first: the node asks others.
pub(in crate::cluster) enum Status {}

impl Request for Status {
    const NUMBER: u16 = 36;
    const COST: Option<Cost> = None;
    const BINDS: Binds = Binds::Nothing;
    const FOR_VISITORS: bool = true;
    type Body<'a> = AskStatus;
    type Reply<'a> = StatusPart<'a>;

    fn serve<'p, F: Fabric, S: On<F>>(body: AskStatus, at: Serving<'p, '_, F, S>) -> Answer<'p, Self> {
        let Serving { worker, participant, .. } = at;
        let node = &worker.node;
        if body.version != VERSION {
            return Err(Refusal::Other);
        }
        if node.tenure.as_ref().is_some_and(|tenure| tenure.is_out()) {
            return Err(Refusal::Revoked);
        }
        let now = worker.endpoint().now();
        let within = Duration::from_millis(body.within.into()).min(LONGEST);
        let ticket = match body.ticket {
            0 => {
                let (ticket, is_new) = node.gathered.lock().begin(now, within);
                if is_new {
                    worker.gather_soon(ticket, within);
                }
                ticket
            }
            ticket => ticket,
        };
        let room = worker.endpoint().capabilities().max_message_bytes.saturating_sub(BESIDE);
        let into = &mut participant.value;
        into.clear();
        match node.gathered.lock().part(ticket, (body.from as usize, room), into) {
            Some(Part::Ready { length }) => {
                Ok(StatusPart { ticket, is_ready: true, length: length as u32, bytes: into })
            }
            Some(Part::UnderWay) => Ok(StatusPart { ticket, is_ready: false, length: 0, bytes: into }),
            // Others have asked since.
            None => Err(Refusal::Moved),
        }
    }
}
