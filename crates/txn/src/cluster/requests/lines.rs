//! Requests of protocols that find conflicts by cache lines. A node's NIC carries them out: what
//! they read and write of its rows, and what that does to filters and locks, is one step.
//!
//! See `smart_nic`, and `docs/hades.md`.

mod commit;

pub(in crate::cluster) use self::commit::{End, Intend, Squash, SquashTx, Update, encode_intended};

use drtm_kv::{Handle, Holder, ReadEntry, Version};
use drtm_rdma::{
    Cost, Fabric, NodeId, Port, Presence,
    machine::{Kind, Stopped, TxId},
    rpc::{Decode, DecodeError, Encode, Reader},
};

use super::{
    About, Answer, On, Request, Serving, TxRequest,
    place::{Place, PlaceRow, Placed, ReapRow, reap},
    read::{Found, Is, Read, ReadRow},
    scan::{Scan, ScanRows, Scanned},
};
use crate::{
    Config, Conflict, Error,
    cluster::{
        Refusal,
        coordinator::Coordinator,
        smart_nic::{Acting, Lines, lines_of},
        state::{NicPart, State},
        wire::{Wire, messages},
    },
};

impl Wire<'_> for TxId {
    fn put(&self, into: &mut Vec<u8>) {
        (self.node.0, self.slot, self.attempt).encode(into);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (node, slot, attempt) = Decode::decode(from)?;
        Ok(Self { node: NodeId(node), slot, attempt })
    }
}

impl Wire<'_> for Stopped {
    fn put(&self, into: &mut Vec<u8>) {
        into.push(match self {
            Self::Local => 0,
            Self::Committer => 1,
            Self::Evicted => 3,
            Self::NicFull => 4,
            _ => 2,
        });
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match u8::decode(from)? {
            0 => Self::Local,
            1 => Self::Committer,
            2 => Self::Locked,
            3 => Self::Evicted,
            4 => Self::NicFull,
            _ => return Err(DecodeError::Invalid { what: "reason of a squash" }),
        })
    }
}

messages! {
    /// Asks for a row, whose lines enter the transaction's read filter.
    FetchRow<'a> { tx: TxId, row: ReadRow<'a>, }
    /// Asks for the rows of a range, whose lines enter the transaction's read filter.
    FetchRows<'a> { tx: TxId, rows: ScanRows<'a>, }
    /// Asks for a record for a key, whose lines enter the transaction's write filter.
    PlaceWritten<'a> { tx: TxId, row: PlaceRow<'a>, }
    /// Asks whether a transaction was not squashed.
    StandingOf { tx: TxId, }
    /// Asks whether a record is as it was seen, by its version.
    CheckRead { tx: TxId, at: Handle, seen: Version, holder: Holder, }
}

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'e, F, S> {
    /// Has the NIC carry out a transaction's request, and charges for that.
    pub(in crate::cluster) fn act<T>(
        &self,
        tx: TxId,
        caller: NodeId,
        act: impl FnOnce(&mut Acting<'_>) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let mut nic = self.node.nic.as_ref().ok_or(Refusal::Other)?.act(tx, caller, self.endpoint().now())?;
        let acted = act(&mut nic);
        let cost = nic.cost();
        drop(nic);
        self.endpoint().charge(cost);
        acted
    }

    /// Returns whether a node is gone, so that its transactions never end.
    pub(in crate::cluster) fn has_left(&self, node: NodeId) -> bool {
        matches!(self.endpoint().presence(node), Presence::Left(_) | Presence::Died(_))
    }

    /// Returns whether a key is looked up in an ordered table.
    fn is_sorted(&self, table: u16, key: crate::memory::storage::KeyRef<'_>) -> bool {
        self.node.home.store_for(table, key).is_ok_and(|served| served.storage.is_ordered())
    }

    /// Returns the lines of a record of this node.
    ///
    /// # Errors
    ///
    /// [`Refusal::Moved`] if it is no longer at its place.
    pub(in crate::cluster) fn lines_of(&self, at: Handle) -> Result<Lines, Refusal> {
        lines_of(&self.node.home.db.store.records(), at).ok_or(Refusal::Moved)
    }
}

/// Reads a row, as [`Read`] does.
pub(in crate::cluster) enum Fetch {}

impl Request for Fetch {
    const NUMBER: u16 = 40;
    const COST: Option<Cost> = Some(Cost::Lookup);
    /// Where a record of a hash table is, the asking node knows, as in other protocols that
    /// remember places.
    const BY_NIC: bool = true;
    type Body<'a> = FetchRow<'a>;
    type Reply<'a> = Found<'a>;

    fn serve<'p, F: Fabric, S: On<F>>(body: FetchRow<'_>, at: Serving<'p, '_, F, S>) -> Answer<'p, Self> {
        let (worker, caller) = (at.worker, at.caller);
        if caller != worker.id() && worker.is_sorted(body.row.table, body.row.key) {
            worker.endpoint().charge(Cost::Lookup);
        }
        worker.act(body.tx, caller, |nic| {
            nic.check()?;
            let found = Read::serve(body.row, at)?;
            if let Is::Record { at, .. } = found.is {
                nic.access(&worker.lines_of(at)?, Kind::Read, |node| worker.has_left(node))?;
            }
            Ok(found)
        })
    }
}

impl TxRequest for Fetch {
    type Of = Self;

    fn body<'a, P: Port>(state: &'a State<'_, P>, row: u32) -> FetchRow<'a> {
        FetchRow { tx: state.tx_in_nics(), row: Read::body(state, row) }
    }

    fn answered<P: Port>(state: &mut State<'_, P>, row: u32, found: Found<'_>) -> Result<(), Error> {
        Read::answered(state, row, found)
    }
}

/// Reads the rows of a range, as [`Scan`] does. Leaves and buckets have guards, as they do in other
/// protocols.
pub(in crate::cluster) enum FetchRange {}

impl Request for FetchRange {
    const NUMBER: u16 = 41;
    const COST: Option<Cost> = Some(Cost::Lookup);
    type Body<'a> = FetchRows<'a>;
    type Reply<'a> = Scanned<'a>;

    fn serve<'p, F: Fabric, S: On<F>>(body: FetchRows<'_>, at: Serving<'p, '_, F, S>) -> Answer<'p, Self> {
        let worker = at.worker;
        worker.act(body.tx, at.caller, |nic| {
            nic.check()?;
            let scanned = Scan::serve(body.rows, at)?;
            // Keys of a hash table are looked up afterwards.
            if scanned.classes == 0 {
                for row in scanned.rows.iter() {
                    nic.access(&worker.lines_of(row.at)?, Kind::Read, |node| worker.has_left(node))?;
                }
            }
            Ok(scanned)
        })
    }
}

impl TxRequest for FetchRange {
    type Of = Self;
    const ABOUT: About = About::Span;

    fn body<'a, P: Port>(state: &'a State<'_, P>, span: u32) -> FetchRows<'a> {
        FetchRows { tx: state.tx_in_nics(), rows: Scan::body(state, span) }
    }

    fn answered<P: Port>(state: &mut State<'_, P>, span: u32, scanned: Scanned<'_>) -> Result<(), Error> {
        Scan::answered(state, span, scanned)
    }
}

/// Finds or makes a record, as [`Place`] does.
pub(in crate::cluster) enum PlaceLines {}

impl Request for PlaceLines {
    const NUMBER: u16 = 42;
    const COST: Option<Cost> = Some(Cost::Insert);
    /// A record that is made is made by a processor.
    const BY_NIC: bool = true;
    type Body<'a> = PlaceWritten<'a>;
    type Reply<'a> = Placed;

    fn serve<'p, F: Fabric, S: On<F>>(body: PlaceWritten<'_>, at: Serving<'p, '_, F, S>) -> Answer<'p, Self> {
        let Serving { worker, participant, caller } = at;
        let PlaceWritten { tx, row } = body;
        worker.act(tx, caller, |nic| {
            nic.check()?;
            let PlaceRow { table, key, .. } = row;
            let placed = Place::serve(row, Serving { worker, participant: &mut *participant, caller })?;
            if caller != worker.id() && placed.is_made {
                worker.endpoint().charge(Cost::Insert);
            }
            let (record, seen) = (placed.at, placed.version);
            let lines = worker.lines_of(record);
            let accessed = lines.and_then(|lines| nic.access(&lines, Kind::Write, |node| worker.has_left(node)));
            match accessed {
                Ok(()) => Ok(placed),
                Err(refusal) => {
                    if placed.is_made {
                        // No other transaction knows of it.
                        reap(participant, ReapRow { table, key, at: record, seen }, false)?;
                    }
                    Err(refusal)
                }
            }
        })
    }
}

impl TxRequest for PlaceLines {
    type Of = Self;

    fn body<'a, P: Port>(state: &'a State<'_, P>, row: u32) -> PlaceWritten<'a> {
        PlaceWritten { tx: state.tx_in_nics(), row: Place::body(state, row) }
    }

    fn answered<P: Port>(state: &mut State<'_, P>, row: u32, placed: Placed) -> Result<(), Error> {
        Place::answered(state, row, placed)
    }
}

/// Looks whether a transaction was not squashed: all that it has read here was true together a
/// moment ago.
pub(in crate::cluster) enum Standing {}

impl Request for Standing {
    const NUMBER: u16 = 43;
    const COST: Option<Cost> = Some(Cost::Lock);
    const BY_NIC: bool = true;
    type Body<'a> = StandingOf;
    type Reply<'a> = bool;

    fn serve<'p, F: Fabric, S: On<F>>(body: StandingOf, at: Serving<'p, '_, F, S>) -> Answer<'p, Self> {
        at.worker.act(body.tx, at.caller, |nic| Ok(nic.check().is_ok()))
    }
}

impl TxRequest for Standing {
    type Of = Self;
    const ABOUT: About = About::NicPart;

    fn body<P: Port>(state: &State<'_, P>, _: u32) -> StandingOf {
        StandingOf { tx: state.tx_in_nics() }
    }

    fn answered<P: Port>(_: &mut State<'_, P>, _: u32, stands: bool) -> Result<(), Error> {
        if stands { Ok(()) } else { Err(Conflict::Validation.into()) }
    }
}

/// Looks whether a record is as it was seen, as [`Check`](super::check::Check) does, and no other
/// transaction's lines are locked there: what software has read, and records that say that their
/// keys are absent, which are taken out without a commit.
pub(in crate::cluster) enum CheckLines {}

impl Request for CheckLines {
    const NUMBER: u16 = 44;
    const COST: Option<Cost> = Some(Cost::Lock);
    type Body<'a> = CheckRead;
    type Reply<'a> = bool;

    fn serve<'p, F: Fabric, S: On<F>>(body: CheckRead, at: Serving<'p, '_, F, S>) -> Answer<'p, Self> {
        let Serving { worker, participant, caller } = at;
        let CheckRead { tx, at, seen, holder } = body;
        worker.act(tx, caller, |nic| {
            let Ok(lines) = worker.lines_of(at) else { return Ok(false) };
            if nic.is_by_software() {
                if nic.is_denied(&lines, Kind::Read) {
                    return Ok(false);
                }
                // Its version is in the first.
                nic.touch(&lines[..1], Kind::Read);
            }
            Ok(participant.home.db.store.records().is_still(ReadEntry { at, version: seen }, holder))
        })
    }
}

impl TxRequest for CheckLines {
    type Of = Self;

    fn body<P: Port>(state: &State<'_, P>, row: u32) -> CheckRead {
        let row = &state.rows[row as usize];
        let at = row.at().unwrap_or_default();
        CheckRead { tx: state.tx_in_nics(), at, seen: row.seen, holder: state.holder }
    }

    fn answered<P: Port>(_: &mut State<'_, P>, _: u32, is_still: bool) -> Result<(), Error> {
        if is_still { Ok(()) } else { Err(Conflict::Validation.into()) }
    }
}

impl<P: Port> State<'_, P> {
    /// Returns what the transaction has in a node's NIC.
    pub(super) fn nic_part(&self, part: u32) -> &NicPart {
        match &self.in_nics {
            Some(known) => &known.parts[part as usize],
            None => unreachable!("a transaction has filters before it asks NICs"),
        }
    }

    /// Returns the transaction's name in NICs.
    fn tx_in_nics(&self) -> TxId {
        match &self.in_nics {
            Some(known) => known.tx,
            None => unreachable!("a transaction has filters before it accesses lines"),
        }
    }
}
