//! Who is told of commits: everything that happens, nothing that does not, and what becomes of a transaction of which he will not be told.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Mutex,
};

use drtm_htm::NoHtm;
use drtm_txn::{Builder, Change, Db, Error, Hook, Ordered, Pod, Raw, Setting, TableDef};

/// A table's name, a key, and its value unless it was removed.
type Note = (String, Vec<u8>, Option<Vec<u8>>);

#[derive(Debug, Default)]
struct Notes(Mutex<Vec<Note>>);

/// A value of which nobody wants to hear.
const UNHEARD: &[u8] = b"unheard of";

impl Hook for Notes {
    fn changed(&self, change: Change<'_>) {
        assert!(change.value != Some(UNHEARD), "not that");
        let row = (change.table.to_owned(), change.key.to_vec(), change.value.map(<[u8]>::to_vec));
        self.0.lock().expect("nobody panics here").push(row);
    }
}

#[derive(Debug)]
struct Noted;

impl Setting for Noted {
    type Engine = NoHtm;
    type Hook = Notes;
}

const TEXTS: TableDef<(u8, u16), Raw> = TableDef::hash("texts");
const COUNTS: TableDef<String, Pod<u64>, Ordered> = TableDef::ordered("counts");

fn database() -> Db<Noted> {
    Builder::new().memory(64 << 20).build_with::<Noted>(NoHtm, Notes::default()).expect("a database")
}

#[test]
fn what_happens_is_told_and_nothing_else() {
    let db = database();
    let (texts, counts) = (db.table(TEXTS).expect("a table"), db.table(COUNTS).expect("a table"));
    db.transact(|tx| {
        tx.insert(texts, &(1, 2), b"one")?;
        tx.insert(counts, &"a".to_owned(), &7)
    })
    .expect("room");
    let refused = db.transact(|tx| tx.put(texts, &(1, 2), b"never").and(Err::<(), _>(Error::aborted("no"))));
    assert!(refused.is_err());
    db.transact(|tx| tx.remove(texts, &(1, 2))).expect("room");
    let told = db.hook().0.lock().expect("nobody panicked");
    let key = vec![1, 0, 2];
    let expected = [
        ("texts".to_owned(), key.clone(), Some(b"one".to_vec())),
        ("counts".to_owned(), b"a".to_vec(), Some(7_u64.to_le_bytes().to_vec())),
        ("texts".to_owned(), key, None),
    ];
    assert_eq!(*told, expected);
}

#[test]
fn a_panic_of_who_is_told_undoes_the_transaction_and_holds_nobody_up() {
    let db = database();
    let texts = db.table(TEXTS).expect("a table");
    db.transact(|tx| tx.put(texts, &(1, 1), b"first")).expect("room");
    let unheard = catch_unwind(AssertUnwindSafe(|| {
        db.transact(|tx| {
            tx.put(texts, &(1, 1), UNHEARD)?;
            tx.put(texts, &(1, 2), &[7; 600])
        })
    }));
    assert!(unheard.is_err());
    assert_eq!(db.read(|tx| tx.get(texts, &(1, 1))).expect("nobody has it locked"), Some(b"first".to_vec()));
    db.transact(|tx| tx.put(texts, &(1, 1), b"second")).expect("nobody has it locked");
    assert_eq!(db.read(|tx| tx.get(texts, &(1, 2))).expect("it can be read"), None);
}
