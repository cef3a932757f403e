//! Lookups by borrowed forms of keys.

use std::ops::Bound;

use drtm_txn::{Db, Entry, Error, IndexDef, Multi, Ordered, Pod, Raw, Serde, TableDef, prefix};

const PAGES: TableDef<String, Raw> = TableDef::hash("pages");
const STOCK: TableDef<(String, u32), Pod<u64>, Ordered> = TableDef::ordered("stock");
const BLOBS: TableDef<Vec<u8>, Pod<u32>, Ordered> = TableDef::ordered("blobs");
const SEATS: TableDef<(char, Option<u8>), Pod<u32>, Ordered> = TableDef::ordered("seats");
const PEOPLE: TableDef<u64, Serde<String>> = TableDef::hash("people");
const BY_NAME: IndexDef<u64, Serde<String>, String, Multi> = IndexDef::multi("by name", |_, name| Some(name));

#[test]
fn text_is_found_by_text() -> Result<(), Error> {
    let db = Db::new()?;
    let pages = db.table(PAGES)?;
    db.transact(|tx| {
        tx.put(pages, "/", b"welcome")?;
        tx.insert(pages, "/about".to_owned(), b"us")?;
        tx.prefetch(pages, ["/", "/about"])?;
        assert_eq!(tx.get(pages, "/".to_owned())?.as_deref(), Some(&b"welcome"[..]));
        assert_eq!(tx.get_many(pages, ["/about", "/none"])?, [Some(b"us".to_vec()), None]);
        assert!(matches!(tx.entry(pages, "/about")?, Entry::Occupied(_)));
        tx.entry(pages, "/new")?.put(b"new")?;
        assert_eq!(tx.remove(pages, "/new")?.as_deref(), Some(&b"new"[..]));
        assert!(tx.remove(pages, "/new")?.is_none() && tx.contains(pages, "/")?);
        Ok(())
    })
}

#[test]
fn tuples_are_found_by_their_parts_and_ranges_by_theirs() -> Result<(), Error> {
    let db = Db::new()?;
    let (stock, blobs, seats) = (db.table(STOCK)?, db.table(BLOBS)?, db.table(SEATS)?);
    db.transact(|tx| {
        for (number, place) in ["eu", "us", "eu\0x"].iter().zip(0_u32..).map(|(place, number)| (number, *place)) {
            tx.put(stock, (place, number), &u64::from(number))?;
        }
        assert_eq!(tx.update(stock, ("us", 1), |left| *left += 5)?, Some(()));
        assert_eq!(tx.get(stock, &("us".to_owned(), 1))?, Some(6));
        assert_eq!(tx.range(stock, ("eu", 0)..("eu", u32::MAX))?.count()?, 1);
        assert_eq!(tx.range(stock, ("eu", 0)..=("us", 1))?.count()?, 3);
        assert_eq!(tx.range(stock, ..("us", 1))?.count()?, 2);
        assert_eq!(tx.range(stock, ("us", 2)..)?.count()?, 0);
        assert_eq!(tx.range(stock, ("us", 2)..("eu", 0))?.count()?, 0, "the wrong way round");
        let between = (Bound::Excluded(("eu", 0)), Bound::Unbounded);
        assert_eq!(tx.range(stock, between)?.first()?, Some((("eu\0x".to_owned(), 2), 2)));
        assert_eq!(tx.range_mut(stock, ..)?.pop_last()?, Some((("us".to_owned(), 1), 6)));

        tx.put(blobs, b"abc", &1)?;
        tx.put(blobs, &b"abd"[..], &2)?;
        assert_eq!(tx.get(blobs, b"abd".to_vec())?, Some(2));
        assert_eq!(tx.range(blobs, b"abc"..=b"abd")?.count()?, 2);

        tx.put(seats, ('ä', Some(7)), &1)?;
        tx.put(seats, ('ä', None::<u8>), &2)?;
        assert_eq!(tx.range(seats, ('a', None::<u8>)..)?.first()?, Some((('ä', None), 2)));
        assert_eq!(tx.range(seats, ('ä', Some(7))..=('ä', Some(7)))?.rows().count(), 1);
        Ok(())
    })
}

#[test]
fn a_prefix_is_the_range_of_keys_that_begin_so() -> Result<(), Error> {
    const MARKS: IndexDef<Vec<u8>, Raw, Vec<u8>, Multi> = IndexDef::multi("marks", |_, mark| Some(mark.to_vec()));
    const KEYS: TableDef<Vec<u8>, Raw, Ordered> = TableDef::ordered("keys");
    let db = Db::new()?;
    let keys = db.table(KEYS)?;
    let marks = db.index(keys, MARKS)?;
    let bytes = [0, 1, 0x61, 0xFE, 0xFF];
    let mut all = vec![Vec::new()];
    for length in 1..4 {
        let longer: Vec<_> = all
            .iter()
            .filter(|key| key.len() + 1 == length)
            .flat_map(|key| bytes.map(|byte| [&key[..], &[byte]].concat()))
            .collect();
        all.extend(longer);
    }
    db.transact(|tx| all.iter().try_for_each(|key| tx.put(keys, key, key)))?;
    db.read(|tx| {
        for start in &all {
            let mut expected: Vec<_> = all.iter().filter(|key| key.starts_with(start)).cloned().collect();
            expected.sort();
            let found: Result<Vec<_>, _> =
                tx.range(keys, prefix(start))?.rows().map(|row| row.map(|(key, _)| key)).collect();
            assert_eq!(found?, expected);
            let found: Result<Vec<_>, _> =
                tx.range(marks.keys(), prefix(start))?.rows().map(|row| row.map(|(_, key)| key)).collect();
            assert_eq!(found?, expected, "by an index");
        }
        Ok(())
    })
}

#[test]
fn an_index_is_searched_by_text() -> Result<(), Error> {
    let db = Db::new()?;
    let people = db.table(PEOPLE)?;
    let by_name = db.index(people, BY_NAME)?;
    db.transact(|tx| {
        tx.insert(people, 1, &"Ada".to_owned())?;
        tx.insert(people, 2, &"Bob".to_owned())?;
        tx.insert(people, 3, &"Ada".to_owned())?;
        let adas: Vec<u64> = tx
            .range(by_name.keys(), "Ada"..="Ada")?
            .rows()
            .map(|row| row.map(|(_, key)| key))
            .collect::<Result<_, _>>()?;
        assert_eq!(adas, [1, 3]);
        assert_eq!(tx.range(by_name, "Ad".."B")?.count()?, 2);
        assert_eq!(tx.range(by_name, ..="Bob")?.last()?, Some(("Bob".to_owned(), (2, "Bob".to_owned()))));
        Ok(())
    })
}
