//! The database of a soak: a bank, lists that transactions append to, and a journal of each
//! transaction's reads and writes.
//!
//! A transaction's writes are redundant: they are in its journal row, in lists, in notes derived
//! from lists, in a count, and in two accounts. So a partial transaction is detected, whichever
//! part is missing.

use drtm_txn::{Config, Db, Error, Index, IndexDef, Mode, Multi, Ordered, Pod, Raw, Table, TableDef, Tx, Unique, part};
use fastrand::Rng;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The number of accounts.
pub(super) const BANK: u32 = 16;
pub(super) const OPENING: i64 = 1_000;

/// The number of lists.
pub(super) const LISTS: u32 = 12;

/// Groups of the index that is not unique.
pub(super) const GROUPS: u64 = 8;

/// An account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Account {
    pub(super) balance: i64,
    /// Unique: the last transaction, and which of its two accounts this is.
    pub(super) last: u64,
}

/// The transactions of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Count {
    pub(super) thread: u64,
    pub(super) made: u64,
}

const ACCOUNTS: TableDef<u32, Pod<Account>> = TableDef::hash("accounts");
const COUNTS: TableDef<u32, Pod<Count>> = TableDef::hash("counts");
const LIST: TableDef<u32, Raw> = TableDef::hash("lists");
const NOTES: TableDef<String, Raw, Ordered> = TableDef::ordered("notes");
const JOURNAL: TableDef<u64, Raw, Ordered> = TableDef::ordered("journal");
const BY_LAST: IndexDef<u32, Pod<Account>, u64> = IndexDef::unique("accounts by last", |_, row| Some(row.last));
const BY_GROUP: IndexDef<u32, Pod<Account>, u64, Multi> =
    IndexDef::multi("accounts by group", |_, row| Some(row.last % GROUPS));

/// The tables of a database.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ledger {
    pub(super) accounts: Table<u32, Pod<Account>>,
    pub(super) counts: Table<u32, Pod<Count>>,
    pub(super) lists: Table<u32, Raw>,
    pub(super) notes: Table<String, Raw, Ordered>,
    pub(super) journal: Table<u64, Raw, Ordered>,
    pub(super) by_last: Index<u32, Pod<Account>, u64, Unique>,
    pub(super) by_group: Index<u32, Pod<Account>, u64, Multi>,
}

/// A list as a transaction read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) list: u32,
    pub(super) length: u32,
    /// The digest of its contents.
    pub(super) digest: u64,
    /// Whether the transaction appended to it.
    pub(super) appended: bool,
}

impl Seen {
    const BYTES: usize = 17;

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.list.to_le_bytes());
        bytes.extend(self.length.to_le_bytes());
        bytes.extend(self.digest.to_le_bytes());
        bytes.push(self.appended.into());
    }

    /// Decodes all entries of a journal row.
    pub(super) fn decode_all(bytes: &[u8]) -> Option<Vec<Self>> {
        let decode = |bytes: &[u8]| {
            Some(Self {
                list: u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?),
                length: u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?),
                digest: u64::from_le_bytes(bytes.get(8..16)?.try_into().ok()?),
                appended: *bytes.get(16)? != 0,
            })
        };
        bytes.len().is_multiple_of(Self::BYTES).then(|| bytes.chunks(Self::BYTES).map(decode).collect())?
    }
}

/// Returns a digest of a list's contents.
pub(super) fn digest(list: &[u64]) -> u64 {
    list.iter().fold(0, |digest, id| drtm_drive::scatter::scatter(digest ^ id))
}

/// Decodes the transactions of a list.
pub(super) fn ids(bytes: &[u8]) -> Vec<u64> {
    let id = |bytes: &[u8]| bytes.try_into().map_or(u64::MAX, u64::from_le_bytes);
    bytes.chunks(8).map(id).collect()
}

/// Returns the name of a list's note.
pub(super) fn note_of(list: u32) -> String {
    format!("of list {list}")
}

/// Returns a list's note after a transaction appended last; `None` for some transactions.
pub(super) fn note(last: u64) -> Option<[u8; 8]> {
    (!last.is_multiple_of(3)).then(|| last.to_le_bytes())
}

/// Returns the unique identity of a transaction: the life of the database, the thread, and a
/// number.
pub(super) fn id(life: u32, thread: u32, number: u32) -> u64 {
    u64::from(life) << 40 | u64::from(thread) << 32 | u64::from(number)
}

/// Returns the thread of a transaction.
pub(super) fn thread_of(id: u64) -> u32 {
    (id >> 32) as u32 & 0xff
}

impl Ledger {
    pub(super) fn open<S: Config>(db: &Db<S>) -> Result<Self, Error> {
        let accounts = db.table(ACCOUNTS)?;
        let ledger = Self {
            accounts,
            counts: db.table(COUNTS)?,
            lists: db.table(LIST)?,
            notes: db.table(NOTES)?,
            journal: db.table(JOURNAL)?,
            by_last: db.index(accounts, BY_LAST)?,
            by_group: db.index(accounts, BY_GROUP)?,
        };
        db.transact(|tx| {
            if tx.contains(accounts, 0)? {
                return Ok(());
            }
            (0..BANK)
                .try_for_each(|number| tx.insert(accounts, number, &Account { balance: OPENING, last: number.into() }))
        })?;
        Ok(ledger)
    }

    /// Runs a transaction that writes, and records the lists as it read them.
    pub(super) fn write<S: Config>(
        &self,
        tx: &mut Tx<'_, S>,
        id: u64,
        random: &mut Rng,
        seen: &mut Vec<Seen>,
    ) -> Result<(), Error> {
        seen.clear();
        let (from, to) = (random.u32(0..BANK), random.u32(0..BANK));
        let amount = random.i64(1..100);
        for (account, amount, side) in [(from, -amount, 0), (to, amount, 1)] {
            let changed = tx.update(self.accounts, account, |row| {
                row.balance += amount;
                row.last = id * 2 + side;
            })?;
            changed.ok_or(Error::Missing { table: "accounts" })?;
        }
        for (list, appended) in draw_lists(random) {
            let mut bytes = tx.get(self.lists, list)?.unwrap_or_default();
            seen.push(Seen { list, length: (bytes.len() / 8) as u32, digest: digest(&ids(&bytes)), appended });
            if appended {
                bytes.extend(id.to_le_bytes());
                tx.put(self.lists, list, &bytes)?;
                match note(id) {
                    Some(note) => tx.put(self.notes, note_of(list), &note)?,
                    None => tx.remove(self.notes, note_of(list)).map(drop)?,
                }
            }
        }
        let thread = thread_of(id);
        if tx.update(self.counts.column(part!(Count, made)), thread, |made| *made += 1)?.is_none() {
            tx.insert(self.counts, thread, &Count { thread: thread.into(), made: 1 })?;
        }
        let mut row = Vec::new();
        seen.iter().for_each(|seen| seen.encode(&mut row));
        tx.insert(self.journal, id, &row)
    }

    /// Runs a transaction that only reads lists.
    pub(super) fn read<S: Config, M: Mode>(
        &self,
        tx: &Tx<'_, S, M>,
        random: &mut Rng,
        seen: &mut Vec<Seen>,
    ) -> Result<(), Error> {
        seen.clear();
        for (list, _) in draw_lists(random) {
            let ids = ids(&tx.get(self.lists, list)?.unwrap_or_default());
            seen.push(Seen { list, length: ids.len() as u32, digest: digest(&ids), appended: false });
        }
        Ok(())
    }
}

/// Draws up to three different lists, and whether each is appended to; the first always is.
fn draw_lists(random: &mut Rng) -> impl Iterator<Item = (u32, bool)> + use<> {
    let (first, step, count) = (random.u32(0..LISTS), random.u32(1..LISTS / 3), random.u32(1..=3));
    let appends = random.u8(..);
    (0..count).map(move |place| ((first + place * step) % LISTS, place == 0 || appends >> place & 1 == 0))
}
