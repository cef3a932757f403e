//! The workload on a database: tests each transaction, and that the conditions detect a faulty one.

use std::num::NonZeroU64;

use drtm_htm::Native;
use drtm_txn::{Builder, Config, Db, DefaultConfig};
use zerocopy::little_endian::{I64, U32};

use super::{
    Chances, CustomerChoice, CustomerKey, Delivery, Inputs, Loader, OrderStatus, Payment, Random, Scale, StockLevel,
    audit::{Audit, Payments},
    last_name,
    reading::Reading,
    tables::{Loading, Tables},
    transactions::{self, LastOrder, LowStock, Refused, Scratch},
};

const DATE: u64 = 1_700_000_000_000_000;

struct World<S: Config> {
    db: Db<S>,
    tables: Tables,
    loader: Loader,
    /// The number of payments, by writer 1.
    payments: u32,
}

fn world<S: Config>(engine: S::Engine) -> World<S> {
    let scale = Scale::new(2).and_then(|scale| scale.with_customers(30)?.with_items(100)).expect("small");
    let loader = Loader::new(scale, 42, NonZeroU64::MIN);
    let db = Builder::new().memory(1 << 30).build_with::<S>(engine).expect("memory for a test");
    let tables: Tables = Tables::open(&db, &scale).expect("new tables");
    let sink = &mut Loading { db: &db, tables };
    loader.items(sink).expect("room");
    (1..=2).for_each(|warehouse| loader.warehouse(warehouse, sink).expect("room"));
    World { db, tables, loader, payments: 0 }
}

impl<S: Config> World<S> {
    fn inputs(&self, chances: Chances) -> Inputs {
        Inputs::new(self.loader.scale(), self.loader.constants(), chances, (1, 7), Random::seeded(1))
            .expect("it is there")
    }

    fn violations(&self) -> Vec<String> {
        let audit = Audit::new(
            &self.db,
            self.tables,
            self.loader.scale(),
            [Payments { warehouse: None, writer: 1, count: self.payments }],
        );
        audit.violations().expect("rows that can be read")
    }

    fn balance(&self, customer: CustomerKey) -> i64 {
        let row = self.db.transact(|tx| tx.get(self.tables.customers, customer)).expect("no conflict");
        row.expect("a customer").account.balance.get()
    }
}

#[test]
fn a_loaded_database_is_consistent_and_its_rows_are_counted() {
    let world = world::<DefaultConfig>(Native::without_htm());
    assert_eq!(world.violations(), [""; 0]);
    let tables = world.db.tables().expect("sound");
    let of = |name| tables.iter().find(|table| table.0 == name).expect("open").1;
    assert_eq!((of("customer"), of("customer by name"), of("stock"), of("new-order")), (600, 600, 200, 180));
}

#[test]
fn an_order_takes_from_stock_and_is_found_by_its_customer() {
    let world = world::<DefaultConfig>(Native::without_htm());
    let World { db, tables, .. } = &world;
    let mut inputs = world.inputs(Chances { rollback: 0, remote_item: 50, ..Chances::STANDARD });
    let before = db.transact(|tx| tx.get_many(tables.stocks, (1..=100).map(|item| (2, item)).collect::<Vec<_>>()));
    let input = inputs.new_order();
    let receipt = transactions::order(db, tables, &input, DATE).expect("all items are there");
    assert_eq!(receipt.number, 31);
    let (warehouse, district, number) = input.customer;
    let sum: i64 = (1..)
        .zip(input.lines())
        .map(|(place, line)| {
            let row = db.transact(|tx| tx.get(tables.order_lines, (warehouse, district, 31, place)));
            let (row, item) = (row.expect("read").expect("a line"), db.transact(|tx| tx.get(tables.items, line.item)));
            assert_eq!((row.item.get(), row.quantity, row.delivery_date.get()), (line.item, line.quantity, 0));
            let price = item.expect("read").expect("an item").price.get();
            assert_eq!(row.amount.get(), price * i64::from(line.quantity));
            row.amount.get()
        })
        .sum();
    assert!(receipt.total > sum / 2 && receipt.total < sum * 2, "{} of {sum}", receipt.total);
    let ordered: u32 =
        input.lines().iter().filter(|line| line.supply_warehouse == 2).map(|line| u32::from(line.quantity)).sum();
    let after = db.transact(|tx| tx.get_many(tables.stocks, (1..=100).map(|item| (2, item)).collect::<Vec<_>>()));
    let rows =
        |rows: Result<Vec<Option<super::Stock>>, _>| rows.expect("read").into_iter().flatten().collect::<Vec<_>>();
    let (before, after) = (rows(before), rows(after));
    assert_eq!(after.iter().map(|row| row.supply.ytd.get()).sum::<u32>(), ordered);
    assert!(
        ordered > 0 && after.iter().all(|row| row.supply.order_count == row.supply.remote_count),
        "all of them from elsewhere"
    );
    for (before, after) in before.iter().zip(&after) {
        let (left, taken) = (after.supply.quantity.get(), after.supply.ytd.get() as i16);
        assert!(
            left == before.supply.quantity.get() - taken || left > before.supply.quantity.get() - taken,
            "filled up or taken"
        );
        assert!(left >= 10);
    }
    let status = OrderStatus { district: (warehouse, district), customer: CustomerChoice::Number(number) };
    let look = LastOrder { tables, input: status, scratch: &mut Scratch::default() };
    let status = Reading::Auto.run(db, look, &mut 0).expect("it is there");
    assert_eq!((status.order, status.carrier, status.entry_date), (31, 0, DATE));
    assert_eq!((usize::from(status.lines), status.amount), (input.lines().len(), sum));
    assert_eq!(world.violations(), [""; 0]);
}

#[test]
fn nothing_is_left_of_an_order_of_an_unused_item() {
    let world = world::<DefaultConfig>(Native::without_htm());
    let before = world.db.tables().expect("sound");
    let mut inputs = world.inputs(Chances { rollback: 100, ..Chances::STANDARD });
    for _ in 0..20 {
        let refused = transactions::order(&world.db, &world.tables, &inputs.new_order(), DATE);
        assert!(matches!(refused, Err(Refused::UnusedItem)), "{refused:?}");
    }
    let row = world.db.transact(|tx| tx.get(world.tables.districts, (1, 1))).expect("read").expect("a district");
    assert_eq!(row.next_order.get(), 31);
    assert_eq!(world.db.tables().expect("sound"), before);
    assert_eq!(world.violations(), [""; 0]);
}

#[test]
fn the_customer_in_the_middle_pays() {
    let mut world = world::<DefaultConfig>(Native::without_htm());
    // The seventh customer's last name: with thirty names for thirty customers, one customer has
    // it; then three, and four.
    let (last, seventh) = (last_name(6), (1, 3, 7));
    let input = Payment {
        district: (2, 5),
        customer_district: (1, 3),
        customer: CustomerChoice::LastName(last),
        amount: 12_345,
    };
    let scratch = &mut Scratch::default();
    let mut pay = |world: &mut World<_>| {
        let key = (2, 1, world.payments);
        world.payments += 1;
        transactions::pay(&world.db, &world.tables, &input, key, DATE, scratch).expect("somebody has the name")
    };
    let paid = pay(&mut world);
    assert_eq!((paid.customer, paid.balance), (seventh, -1_000 - 12_345));
    assert_eq!((world.balance(seventh), world.violations()), (-13_345, vec![]));
    let name = |world: &World<_>, customer: u32, first: &[u8]| {
        let key = super::CustomerByName::new((1, 3, customer), &last).expect("in range");
        let row = super::CustomerNames { last, first: super::Text::new(first) };
        world.db.transact(|tx| tx.put(world.tables.customers_by_name, key, &row)).expect("room");
    };
    name(&world, 7, b"M");
    name(&world, 20, b"B");
    name(&world, 9, b"AA");
    assert_eq!(pay(&mut world).customer, (1, 3, 20), "AA, B, M");
    name(&world, 1, b"A");
    assert_eq!(pay(&mut world).customer, (1, 3, 9), "A, AA, B, M: rounded up");
    // The row of another name with the same number in its key does not count.
    let key = super::CustomerByName::new((1, 3, 2), &last).expect("in range");
    let other = super::CustomerNames { last: last_name(1), first: super::Text::new(b"0") };
    world.db.transact(|tx| tx.put(world.tables.customers_by_name, key, &other)).expect("room");
    assert_eq!(pay(&mut world).customer, (1, 3, 9));
    assert!(!world.violations().is_empty(), "the index is wrong now");
}

#[test]
fn the_oldest_orders_are_delivered_until_there_are_none() {
    let world = world::<DefaultConfig>(Native::without_htm());
    let World { db, tables, .. } = &world;
    let input = Delivery { warehouse: 1, carrier: 4 };
    for round in 0..9 {
        assert_eq!(transactions::deliver(db, tables, &input, DATE).expect("they are there"), 10);
        let order = db.transact(|tx| tx.get(tables.orders, (1, 2, 22 + round))).expect("read").expect("an order");
        assert_eq!(order.carrier, 4);
        let line = db.transact(|tx| tx.get(tables.order_lines, (1, 2, 22 + round, 1))).expect("read").expect("a line");
        assert_eq!(line.delivery_date.get(), DATE);
        assert!(world.balance((1, 2, order.customer.get())) > -1_000);
    }
    assert_eq!(transactions::deliver(db, tables, &input, DATE).expect("nothing to do"), 0);
    assert_eq!(world.violations(), [""; 0]);
    assert_eq!(db.transact(|tx| tx.range(tables.new_orders, ..)?.count()).expect("read"), 90, "the other warehouse's");
}

#[test]
fn a_stock_level_counts_items_and_not_lines() {
    let world = world::<DefaultConfig>(Native::without_htm());
    let World { db, tables, .. } = &world;
    let level = |threshold| {
        let input = StockLevel { district: (2, 9), threshold };
        let mut reruns = 0;
        let counts = [Reading::Auto, Reading::Snapshot, Reading::Validated].map(|reading| {
            let look = LowStock { tables, input, scratch: &mut Scratch::default() };
            reading.run(db, look, &mut reruns).expect("all is there")
        });
        assert!(counts == [counts[0]; 3] && reruns == 0, "no other thread runs");
        counts[0]
    };
    let lines: Vec<u32> = db
        .transact(|tx| {
            let mut rows = tx.range(tables.order_lines, (2, 9, 11, 0)..(2, 9, 31, 0))?;
            let mut items = Vec::new();
            while let Some((_, row)) = rows.next()? {
                items.push(row.item.get());
            }
            Ok(items)
        })
        .expect("read");
    let mut items = lines.clone();
    items.sort_unstable();
    items.dedup();
    assert!(items.len() < lines.len());
    assert_eq!((level(10), level(101)), (0, items.len() as u32));
    db.transact(|tx| tx.update(tables.stocks, (2, items[0]), |row| row.supply.quantity.set(9))).expect("there");
    assert_eq!(level(10), 1);
}

#[test]
fn what_is_done_wrongly_is_seen() {
    let world = world::<DefaultConfig>(Native::without_htm());
    let World { db, tables, .. } = &world;
    let sees = |what: &str, wrong: &dyn Fn(), right: &dyn Fn()| {
        wrong();
        let violations = world.violations();
        assert!(violations.iter().any(|violation| violation.contains(what)), "{what}: {violations:?}");
        right();
        assert_eq!(world.violations(), [""; 0], "{what}");
    };
    let ytd = |amount: i64| {
        let paid = db.transact(|tx| tx.update(tables.warehouses, 1, |row| row.ytd += I64::new(amount)));
        assert_eq!(paid.expect("no conflict"), Some(()));
    };
    sees("WarehouseIsSumOfDistricts", &|| ytd(1), &|| ytd(-1));
    let next = |orders: u32| {
        let row = db.transact(|tx| tx.update(tables.districts, (2, 10), |row| row.next_order.set(orders)));
        assert_eq!(row.expect("no conflict"), Some(()));
    };
    sees("NextOrderFollowsLast", &|| next(32), &|| next(31));
    let order = super::Order { customer: U32::new(1), ..zerocopy::FromZeros::new_zeroed() };
    let stray = (1, 1, 77);
    sees(
        "`order` has 601 records",
        &|| db.transact(|tx| tx.insert(tables.orders, stray, &order)).expect("new"),
        &|| assert!(db.transact(|tx| tx.remove(tables.orders, stray)).expect("there").is_some()),
    );
    let by_customer = super::OrderByCustomer::new((1, 1, 1), 1 << 20).expect("in range");
    sees(
        "`order by customer` has 601 records",
        &|| db.transact(|tx| tx.insert(tables.orders_by_customer, by_customer, &())).expect("new"),
        &|| assert!(db.transact(|tx| tx.remove(tables.orders_by_customer, by_customer)).expect("there").is_some()),
    );
    let payment = super::History { amount: I64::new(7), ..zerocopy::FromZeros::new_zeroed() };
    sees(
        "`history` has 601 records",
        &|| db.transact(|tx| tx.insert(tables.histories, (1, 2, 0), &payment)).expect("new"),
        &|| assert!(db.transact(|tx| tx.remove(tables.histories, (1, 2, 0))).expect("there").is_some()),
    );
}
