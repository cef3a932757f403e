//! A session cache on tokio: many tasks create, use and remove sessions.
//!
//! A transaction is a closure that never awaits a future. It runs on the task's thread, like a
//! short computation, and ends before the next `.await`.
//!
//! ```text
//! cargo run --release --example session_cache
//! ```

use std::{
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use drtm::{Db, Error, Ordered, Pod, Serde, TableDef, TableOf};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Session {
    user: u64,
    data: String,
    /// In milliseconds since the cache was opened.
    ends: u64,
}

type Sessions = TableDef<String, Serde<Session>>;
const SESSIONS: Sessions = Sessions::hash("sessions");

/// Sessions by their end. (An index would do as well. Here every use changes the time, and nothing
/// else.)
type Ends = TableDef<(u64, String), Pod<()>, Ordered>;
const ENDS: Ends = Ends::ordered("ends of sessions");

/// The number of sessions that one transaction ends. It is small, so that other transactions do not
/// wait long.
const AT_ONCE: usize = 200;

struct Cache {
    db: Db,
    sessions: TableOf<Sessions>,
    ends: TableOf<Ends>,
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
            if let Some(before) = tx.remove(self.sessions, id)? {
                tx.remove(self.ends, (before.ends, id))?;
            }
            tx.insert(self.sessions, id, &session)?;
            tx.insert(self.ends, (ends, id), &())
        })
    }

    /// Extends a session from now. Returns its user; `None` if it has ended.
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

    /// Removes sessions that have ended. Returns their number.
    fn sweep(&self) -> Result<usize, Error> {
        let (now, mut swept) = (self.now(), 0);
        loop {
            let some = self.db.transact(|tx| {
                let mut some = 0;
                while some < AT_ONCE {
                    let Some(((_, id), ())) = tx.range_mut(self.ends, ..(now, ""))?.pop_first()? else { break };
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

/// Runs tasks that use a session each. Returns the number of uses.
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
                // Every other user leaves, and its session ends at once.
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
    // Ended sessions are gone, and the others exist with their end.
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
