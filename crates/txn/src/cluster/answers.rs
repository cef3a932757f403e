//! What owners' answers mean for a transaction, whatever their form.

use std::ops::Bound;

use drtm_kv::Version;
use drtm_rdma::Port;

use super::{
    ClusterError,
    state::{Missing, Op, ScannedRange, State},
    wire::{Found, Is, LeasedRow, LineIs, Placed, Scanned, ScannedRow},
};
use crate::{Conflict, Error, memory::storage::KeyRef, tx::position::Way};

impl<P: Port> State<'_, P> {
    pub(super) fn has_found(&mut self, number: u32, found: &Found<'_>) -> Result<(), Error> {
        let row = &mut self.rows[number as usize];
        let (node, was_known, was_read) = (row.owner, row.at, row.is_read);
        match found.is {
            Is::Record { at, version, value } => {
                if was_read && (was_known != Some(at) || row.seen != version) {
                    return Err(Conflict::Validation.into());
                }
                (row.at, row.location, row.seen) = (Some(at), None, version);
                let (range, ()) = self.arena.values.append(|bytes| {
                    bytes.extend_from_slice(value);
                    Ok(())
                })?;
                row.value = Some(range);
            }
            Is::Nothing(absence) => {
                if was_known.is_some() && was_read {
                    return Err(Conflict::Validation.into());
                }
                // It may have been locked when it was looked for before, and is gone.
                row.at = None;
                if !row.is_final {
                    self.missing.push(Missing { owner: node, absence });
                }
            }
            Is::Locked(at) => {
                row.at = row.at.or(Some(at));
                return Err(Conflict::Locked.into());
            }
        }
        // What stays as it is need not be looked at again.
        (row.is_known, row.is_read) = (true, !row.is_final);
        self.owner(node).has_count(found.count);
        Ok(())
    }

    pub(super) fn has_leased(&mut self, number: u32, leased: &LeasedRow<'_>) -> Result<(), Error> {
        self.rows[number as usize].lease = leased.end;
        self.has_found(number, &leased.found)
    }

    pub(super) fn has_scanned(&mut self, number: u32, scanned: &Scanned<'_>) -> Result<(), Error> {
        let ScannedRange { table, owner, way, is_final, .. } = self.spans[number as usize];
        self.owner(owner).has_count(scanned.count);
        if !is_final {
            self.missing.extend(scanned.passed.iter().map(|absence| Missing { owner, absence: *absence }));
        }
        if scanned.next.1 > 0 {
            return self.has_listed(number, scanned);
        }
        let mut has_some = false;
        for ScannedRow { key, at, version, value } in scanned.iter() {
            if !self.spans[number as usize].has(key, &self.arena.keys) {
                return Err(ClusterError::Nonsense { node: owner, what: "a row that is not of the range" }.into());
            }
            let row = self.row(table, key, owner)?;
            let place = Bound::Excluded(self.rows[row as usize].key);
            let span = &mut self.spans[number as usize];
            match way {
                Way::Up => span.low = place,
                Way::Down => span.high = place,
            }
            has_some = true;
            self.rows[row as usize].is_final = is_final;
            // What the transaction writes itself is seen as it writes it. Whether others change it
            // is found out when it is locked.
            if !self.rows[row as usize].is_written() {
                self.has_found(row, &Found { count: scanned.count, is: Is::Record { at, version, value } })?;
            }
        }
        if !scanned.is_whole && !has_some {
            return Err(ClusterError::Nonsense { node: owner, what: "no rows, and more to come" }.into());
        }
        self.spans[number as usize].is_whole = scanned.is_whole;
        Ok(())
    }

    /// Adds the rows of a hash table's keys, which are looked up afterwards.
    fn has_listed(&mut self, number: u32, listed: &Scanned<'_>) -> Result<(), Error> {
        let ScannedRange { table, owner, is_final, low, .. } = self.spans[number as usize];
        let (next, classes) = listed.next;
        let low_before = if let Bound::Included(key) = low { Some(key.in_bytes(&self.arena.keys)) } else { None };
        let is_further = low_before.is_none_or(|low| low < KeyRef::Word(next));
        if !listed.is_whole && !is_further {
            return Err(ClusterError::Nonsense { node: owner, what: "a list of keys that does not go on" }.into());
        }
        for ScannedRow { key, .. } in listed.iter() {
            let row = self.row(table, key, owner)?;
            self.rows[row as usize].is_final = is_final;
        }
        let (low, high) = (self.arena.keep_key(KeyRef::Word(next))?, self.arena.keep_key(KeyRef::Word(classes))?);
        let span = &mut self.spans[number as usize];
        (span.low, span.high) = (Bound::Included(low), Bound::Excluded(high));
        span.is_whole = listed.is_whole;
        Ok(())
    }

    pub(super) fn has_placed(&mut self, number: u32, placed: &Placed) -> Result<(), Error> {
        let row = &mut self.rows[number as usize];
        let node = row.owner;
        (row.at, row.seen, row.is_known) = (Some(placed.at), placed.version, true);
        if placed.is_made {
            if !placed.version.is_removed() {
                return Err(ClusterError::Nonsense { node, what: "a new row is there already" }.into());
            }
            (row.is_made, row.is_read) = (true, true);
            if let Op::Put(value) = row.op {
                row.op = Op::Publish(value);
            }
        }
        for missing in self.missing.iter_mut().filter(|missing| missing.owner == node) {
            if let Some(shift) = placed.shifts.iter().find(|shift| shift.before == missing.absence) {
                missing.absence = shift.after;
            }
        }
        // Where some of a guard's keys belong now that it was divided.
        for shift in &placed.shifts {
            let is_guarded = |missing: &Missing| missing.owner == node && missing.absence == shift.after;
            if let Some(absence) = shift.split_off
                && self.missing.iter().any(is_guarded)
            {
                self.missing.push(Missing { owner: node, absence });
            }
        }
        self.owner(node).has_count(placed.count);
        Ok(())
    }

    pub(super) fn has_locked(&mut self, number: u32, before: Version) -> Result<(), Error> {
        let row = &mut self.rows[number as usize];
        row.is_locked = true;
        if row.is_read && row.seen != before {
            return Err(Conflict::Validation.into());
        }
        row.seen = before;
        Ok(())
    }

    pub(super) fn has_line(&mut self, owner: u32, line: LineIs) {
        let owner = &mut self.owners[owner as usize];
        owner.has_count(line.count);
        owner.has_number(line.epoch, false);
    }
}
