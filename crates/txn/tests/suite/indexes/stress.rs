//! Indexes beside many writers: each row is in each of its table's indexes, by its value, and they
//! have no other entries.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use drtm_htm::{Emulated, Engine, NoHtm};
use drtm_testing::rounds;
use drtm_txn::{Builder, Config, Db, Error, Index, IndexDef, Mode, Multi, Ordered, Pod, Table, TableDef, Tx, Unique};

use crate::On;

/// A seat's holder and price.
type Seat = [u64; 2];

const SEATS: TableDef<u64, Pod<Seat>, Ordered> = TableDef::ordered("seats");
const BY_HOLDER: IndexDef<u64, Pod<Seat>, u64> = IndexDef::unique("seats by holder", |_, [holder, _]| Some(holder));
const BY_PRICE: IndexDef<u64, Pod<Seat>, u64, Multi> = IndexDef::multi("seats by price", |_, [_, price]| Some(price));

const KEYS: u64 = 12;
/// Fewer holders than seats, so that they conflict.
const HOLDERS: u64 = 10;

struct Hall<S: Config> {
    db: Db<S>,
    seats: Table<u64, Pod<Seat>, Ordered>,
    by_holder: Index<u64, Pod<Seat>, u64, Unique, Ordered>,
    by_price: Index<u64, Pod<Seat>, u64, Multi, Ordered>,
}

/// The reads of a transaction.
struct Look {
    rows: Vec<(u64, Seat)>,
    by_holder: Vec<(u64, (u64, Seat))>,
    by_price: Vec<(u64, (u64, Seat))>,
}

impl Look {
    fn is_true(&self) {
        let sorted = |by: usize| {
            let mut entries: Vec<_> = self.rows.iter().map(|(key, row)| (row[by], (*key, *row))).collect();
            entries.sort_unstable();
            entries
        };
        assert_eq!(self.by_holder, sorted(0));
        assert_eq!(self.by_price, sorted(1));
        let holders = self.by_holder.windows(2);
        assert!(holders.into_iter().all(|pair| pair[0].0 < pair[1].0), "a holder has two seats: {:?}", self.by_holder);
    }
}

impl<S: Config> Hall<S> {
    fn open(engine: S::Engine) -> Result<Self, Error> {
        let db = Builder::new().memory(64 << 20).build_with::<S>(engine)?;
        let seats = db.table(SEATS)?;
        let (by_holder, by_price) = (db.index(seats, BY_HOLDER)?, db.index(seats, BY_PRICE)?);
        Ok(Self { db, seats, by_holder, by_price })
    }

    /// Reads everything, at one moment.
    fn look<M: Mode>(&self, tx: &Tx<'_, S, M>) -> Result<Look, Error> {
        let rows = tx.range(self.seats, ..)?.rows().collect::<Result<_, _>>()?;
        let by_holder = tx.range(self.by_holder, ..)?.rows().collect::<Result<_, _>>()?;
        Ok(Look { rows, by_holder, by_price: tx.range(self.by_price, ..)?.rows().collect::<Result<_, _>>()? })
    }

    /// Runs one transaction of a writer, which the unique index may refuse.
    fn write(&self, random: &mut impl FnMut(u64) -> u64) -> Result<(), Error> {
        let (key, other, holder, price) = (random(KEYS), random(KEYS), random(HOLDERS), random(4));
        let what = random(7);
        let written = self.db.transact(|tx| match what {
            0 => tx.put(self.seats, key, &[holder, price]),
            1 => tx.insert(self.seats, key, &[holder, price]),
            2 => tx.update(self.seats, key, |row| row[0] = holder).map(drop),
            3 => tx.update(self.seats, key, |row| row[1] = price).map(drop),
            4 => tx.remove(self.seats, key).map(drop),
            // Two holders swap seats.
            5 => {
                let (one, two) = (tx.remove(self.seats, key)?, tx.remove(self.seats, other)?);
                if let Some(row) = one {
                    tx.put(self.seats, other, &row)?;
                }
                two.map_or(Ok(()), |row| tx.put(self.seats, key, &row))
            }
            // A refused insertion is followed by another operation in the same transaction.
            _ => match tx.insert(self.seats, key, &[holder, price]) {
                Err(Error::Duplicate { .. } | Error::Exists { .. }) => {
                    let seat = tx.get(self.by_holder.keys(), holder)?.unwrap_or(other);
                    tx.remove(self.seats, seat).map(drop)
                }
                inserted => inserted,
            },
        });
        match written {
            Err(Error::Duplicate { index }) => {
                assert_eq!(index, "seats by holder");
                Ok(())
            }
            Err(Error::Exists { table }) => {
                assert_eq!(table, "seats");
                Ok(())
            }
            written => written,
        }
    }
}

pub(crate) fn generator(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |bound| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) % bound
    }
}

fn many_write<E: Engine>(engine: E, transactions: u64) {
    let hall = Hall::<On<E>>::open(engine).expect("there is memory");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut looks = 0_u64;
            while !is_over.load(Relaxed) || looks == 0 {
                hall.db.transact(|tx| hall.look(tx)).expect("there is memory").is_true();
                hall.db.read(|tx| hall.look(tx)).expect("there is memory").is_true();
                // In an explicit transaction each read is consistent with those before, without a
                // commit.
                let tx = hall.db.begin().expect("there is memory");
                match hall.look(&tx) {
                    Ok(look) => look.is_true(),
                    Err(error) => assert!(error.is_conflict(), "{error}"),
                }
                looks += 1;
            }
        });
        let writing: Vec<_> = (1..=2)
            .map(|seed| {
                let hall = &hall;
                scope.spawn(move || {
                    let mut random = generator(seed * 0x9E37_79B9);
                    for _ in 0..transactions {
                        hall.write(&mut random).expect("there is memory");
                    }
                })
            })
            .collect();
        let written: Vec<_> = writing.into_iter().map(|writer| writer.join()).collect();
        is_over.store(true, Relaxed);
        looking.join().expect("what it saw was true");
        assert!(written.iter().all(Result::is_ok), "nothing else was refused");
    });
    hall.db.transact(|tx| hall.look(tx)).expect("there is memory").is_true();
    // No records of removed rows or entries are left. One that could not be removed at once is
    // tried again by later transactions.
    let counts = || hall.db.tables().expect("there is memory").into_iter().map(|(_, records)| records);
    let rows = hall.db.read(|tx| tx.len(hall.seats)).expect("there is memory");
    for _ in 0..1_000 {
        hall.db.transact(|tx| tx.get(hall.seats, 0)).expect("there is memory");
    }
    assert!(counts().eq([rows; 3]), "{:?}", hall.db.tables());
}

#[test]
fn each_row_is_in_each_index_while_many_write() {
    many_write(NoHtm, rounds(100_000));
}

#[test]
fn each_row_is_in_each_index_while_many_write_in_regions() {
    many_write(Emulated::default(), rounds(10_000));
}
