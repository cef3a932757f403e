//! A transaction whose conflicts are found by cache lines: HADES and HADES-H.
//!
//! 1. *Execute*: a first access gets the transaction a pair of filters. Lines of records that it
//!    reads or writes enter filters: of its own node, or of the NICs of others.
//! 2. *Intend to commit*: its own node, and then all others that it has accessed, lock these lines
//!    in their directories, and squash others that have accessed what it writes. Each answer is an
//!    acknowledgement.
//! 3. *Validate* by software what lines do not show: guards of missing keys and of ranges, records
//!    that say that their keys are absent; in HADES-H what was read of its own node.
//! 4. *Validation plus updates*: it is decided. Each node writes its rows, and unlocks.
//!
//! The lines of index nodes are in no filter. Splits move rows without a transaction, and what is
//! found by an index is validated by the guards that all protocols have. These are looked at after
//! all acknowledgements: what was read has not changed until then, so that the transaction happens
//! at that moment.

use std::{rc::Rc, time::Duration};

use drtm_rdma::{
    Cost, Fabric, Phase,
    machine::{Kind, Message},
};

use super::ClusterTx;
use crate::{
    Config, Conflict, Error,
    cluster::{
        ask::{Ask, Asks},
        requests::lines::encode_intended,
        state::{InNics, Place, Row},
    },
    mutation::Mutation,
};

/// How soon a transaction looks again whether filters are free.
const FREE_AFTER: Duration = Duration::from_micros(2);

impl<F: Fabric, S: Config<Engine = F::Engine>> ClusterTx<'_, F, S> {
    /// Asks for rows by way of NICs, and waits for all answers. The transaction gets filters first,
    /// if it has none.
    pub(super) async fn round_of_lines(&mut self, asks: &[Ask]) -> Result<(), Error> {
        let worker = Rc::clone(&self.worker);
        let (Some(nic), Some(state)) = (&worker.node.nic, &mut self.state) else { return Ok(()) };
        while state.in_nics.is_none() {
            match nic.begin(state.holder.worker()) {
                Some(tx) => state.in_nics = Some(InNics::new(tx)),
                // It waits for others that hold nothing which they wait for.
                None => worker.endpoint().sleep(FREE_AFTER).await,
            }
        }
        for ask in asks {
            let node = ask.node(state);
            if let Some(known) = state.in_nics.as_mut().filter(|known| !known.has(node)) {
                nic.record(known.tx, node);
                known.add(node);
            }
        }
        let by_nic = |ask: &Ask| match *ask {
            Ask::Read(row) => Ask::Fetch(row),
            Ask::Scan(span) => Ask::FetchRange(span),
            Ask::Place(row) => Ask::PlaceLines(row),
            other => other,
        };
        let asks: Asks = asks.iter().map(by_nic).collect();
        worker.round(state, Phase::Execute, &asks).await
    }

    /// Notes that a row is written: a local line gets its tag, which squashes this transaction if
    /// another one of the node has accessed it.
    ///
    /// # Errors
    ///
    /// A conflict.
    pub(super) fn note_written(&mut self, number: u32) -> Result<(), Error> {
        let worker = Rc::clone(&self.worker);
        let (Some(nic), Some(state)) = (&worker.node.nic, &mut self.state) else { return Ok(()) };
        let row = &state.rows[number as usize];
        let (Some(known), Some(at)) = (&state.in_nics, row.at()) else { return Ok(()) };
        if nic.is_hybrid() || state.node_at(row.shard) != worker.id() {
            return Ok(());
        }
        let written = worker.lines_of(at).and_then(|lines| {
            worker.act(known.tx, worker.id(), |acting| acting.access(&lines, Kind::Write, |node| worker.has_left(node)))
        });
        let written = written.map_err(|refusal| state.refused(worker.id(), refusal));
        state.blame(Some(number), &written);
        written
    }

    /// Prepares the commit: everything that can stop the transaction. Directories are locked
    /// afterwards, unless this fails.
    pub(super) async fn prepare_lines(&mut self) -> Result<(), Error> {
        if self.state().rows.iter().any(Row::is_written) {
            self.reserve_log().await?;
            self.place().await?;
        }
        if self.state().in_nics.is_none() {
            return self.check_lease();
        }
        self.list_intended();
        // The directory of its own node is locked first.
        self.round(Phase::Lock, &[Ask::Intend(0)]).await?;
        let asks = self.of_other_nics(Ask::Intend);
        let worker = Rc::clone(&self.worker);
        if !asks.is_empty() {
            // The NIC is told, and asks the others and takes their answers alone.
            worker.endpoint().charge(Cost::Request);
            self.round(Phase::Lock, &asks).await?;
            worker.endpoint().charge(Cost::Completion);
        }
        let (Some(nic), Some(state)) = (&worker.node.nic, &self.state) else { return Ok(()) };
        let Some(known) = &state.in_nics else { return Ok(()) };
        let tx = known.tx;
        for part in known.parts.iter().filter(|part| part.has_acknowledged && part.node != worker.id()) {
            nic.receive(&Message::Ack { tx, from: part.node });
        }
        if !S::has(Mutation::CommitWithoutValidation) {
            self.check_lines(false).await?;
        }
        if let Some(state) = &self.state {
            worker.check_view(state)?;
        }
        if nic.decide(tx) { Ok(()) } else { Err(Conflict::Validation.into()) }
    }

    /// Lists what is intended of rows, by the nodes that have them.
    fn list_intended(&mut self) {
        let worker = Rc::clone(&self.worker);
        let is_hybrid = worker.node.nic.as_ref().is_some_and(|nic| nic.is_hybrid());
        let state = self.state();
        let Some(mut known) = state.in_nics.take() else { return };
        for row in state.rows.iter().filter(|row| row.is_written()) {
            // A place that an earlier run has found, which this one has not accessed.
            let node = state.node_at(row.shard);
            if !known.has(node) {
                worker.node.nic.iter().for_each(|nic| nic.record(known.tx, node));
                known.add(node);
            }
        }
        for part in &mut known.parts {
            part.is_logged = worker.durability_of(part.node).is_some();
        }
        for (number, row) in state.rows.iter().enumerate().filter(|(_, row)| row.place != Place::Nowhere) {
            let node = state.node_at(row.shard);
            let is_read = is_hybrid && node == worker.id() && row.is_read() && !row.is_final;
            let part = known.parts.iter_mut().find(|part| part.node == node);
            if let Some(part) = part.filter(|_| row.is_written() || is_read) {
                encode_intended(state.store_of(row), row, &state.arena, &mut part.intended.0);
                part.intended.1 += 1;
                if row.is_written() {
                    part.rows.push(number as u32);
                }
            }
        }
        state.in_nics = Some(known);
    }

    /// Looks again at what lines do not show: guards, records of absent keys, and in HADES-H what
    /// was read of this node. With `asks_nics`, also whether the transaction was not squashed at
    /// any node: then all that it has read was true at one moment.
    pub(super) async fn check_lines(&mut self, asks_nics: bool) -> Result<(), Error> {
        let worker = Rc::clone(&self.worker);
        let is_hybrid = worker.node.nic.as_ref().is_some_and(|nic| nic.is_hybrid());
        let state = self.state();
        let by_version = |row: &Row| {
            let is_software = is_hybrid && state.node_at(row.shard) == worker.id();
            // What says that a key is missing until the commit is a record, too, perhaps its own.
            let is_seen = row.is_read() && (is_software || row.seen.is_removed());
            is_seen && row.place != Place::Nowhere && !row.is_final
        };
        let rows = state.rows.iter().zip(0..).filter(|(row, _)| by_version(row));
        let mut asks: Asks = rows.map(|(_, number)| Ask::CheckLines(number)).collect();
        if !S::has(Mutation::CommitDespitePhantoms) {
            asks.extend(state.guards.needed().map(Ask::Guard));
        }
        if asks_nics && let Some(known) = &state.in_nics {
            asks.extend((0..known.parts.len() as u32).map(Ask::Standing));
        }
        let counted = state.counted(|row| row.seen.is_removed());
        state.ask_lines(&mut asks, Ask::Count, |node| counted.contains(&node));
        self.round(Phase::Validate, &asks).await?;
        Ok(self.state().check_turns()?)
    }

    /// Returns requests to the NICs of other nodes that are not done with the transaction.
    fn of_other_nics(&mut self, ask: impl Fn(u32) -> Ask) -> Asks {
        let Some(known) = &self.state().in_nics else { return Asks::new() };
        known.others().filter(|part| !known.parts[*part as usize].is_over).map(ask).collect()
    }

    /// Adds the requests that carry a decided transaction out, in place of those that write rows.
    pub(super) fn update_by_lines(&mut self, asks: &mut Asks) {
        if self.state().in_nics.is_none() {
            return;
        }
        asks.retain(|ask| !matches!(ask, Ask::Apply(_)));
        asks.extend(self.of_other_nics(Ask::Update));
        let is_left = self.state().in_nics.as_ref().is_some_and(|known| !known.parts[0].is_over);
        asks.extend(is_left.then_some(Ask::Update(0)));
    }

    /// Gives up what an undecided transaction has in the NIC of its node. Adds the requests that do
    /// so at other nodes.
    pub(super) fn give_up_lines(&mut self, asks: &mut Asks) {
        let worker = Rc::clone(&self.worker);
        if let (Some(nic), Some(known)) = (&worker.node.nic, &self.state().in_nics) {
            nic.abort(known.tx);
        }
        // First: a record that was made for this one is locked until then.
        let mut all = self.of_other_nics(Ask::End);
        if !all.is_empty() {
            worker.endpoint().charge(Cost::Request);
        }
        all.extend(asks.drain(..));
        *asks = all;
    }

    /// Returns whether the NIC of a node may have something of the transaction still.
    pub(super) fn owes_lines(&self) -> bool {
        let Some(state) = &self.state else { return false };
        let Some(known) = state.in_nics.as_ref().filter(|_| !state.is_decided) else { return false };
        let mut others = known.parts.iter().skip(1).filter(|part| !part.is_over);
        others.any(|part| self.worker.may_be_met_again(part.node, state.met(part.node)))
    }
}
