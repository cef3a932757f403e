//! Giving a node the rows of a group: see [`learn`](crate::cluster::learn).

use drtm_htm::Engine;
use drtm_kv::KvError;
use drtm_rdma::{Cost, Fabric};

use super::{Answer, Binds, On, Request, Serving};
use crate::{
    Config,
    cluster::{
        Refusal,
        coordinator::Coordinator,
        participant::{Served, Stored},
        requests::change::CarriedRow,
        view::store_of,
        wire::{Many, Wire as _, messages},
    },
    memory::storage::{KeyRef, Storage, Tour},
};

/// What a message has beside its rows.
const BESIDE: usize = 128;

messages! {
    /// Asks what a node has of a group, and to make tables for it if it has none.
    HoldGroup { group: u16, }
    /// Asks for rows of a table of a group: of a hash table from a bucket on, of so many; behind a
    /// key, if there is one.
    CopyFrom<'a> { group: u16, table: u16, bucket: u64, buckets: u64, behind: Option<&'a [u8]>, }
    /// Rows, where the next ones are, whether those are behind the last one of these, and whether
    /// there are any. And in which epoch the primary is.
    Copied<'a> { rows: Many<'a, CarriedRow<'a>>, bucket: u64, buckets: u64, is_cut: bool, is_all: bool, epoch: u64, }
}

/// Says what a node has of a group.
pub(in crate::cluster) enum Hold {}

impl Request for Hold {
    const NUMBER: u16 = 33;
    const COST: Option<Cost> = Some(Cost::Lookup);
    const BINDS: Binds = Binds::Incarnation;
    type Body<'a> = HoldGroup;
    type Reply<'a> = u8;

    fn serve<'p, F: Fabric, S: On<F>>(body: HoldGroup, at: Serving<'p, '_, F, S>) -> Answer<'p, Self> {
        let node = &at.worker.node;
        node.home.hold((&node.first_view, &node.view.view()), node.node, body.group)?;
        Ok(at.participant.backup()?.standing(body.group) as u8)
    }
}

impl<F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'_, F, S> {
    /// Returns a table of a group, where its rows are here, if this node serves them now.
    ///
    /// # Errors
    ///
    /// [`Refusal::OtherView`] if it does not; [`Refusal::NoTable`].
    pub(super) fn served_of(&self, table: u16, group: u16) -> Result<ServedTable<'_, F::Engine>, Refusal> {
        let (node, home) = (&self.node, &self.node.home);
        let view = node.view.view();
        if node.view.is_between() || !view.serves(node.node, group) {
            return Err(Refusal::OtherView);
        }
        let store = store_of(table, Some(group), view.groups());
        match (home.store(store), home.tables.get(usize::from(table))) {
            (Ok(stored), Some(served)) => Ok((stored, served)),
            _ => Err(Refusal::NoTable),
        }
    }
}

/// Where a table's rows are, and what the table is.
type ServedTable<'n, E> = (&'n Stored<E>, &'n Served<E>);

/// Copies rows of a table of a group from the node that serves it.
pub(in crate::cluster) enum CopyRows {}

impl Request for CopyRows {
    const NUMBER: u16 = 34;
    const COST: Option<Cost> = Some(Cost::Lookup);
    const BINDS: Binds = Binds::Incarnation;
    type Body<'a> = CopyFrom<'a>;
    type Reply<'a> = Copied<'a>;

    fn serve<'p, F: Fabric, S: On<F>>(body: CopyFrom<'_>, at: Serving<'p, '_, F, S>) -> Answer<'p, Self> {
        let Serving { worker, participant, .. } = at;
        let home = &worker.node.home;
        let (stored, served) = worker.served_of(body.table, body.group)?;
        let room = worker.endpoint().capabilities().max_message_bytes.saturating_sub(BESIDE);
        let into = &mut participant.value;
        into.clear();
        let copied = copy(&stored.storage, served.key_size, &body, (room, into))?;
        (0..copied.count).for_each(|_| worker.endpoint().charge(Cost::Lookup));
        let epoch = home.db.engine().load(home.db.snapshot_number().map_err(|_| Refusal::Corrupt)?);
        let Some((bucket, buckets)) = copied.next else {
            return Ok(Copied {
                rows: Many::new(into, copied.count),
                bucket: 0,
                buckets: 0,
                is_cut: false,
                is_all: true,
                epoch,
            });
        };
        let rows = Many::new(into, copied.count);
        Ok(Copied { rows, bucket, buckets, is_cut: copied.is_cut, is_all: false, epoch })
    }
}

/// How far copying a part has come.
#[derive(Clone, Copy, Debug)]
struct Part {
    count: usize,
    /// Where the next part begins, if there is one.
    next: Option<(u64, u64)>,
    /// Whether it begins behind the last row of this one.
    is_cut: bool,
}

/// Puts rows of a table into bytes as far as there is room.
fn copy<E: Engine>(
    storage: &Storage<E>,
    key_size: usize,
    from: &CopyFrom<'_>,
    (room, into): (usize, &mut Vec<u8>),
) -> Result<Part, Refusal> {
    let mut tour = tour_from(storage, key_size, ((from.bucket, from.buckets), from.behind))?;
    let is_hash = tour.position().is_some();
    let (mut count, mut behind) = (0, from.behind);
    loop {
        let at = tour.position().unwrap_or_default();
        let (mut rows, has_more) = step(storage, (from.table, key_size), &mut tour)?;
        // Those of a bucket are shown in any order, and in the order of their keys across messages.
        if let Some(behind) = behind.take().filter(|_| is_hash) {
            rows.retain(|(key, _)| &key[..] > behind);
        }
        rows.sort_unstable();
        for (place, (_, row)) in rows.into_iter().enumerate() {
            if into.len() + row.len() > room {
                // The last row is of another bucket where none of this one is there: this one's may
                // have keys before it.
                let is_cut = !is_hash || place > 0;
                return match count {
                    0 => Err(Refusal::TooLong),
                    _ => Ok(Part { count, next: Some(at), is_cut }),
                };
            }
            into.extend_from_slice(&row);
            count += 1;
        }
        if !has_more {
            return Ok(Part { count, next: None, is_cut: false });
        }
        // What is left of an ordered table is behind a row.
        if into.len() >= room / 2 && count > 0 {
            return Ok(Part { count, next: Some(tour.position().unwrap_or_default()), is_cut: !is_hash });
        }
    }
}

/// Goes on with the rows of a table where an earlier message has ended: a hash table at a bucket,
/// of so many, and an ordered one behind a key.
pub(super) fn tour_from<E: Engine>(
    storage: &Storage<E>,
    key_size: usize,
    (at, behind): ((u64, u64), Option<&[u8]>),
) -> Result<Tour, Refusal> {
    let word_size = storage.takes(KeyRef::Word(0)).then_some(key_size);
    let behind = behind.map(|key| KeyRef::of_encoding(key, word_size).ok_or(Refusal::NotItsKey)).transpose()?;
    let begins = storage.tour()?;
    let is_hash = begins.position().is_some();
    match behind {
        Some(key) if !is_hash => storage.tour_behind(key).ok_or(Refusal::NotItsKey),
        _ if is_hash && at.1 > 0 => storage.tour_at(at)?.ok_or(Refusal::NotItsKey),
        _ => Ok(begins),
    }
}

/// A row that was read: its key's encoding, and the row as a message has it.
type Shown = (Vec<u8>, Vec<u8>);

/// Reads some more rows.
fn step<E: Engine>(
    storage: &Storage<E>,
    (table, key_size): (u16, usize),
    tour: &mut Tour,
) -> Result<(Vec<Shown>, bool), KvError> {
    let mut rows = Vec::new();
    let has_more = storage.rows(tour, |key, value, version| {
        let key = key.encoded(key_size, &mut [0; 8]).to_vec();
        let mut row = Vec::new();
        CarriedRow { table, key: &key, version: version.number(), value: Some(value) }.put(&mut row);
        rows.push((key, row));
    })?;
    Ok((rows, has_more))
}

#[cfg(test)]
mod tests {
    use drtm_htm::NoHtm;
    use drtm_kv::{Placed, Store, Version};
    use proptest::prelude::*;

    use super::*;
    use crate::{memory::storage::Expected, schema::table::Any};

    proptest! {
        /// In portions of a few rows, all rows are copied once, whatever the table's shape.
        #[test]
        fn portions_have_all_rows(
            shape in 0..4_usize,
            rows in prop::collection::btree_map(0..500_u64, 0..60_usize, 0..200),
            room in 150..1_000_usize,
        ) {
            let (is_ordered, fits) = [(false, true), (false, false), (true, true), (true, false)][shape];
            let store = Store::in_memory(NoHtm, 16 << 20).expect("memory");
            let storage = Storage::create(&store, is_ordered, fits, 0, false).expect("memory");
            let mut worker = store.worker().expect("few");
            let key_size = 8;
            let encoding = |number: u64| match fits {
                true => number.to_be_bytes().to_vec(),
                false => format!("a key that is longer than a word {number}").into_bytes(),
            };
            for (number, length) in &rows {
                let bytes = encoding(*number);
                let key = KeyRef::of_encoding(&bytes, fits.then_some(key_size)).expect("a key");
                let value = vec![*number as u8; *length];
                let placed = storage.place::<Any>(&mut worker, key, &value, &Expected::Nothing, |_| ()).expect("memory");
                let Placed::Made(seen) = placed else { panic!("it is new") };
                store.records().lock(seen.at, worker.holder()).expect("it is there");
                store.records().publish(seen.at, Version::new(10 + *number)).expect("it is there");
            }
            let (mut seen, mut from, mut behind) = (Vec::new(), (0, 0), None::<Vec<u8>>);
            loop {
                let ask = CopyFrom { group: 0, table: 3, bucket: from.0, buckets: from.1, behind: behind.as_deref() };
                let mut bytes = Vec::new();
                let part = copy(&storage, key_size, &ask, (room, &mut bytes)).expect("there is room");
                prop_assert!(bytes.len() <= room);
                for CarriedRow { table, key, version, value } in Many::<CarriedRow<'_>>::new(&bytes, part.count).iter() {
                    prop_assert_eq!(table, 3);
                    seen.push((key.to_vec(), version, value.expect("it is there").to_vec()));
                }
                let Some(next) = part.next else { break };
                from = next;
                behind = part.is_cut.then(|| seen.last().expect("a row").0.clone());
            }
            seen.sort_unstable();
            let mut all: Vec<_> =
                rows.iter().map(|(number, length)| (encoding(*number), 10 + number, vec![*number as u8; *length])).collect();
            all.sort_unstable();
            prop_assert_eq!(seen, all);
        }
    }
}
