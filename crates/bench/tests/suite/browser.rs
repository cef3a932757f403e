//! A headless chromium, by the DevTools protocol over its pipe.

use std::{
    env, fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde_json::{Value, json};

/// A browser with one page.
pub(crate) struct Browser {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    profile: PathBuf,
    session: Value,
    calls: u64,
    /// What the page has told since it was last asked for.
    events: Vec<Value>,
}

/// What a browser's page fetched, and what it complained about.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Seen {
    pub(crate) requests: Vec<String>,
    pub(crate) complaints: Vec<String>,
}

impl Browser {
    /// Starts a chromium. `None` where there is none, with a word of it: `scripts/chromium/install`
    /// brings it, and where `DRTM_CHROMIUM` is set, it must be there.
    pub(crate) fn start(name: &str) -> Option<Self> {
        let version = Command::new("chromium").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if version.is_err() {
            assert!(env::var_os("DRTM_CHROMIUM").is_none(), "there is no chromium: scripts/chromium/install brings it");
            eprintln!("skipped: there is no chromium, and scripts/chromium/install brings it");
            return None;
        }
        let profile = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("chromium-{name}"));
        let _ = fs::remove_dir_all(&profile);
        // It reads commands from the third descriptor, and answers by the fourth.
        let mut child = Command::new("sh")
            .args(["-c", "exec chromium \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>/dev/null", "chromium"])
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let to = child.stdin.take().expect("a pipe");
        let from = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut browser = Self { child, to, from, profile, session: Value::Null, calls: 0, events: Vec::new() };
        let target = browser.call("Target.createTarget", &json!({"url": "about:blank"}))["targetId"].clone();
        let attached = browser.call("Target.attachToTarget", &json!({"targetId": target, "flatten": true}));
        browser.session = attached["sessionId"].clone();
        for domain in ["Page", "Network", "Log", "Runtime"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        Some(browser)
    }

    /// Calls a method, and returns its result.
    pub(crate) fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.calls += 1;
        let mut call = json!({"id": self.calls, "method": method, "params": parameters});
        if !self.session.is_null() {
            call["sessionId"] = self.session.clone();
        }
        self.to.write_all(format!("{call}\0").as_bytes()).expect("the browser takes commands");
        loop {
            let told = self.hear();
            if told["id"] == self.calls {
                assert!(told["error"].is_null(), "{method}: {told}");
                return told["result"].clone();
            }
            self.events.push(told);
        }
    }

    fn hear(&mut self) -> Value {
        let mut told = Vec::new();
        self.from.read_until(0, &mut told).expect("the browser answers");
        assert_eq!(told.pop(), Some(0), "the browser has ended");
        serde_json::from_slice(&told).expect("JSON")
    }

    /// Opens a file, and waits until all of it is loaded. Returns what was fetched, the page among
    /// it.
    pub(crate) fn open(&mut self, page: &Path) -> Seen {
        self.events.clear();
        self.call("Page.navigate", &json!({"url": format!("file://{}", page.display())}));
        while self.events.iter().all(|event| event["method"] != "Page.loadEventFired") {
            let event = self.hear();
            self.events.push(event);
        }
        // What was begun by then is told before this is answered.
        self.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done, 0)))");
        let mut seen = Seen::default();
        for event in self.events.drain(..) {
            let parameters = &event["params"];
            match event["method"].as_str() {
                Some("Network.requestWillBeSent") => seen.requests.push(parameters["request"]["url"].to_string()),
                Some("Log.entryAdded") => seen.complaints.push(parameters["entry"]["text"].to_string()),
                Some("Runtime.consoleAPICalled" | "Runtime.exceptionThrown") => {
                    seen.complaints.push(parameters.to_string());
                }
                _ => {}
            }
        }
        seen
    }

    /// Sets the width, and light or dark.
    pub(crate) fn look(&mut self, width: u32, scheme: &str) {
        let metrics = json!({"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600});
        self.call("Emulation.setDeviceMetricsOverride", &metrics);
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", &json!({"media": "", "features": features}));
    }

    /// Evaluates an expression of JavaScript, which the page's policy does not concern.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let parameters = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let evaluated = self.call("Runtime.evaluate", &parameters);
        assert!(evaluated["exceptionDetails"].is_null(), "{evaluated}");
        evaluated["result"]["value"].clone()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.profile);
    }
}
