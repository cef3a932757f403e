//! Locks and leases that verbs take before a transaction runs: lookup, swap and READ of each row.

use drtm_kv::{Holder, Leased, Leases, Location, Look};
use drtm_rdma::{Fabric, Phase, Port, Verbs};

use super::{
    Form,
    coordinator::Coordinator,
    peers::{Fence, Glimpse, Peer, TablePeer, all, at, not_found, one_sided},
    round::keep_first,
    state::{Place, Row, Sight, State},
};
use crate::{Config, Conflict, Error, memory::storage::KeyRef, mutation::Mutation};

impl Peer {
    /// Looks a row up, or looks again where it was not where it had been found.
    pub(super) async fn find<P: Port>(
        &self,
        verbs: Verbs<'_, P>,
        table: u16,
        key: KeyRef<'_>,
        is_again: bool,
    ) -> Result<Option<Location>, Error> {
        at!(self, table, key, |lookup, _records, key| {
            let found = if is_again { lookup.find_again(verbs, key).await } else { lookup.find(verbs, key).await };
            found.map_err(|source| not_found(self.node, source))
        }, else Ok(None))
    }

    /// Looks a row up, leases it until a time, or shares the lease that it has, and reads it.
    /// Returns the lease's end, too, and the owner's fence after that, if it is the last lease of
    /// its round there, or is taken late.
    async fn lease<P: Port>(
        &self,
        verbs: Verbs<'_, P>,
        table: u16,
        key: KeyRef<'_>,
        until: (u64, Leases),
        is_last: bool,
        is_dead: impl Fn(Holder) -> bool,
    ) -> Result<(Glimpse, u64, Option<Fence>), Error> {
        let (mut found, mut is_late) = (self.find(verbs, table, key, false).await?, false);
        loop {
            let Some(location) = found else { return Ok((Glimpse::Nothing, 0, None)) };
            let mut value = Vec::new();
            let leased = at!(self, table, key, |_lookup, records, key| {
                records.lease_and_read(verbs, location, key, until, is_last.then(|| self.fence()), &mut value).await
            }, else Ok(Look::Other));
            match leased.map_err(|source| one_sided(self.node, source))? {
                Look::Found(Leased { version, end, words, is_prompt }) => {
                    let fence = match words {
                        None if is_last || is_late || !is_prompt => Some(self.read_fence(verbs).await?),
                        words => words.map(|[view, turns]| Fence { view, turns }),
                    };
                    return Ok((Glimpse::Record { location, version, value }, end, fence));
                }
                Look::Busy => {
                    self.check_holder(verbs, location, is_dead).await?;
                    return Ok((Glimpse::Busy(location), 0, None));
                }
                Look::Stale => {
                    let again = self.find(verbs, table, key, true).await?;
                    if again == found {
                        // It was removed, and is about to be taken out: its owner knows.
                        return Ok((Glimpse::Nothing, 0, None));
                    }
                    (found, is_late) = (again, true);
                }
                _ => return Ok((Glimpse::Nothing, 0, None)),
            }
        }
    }
}

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'e, F, S> {
    /// Returns whether verbs take locks and leases of a row: where it can be found by them, and
    /// where a NIC's swap is atomic with those of processors.
    pub(super) fn is_leased_by_verbs(&self, state: &State<'e, F::Port>, row: &Row) -> bool {
        self.protocol().lock == Form::OneSided
            && self.swaps()
            && row.sight == Sight::Unknown
            && self.peer(state.node_at(row.shard)).is_some_and(|peer| peer.has(state.store_of(row)))
    }

    /// Leases and reads rows, all at the same time.
    pub(super) async fn lease_all(
        &self,
        state: &mut State<'e, F::Port>,
        phase: Phase,
        rows: &[u32],
    ) -> Result<(), Error> {
        let (verbs, until) = (self.endpoint().during(phase), (state.leases_until, self.leases()));
        self.begin_round(state);
        let leased = {
            let keys = &state.arena.keys;
            let lease = |(number, is_last): (&u32, bool)| {
                let row = &state.rows[*number as usize];
                let (peer, store) = (self.peer_of(state, row), state.store_of(row));
                let is_dead = |holder| self.is_told_of(holder);
                async move { peer?.lease(verbs, store, row.key.in_bytes(keys), until, is_last, is_dead).await }
            };
            all(self.endpoint(), rows.iter().zip(state.are_last(rows)).map(lease)).await
        };
        let mut outcome = Ok(());
        for (row, leased) in rows.iter().zip(leased) {
            let node = state.node_of(*row);
            let noted = leased.and_then(|(glimpse, end, fence)| {
                state.rows[*row as usize].lease = end;
                state.note_glimpsed(*row, glimpse)?;
                fence.map_or(Ok(()), |fence| self.note_fence_of(state, node, fence))
            });
            keep_first(&mut outcome, noted);
        }
        outcome?;
        self.check_locations(state, phase, rows).await
    }

    /// Finds rows, all at the same time, and notes where they are before anything is done there: a
    /// transaction that is dropped must know what it may have locked.
    pub(super) async fn find_all(
        &self,
        state: &mut State<'e, F::Port>,
        phase: Phase,
        rows: &[u32],
        is_again: bool,
    ) -> Result<(), Error> {
        let verbs = self.endpoint().during(phase);
        let found = {
            let keys = &state.arena.keys;
            let find = |number: &u32| {
                let row = &state.rows[*number as usize];
                let (peer, store) = (self.peer_of(state, row), state.store_of(row));
                async move { peer?.find(verbs, store, row.key.in_bytes(keys), is_again).await }
            };
            all(self.endpoint(), rows.iter().map(find)).await
        };
        let mut outcome = Ok(());
        for (row, found) in rows.iter().zip(found) {
            let row = &mut state.rows[*row as usize];
            match found {
                // Not where it was, and found there again: it is about to be taken out.
                Ok(found) if found.is_none() || is_again && found == row.location() => {
                    (row.place, row.sight) = (Place::Nowhere, Sight::Missed);
                }
                Ok(Some(location)) => row.place = Place::Found(location),
                Ok(None) => {}
                Err(error) => keep_first(&mut outcome, Err(error)),
            }
        }
        outcome
    }

    /// Confirms, at the moment at which a transaction is decided, that its leases hold.
    ///
    /// # Errors
    ///
    /// [`Conflict::Expired`]; [`ClusterError::ClockWrong`].
    pub(super) fn confirm(&self, state: &State<'e, F::Port>) -> Result<(), Error> {
        let ends = state.rows.iter().map(|row| row.lease).filter(|end| *end > 0);
        let Some(end) = ends.min() else { return Ok(()) };
        if S::has(Mutation::LeasesNotConfirmed) {
            return Ok(());
        }
        // It is not known when the reference is another one than before.
        let time = self.known_time()?.ok_or(Conflict::Expired)?;
        let now = if S::has(Mutation::LeasesTrustedTooLong) { time.least() } else { time.most() };
        if now < end { Ok(()) } else { Err(Conflict::Expired.into()) }
    }
}
