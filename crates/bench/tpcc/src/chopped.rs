//! TPC-C in pieces: NEW-ORDER, PAYMENT and DELIVERY as the analysis chops them, and the other two
//! as two-round reads.
//!
//! A transaction can also keep what it has seen of which rows ([`Seen`](seen::Seen)), so that a
//! checker judges whole transactions. No row is changed for that: what it contains says how often
//! it was written.

mod notes;
mod readers;
mod seen;
#[cfg(test)]
mod tests;
mod workload;
mod writers;

pub use workload::{ChoppedTerminals, ChoppedTpcc, Section};

use drtm_chopping::{Piece, Table, Transaction};
use drtm_txn::{
    Config, Db, Error, Hash, PodRef,
    chopped::{Call, Code, PieceTx, Procedures, Reader, Registered, Stop, Sum},
    part,
};
use zerocopy::little_endian::{I64, U32};

use self::{
    notes::Notes,
    readers::{last_order, low_stock},
    writers::{Delivering, Ordering, Paying},
};
use crate::{
    Customer, CustomerKey, District, DistrictKey, OrderStatus, StockLevel, Warehouse, WarehouseKey, tables::Tables,
};

const WAREHOUSE: Table<'static> = Table::new("warehouse", &["info", "tax", "ytd"]);
const DISTRICT: Table<'static> = Table::new("district", &["info", "tax", "next-order", "ytd"]);
const CUSTOMER: Table<'static> = Table::new("customer", &["info", "balance", "payments", "deliveries"]);
const NAMES: Table<'static> = Table::new("customer by name", &[]).stationary();
const HISTORY: Table<'static> = Table::new("history", &[]);
const QUEUE: Table<'static> = Table::new("new-order", &[]);
const ORDER: Table<'static> = Table::new("order", &["entry", "carrier"]);
const ORDERS_OF: Table<'static> = Table::new("order by customer", &[]);
const ORDER_LINE: Table<'static> = Table::new("order-line", &["entry", "delivery"]);
const ITEM: Table<'static> = Table::new("item", &[]).stationary();
const STOCK: Table<'static> = Table::new("stock", &["info", "supply"]);

const NEW_ORDER: Transaction<'static> = Transaction::new(
    "new-order",
    &[
        Piece::new("warehouse", &[WAREHOUSE.read("tax")]).after(&[]),
        Piece::new("district", &[DISTRICT.read("tax"), DISTRICT.update("next-order")]).after(&[]),
        Piece::new("customer", &[CUSTOMER.read("info")]).after(&[]),
        Piece::new("order", &[ORDER.insert(), ORDERS_OF.insert()]).after(&["district"]),
        Piece::new("queue", &[QUEUE.insert()]).after(&["district"]),
        Piece::new("item", &[ITEM.read("*")]).after(&[]).may_abort(),
        Piece::new("stock", &[STOCK.read("info"), STOCK.update("supply")]).after(&["item"]),
        Piece::new("order-line", &[ORDER_LINE.insert()]).after(&["district", "item", "stock"]),
    ],
);

const PAYMENT: Transaction<'static> = Transaction::new(
    "payment",
    &[
        Piece::new("warehouse", &[WAREHOUSE.read("info"), WAREHOUSE.add("ytd")]).after(&[]),
        Piece::new("district", &[DISTRICT.read("info"), DISTRICT.add("ytd")]).after(&[]),
        Piece::new("customer-idx", &[NAMES.read("*")]).after(&[]),
        Piece::new("customer", &[CUSTOMER.read("info"), CUSTOMER.update("balance"), CUSTOMER.update("payments")])
            .after(&["warehouse", "district", "customer-idx"]),
        Piece::new("history", &[HISTORY.append()]).after(&["warehouse", "district", "customer"]),
    ],
);

const DELIVERY: Transaction<'static> = Transaction::new(
    "delivery",
    &[
        Piece::new("queue", &[QUEUE.remove()]).after(&[]),
        Piece::new("order", &[ORDER.read("entry").claimed_by("queue"), ORDER.update("carrier").claimed_by("queue")])
            .after(&["queue"]),
        Piece::new(
            "order-line",
            &[ORDER_LINE.read("entry").claimed_by("queue"), ORDER_LINE.update("delivery").claimed_by("queue")],
        )
        .after(&["order"]),
        Piece::new("customer", &[CUSTOMER.add("balance"), CUSTOMER.add("deliveries")]).after(&["order-line"]),
    ],
);

const ORDER_STATUS: Transaction<'static> = Transaction::new(
    "order-status",
    &[
        Piece::new("customer", &[NAMES.read("*"), CUSTOMER.read("info"), CUSTOMER.read("balance")]).after(&[]),
        Piece::new("order", &[ORDERS_OF.read("*"), ORDERS_OF.search(), ORDER.read("entry"), ORDER.read("carrier")])
            .after(&["customer"]),
        Piece::new("order-line", &[ORDER_LINE.read("entry"), ORDER_LINE.read("delivery")]).after(&["order"]),
    ],
);

const STOCK_LEVEL: Transaction<'static> = Transaction::new(
    "stock-level",
    &[
        Piece::new("district", &[DISTRICT.read("next-order")]).after(&[]),
        Piece::new("order-line", &[ORDER_LINE.read("entry")]).after(&["district"]),
        Piece::new("stock", &[STOCK.read("supply")]).after(&["order-line"]),
    ],
);

const LOADED: &str = "the population has it";

/// A column of numbers of a table.
type Column<K, R, T> = drtm_txn::Column<K, PodRef<R>, Hash, T>;

/// The sums that pieces add to.
#[derive(Clone, Copy)]
struct Sums {
    warehouse: Sum<Column<WarehouseKey, Warehouse, I64>>,
    district: Sum<Column<DistrictKey, District, I64>>,
    balance: Sum<Column<CustomerKey, Customer, I64>>,
    deliveries: Sum<Column<CustomerKey, Customer, U32>>,
}

/// The registered program, whose transactions keep `N` of what they have seen.
struct Chopped<S: Config, N, C, P, D, O, L> {
    order: Call<S, Ordering<N>, C>,
    pay: Call<S, Paying<N>, P>,
    deliver: Call<S, Delivering<N>, D>,
    status: Reader<S, O>,
    level: Reader<S, L>,
    registered: Registered<S>,
}

/// What a reader runs.
trait Reads<S: Config, I, N>: Fn(&mut PieceTx<'_, '_, S>, &I) -> Result<N, Stop> + Send + Sync {}

impl<S: Config, I, N, F: Fn(&mut PieceTx<'_, '_, S>, &I) -> Result<N, Stop> + Send + Sync> Reads<S, I, N> for F {}

/// Registers the five transactions.
#[allow(clippy::type_complexity, reason = "the code of a piece is a type")]
fn chopped<S: Config, N: Notes>(
    db: &Db<S>,
    tables: Tables,
) -> Result<
    Chopped<
        S,
        N,
        impl Code<S, Ordering<N>> + use<S, N>,
        impl Code<S, Paying<N>> + use<S, N>,
        impl Code<S, Delivering<N>> + use<S, N>,
        impl Reads<S, OrderStatus, N> + use<S, N>,
        impl Reads<S, StockLevel, N> + use<S, N>,
    >,
    Error,
> {
    let mut program = Procedures::new(db, "tpcc");
    let sums = Sums {
        warehouse: program.sum(WAREHOUSE.add("ytd"), tables.warehouses.column(part!(Warehouse, ytd)))?,
        district: program.sum(DISTRICT.add("ytd"), tables.districts.column(part!(District, ytd)))?,
        balance: program.sum(CUSTOMER.add("balance"), tables.customers.column(part!(Customer, account.balance)))?,
        deliveries: program
            .sum(CUSTOMER.add("deliveries"), tables.customers.column(part!(Customer, account.delivery_count)))?,
    };
    let order = writers::order(program.procedure(NEW_ORDER), tables);
    let order = program.add(order);
    let pay = writers::pay(program.procedure(PAYMENT), tables, sums);
    let pay = program.add(pay);
    let deliver = writers::deliver(program.procedure(DELIVERY), tables, sums);
    let deliver = program.add(deliver);
    let status = program.reader(ORDER_STATUS, move |tx, input: &OrderStatus| last_order(tx, tables, input));
    let level = program.reader(STOCK_LEVEL, move |tx, input: &StockLevel| low_stock(tx, tables, input));
    Ok(Chopped { order, pay, deliver, status, level, registered: program.register()? })
}
