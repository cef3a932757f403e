//! A long transaction with a hot row, as a whole and in pieces: the program of `docs/chopping.md`.
//!
//! Each order inserts rows of its own, so only the shop's row is in conflict. Compare within one
//! run.

use std::{
    thread,
    time::{Duration, Instant},
};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use drtm::{
    Db, Error, Pod, Table, TableDef,
    chopped::{Abort, Call, Code, Procedures},
    chopping::{Piece, Table as Described, Transaction},
};
use serde::{Deserialize, Serialize};

const ITEMS: TableDef<u64, Pod<u64>> = TableDef::hash("item");
const SHOPS: TableDef<u64, Pod<u64>> = TableDef::hash("shop");
const LINES: TableDef<(u64, u32), Pod<u64>> = TableDef::hash("line");

const ITEM: Described<'static> = Described::new("item", &[]).stationary();
const SHOP: Described<'static> = Described::new("shop", &[]);
const LINE: Described<'static> = Described::new("line", &[]);
const ORDER: Transaction<'static> = Transaction::new(
    "order",
    &[
        Piece::new("items", &[ITEM.read("*")]).may_abort(),
        Piece::new("number", &[SHOP.update("*")]),
        Piece::new("lines", &[LINE.append()]),
    ],
);

/// The items of an order.
const WANTED: u64 = 50;

#[derive(Clone, Default, Serialize, Deserialize)]
struct Order {
    prices: Vec<u64>,
    number: u64,
}

#[derive(Clone, Copy)]
struct Tables {
    items: Table<u64, Pod<u64>>,
    shops: Table<u64, Pod<u64>>,
    lines: Table<(u64, u32), Pod<u64>>,
}

fn database() -> Result<(Db, Tables), Error> {
    let db = Db::new()?;
    let tables = Tables { items: db.table(ITEMS)?, shops: db.table(SHOPS)?, lines: db.table(LINES)? };
    db.transact(|tx| {
        (0..WANTED).try_for_each(|item| tx.put(tables.items, item, &(100 * item)))?;
        tx.put(tables.shops, 0, &0)
    })?;
    Ok((db, tables))
}

fn whole(db: &Db, Tables { items, shops, lines }: Tables) -> Result<(), Error> {
    db.transact(|tx| {
        let mut prices = Vec::new();
        for item in 0..WANTED {
            prices.push(tx.get(items, item)?.ok_or_else(|| Error::aborted("no such item"))?);
        }
        let number = tx.update(shops, 0, |next| {
            *next += 1;
            *next
        })?;
        let number = number.ok_or_else(|| Error::aborted("no such shop"))?;
        prices.iter().zip(1..).try_for_each(|(price, line)| tx.insert(lines, (number, line), price))
    })
}

fn chopped(
    db: &Db,
    Tables { items, shops, lines }: Tables,
) -> Result<Call<drtm::DefaultConfig, Order, impl Code<drtm::DefaultConfig, Order> + use<>>, Error> {
    let mut shop = Procedures::new(db, "shop");
    let order = shop
        .procedure::<Order>(ORDER)
        .may_abort("items", move |tx, order| {
            for item in 0..WANTED {
                order.prices.push(tx.get(items, item)?.ok_or_else(|| Abort::because("no such item"))?);
            }
            Ok(())
        })
        .piece("number", move |tx, order| {
            let number = tx.update(shops, 0, |next| {
                *next += 1;
                *next
            })?;
            order.number = number.expect("it was put there");
            Ok(())
        })
        .piece("lines", move |tx, order| {
            for (price, line) in order.prices.iter().zip(1..) {
                tx.insert(lines, (order.number, line), price)?;
            }
            Ok(())
        });
    let order = shop.add(order);
    shop.register()?;
    Ok(order)
}

/// Runs `order` on all threads, so many times in all. Returns how long that took.
fn run(orders: u64, threads: u64, order: impl Fn() -> Result<(), Error> + Sync) -> Duration {
    let begun = Instant::now();
    thread::scope(|scope| {
        for number in 0..threads {
            let (order, some) = (&order, orders / threads + u64::from(number < orders % threads));
            scope.spawn(move || (0..some).try_for_each(|_| order()).expect("nothing but conflicts"));
        }
    });
    begun.elapsed()
}

/// Each measurement has a database of its own, so that none has the rows of another.
fn orders(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("orders of one shop");
    for threads in [1, 2, 4] {
        group.bench_function(BenchmarkId::new("whole", threads), |bencher| {
            bencher.iter_custom(|orders| {
                let (db, tables) = database().expect("memory");
                run(orders, threads, || whole(&db, tables))
            });
        });
        group.bench_function(BenchmarkId::new("chopped", threads), |bencher| {
            bencher.iter_custom(|orders| {
                let (db, tables) = database().expect("memory");
                let order = chopped(&db, tables).expect("it is serializable");
                run(orders, threads, || order.run(Order::default()).map(drop))
            });
        });
    }
    group.finish();
}

criterion_group!(benches, orders);
criterion_main!(benches);
