//! A shop: products, orders, and the last orders of a customer. An order takes all its lines from
//! the stock, or fails as a whole.
//!
//! ```text
//! cargo run --release --example shop
//! ```

use std::{fmt, process::ExitCode, thread, time::Instant};

use drtm::{Db, Error, IndexDef, IndexOf, Multi, Pod, Serde, TableDef, TableOf};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Product {
    name: String,
    price: u64,
    stock: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Order {
    customer: String,
    lines: Vec<(String, u32)>,
    total: u64,
}

/// Keyed by article number.
type Products = TableDef<String, Serde<Product>>;
const PRODUCTS: Products = Products::hash("products");

/// Keyed by till and order number. Each till counts its own orders: with one counter for all, every
/// order would conflict.
type Orders = TableDef<(u16, u64), Serde<Order>>;
const ORDERS: Orders = Orders::hash("orders");
const BY_CUSTOMER: IndexDef<(u16, u64), Serde<Order>, String, Multi> =
    IndexDef::multi("orders by customer", |_, order| Some(order.customer));

/// Orders and takings of each till.
type Tills = TableDef<u16, Pod<[u64; 2]>>;
const TILLS: Tills = Tills::hash("tills");

/// Why an order failed.
#[derive(Debug)]
pub(crate) enum Refusal {
    NoProduct(String),
    OutOfStock { product: String, left: u32 },
    Db(Error),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoProduct(number) => write!(f, "there is no product {number}"),
            Self::OutOfStock { product, left } => write!(f, "of {product} there are only {left} left"),
            Self::Db(error) => write!(f, "{error}"),
        }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Db(error)
    }
}

struct Shop {
    db: Db,
    products: TableOf<Products>,
    orders: TableOf<Orders>,
    by_customer: IndexOf<Orders, String, Multi>,
    tills: TableOf<Tills>,
}

impl Shop {
    fn open() -> Result<Self, Error> {
        let db = Db::new()?;
        let orders = db.table(ORDERS)?;
        Ok(Self {
            products: db.table(PRODUCTS)?,
            orders,
            by_customer: db.index(orders, BY_CUSTOMER)?,
            tills: db.table(TILLS)?,
            db,
        })
    }

    fn add(&self, number: &str, product: &Product) -> Result<(), Error> {
        self.db.transact(|tx| tx.put(self.products, number, product))
    }

    /// Sells the lines of an order, and returns its number at this till.
    fn order(&self, till: u16, customer: &str, lines: &[(String, u32)]) -> Result<u64, Refusal> {
        self.db.try_transact(|tx| {
            let mut total = 0;
            for (number, wanted) in lines {
                let sold = tx.update(self.products, number, |product| match product.stock.checked_sub(*wanted) {
                    Some(left) => {
                        product.stock = left;
                        Ok(product.price * u64::from(*wanted))
                    }
                    None => Err(Refusal::OutOfStock { product: product.name.clone(), left: product.stock }),
                })?;
                total += sold.ok_or_else(|| Refusal::NoProduct(number.clone()))??;
            }
            let [orders, takings] = tx.get(self.tills, till)?.unwrap_or_default();
            tx.put(self.tills, till, &[orders + 1, takings + total])?;
            let order = Order { customer: customer.to_owned(), lines: lines.to_vec(), total };
            tx.insert(self.orders, (till, orders), &order)?;
            Ok(orders)
        })
    }

    /// Returns the first orders of a customer, till by till.
    fn orders_of(&self, customer: &str, most: usize) -> Result<Vec<Order>, Error> {
        self.db.read(|tx| {
            let rows = tx.range(self.by_customer, customer..=customer)?.rows().take(most);
            rows.map(|row| row.map(|(_, (_, order))| order)).collect()
        })
    }
}

/// Fills a shop, sells from several tills at once, and audits it. Returns the number of orders.
pub(crate) fn run(tills: u16, orders: u64) -> Result<u64, Refusal> {
    const STOCK: u32 = 1_000_000;
    let shop = Shop::open()?;
    for number in 0..1_000 {
        let product = Product { name: format!("product {number}"), price: 100 + number, stock: STOCK };
        shop.add(&format!("no. {number:04}"), &product)?;
    }
    shop.add("rare", &Product { name: "a rare one".to_owned(), price: 1, stock: 1 })?;

    // An order that fails on its last line sells nothing.
    let lines = [("no. 0001".to_owned(), 1), ("rare".to_owned(), 5)];
    let refused = shop.order(0, "Ann", &lines);
    assert!(matches!(refused, Err(Refusal::OutOfStock { left: 1, .. })), "{refused:?}");
    assert!(matches!(shop.order(0, "Ann", &[("none".to_owned(), 1)]), Err(Refusal::NoProduct(_))));
    assert_eq!(shop.orders_of("Ann", 1)?.len(), 0);

    let sell = |till: u16| -> Result<(), Refusal> {
        for order in 0..orders {
            let number = |line: u64| (order * 7 + line * 131 + u64::from(till) * 17) % 1_000;
            let lines: Vec<_> = (0..3).map(|line| (format!("no. {:04}", number(line)), 1)).collect();
            shop.order(till, &format!("customer {}", order % 500), &lines)?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..tills).map(|till| scope.spawn(move || sell(till))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;

    // Everything sold has left the stock, and its price is in the tills.
    let (mut sold, mut worth, mut takings, mut count) = (0, 0, 0, 0);
    shop.db.read(|tx| {
        tx.walk(shop.products, |number, product| {
            if number != "rare" {
                let gone = u64::from(STOCK - product.stock);
                sold += gone;
                worth += gone * product.price;
            }
        })?;
        tx.walk(shop.tills, |_, [orders, total]| {
            count += orders;
            takings += total;
        })
    })?;
    assert_eq!((count, sold, takings), (u64::from(tills) * orders, 3 * count, worth));
    let first = shop.orders_of("customer 7", 10)?;
    assert!(first.iter().all(|order| order.customer == "customer 7" && order.lines.len() == 3 && order.total > 0));
    Ok(count)
}

fn main() -> ExitCode {
    let start = Instant::now();
    match run(4, 50_000) {
        Ok(orders) => {
            println!("{orders} orders from 4 tills in {:.2?}, and the books are right", start.elapsed());
            ExitCode::SUCCESS
        }
        Err(refusal) => {
            eprintln!("the shop closes: {refusal}");
            ExitCode::FAILURE
        }
    }
}
