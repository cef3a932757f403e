//! An inventory: articles are found by number, bar code, shelf and shortage, while several threads
//! fill orders.
//!
//! ```text
//! cargo run --release --example inventory
//! ```

use std::{process::ExitCode, thread};

use drtm::{Db, Entry, Error, IndexDef, IndexOf, Multi, Ordered, Pod, Serde, TableDef, TableOf};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Article {
    name: String,
    bar_code: Option<String>,
    shelf: u16,
    stock: u32,
    /// The minimum stock.
    reserve: u32,
}

type Articles = TableDef<u32, Serde<Article>>;
const ARTICLES: Articles = Articles::hash("articles");

/// Articles without a bar code have no entry.
const BY_BAR_CODE: IndexDef<u32, Serde<Article>, String> =
    IndexDef::unique("articles by bar code", |_, it| it.bar_code);

/// Ordered, so that a walk along the shelves is a range scan.
const BY_SHELF: IndexDef<u32, Serde<Article>, u16, Multi> =
    IndexDef::multi("articles by shelf", |_, it| Some(it.shelf));

/// Contains only articles in short supply, the most urgent first, so that finding them reads no
/// others.
const BY_SHORTAGE: IndexDef<u32, Serde<Article>, i32, Multi> = IndexDef::multi("articles by shortage", |_, it| {
    (it.stock < it.reserve).then(|| it.stock as i32 - it.reserve as i32)
});

/// The ordered quantity of each article that could not be delivered.
type Backlog = TableDef<u32, Pod<u32>, Ordered>;
const BACKLOG: Backlog = Backlog::ordered("backlog");

#[derive(Clone)]
struct Inventory {
    db: Db,
    articles: TableOf<Articles>,
    by_bar_code: IndexOf<Articles, String>,
    by_shelf: IndexOf<Articles, u16, Multi>,
    by_shortage: IndexOf<Articles, i32, Multi>,
    backlog: TableOf<Backlog>,
}

impl Inventory {
    fn open() -> Result<Self, Error> {
        let db = Db::new()?;
        let articles = db.table(ARTICLES)?;
        Ok(Self {
            articles,
            by_bar_code: db.index(articles, BY_BAR_CODE)?,
            by_shelf: db.index(articles, BY_SHELF)?,
            by_shortage: db.index(articles, BY_SHORTAGE)?,
            backlog: db.table(BACKLOG)?,
            db,
        })
    }

    fn fill(&self) -> Result<(), Error> {
        self.db.transact(|tx| {
            for number in 0..40_u32 {
                let article = Article {
                    name: format!("article {number}"),
                    bar_code: (number % 4 != 0).then(|| format!("76{number:011}")),
                    shelf: (number / 10) as u16,
                    stock: 50,
                    reserve: 10,
                };
                tx.insert(self.articles, number, &article)?;
            }
            Ok(())
        })
    }

    /// Takes a quantity of the article with this bar code. The missing quantity goes to the
    /// backlog. Returns the quantity delivered.
    fn order(&self, bar_code: &String, wanted: u32) -> Result<u32, Error> {
        self.db.transact(|tx| {
            let number = tx.get(self.by_bar_code.keys(), bar_code)?;
            let number = number.ok_or_else(|| Error::aborted(format!("nothing has the bar code {bar_code}")))?;
            let delivered = tx.update(self.articles, number, |article| {
                let delivered = wanted.min(article.stock);
                article.stock -= delivered;
                delivered
            })?;
            let delivered = delivered.unwrap_or(0);
            if delivered < wanted {
                let missing = wanted - delivered;
                tx.entry(self.backlog, &number)?.and_modify(|count| *count += missing)?.or_insert(missing)?;
            }
            Ok(delivered)
        })
    }

    /// Restocks the article that needs it most, and serves its backlog. Returns its name; `None` if
    /// no article is short.
    fn restock(&self, delivery: u32) -> Result<Option<String>, Error> {
        self.db.transact(|tx| {
            let Some((_, (number, article))) = tx.range(self.by_shortage, ..)?.first()? else { return Ok(None) };
            let mut stock = article.stock + delivery;
            if let Entry::Occupied(mut backlog) = tx.entry(self.backlog, &number)? {
                let count = *backlog.get()?;
                let served = count.min(stock);
                stock -= served;
                if served < count {
                    backlog.put(&(count - served))?;
                } else {
                    backlog.remove()?;
                }
            }
            tx.put(self.articles, number, &Article { stock, ..article.clone() })?;
            Ok(Some(article.name))
        })
    }
}

fn run() -> Result<(), Error> {
    let inventory = Inventory::open()?;
    inventory.fill()?;

    let twice = inventory.db.transact(|tx| {
        tx.update(inventory.articles, 2, |article| article.bar_code = Some(format!("76{:011}", 1))).map(drop)
    });
    println!("a bar code twice: {}", twice.err().map_or("accepted".to_owned(), |error| error.to_string()));

    let delivered: u32 = thread::scope(|scope| {
        let clerks: Vec<_> = (0..4_u32)
            .map(|clerk| {
                let inventory = inventory.clone();
                scope.spawn(move || -> Result<u32, Error> {
                    let mut delivered = 0;
                    for turn in 0..150 {
                        // One article in four has no bar code.
                        let number = (turn * 7 + clerk) % 40;
                        let number = if number % 4 == 0 { number + 1 } else { number };
                        delivered += inventory.order(&format!("76{number:011}"), 1 + turn % 5)?;
                    }
                    Ok(delivered)
                })
            })
            .collect();
        clerks.into_iter().map(|clerk| clerk.join().expect("no clerk panics")).sum::<Result<u32, Error>>()
    })?;
    println!("{delivered} delivered");

    let (ordered, stock): (u32, u32) = inventory.db.transact(|tx| {
        let mut stock = 0;
        let mut rows = tx.range(inventory.by_shelf, ..)?;
        while let Some((_, (_, article))) = rows.next()? {
            stock += article.stock;
        }
        let waiting: u32 =
            tx.range(inventory.backlog, ..)?.rows().map(|row| row.map(|row| row.1)).sum::<Result<_, _>>()?;
        Ok((delivered + waiting, stock))
    })?;
    println!("{ordered} ordered, {stock} left");
    assert_eq!(stock + delivered, 40 * 50, "articles came from nowhere, or went there");

    let shelf = inventory.db.transact(|tx| tx.range(inventory.by_shelf, 1..=2)?.count())?;
    println!("{shelf} articles on shelves 1 and 2");
    while let Some(name) = inventory.restock(60)? {
        println!("restocked {name}");
    }
    assert_eq!(inventory.db.transact(|tx| tx.range(inventory.by_shortage, ..)?.count())?, 0);
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
