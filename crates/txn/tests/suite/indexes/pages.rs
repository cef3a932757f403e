//! Pages of an index: ranges that begin at a pair of an index key and a row's key.

use std::{
    collections::BTreeSet,
    fmt::Debug,
    ops::{
        Bound::{self, Excluded, Included, Unbounded},
        RangeBounds,
    },
};

use drtm_txn::{Db, Error, IndexDef, Key, KeyRange, KeyedRow, Multi, Pod, Sorted, TableDef, within};
use proptest::{collection::btree_set, prelude::*};

/// An index key and a row's key, both by their numbers.
type Pair = (u8, u8);

type Range<T> = (Bound<T>, Bound<T>);

/// A part of an index.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// Pairs with one index key.
    Within(u8, Range<u8>),
    /// A range of pairs.
    Pairs(Range<Pair>),
    /// A range of index keys.
    Keys(Range<u8>),
}

impl Part {
    fn contains(&self, pair: Pair) -> bool {
        match self {
            Self::Within(by, rest) => pair.0 == *by && rest.contains(&pair.1),
            Self::Pairs(range) => range.contains(&pair),
            Self::Keys(range) => range.contains(&pair.0),
        }
    }
}

/// The number of index keys, and of rows.
const MOST: u8 = 6;

fn range<T: Clone + Debug + 'static>(
    of: impl Strategy<Value = T> + Clone + 'static,
) -> impl Strategy<Value = Range<T>> {
    let bound = || prop_oneof![of.clone().prop_map(Included), of.clone().prop_map(Excluded), Just(Unbounded)];
    (bound(), bound())
}

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![
        (0..MOST, range(0..MOST)).prop_map(|(by, rest)| Part::Within(by, rest)),
        range((0..MOST, 0..MOST)).prop_map(Part::Pairs),
        range(0..MOST).prop_map(Part::Keys),
    ]
}

fn map<T: Copy, U>(range: Range<T>, to: impl Fn(T) -> U) -> Range<U> {
    (range.0.map(&to), range.1.map(&to))
}

fn by_ref<T>(range: &Range<T>) -> Range<&T> {
    (range.0.as_ref(), range.1.as_ref())
}

/// A table whose rows have any of six index keys each, as the bits of its value say.
struct Tables<K, I> {
    rows: TableDef<K, Pod<u8>>,
    index: IndexDef<K, Pod<u8>, I, Multi>,
    /// Turn numbers into keys, in order.
    key: fn(u8) -> K,
    by: fn(u8) -> I,
}

/// Reads a range upwards, downwards, and at both ends in turns, and returns it once.
fn read<R: Sorted, G: KeyRange<R::Key>>(db: &Db, rows: R, range: impl Fn() -> G) -> Result<Vec<KeyedRow<R>>, Error>
where
    R::Key: Ord + Debug,
    R::Row: Ord + Debug + Clone,
{
    db.read(|tx| {
        let up: Vec<_> = tx.range(rows, range())?.rows().collect::<Result<_, _>>()?;
        let mut down: Vec<_> = tx.range(rows, range())?.rev().rows().collect::<Result<_, _>>()?;
        down.reverse();
        assert_eq!(up, down);
        let (mut turns, mut front, mut back) = (tx.range(rows, range())?, Vec::new(), Vec::new());
        while let Some(row) = turns.next()? {
            front.push(row);
            back.extend(turns.next_back()?);
        }
        front.extend(back.into_iter().rev());
        assert_eq!(up, front);
        assert_eq!(tx.range(rows, range())?.count()?, up.len() as u64);
        Ok(up)
    })
}

impl<K: Key + Ord + Debug, I: Key + Ord + Debug> Tables<K, I> {
    fn are_as_modelled(&self, pairs: &BTreeSet<Pair>, part: Part) -> Result<(), Error> {
        let db = Db::new()?;
        let rows = db.table(self.rows)?;
        let index = db.index(rows, self.index)?;
        let bits = |row| pairs.iter().filter(|pair| pair.1 == row).fold(0, |bits, pair| bits | 1 << pair.0);
        db.transact(|tx| (0..MOST).try_for_each(|row| tx.put(rows, &(self.key)(row), &bits(row))))?;
        let expected = pairs.iter().filter(|pair| part.contains(**pair));
        let (keys, rows): (Vec<_>, Vec<_>) = expected
            .map(|(by, row)| {
                let (by, key) = ((self.by)(*by), (self.key)(*row));
                (((by.clone(), key.clone()), ()), ((by, key), bits(*row)))
            })
            .unzip();
        match part {
            Part::Within(by, rest) => {
                let (by, rest) = ((self.by)(by), map(rest, self.key));
                assert_eq!(read(&db, index.keys().pairs(), || within(&by, by_ref(&rest)))?, keys);
                assert_eq!(read(&db, index.pairs(), || within(&by, by_ref(&rest)))?, rows);
            }
            Part::Pairs(range) => {
                let range = map(range, |(by, row)| ((self.by)(by), (self.key)(row)));
                assert_eq!(read(&db, index.keys().pairs(), || by_ref(&range))?, keys);
                assert_eq!(read(&db, index.pairs(), || by_ref(&range))?, rows);
            }
            Part::Keys(range) => {
                let range = map(range, self.by);
                let rows: Vec<_> = rows.into_iter().map(|((by, key), bits)| (by, (key, bits))).collect();
                assert_eq!(read(&db, index, || by_ref(&range))?, rows);
                let keys: Vec<_> = keys.into_iter().map(|(pair, ())| pair).collect();
                assert_eq!(read(&db, index.keys(), || by_ref(&range))?, keys);
            }
        }
        Ok(())
    }
}

/// Returns strings that end, continue, and overflow in every way, in order.
fn string(number: u8) -> Vec<u8> {
    [&b""[..], b"\0", b"\0\xff", b"a", b"a\xff", b"\xff\xff"][usize::from(number)].to_vec()
}

fn all<I>(bits: u8, by: fn(u8) -> I) -> Vec<I> {
    (0..MOST).filter(|number| bits & 1 << number != 0).map(by).collect()
}

fn short(number: u8) -> u16 {
    u16::from(number) * 0x3333
}

fn long(number: u8) -> u64 {
    u64::from(number) * (u64::MAX / 5)
}

/// For keys that pack into a word, to its last bit, and for others.
const SHORT: Tables<[u16; 3], u16> = Tables {
    rows: TableDef::hash("rows of short keys"),
    index: IndexDef::multi_each("by short keys", |_, bits| all(bits, short)),
    key: |number| [short(number); 3],
    by: short,
};
const LONG: Tables<u64, u64> = Tables {
    rows: TableDef::hash("rows of long keys"),
    index: IndexDef::multi_each("by long keys", |_, bits| all(bits, long)),
    key: long,
    by: long,
};
const STRINGS: Tables<Vec<u8>, Vec<u8>> = Tables {
    rows: TableDef::hash("rows of strings"),
    index: IndexDef::multi_each("by strings", |_, bits| all(bits, string)),
    key: string,
    by: string,
};
const MIXED: Tables<u8, Vec<u8>> = Tables {
    rows: TableDef::hash("rows of bytes"),
    index: IndexDef::multi_each("by strings of bytes", |_, bits| all(bits, string)),
    key: |number| number * 51,
    by: string,
};

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn parts_of_an_index_are_as_modelled(pairs in btree_set((0..MOST, 0..MOST), 0..30), part in part()) {
        SHORT.are_as_modelled(&pairs, part).expect("sound");
        LONG.are_as_modelled(&pairs, part).expect("sound");
        STRINGS.are_as_modelled(&pairs, part).expect("sound");
        MIXED.are_as_modelled(&pairs, part).expect("sound");
    }
}
