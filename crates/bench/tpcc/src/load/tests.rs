//! The counts and contents of 4.3.3.1, for a whole warehouse and for small ones.

use std::convert::Infallible;

use super::*;
use crate::Population;

fn small(warehouses: u16) -> Loader {
    let scale = Scale::new(warehouses).and_then(|scale| scale.with_customers(100)?.with_items(50)).expect("small");
    Loader::new(scale, 21, NonZeroU64::new(7).expect("not zero"))
}

/// Counts the rows of a population without storing them.
#[derive(Debug, Default, PartialEq)]
struct Counts {
    warehouses: u32,
    districts: u32,
    customers: u32,
    histories: u32,
    new_orders: u32,
    orders: u32,
    lines: u32,
    promised_lines: u32,
    items: u32,
    stocks: u32,
}

macro_rules! counting {
    ($($row:ident: $key:ty, $value:ty => $count:ident;)+) => {
        $(fn $row(&mut self, _key: $key, _row: &$value) -> Result<(), Infallible> {
            self.$count += 1;
            Ok(())
        })+
    };
}

impl Sink for Counts {
    type Error = Infallible;

    counting! {
        warehouse: WarehouseKey, Warehouse => warehouses;
        district: DistrictKey, District => districts;
        customer: CustomerKey, Customer => customers;
        history: HistoryKey, History => histories;
        new_order: OrderKey, NewOrder => new_orders;
        order_line: OrderLineKey, OrderLine => lines;
        item: ItemKey, Item => items;
        stock: StockKey, Stock => stocks;
    }

    fn order(&mut self, _key: OrderKey, row: &Order) -> Result<(), Infallible> {
        self.orders += 1;
        self.promised_lines += u32::from(row.line_count);
        Ok(())
    }
}

#[test]
fn a_whole_warehouse_has_the_rows_of_the_specification() {
    let loader = Loader::new(Scale::new(1).expect("one"), 1, NonZeroU64::MIN);
    let mut counts = Counts::default();
    let Ok(()) = loader.items(&mut counts);
    let Ok(()) = loader.warehouse(1, &mut counts);
    let lines = counts.lines;
    assert!((297_000..303_000).contains(&lines), "{lines}: 300,000 within a percent");
    let expected = Counts {
        warehouses: 1,
        districts: 10,
        customers: 30_000,
        histories: 30_000,
        new_orders: 9_000,
        orders: 30_000,
        lines,
        promised_lines: lines,
        items: 100_000,
        stocks: 100_000,
    };
    assert_eq!(counts, expected);
}

#[test]
fn a_population_is_a_function_of_its_seed() {
    let rows = Population::of(&small(2));
    assert_eq!(rows, Population::of(&small(2)));
    // Warehouses can be loaded in any order, and alone.
    let mut alone = Population::default();
    let Ok(()) = small(2).warehouse(2, &mut alone);
    assert!(alone.stocks.iter().all(|(key, row)| rows.stocks[key] == *row));
    assert_ne!(rows.stocks[&(1, 1)], rows.stocks[&(2, 1)]);
    let other = Loader { seed: 22, ..small(2) };
    assert_ne!(rows.items, Population::of(&other).items);
}

#[test]
fn orders_begin_as_the_specification_says() {
    let rows = Population::of(&small(1));
    for district in 1..=DISTRICTS {
        let orders = || rows.orders.range((1, district, 0)..=(1, district, u32::MAX));
        let mut customers: Vec<u32> = orders().map(|(_, order)| order.customer.get()).collect();
        assert!(!customers.is_sorted(), "they are permuted");
        customers.sort_unstable();
        assert!(customers.into_iter().eq(1..=100), "each has one");
        for (key, order) in orders() {
            let is_new = key.2 > 70;
            assert_eq!(rows.new_orders.contains_key(key), is_new);
            assert_eq!(order.carrier == 0, is_new);
            assert!(order.carrier <= 10 && (5..=15).contains(&order.line_count));
        }
    }
    for ((_, _, order, _), line) in &rows.order_lines {
        let is_new = *order > 70;
        assert_eq!(line.delivery_date.get(), if is_new { 0 } else { 7 });
        let amounts = if is_new { 1..=999_999 } else { 0..=0 };
        assert!(amounts.contains(&line.amount.get()) && line.quantity == 5);
        assert!((1..=50).contains(&line.item.get()) && line.supply_warehouse.get() == 1);
    }
}

#[test]
fn customers_begin_as_the_specification_says() {
    let rows = Population::of(&small(1));
    let bad = rows.customers.values().filter(|customer| customer.account.credit == *b"BC").count();
    assert!((60..140).contains(&bad), "{bad} of 1000");
    for (key, customer) in &rows.customers {
        assert_eq!(customer.account.last, last_name(key.2 - 1), "the first thousand have all names");
        assert!((300..=500).contains(&customer.data.as_bytes().len()));
        assert!((8..=16).contains(&customer.first.as_bytes().len()));
        assert!(customer.account.discount.get() <= 5_000 && customer.phone.iter().all(u8::is_ascii_digit));
        assert_eq!((customer.account.balance.get(), customer.credit_limit.get()), (-1_000, 5_000_000));
    }
}

#[test]
fn further_customers_have_names_that_are_drawn() {
    let scale = Scale::new(1).and_then(|scale| scale.with_customers(1_200)?.with_items(1)).expect("small");
    let rows = Population::of(&Loader::new(scale, 23, NonZeroU64::MIN));
    let names = |district| {
        let customers = rows.customers.range((1, district, 1_001)..=(1, district, 1_200));
        customers.map(|(_, customer)| customer.account.last.as_bytes().to_vec()).collect::<Vec<_>>()
    };
    assert_ne!(names(1), names(2));
    let known: Vec<_> = (0..1_000).map(last_name).collect();
    assert!(names(1).iter().all(|name| known.iter().any(|one| one.as_bytes() == name)));
}

#[test]
fn a_sink_that_fails_ends_the_loading() {
    /// A sink with room for this many rows of stock.
    struct Full(Counts);

    macro_rules! passing {
        ($($row:ident: $key:ty, $value:ty;)+) => {
            $(fn $row(&mut self, key: $key, row: &$value) -> Result<(), u32> {
                self.0.$row(key, row).map_err(|never| match never {})
            })+
        };
    }

    impl Sink for Full {
        type Error = u32;

        passing! {
            warehouse: WarehouseKey, Warehouse;
            district: DistrictKey, District;
            customer: CustomerKey, Customer;
            history: HistoryKey, History;
            new_order: OrderKey, NewOrder;
            order: OrderKey, Order;
            order_line: OrderLineKey, OrderLine;
            item: ItemKey, Item;
        }

        fn stock(&mut self, (_, item): StockKey, _row: &Stock) -> Result<(), u32> {
            if item > 20 { Err(item) } else { Ok(()) }
        }
    }

    let mut sink = Full(Counts::default());
    assert_eq!(small(1).warehouse(1, &mut sink), Err(21));
    assert_eq!((sink.0.warehouses, sink.0.districts), (1, 0));
}
