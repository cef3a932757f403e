//! etcd's JSON gateway: reading one key, replacing it, and watching it.

use std::{
    io::{self, BufRead as _, BufReader},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use ureq::{Agent, Timeout};

use crate::error::Error;

/// A key as it was at one moment.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) value: Vec<u8>,
    /// How often it was written since it was created.
    pub(super) version: u64,
    /// etcd's number of the change that wrote it.
    pub(super) revision: u64,
}

/// Why a request has no answer.
#[derive(Debug)]
pub(super) struct Failure {
    why: String,
    /// Whether it is certain that etcd did nothing.
    is_certain: bool,
}

impl Failure {
    pub(super) fn of_read(self) -> Error {
        Error::unavailable(self.why)
    }

    pub(super) fn of_replacement(self) -> Error {
        if self.is_certain { Error::unavailable(self.why) } else { Error::unknown(self.why) }
    }
}

/// The gateways of etcd's members.
#[derive(Debug)]
pub(super) struct Gateway {
    endpoints: Vec<String>,
    agent: Agent,
}

#[derive(Deserialize)]
struct Range {
    #[serde(default)]
    kvs: Vec<KeyValue>,
}

/// Numbers are text, since they have 64 bits. Those that are 0 are left out.
#[derive(Deserialize)]
struct KeyValue {
    #[serde(default)]
    value: String,
    version: String,
    mod_revision: String,
}

#[derive(Deserialize)]
struct Put {
    #[serde(default)]
    succeeded: bool,
    #[serde(default)]
    responses: Vec<PutResponse>,
}

#[derive(Deserialize)]
struct PutResponse {
    response_range: Option<Range>,
}

#[derive(Deserialize)]
struct Watched {
    result: Option<WatchResult>,
}

#[derive(Deserialize)]
struct WatchResult {
    #[serde(default)]
    events: Vec<Event>,
}

#[derive(Deserialize)]
struct Event {
    /// `DELETE`, or left out.
    #[serde(default)]
    r#type: String,
    kv: KeyValue,
}

impl KeyValue {
    fn key(self) -> Option<Key> {
        let value = STANDARD.decode(self.value).ok()?;
        Some(Key { value, version: self.version.parse().ok()?, revision: self.mod_revision.parse().ok()? })
    }
}

impl Gateway {
    pub(super) fn new(endpoints: Vec<String>, patience: Duration) -> Self {
        let config = Agent::config_builder()
            // Each request has its own connection: whether it was sent is then known.
            .max_idle_connections(0)
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .timeout_global(Some(patience))
            .build();
        Self { endpoints, agent: config.into() }
    }

    /// Reads a key. `None` if there is none.
    pub(super) fn read(&self, key: &str) -> Result<Option<Key>, Failure> {
        let range: Range = self.ask("kv/range", &json!({ "key": STANDARD.encode(key) }), true)?;
        first(range)
    }

    /// Writes a key if its version is the expected one. Returns the key as it is if it is not.
    pub(super) fn replace(
        &self,
        key: &str,
        expected: Option<u32>,
        value: &[u8],
    ) -> Result<Result<(), Option<Key>>, Failure> {
        let key = STANDARD.encode(key);
        let compare = expected.map(
            |version| json!({ "key": key, "target": "VERSION", "result": "EQUAL", "version": version.to_string() }),
        );
        let request = json!({
            "compare": compare.into_iter().collect::<Vec<_>>(),
            "success": [{ "request_put": { "key": key, "value": STANDARD.encode(value) } }],
            "failure": [{ "request_range": { "key": key } }],
        });
        let put: Put = self.ask("kv/txn", &request, false)?;
        if put.succeeded {
            return Ok(Ok(()));
        }
        let range = put.responses.into_iter().find_map(|response| response.response_range);
        Ok(Err(first(range.unwrap_or(Range { kvs: Vec::new() }))?))
    }

    /// Watches a key for some time, and tells of each change from a revision on.
    ///
    /// It ends early if etcd cannot be reached, or says something that is not understood: the
    /// caller reads the key again.
    pub(super) fn watch(&self, key: &str, from: u64, time: Duration, mut tell: impl FnMut(Key)) {
        let request = json!({ "create_request": { "key": STANDARD.encode(key), "start_revision": from.to_string() } });
        let Some(response) =
            self.endpoints.iter().find_map(|endpoint| self.post(endpoint, "watch", &request, Some(time)).ok())
        else {
            return;
        };
        for line in BufReader::new(response.into_body().into_reader()).lines() {
            let watched =
                line.map_err(io::Error::other).ok().and_then(|line| serde_json::from_str::<Watched>(&line).ok());
            let Some(result) = watched.and_then(|watched| watched.result) else { return };
            for event in result.events {
                match event.kv.key() {
                    Some(key) if event.r#type.is_empty() || event.r#type == "PUT" => tell(key),
                    _ => return,
                }
            }
        }
    }

    /// Asks the first member that can be reached. What can be repeated goes to the next one also if
    /// that member does not answer.
    fn ask<T: DeserializeOwned>(&self, path: &str, request: &Value, can_be_repeated: bool) -> Result<T, Failure> {
        let mut failure = Failure { why: "no endpoint is named".into(), is_certain: true };
        for endpoint in &self.endpoints {
            let answered = self.post(endpoint, path, request, None).and_then(read_answer);
            match answered {
                Ok(answer) => return Ok(answer),
                Err(why) => failure = why,
            }
            if !failure.is_certain && !can_be_repeated {
                break;
            }
        }
        Err(failure)
    }

    fn post(
        &self,
        endpoint: &str,
        path: &str,
        request: &Value,
        time: Option<Duration>,
    ) -> Result<ureq::http::Response<ureq::Body>, Failure> {
        let mut post = self.agent.post(format!("{endpoint}/v3/{path}"));
        if time.is_some() {
            post = post.config().timeout_global(time).build();
        }
        post.send(request.to_string()).map_err(|error| {
            let why = format!("{endpoint}: {error}");
            let is_certain = match error {
                ureq::Error::Io(error) => error.kind() == io::ErrorKind::ConnectionRefused,
                ureq::Error::Timeout(timeout) => matches!(timeout, Timeout::Connect | Timeout::Resolve),
                ureq::Error::HostNotFound | ureq::Error::ConnectionFailed | ureq::Error::BadUri(_) => true,
                _ => false,
            };
            Failure { why, is_certain }
        })
    }
}

fn first(range: Range) -> Result<Option<Key>, Failure> {
    let key = range.kvs.into_iter().next().map(|found| {
        found.key().ok_or_else(|| Failure { why: "the key is not encoded as etcd does".into(), is_certain: true })
    });
    key.transpose()
}

/// Reads what etcd answered. An error that it reports may come from a change that it has made.
fn read_answer<T: DeserializeOwned>(response: ureq::http::Response<ureq::Body>) -> Result<T, Failure> {
    let status = response.status();
    let uncertain = |why: String| Failure { why, is_certain: false };
    let text = response.into_body().read_to_string().map_err(|error| uncertain(error.to_string()))?;
    if !status.is_success() {
        // Requests that are wrong or not allowed are refused before anything is done.
        let is_certain = matches!(status.as_u16(), 400 | 401 | 403 | 404 | 413);
        return Err(Failure { why: format!("{status}: {text}"), is_certain });
    }
    serde_json::from_str(&text).map_err(|error| uncertain(error.to_string()))
}
