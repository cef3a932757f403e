//! Agreement by an etcd that runs beside the cluster: one key, replaced by comparing its version.
//!
//! etcd counts how often a key was written since it was created. That count is the configuration's
//! number, and the value repeats it, so that a key which something else writes, removes or
//! restores from a backup is noticed.
//!
//! The key has no lease. It must outlive every node, and members are watched by each other.
//!
//! Requests go over the JSON gateway, one after the other, from a thread of the handle. Another
//! thread watches, and reads the key again each time that the watch ends.

mod gateway;

use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, Weak, mpsc},
    thread,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use self::gateway::{Failure, Gateway, Key};
use crate::{
    Membership,
    answer::{Answer, Promise},
    configuration::Configuration,
    error::Error,
    latest::Latest,
    ledger,
    mutation::Mutation,
    sealed_file::{self, Kind},
};

const VALUE: Kind = Kind(32);

/// Options of an [`Etcd`].
///
/// # Example
///
/// ```
/// use drtm_membership::{Etcd, EtcdOptions};
///
/// let mut options = EtcdOptions::default();
/// options.endpoints = vec!["http://10.0.0.1:2379".into(), "http://10.0.0.2:2379".into()];
/// options.key = "/shop/configuration".into();
/// let membership = Etcd::start(options)?;
/// # Ok::<(), drtm_membership::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EtcdOptions {
    /// Where etcd's members listen for clients, as `http://host:port`. The first that can be
    /// reached is asked. There is no TLS here: put a local proxy before an etcd that wants it.
    pub endpoints: Vec<String>,
    /// The key. Each cluster has its own, and nothing else writes it.
    pub key: String,
    /// How long a request is waited for.
    pub patience: Duration,
    #[doc(hidden)]
    pub fault: Option<Mutation>,
}

impl Default for EtcdOptions {
    fn default() -> Self {
        Self {
            endpoints: vec!["http://127.0.0.1:2379".into()],
            key: "/drtm/configuration".into(),
            patience: Duration::from_secs(3),
            fault: None,
        }
    }
}

/// The configuration of a cluster in etcd.
///
/// # Example
///
/// ```
/// use drtm_membership::{Error, Etcd, EtcdOptions, Membership};
///
/// // Nothing listens there. The known configuration stays, and nothing changes.
/// let mut options = EtcdOptions::default();
/// options.endpoints = vec!["http://127.0.0.1:1".into()];
/// let membership = Etcd::start(options)?;
/// assert!(matches!(membership.read().wait(), Err(Error::Unavailable { .. })));
/// assert!(matches!(membership.replace(0, b"a node").wait(), Err(Error::Unavailable { .. })));
/// assert_eq!(membership.known().number(), 0);
/// # Ok::<(), Error>(())
/// ```
pub struct Etcd {
    inner: Arc<Inner>,
    requests: mpsc::Sender<Request>,
}

struct Inner {
    options: EtcdOptions,
    gateway: Gateway,
    latest: Latest,
    /// Whether the thread that watches has been started.
    is_watching: Mutex<bool>,
}

struct Request {
    /// What is expected and what is proposed. `None`: to read.
    proposal: Option<(u32, Vec<u8>)>,
    promise: Promise<Configuration>,
}

/// How long etcd is watched before the key is read again. A watch that was cut off without a word
/// misses nothing for longer.
const CYCLE: Duration = Duration::from_secs(2);

/// How long to wait before an etcd that cannot be watched is watched again.
const BACKOFF: Duration = Duration::from_millis(100);

impl Etcd {
    /// Makes a handle. etcd need not be there yet.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if no thread can be started.
    pub fn start(options: EtcdOptions) -> Result<Self, Error> {
        let gateway = Gateway::new(options.endpoints.clone(), options.patience);
        let latest = Latest::new(Configuration::none(), options.fault);
        let inner = Arc::new(Inner { options, gateway, latest, is_watching: Mutex::new(false) });
        let (requests, receiver) = mpsc::channel::<Request>();
        let its = Arc::clone(&inner);
        let serve = move || {
            for Request { proposal, promise } in receiver {
                let outcome = match proposal {
                    None => its.read(),
                    Some((expected, content)) => its.replace(expected, &content),
                };
                promise.keep(outcome);
            }
        };
        thread::Builder::new().name("drtm-etcd".into()).spawn(serve).map_err(Error::unavailable)?;
        Ok(Self { inner, requests })
    }

    fn request(&self, dropped: Error, proposal: Option<(u32, Vec<u8>)>) -> Answer<Configuration> {
        let (answer, promise) = Answer::awaited(dropped);
        // If the thread has ended, the promise is dropped, and answers.
        let _ = self.requests.send(Request { proposal, promise });
        answer
    }
}

impl Inner {
    fn read(&self) -> Result<Configuration, Error> {
        let before = self.latest.known();
        let key = self.gateway.read(&self.options.key).map_err(Failure::of_read)?;
        self.seen(&before, key.as_ref())
    }

    fn replace(&self, expected: u32, content: &[u8]) -> Result<Configuration, Error> {
        let number = ledger::next_number(expected, content)?;
        let before = self.latest.known();
        let value = [&number.to_le_bytes(), content].concat();
        let compared = (self.options.fault != Some(Mutation::ComparisonLeftOut)).then_some(expected);
        let value = sealed_file::seal(VALUE, &value);
        let put = self.gateway.replace(&self.options.key, compared, &value);
        let put = put.map_err(|failure| match self.options.fault {
            Some(Mutation::LostTakenForRefused) => failure.of_read(),
            _ => failure.of_replacement(),
        })?;
        match put {
            Ok(()) => {
                let configuration = Configuration::new(number, content);
                self.latest.publish(&configuration);
                Ok(configuration)
            }
            Err(key) => Err(Error::Outdated { current: self.seen(&before, key.as_ref())? }),
        }
    }

    /// Returns the configuration of a key, which was read after `before` was known.
    fn seen(&self, before: &Configuration, key: Option<&Key>) -> Result<Configuration, Error> {
        let configuration = match key {
            None => Configuration::none(),
            Some(key) => self.configuration(key)?,
        };
        self.latest.publish(&configuration);
        if configuration.number() < before.number() {
            let why = format!("it was number {} and is number {}", before.number(), configuration.number());
            return Err(self.damaged(why));
        }
        Ok(configuration)
    }

    fn configuration(&self, key: &Key) -> Result<Configuration, Error> {
        let value = sealed_file::open(VALUE, &key.value, self.options.fault).map_err(|why| self.damaged(why))?;
        let (number, content) = value.split_first_chunk().ok_or_else(|| self.damaged("it has no number"))?;
        let number = u32::from_le_bytes(*number);
        if u64::from(number) != key.version && self.options.fault != Some(Mutation::ComparisonLeftOut) {
            return Err(self.damaged(format!("number {number} was written as version {}", key.version)));
        }
        Ok(Configuration::new(number, content))
    }

    fn damaged(&self, why: impl ToString) -> Error {
        Error::Damaged { path: PathBuf::from(&self.options.key), why: why.to_string() }
    }

    /// Watches the key for one cycle. Returns whether to go on.
    fn watch_once(inner: &Weak<Self>) -> bool {
        let Some(inner) = inner.upgrade() else { return false };
        let before = inner.latest.known();
        let key = match inner.gateway.read(&inner.options.key) {
            Ok(key) => key,
            Err(_) => {
                drop(inner);
                thread::sleep(BACKOFF);
                return true;
            }
        };
        if let Err(why) = inner.seen(&before, key.as_ref()) {
            inner.latest.end(&why);
        }
        let after = key.map_or(0, |key| key.revision);
        let latest = |key: Key| match inner.configuration(&key) {
            Ok(configuration) => inner.latest.publish(&configuration),
            Err(why) => inner.latest.end(&why),
        };
        let begun = Instant::now();
        inner.gateway.watch(&inner.options.key, after + 1, CYCLE, latest);
        if begun.elapsed() < BACKOFF {
            // It was refused.
            drop(inner);
            thread::sleep(BACKOFF);
        }
        true
    }

    fn start_watch(self: &Arc<Self>) {
        let mut is_watching = self.is_watching.lock();
        if !*is_watching {
            let inner = Arc::downgrade(self);
            let watch = move || while Self::watch_once(&inner) {};
            match thread::Builder::new().name("drtm-etcd-watch".into()).spawn(watch) {
                Ok(_) => *is_watching = true,
                Err(why) => self.latest.end(&Error::unavailable(why)),
            }
        }
    }
}

impl Membership for Etcd {
    fn read(&self) -> Answer<Configuration> {
        self.request(Error::unavailable("the handle is closed"), None)
    }

    fn replace(&self, expected: u32, content: &[u8]) -> Answer<Configuration> {
        self.request(Error::unknown("the handle is closed"), Some((expected, content.to_vec())))
    }

    fn watch(&self, after: u32) -> Answer<Configuration> {
        let answer = self.inner.latest.watch(after);
        self.inner.start_watch();
        answer
    }

    fn known(&self) -> Configuration {
        self.inner.latest.known()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.inner.latest.end(&Error::Closed);
    }
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { options, latest, .. } = &*self.inner;
        f.debug_struct("Etcd").field("options", options).field("known", &latest.known()).finish_non_exhaustive()
    }
}
