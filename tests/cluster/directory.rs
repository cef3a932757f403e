//! People, which are found by a nickname of their own, by the group that they are in, and by
//! their number; and prices, which every node has. What tests of tables, indexes and columns use.

use drtm_htm::NoHtm;
use drtm_rdma::Fabric;
use drtm_txn::{
    Column, Config, Error, Index, IndexDef, Multi, Part, Pod, Table, TableDef,
    cluster::{NodeBuilder, Partition},
    part,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Person {
    /// Zero if there is none.
    pub(crate) nick: u64,
    pub(crate) group: u64,
    /// In whose version the row is.
    pub(crate) stamp: u64,
    pub(crate) balance: i64,
}

const PEOPLE: TableDef<u64, Pod<Person>> = TableDef::hash("people");
const BY_NICK: IndexDef<u64, Pod<Person>, u64> =
    IndexDef::unique("people by nick", |_, person| (person.nick != 0).then_some(person.nick));
const BY_GROUP: IndexDef<u64, Pod<Person>, u64, Multi> =
    IndexDef::multi("people by group", |_, person| Some(person.group));
const BALANCE: Part<Person, i64> = part!(Person, balance);

/// What every node has.
pub(crate) const PRICES: TableDef<u64, Pod<u64>> = TableDef::hash("prices");
pub(crate) const ITEMS: u64 = 50;

pub(crate) fn price(item: u64) -> u64 {
    100 + 7 * item
}

#[derive(Clone, Copy)]
pub(crate) struct Directory {
    pub(crate) people: Table<u64, Pod<Person>>,
    pub(crate) by_nick: Index<u64, Pod<Person>, u64>,
    pub(crate) by_group: Index<u64, Pod<Person>, u64, Multi>,
    pub(crate) balances: Column<u64, Pod<Person>, drtm_txn::Hash, i64>,
    pub(crate) prices: Table<u64, Pod<u64>>,
}

impl Directory {
    /// Entries are at other nodes than their rows, mostly.
    pub(crate) fn define<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        node: &mut NodeBuilder<F, S>,
    ) -> Result<Self, Error> {
        let people = node.table(PEOPLE, Partition::by("number", |number| *number))?;
        let by_nick = node.index(people, BY_NICK, Partition::by("nick, turned", |nick| nick + 1))?;
        let by_group = node.index(people, BY_GROUP, Partition::hash())?;
        let prices = node.table(PRICES, Partition::replicated())?;
        let local = node.local()?.table(PRICES)?;
        node.local()?.transact(|tx| (0..ITEMS).try_for_each(|item| tx.put(local, item, &price(item))))?;
        Ok(Self { people, by_nick, by_group, balances: people.column(BALANCE), prices })
    }
}
