//! Derived keys: encoded like the tuple of their fields, and found by borrowed forms.

use drtm_txn::{AsKey, Db, Error, Key, Ordered, Pod, TableDef, prefix};
use proptest::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Key)]
struct Place {
    warehouse: String,
    shelf: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Key)]
pub(crate) struct Customer(pub(crate) u16, u8, #[doc = "Its number."] pub(super) u32);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Key)]
struct Name(String);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Key)]
struct Bytes(Vec<u8>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Key)]
struct Id(u64);

/// More fields than a tuple may have, field names that generated code could confuse, fields that
/// are keys themselves, and types with commas.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Key)]
#[key(crate = ::drtm_txn)]
#[repr(C)]
struct Many {
    r#type: i8,
    word: Option<(u8, bool)>,
    bytes: [Name; 2],
    last: (std::primitive::char, i64),
    reader: Place,
    size: Option<Vec<u8>>,
    path: Customer,
    f0: String,
}

type ManyTuple =
    (i8, Option<(u8, bool)>, [String; 2], (char, i64), ((String, u32), (Option<Vec<u8>>, ((u16, u8, u32), String))));

fn encoded<K: Key>(key: &impl AsKey<K>) -> [Vec<u8>; 2] {
    [false, true].map(|last| {
        let mut bytes = Vec::new();
        key.write_key(&mut bytes, last);
        bytes
    })
}

fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(prop_oneof![Just('\0'), Just('a'), any::<char>()], 0..4).prop_map(String::from_iter)
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop_oneof![Just(0), Just(255), any::<u8>()], 0..4)
}

fn many() -> impl Strategy<Value = Many> {
    let fixed = (any::<i8>(), any::<Option<(u8, bool)>>(), any::<(char, i64)>(), any::<(u16, u8, u32)>());
    let strings = (text(), text(), (text(), any::<u32>()), prop::option::of(bytes()), text());
    (fixed, strings).prop_map(|((r#type, word, last, (a, b, c)), (one, two, (warehouse, shelf), size, f0))| Many {
        r#type,
        word,
        bytes: [Name(one), Name(two)],
        last,
        reader: Place { warehouse, shelf },
        size,
        path: Customer(a, b, c),
        f0,
    })
}

fn as_tuple(many: &Many) -> ManyTuple {
    let Many { r#type, word, bytes: [Name(one), Name(two)], last, reader, size, path, f0 } = many.clone();
    let place = (reader.warehouse, reader.shelf);
    (r#type, word, [one, two], last, (place, (size, ((path.0, path.1, path.2), f0))))
}

proptest! {
    #[test]
    fn keys_are_encoded_as_tuples_of_their_fields(one in many(), two in many(), other in any::<(u16, u8, u32)>()) {
        let bytes = encoded::<Many>(&one);
        prop_assert_eq!(&bytes, &encoded::<ManyTuple>(&&as_tuple(&one)));
        prop_assert_eq!(bytes[1].cmp(&encoded::<Many>(&&two)[1]), one.cmp(&two));
        prop_assert_eq!(Many::from_bytes(&bytes[1]), Some(one.clone()));
        let (customer, other) = (one.path, Customer(other.0, other.1, other.2));
        prop_assert_eq!(customer.word(), (customer.0, customer.1, customer.2).word());
        prop_assert_eq!(customer.word().cmp(&other.word()), customer.cmp(&other));
        prop_assert_eq!(Customer::from_word(customer.word()), Some(customer));
    }

    #[test]
    fn what_stands_for_parts_stands_for_the_key(name in text(), of in bytes(), shelf: u32, parts: (u16, u8, u32)) {
        let place = Place { warehouse: name.clone(), shelf };
        prop_assert_eq!(encoded::<Place>(&(&*name, shelf)), encoded::<Place>(&&place));
        prop_assert_eq!(encoded::<Place>(&(name.clone(), &shelf)), encoded::<Place>(&place));
        prop_assert_eq!(encoded::<Name>(&&*name), encoded::<Name>(&Name(name.clone())));
        prop_assert_eq!(encoded::<Bytes>(&&*of), encoded::<Bytes>(&Bytes(of.clone())));
        let customer = Customer(parts.0, parts.1, parts.2);
        prop_assert_eq!(AsKey::<Customer>::pack_key(&parts, 0), customer.word());
        prop_assert_eq!(AsKey::<Customer>::pack_key(&customer, 0), customer.word());
    }

    #[test]
    fn noise_is_refused_or_a_key(noise: Vec<u8>) {
        if let Some(key) = Many::from_bytes(&noise) {
            prop_assert_eq!(&encoded::<Many>(&key)[1], &noise);
        }
    }
}

#[test]
fn sizes_are_those_of_all_fields() {
    assert_eq!((Place::SIZE, Name::SIZE, Many::SIZE), (None, None, None));
    assert_eq!((Customer::SIZE, Id::SIZE), (Some(7), Some(8)));
    assert_eq!(Place::shape(), <(String, u32)>::shape());
    assert_eq!((Customer::shape(), Name::shape()), (<(u16, u8, u32)>::shape(), String::shape()));
    let parts = "(i8,option<(u8,bool)>,[string;2],(char,i64),(string,u32),option<bytes>,(u16,u8,u32),string)";
    assert_eq!(Many::shape(), parts);
    const { assert!(Customer::FITS && Id::FITS && !Place::FITS) };
}

#[test]
fn rows_are_found_by_derived_keys() -> Result<(), Error> {
    const STOCK: TableDef<Place, Pod<u64>, Ordered> = TableDef::ordered("stock");
    const AGES: TableDef<Name, Pod<u32>> = TableDef::hash("ages");
    const NAMES: TableDef<Name, Pod<u32>, Ordered> = TableDef::ordered("names");
    const BYTES: TableDef<Bytes, Pod<u32>, Ordered> = TableDef::ordered("bytes");
    const VISITS: TableDef<Customer, Pod<u32>, Ordered> = TableDef::ordered("visits");
    let db = Db::new()?;
    let (names, bytes) = (db.table(NAMES)?, db.table(BYTES)?);
    db.transact(|tx| {
        for (name, number) in [("a", 1), ("ab", 2), ("abc", 3), ("ac", 4)] {
            tx.put(names, name, &number)?;
            tx.put(bytes, name.as_bytes(), &number)?;
        }
        assert_eq!((tx.range(names, prefix("ab"))?.count()?, tx.range(bytes, prefix(b"a"))?.count()?), (2, 4));
        assert_eq!(tx.range(names, prefix("ab"))?.last()?, Some((Name("abc".to_owned()), 3)));
        Ok(())
    })?;
    let (stock, ages, visits) = (db.table(STOCK)?, db.table(AGES)?, db.table(VISITS)?);
    db.transact(|tx| {
        for (warehouse, shelf) in [("eu", 2), ("us", 1), ("eu", 10)] {
            tx.put(stock, (warehouse, shelf), &shelf.into())?;
        }
        tx.put(ages, "Ada", &36)?;
        tx.put(visits, Customer(1, 2, 3), &4)?;
        tx.put(visits, (1, 3, 3), &5)
    })?;
    db.transact(|tx| {
        assert_eq!(tx.get(ages, Name("Ada".to_owned()))?, Some(36));
        assert_eq!(tx.get(visits, (1, 2, 3))?, Some(4));
        assert_eq!(tx.range(visits, Customer(1, 2, 4)..)?.first()?, Some((Customer(1, 3, 3), 5)));
        let eu = Place { warehouse: "eu".to_owned(), shelf: 10 };
        assert_eq!(tx.range(stock, ("eu", 0)..("us", 0))?.last()?, Some((eu, 10)));
        assert_eq!(tx.range(stock, ("eu", 0)..=("eu", u32::MAX))?.count()?, 2);
        Ok(())
    })
}
