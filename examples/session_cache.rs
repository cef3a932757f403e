//! Sessions of a service on tokio: made, used and forgotten by many tasks.
//!
//! A transaction is a closure that never waits for a future: it is run on the task's own thread, as
//! a short computation is, and is over before the next `.await`.
//!
//! ```text
//! cargo run --release --example session_cache
//! ```

use std::{
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use drtm::{Db, Error, Ordered, Pod, Serde, Table, TableDef};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Session {
    user: u64,
    data: String,
    /// In milliseconds since the cache was opened.
    ends: u64,
}

const SESSIONS: TableDef<String, Serde<Session>> = TableDef::hash("sessions");

/// What ends when. (An index would do the same; here the time changes with every use, and nothing
/// else does.)
const ENDS: TableDef<(u64, String), Pod<()>, Ordered> = TableDef::ordered("ends of sessions");

/// How many sessions one transaction ends: others wait for none of them for long.
const AT_ONCE: usize = 200;

struct Cache {
    db: Db,
    sessions: Table<String, Serde<Session>>,
    ends: Table<(u64, String), Pod<()>, Ordered>,
    opened: Instant,
}

impl Cache {
    fn open() -> Result<Self, Error> {
        let db = Db::new()?;
        Ok(Self { sessions: db.table(SESSIONS)?, ends: db.table(ENDS)?, db, opened: Instant::now() })
    }

    fn now(&self) -> u64 {
        self.opened.elapsed().as_millis() as u64
    }

    fn begin(&self, id: &str, user: u64, data: &str, lasts: Duration) -> Result<(), Error> {
        let ends = self.now() + lasts.as_millis() as u64;
        let session = Session { user, data: data.to_owned(), ends };
        self.db.transact(|tx| {
            if let Some(before) = tx.take(self.sessions, id)? {
                tx.remove(self.ends, (before.ends, id))?;
            }
            tx.insert(self.sessions, id, &session)?;
            tx.insert(self.ends, (ends, id), &())
        })
    }

    /// Lets a session last from now on. Gives its user, if it has not ended.
    fn touch(&self, id: &str, lasts: Duration) -> Result<Option<u64>, Error> {
        let now = self.now();
        self.db.transact(|tx| {
            let Some(session) = tx.get(self.sessions, id)?.filter(|session| session.ends > now) else {
                return Ok(None);
            };
            tx.remove(self.ends, (session.ends, id))?;
            let (user, ends) = (session.user, now + lasts.as_millis() as u64);
            tx.put(self.sessions, id, &Session { ends, ..session })?;
            tx.put(self.ends, (ends, id), &())?;
            Ok(Some(user))
        })
    }

    /// Removes sessions that have ended. Gives how many there were.
    fn sweep(&self) -> Result<usize, Error> {
        let (now, mut swept) = (self.now(), 0);
        loop {
            let some = self.db.transact(|tx| {
                let mut some = 0;
                while some < AT_ONCE {
                    let Some(((_, id), ())) = tx.pop_first(self.ends, ..(now, ""))? else { break };
                    tx.remove(self.sessions, &id)?;
                    some += 1;
                }
                Ok(some)
            })?;
            swept += some;
            if some < AT_ONCE {
                return Ok(swept);
            }
        }
    }
}

/// Lets many tasks have a session each, and use it so often. Gives how many uses there were.
pub(crate) async fn run(tasks: u64, uses: u64) -> Result<u64, Box<dyn std::error::Error + Send + Sync>> {
    const LASTS: Duration = Duration::from_secs(600);
    let cache = Arc::new(Cache::open()?);
    let sweeper = tokio::spawn({
        let cache = Arc::clone(&cache);
        async move {
            loop {
                tokio::time::sleep(Duration::from_millis(20)).await;
                if let Err(error) = cache.sweep() {
                    return error;
                }
            }
        }
    });
    let users: Vec<_> = (0..tasks)
        .map(|user| {
            let cache = Arc::clone(&cache);
            tokio::spawn(async move {
                let id = format!("session {user}");
                cache.begin(&id, user, "what it is about", LASTS)?;
                for _ in 0..uses {
                    tokio::task::yield_now().await;
                    assert_eq!(cache.touch(&id, LASTS)?, Some(user), "it has not ended");
                }
                // Every other one leaves, and its session ends at once.
                if user % 2 == 0 {
                    cache.touch(&id, Duration::ZERO)?;
                }
                Ok::<_, Error>(())
            })
        })
        .collect();
    for user in users {
        user.await??;
    }
    assert!(!sweeper.is_finished());
    sweeper.abort();
    // All that has ended is gone, and what has not is there, with its end.
    tokio::time::sleep(Duration::from_millis(2)).await;
    cache.sweep()?;
    let left = cache.db.read(|tx| Ok((tx.len(cache.sessions)?, tx.len(cache.ends)?)))?;
    assert_eq!(left, (tasks / 2, tasks / 2));
    Ok(tasks * uses)
}

#[tokio::main]
async fn main() -> ExitCode {
    let start = Instant::now();
    match run(10_000, 20).await {
        Ok(uses) => {
            println!(
                "{uses} uses of 10000 sessions in {:.2?}; the half of them that has ended is gone",
                start.elapsed()
            );
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("the service ends: {error}");
            ExitCode::FAILURE
        }
    }
}
