//! Tables whose types have changed: what is refused, and how the application says that types mean
//! the same.

use drtm_txn::{
    Bincode, Codec, Db, Error, Key, Kind, Ordered, Pod, Postcard, Raw, TableDef, durability::storage::Image,
};
use serde::{Deserialize, Serialize};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Sound, open};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct User {
    name: String,
    age: u32,
}

/// The same name in another module.
mod moved {
    #[derive(serde::Serialize, serde::Deserialize)]
    pub(super) struct User {
        pub(super) name: String,
        pub(super) age: u32,
    }
}

/// The fields in another order, of another type, with another name, and one more.
mod changed {
    use serde::{Deserialize, Serialize};

    pub(super) mod order {
        #[derive(super::Serialize, super::Deserialize)]
        pub(in super::super) struct User {
            age: u32,
            name: String,
        }
    }

    pub(super) mod kind {
        #[derive(super::Serialize, super::Deserialize)]
        pub(in super::super) struct User {
            name: String,
            age: i32,
        }
    }

    pub(super) mod name {
        #[derive(super::Serialize, super::Deserialize)]
        pub(in super::super) struct User {
            name: String,
            shoes: u32,
        }
    }

    pub(super) mod more {
        #[derive(super::Serialize, super::Deserialize)]
        pub(in super::super) struct User {
            name: String,
            age: u32,
            email: Option<String>,
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Customer {
    name: String,
    age: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename = "User")]
struct Renamed {
    name: String,
    age: u32,
}

#[track_caller]
fn refused<K: Key, C: Codec, O: Kind>(db: &Db<Sound>, def: TableDef<K, C, O>, found: &str, given: &str) {
    match db.table(def) {
        Err(ref error @ Error::OtherTypes { ref is, ref asked, .. }) => {
            assert!(is.contains(found) && asked.contains(given), "{is} / {asked}");
            let said = error.to_string();
            assert!(said.contains("`Db::migrate`") && said.contains("`TableDef::was`"), "{said}");
        }
        other => panic!("{:?}", other.map(drop)),
    }
}

/// Runs a check on a reopened database: from its log, and from a checkpoint.
fn reopened(disk: &Image, check: impl Fn(&Db<Sound>) -> Result<(), Error>) -> Result<(), Error> {
    for _ in 0..2 {
        let db = open(disk)?;
        check(&db)?;
        db.checkpoint()?;
    }
    Ok(())
}

/// Bytes of an equal length that another type would misread.
#[test]
fn rows_are_not_misread_by_another_type() -> Result<(), Error> {
    const PAIRS: TableDef<u64, Postcard<(u32, u32)>> = TableDef::hash("pairs");
    let disk = Image::default();
    let db = open(&disk)?;
    let pairs = db.table(PAIRS)?;
    db.transact(|tx| tx.put(pairs, 1, &(1, 3)))?;
    drop(db);
    reopened(&disk, |db| {
        refused(db, TableDef::<u64, Postcard<(u32, i32)>>::hash("pairs"), "u64 to (u32*2)", "u64 to (u32,i32)");
        refused(db, TableDef::<u64, Postcard<[u32; 3]>>::hash("pairs"), "(u32*2)", "(u32*3)");
        let pairs = db.table(PAIRS)?;
        assert_eq!(db.read(|tx| tx.get(pairs, 1))?, Some((1, 3)));
        Ok(())
    })
}

fn structs<A: Codec, B: Codec>(by: fn() -> [TableDef<u64, A>; 1], own: TableDef<u64, B>) -> Result<(), Error> {
    let disk = Image::default();
    open(&disk)?.table(own)?;
    let [other] = by();
    reopened(&disk, |db| {
        refused(db, other, "u64 to User{name:string,age:u32}", "u64 to User{");
        db.table(own).map(drop)
    })
}

#[test]
fn any_change_of_a_struct_is_refused() -> Result<(), Error> {
    use changed::{kind, more, name, order};
    const USERS: TableDef<u64, Postcard<User>> = TableDef::hash("users");
    const IN_BINCODE: TableDef<u64, Bincode<User>> = TableDef::hash("users");
    structs::<Postcard<order::User>, _>(|| [TableDef::hash("users")], USERS)?;
    structs::<Postcard<kind::User>, _>(|| [TableDef::hash("users")], USERS)?;
    structs::<Postcard<name::User>, _>(|| [TableDef::hash("users")], USERS)?;
    structs::<Postcard<more::User>, _>(|| [TableDef::hash("users")], USERS)?;
    structs::<Bincode<more::User>, _>(|| [TableDef::hash("users")], IN_BINCODE)
}

#[test]
fn a_type_can_move_and_be_renamed() -> Result<(), Error> {
    const USERS: TableDef<u64, Postcard<User>> = TableDef::hash("users");
    const CUSTOMERS: TableDef<u64, Postcard<Customer>> = TableDef::hash("users");
    const WAS: &[&str] = &["u64 to Shopper{name:string,age:u32}", "u64 to User{name:string,age:u32}"];
    let disk = Image::default();
    let db = open(&disk)?;
    let users = db.table(USERS)?;
    db.transact(|tx| tx.put(users, 7, &User { name: "Ada".to_owned(), age: 36 }))?;
    drop(db);
    reopened(&disk, |db| {
        let moved = db.table(TableDef::<u64, Postcard<moved::User>>::hash("users"))?;
        assert_eq!(db.read(|tx| tx.get(moved, 7))?.map(|user| (user.name, user.age)), Some(("Ada".to_owned(), 36)));
        Ok(())
    })?;
    reopened(&disk, |db| {
        let renamed = db.table(TableDef::<u64, Postcard<Renamed>>::hash("users"))?;
        assert_eq!(db.read(|tx| tx.get(renamed, 7))?, Some(Renamed { name: "Ada".to_owned(), age: 36 }));
        Ok(())
    })?;
    reopened(&disk, |db| {
        refused(db, CUSTOMERS, "User{", "Customer{");
        refused(db, CUSTOMERS.was(&["u64 to User"]), "User{", "Customer{");
        // Types of the same meaning cannot have another encoding.
        refused(db, TableDef::<u64, Bincode<Customer>>::hash("users").was(WAS), "postcard1", "bincode2");
        refused(db, TableDef::<i64, Postcard<Customer>>::hash("users").was(WAS), "of u64", "of i64");
        refused(db, TableDef::<u64, Postcard<Customer>, Ordered>::ordered("users").was(WAS), "hash", "ordered");
        let customers = db.table(CUSTOMERS.was(WAS))?;
        assert_eq!(db.read(|tx| tx.get(customers, 7))?.map(|customer| customer.age), Some(36));
        Ok(())
    })?;
    // What is recorded stays.
    reopened(&disk, |db| db.table(USERS).map(drop))
}

/// A version stands in place of the description, and takes over from one that was recorded.
#[test]
fn a_version_identifies_types_by_itself() -> Result<(), Error> {
    const USERS: TableDef<u64, Postcard<User>> = TableDef::hash("users");
    let disk = Image::default();
    open(&disk)?.table(USERS.version(0))?;
    reopened(&disk, |db| {
        refused(db, USERS, "\"version 0\"", "User{");
        refused(db, USERS.version(1), "\"version 0\"", "\"version 1\"");
        db.table(TableDef::<u64, Postcard<Customer>>::hash("users").version(0)).map(drop)
    })?;
    reopened(&disk, |db| db.table(USERS.was(&["version 0"])).map(drop))?;
    let disk = Image::default();
    open(&disk)?.table(USERS)?;
    reopened(&disk, |db| {
        refused(db, USERS.version(1), "User{", "version 1");
        db.table(USERS.version(1).was(&["u64 to User{name:string,age:u32}"])).map(drop)
    })
}

#[test]
fn a_key_whose_fields_change_places_is_refused() -> Result<(), Error> {
    #[derive(Clone, Debug, PartialEq, Key)]
    struct Way {
        from: u32,
        to: u32,
    }
    mod other {
        #[derive(Clone, Debug, PartialEq, drtm_txn::Key)]
        pub(super) struct Way {
            pub(super) to: u32,
            pub(super) from: u32,
        }
    }
    #[derive(Clone, Debug, PartialEq, Key)]
    struct Id(u64);
    const WAYS: TableDef<(Way, u8), Raw, Ordered> = TableDef::ordered("ways");
    assert_eq!(<(Option<[Id; 2]>, String)>::describe(), "(option<[Id(u64);2]>,string)");
    let disk = Image::default();
    open(&disk)?.table(WAYS)?;
    reopened(&disk, |db| {
        let recorded = "(Way{from:u32,to:u32},u8) to bytes";
        refused(db, TableDef::<(other::Way, u8), Raw, Ordered>::ordered("ways"), recorded, "Way{to:u32,from:u32}");
        refused(db, TableDef::<((u32, u32), u8), Raw, Ordered>::ordered("ways"), recorded, "((u32,u32),u8) to bytes");
        db.table(WAYS).map(drop)
    })
}

/// Plain data has a name and a size.
#[test]
fn plain_data_of_another_name_is_refused() -> Result<(), Error> {
    #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
    #[repr(C)]
    struct Money {
        cents: i64,
    }
    const BALANCES: TableDef<u64, Pod<Money>> = TableDef::hash("balances");
    let disk = Image::default();
    let db = open(&disk)?;
    let balances = db.table(BALANCES)?;
    db.transact(|tx| tx.put(balances, 1, &Money { cents: -5 }))?;
    drop(db);
    reopened(&disk, |db| {
        refused(db, TableDef::<u64, Pod<u64>>::hash("balances"), "u64 to Money", "u64 to u64");
        refused(db, TableDef::<u64, Pod<[u8; 4]>>::hash("balances"), "(8 bytes)", "(4 bytes)");
        let numbers = db.table(TableDef::<u64, Pod<i64>>::hash("balances").was(&["u64 to Money"]))?;
        assert_eq!(db.read(|tx| tx.get(numbers, 1))?, Some(-5));
        Ok(())
    })
}
